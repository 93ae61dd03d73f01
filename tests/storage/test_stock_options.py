# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the warnings about options that stock VDSM passes on."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.export import MountOptions
from ovirt_rdma.storage.transport import stock_warnings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", []),
        ("tcp,port=2049,nconnect=4", []),
        ("rdma,port=20049", ["without a rule"]),
        ("proto=rdma6,port=20049", ["without a rule"]),
        ("rdma,tcp", ["would silently use tcp"]),
        ("hard,soft", ["would silently use soft"]),
    ],
)
def test_warnings(options, words):
    found = stock_warnings(MountOptions.parse(options))
    assert len(found) == len(words)
    for sentence, part in zip(found, words):
        assert part in sentence
