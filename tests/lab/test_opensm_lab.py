# SPDX-License-Identifier: GPL-2.0-or-later
"""The real opensm, on a simulated fabric, against our grammar of partitions.conf.

What we accept, opensm accepts and does; what we refuse, opensm swallows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command_line import run
from support.host.partitions import SWALLOWED, VALID, definitions_of_files

from lab import simulated_fabric
from lab.simulated_fabric import SimulatedFabric
from ovirt_rdma.host.fabric.partitions_conf import (
    ALL,
    ALL_CAS,
    SELF,
    Definition,
    Member,
    PartitionsProblem,
    parse,
    render,
)
from ovirt_rdma.host.facts.infiniband import DEFAULT_PARTITION

HOSTS = ("hv1", "hv2", "hv3")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory) -> Iterator[SimulatedFabric]:
    folder = tmp_path_factory.mktemp("fabric")
    with simulated_fabric.running(simulated_fabric.fetched(), folder, HOSTS) as running:
        yield running


def table(definitions: tuple[Definition, ...], guid: int, *, manager: bool) -> set[int]:
    """Return the P_Key table that ``definitions`` mean for a host's port."""
    # opensm's own beginning of the default partition.
    found = {DEFAULT_PARTITION: manager}
    for definition in definitions:
        for member in definition.members:
            if _names(member, guid, manager=manager):
                # Without allow_both_pkeys, "both" is full.
                found[definition.pkey] = member.membership != "limited"
    return {pkey | 0x8000 if full else pkey for pkey, full in found.items()}


def _names(member: Member, guid: int, *, manager: bool) -> bool:
    if member.port == SELF:
        return manager
    if member.is_guid:
        return int(member.port, 16) == guid
    return member.port in (ALL, ALL_CAS)


def assert_meant(
    fabric: SimulatedFabric, text: bytes, *, warnings: bool = False
) -> None:
    """Assert that opensm does with ``text`` what we read in it.

    ``warnings``: it may warn. It does where it reads too far.
    """
    definitions = parse(text, "partitions.conf")
    swept = fabric.sweep(text)
    assert (swept.errors if warnings else swept.complaints) == []
    for number, (host, guid) in enumerate(fabric.guids.items()):
        assert swept.pkeys[host] == table(definitions, guid, manager=not number)


@pytest.mark.parametrize("text", VALID)
def test_opensm_does_what_we_read(fabric, text):
    assert_meant(fabric, text.encode(), warnings=True)
    assert_meant(fabric, render(parse(text.encode(), "")).encode())


@settings(max_examples=40)
@given(definitions_of_files(), st.data())
def test_opensm_does_what_we_write(fabric, definitions, data):
    own = data.draw(st.sampled_from([*fabric.guids.values()]))
    text = render(definitions).replace("0x0000000000100001", f"0x{own:016x}")
    assert_meant(fabric, text.encode())


@pytest.mark.parametrize(("id", "text"), SWALLOWED)
def test_opensm_swallows_what_we_refuse(fabric, id, text):
    swept = fabric.sweep(text.encode(), tables=False)
    assert swept.returncode == 0
    with pytest.raises(PartitionsProblem):
        parse(text.encode(), "partitions.conf")


def test_a_mistake_opens_the_fabric(fabric):
    """The reason for all this: one missing letter, and all ports may talk to all."""
    closed = "Default=0x7fff : ALL=limited, SELF=full;\nsecret=0x5 : SELF=full;\n"
    assert_meant(fabric, closed.encode())
    swept = fabric.sweep(f"{closed}x=0x6 : all;".encode())
    assert swept.is_default
    assert set(map(frozenset, swept.pkeys.values())) == {frozenset({0xFFFF})}


def test_members_of_a_mistyped_name_are_all_ports(fabric):
    swept = fabric.sweep(b"Default=0x7fff : ALL=full;\nsecret=0x5 : A=full;")
    assert swept.complaints == []
    assert all(0x8005 in pkeys for pkeys in swept.pkeys.values())


POLICY = """\
version: 1
fabric:
  defaults: {{mtu: 4096, rate: 10}}
  hosts: {{hv1: [{hv1:#x}], hv2: [{hv2:#x}], hv3: [{hv3:#x}]}}
  partitions:
    storage: {{pkey: 0x8001, members: [hv1, hv2=limited]}}
    v100: {{vlan: 100, members: [hv2, hv3], mtu: 2048}}
"""


def test_two_partitions_from_the_policy_to_the_subnet_administrator(fabric, capsys):
    policy, file = fabric.folder / "policy.yaml", fabric.folder / "made.conf"
    policy.write_text(POLICY.format(**fabric.guids))
    shown = run(capsys, "fabric", "partitions", "render", "--policy", str(policy))
    file.write_text(shown.out)
    valid = run(capsys, "fabric", "partitions", "validate", str(file))
    assert (valid.code, valid.out) == (0, f"{file} is valid: 3 partitions.\n")
    with fabric.manager("hv1", file):
        # The subnet administrator shows a host the groups of its partitions only.
        groups = fabric.run("hv2", "saquery", "-g")
    assert re.findall(r"(?:MGID|Mtu|Rate)\.+(\S+)", groups) == [
        *("ff12:401b:8001::ffff:ffff", "0x85", "0x83"),
        *("ff12:401b:8064::ffff:ffff", "0x84", "0x83"),
        *("ff12:401b:ffff::ffff:ffff", "0x84", "0x83"),
    ]
    assert [fabric.pkeys(host) for host in HOSTS] == [
        {0xFFFF, 0x8001},
        {0xFFFF, 0x0001, 0x8064},
        {0xFFFF, 0x8064},
    ]


def test_a_group_without_flags_takes_them_from_a_comment(fabric):
    """Why we always write one: opensm reads on in what an earlier line has left."""
    comment = "# 3456789012345,scope=5 , rate=7"
    text = f"Default=0x7fff : ALL=full;\na=0x1 :\n{comment}\n mgid=ff12::1\n ALL;"
    fabric.sweep(text.encode())
    assert _groups(fabric, text)[0] != ipaddress.IPv6Address("ff12::1")
    written = render(parse(text.replace(comment, "").encode(), ""))
    assert _groups(fabric, written) == [ipaddress.IPv6Address("ff12::1")]


def _groups(fabric: SimulatedFabric, text: str) -> list[ipaddress.IPv6Address]:
    file = fabric.folder / "resident.conf"
    file.write_text(text)
    with fabric.manager("hv1", file):
        shown = fabric.run("hv2", "saquery", "-g")
    return [ipaddress.IPv6Address(gid) for gid in re.findall(r"MGID\.+(\S+)", shown)]
