# SPDX-License-Identifier: GPL-2.0-or-later
"""Warnings about partitions.conf, and the ports of a recorded topology."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.fabric.decisions import remarks
from ovirt_rdma.host.fabric.partitions_conf import parse
from ovirt_rdma.host.fabric.subnet import fabric_guids

DATA = Path(__file__).parents[2] / "data"
TOPOLOGY = (DATA / "fabric/ibnetdiscover.txt").read_text()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a=0x1 : ALL;", ["default-partition-undefined"]),
        ("Default=0x7fff : ALL=full;", ["default-partition-without-ipoib"]),
        ("Default=0x7fff,ipoib : ALL;", ["default-partition-limited"]),
        ("Default=0x7fff,ipoib : ALL, SELF=full;", ["default-partition-limited"]),
        ("Default=0x7fff,ipoib : ALL=full;\na=0x1,mtu=5 : 0x1;", []),
    ],
)
def test_a_default_partition_that_keeps_ports_apart_is_a_warning(text, ids):
    assert [one.id for one in remarks(parse(text.encode(), "p.conf"))] == ids


def test_the_ports_of_a_topology():
    guids = {"0x00002c9030000011", "0x00002c9030000021", "0x00002c9030000031"}
    assert fabric_guids(TOPOLOGY) == guids


def test_other_text_is_no_topology():
    with pytest.raises(ValueError, match="no port"):
        fabric_guids("Default=0x7fff : ALL=full;")


@given(st.lists(st.sampled_from([*TOPOLOGY.splitlines(), "", "[", 'Ca 1 "'])))
def test_any_part_of_a_topology_is_read(lines):
    try:
        assert fabric_guids("\n".join(lines)) <= fabric_guids(TOPOLOGY)
    except ValueError:
        return
