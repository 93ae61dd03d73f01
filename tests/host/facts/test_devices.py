# SPDX-License-Identifier: GPL-2.0-or-later
"""Values and the graph of netdevs that facts are made of."""

from __future__ import annotations

import pytest
from support.host.ipoib_host import child, netdev

from ovirt_rdma.host.facts.devices import Guid, NetdevGraph

ADDRESS = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31"


def test_a_guid_is_at_the_end_of_address_and_gid():
    guid = Guid.of_address(ADDRESS.upper())
    assert guid == Guid.of_gid("fe80:0000:0000:0000:0002:c903:00fb:1231")
    assert (guid.in_groups, guid.assigned) == ("0002:c903:00fb:1231", True)


@pytest.mark.parametrize("address", ["", "02:00:00:00:00:01", "lo"])
def test_other_netdevs_have_no_guid(address):
    assert Guid.of_address(address) is None


def test_vfs_without_a_guid_have_0():
    assert not Guid.of_gid("fe80:0000:0000:0000:0000:0000:0000:0000").assigned


def test_what_is_stacked_on_what():
    graph = NetdevGraph(
        [
            netdev("ib0", uppers=("bond0",)),
            child("ib0.8001", uppers=("bond1",)),
            netdev("bond0", lowers=("ib0", "ib1"), uppers=("br",)),
            # A circle, which only a damaged facts file has.
            netdev("br", lowers=("bond0",), uppers=("bond0",)),
        ]
    )
    assert graph.above("ib0") == ("ib0", "bond0", "ib0.8001", "bond1", "br")
    assert graph.carriers("ib0") == ("ib0", "bond0", "br")
    assert graph.below("br") == ("br", "bond0", "ib0", "ib1")
    assert graph.above("gone", "br") == ("gone", "br", "bond0")
