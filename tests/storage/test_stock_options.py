# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the warnings about options that stock VDSM passes on."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ovirt_rdma.host.export import MountOptions
from ovirt_rdma.storage.transport import stock_warnings


@pytest.mark.parametrize(
    ("options", "address", "words"),
    [
        ("", None, []),
        ("tcp,port=2049,nconnect=4", "10.0.0.1", []),
        ("proto=tcp6", "fd00::1", []),
        ("rdma,port=20049", "10.0.0.1", ["without a rule", "two minutes"]),
        ("proto=rdma6,port=20049", "fd00::1", ["without a rule", "two minutes"]),
        ("rdma,port=20049", None, ["without a rule", "two minutes"]),
        ("rdma", None, ["without a rule", "two minutes"]),
        (
            "rdma,port=20049",
            "fd00::1",
            ["without a rule", "two minutes", "write proto=rdma6"],
        ),
        (
            "proto=rdma6,port=1",
            "10.0.0.1",
            ["without a rule", "two minutes", "write proto=rdma"],
        ),
        ("rdma,port=20049,retry=0", None, ["without a rule"]),
        ("port=20049", None, ["the transport is TCP"]),
        ("proto=tcp,port=20049", None, ["the transport is tcp"]),
        ("rdma,tcp", None, ["would silently use tcp"]),
        ("hard,soft", None, ["would silently use soft"]),
    ],
)
def test_warnings(options, address, words):
    engine = MountOptions.parse(options)
    found = stock_warnings(engine, ip_address(address) if address else None)
    assert len(found) == len(words)
    for sentence, part in zip(found, words):
        assert part in sentence
