# SPDX-License-Identifier: GPL-2.0-or-later
"""Warnings about partitions.conf, and the ports of a recorded topology."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.fabric.partitions import ports_of, remarks
from ovirt_rdma.host.fabric.partitions_conf import parse
from ovirt_rdma.host.fabric.subnet import FabricPort, fabric_ports
from ovirt_rdma.host.facts.model import load

DATA = Path(__file__).parents[2] / "data"
TOPOLOGY = (DATA / "fabric/ibnetdiscover.txt").read_text()
DEFAULT = "Default=0x7fff,ipoib : ALL=full;\n"
SLOW = FabricPort("0x0000000000000005", "hv5 port 1", 5000)
SMALL = FabricPort("0x0000000000000006", "hv6 port 1", 40000, 2048)


def ids(text: str, *ports: FabricPort, whole: bool = False) -> list[str]:
    definitions = parse(text.encode(), "p.conf")
    return [one.id for one in remarks(definitions, ports, whole=whole)]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("a=0x1 : ALL;", "default-partition-undefined"),
        ("Default=0x7fff : ALL=full;", "default-partition-without-ipoib"),
        ("Default=0x7fff,ipoib : ALL;", "default-partition-limited"),
        ("Default=0x7fff,ipoib : ALL, SELF=full;", "default-partition-limited"),
        (DEFAULT + "a=0x1 : ALL=both;", "both-needs-setting"),
        (DEFAULT + "a=0x1,sl=3 : ALL;", "sl-needs-setting"),
        (DEFAULT + "a=0x1,ipoib,rate=23 : 0x1;", "rate-needs-opensm"),
    ],
)
def test_what_may_not_be_meant_is_a_warning(text, id):
    assert ids(text) == [id]


def test_nothing_is_said_of_a_plain_file():
    fast = FabricPort("0x0000000000000001", "hv1 port 1", 40000, 4096)
    text = DEFAULT + "a=0x1,ipoib,mtu=5,rate=7,sl=0 : 0x1=full;"
    assert ids(text, fast, whole=True) == []


def test_a_guid_is_unknown_only_if_all_ports_are_known():
    text = DEFAULT + "a=0x1 : 0x9;"
    assert ids(text, FabricPort("0x1", "hv1")) == []
    assert ids(text, FabricPort("0x1", "hv1"), whole=True) == ["guid-unknown"]


@pytest.mark.parametrize(
    ("text", "port", "found"),
    [
        (DEFAULT, SLOW, ["port-cannot-join"]),
        (DEFAULT + "a=0x1,ipoib,mtu=5,rate=7 : 0x6;", SMALL, ["port-cannot-join"]),
        (DEFAULT + "a=0x1,mtu=5 : 0x6;", SMALL, []),  # without a broadcast group
        (DEFAULT + "a=0x1,ipoib,mtu=5 : 0x7;", SMALL, []),  # not a member
    ],
)
def test_a_port_that_is_too_slow_or_small_cannot_join(text, port, found):
    assert ids(text, port) == found


def test_ports_with_the_same_lack_are_one_sentence():
    ports = [FabricPort(f"0x{n}", f"hv{n} port 1", 5000) for n in range(3)]
    (sentence,) = remarks(parse(DEFAULT.encode(), "p.conf"), [*ports, SMALL])
    assert sentence == (
        "hv0 port 1 (0x0) has 5 Gb/s, not 10, and cannot join the broadcast group of "
        "Default (0xffff), nor can 2 more with that; IPoIB has no carrier there"
    )


def test_the_ports_of_a_topology():
    assert [(port.name, port.rate_mbps) for port in fabric_ports(TOPOLOGY)] == [
        ("nas1 port 1", 10000),
        ("hv2 port 1", 10000),
        ("hv1 port 1", 10000),
    ]
    assert fabric_ports(TOPOLOGY)[2].guid == "0x00002c9030000011"


def test_a_rate_of_a_topology_is_the_signalling_rate():
    for text, rate in (("4xFDR", 56000), ("1xHDR", 50000), ("4x???", None)):
        (port, *_) = fabric_ports(TOPOLOGY.replace("4xSDR", text))
        assert port.rate_mbps == rate


def test_the_ports_of_a_host():
    up, down = ports_of(load(str(DATA / "facts/connectx3-ib.json")))
    assert (up.guid, up.rate_mbps) == ("0x0002c90300fb1231", 40000)
    assert down.rate_mbps is None


def test_other_text_is_no_topology():
    with pytest.raises(ValueError, match="no node"):
        fabric_ports("Default=0x7fff : ALL=full;")


@given(st.lists(st.sampled_from([*TOPOLOGY.splitlines(), "", "[", 'Ca 1 "'])))
def test_any_part_of_a_topology_is_read(lines):
    try:
        ports = fabric_ports("\n".join(lines))
    except ValueError:
        return
    assert {port.guid for port in ports} <= {p.guid for p in fabric_ports(TOPOLOGY)}
