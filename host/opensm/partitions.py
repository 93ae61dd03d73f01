# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide how partitions.conf is written, and whether the fabric is as it says. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import (
    ALL,
    ALL_CAS,
    DEFAULT_NAME,
    SELF,
    WORDS,
    Definition,
    GroupFlags,
    Member,
    by_pkey,
    guid_text,
)
from ovirt_rdma.host.fabric.render import render
from ovirt_rdma.host.facts.ib_codes import group_text, mtu_code, rate_code
from ovirt_rdma.host.facts.pkeys import (
    DEFAULT_PARTITION,
    FULL,
    LIMITED,
    full_member,
    full_member_bits,
    partition_bits,
)
from ovirt_rdma.host.opensm.processes import OpensmProcess
from ovirt_rdma.host.opensm.replies import BroadcastGroup
from ovirt_rdma.host.policy.fabric import FabricPolicy, PartitionRule
from ovirt_rdma.host.rules.base import LIVE, OPENSM_FILE, Change, Step

RULE = "FABRIC-PARTITIONS-01"
_HEAD = (
    "Partitions of the InfiniBand fabric, for opensm.",
    "Made from the policy of ovirt-rdma by: ovirt-rdma-host fabric partitions render",
    "To keep the file as it is, add a line that reads: # mine",
)


def definitions_of(fabric: FabricPolicy) -> tuple[Definition, ...]:
    """Return the definitions that the policy describes; none without partitions.

    The default partition is always the first: without a definition, opensm makes all
    ports but its own limited members, and no broadcast group.
    """
    found = [_definition(rule, fabric) for rule in fabric.partitions]
    if found and all(one.pkey != DEFAULT_PARTITION for one in found):
        everyone = (Member(ALL, FULL),)
        found.append(
            Definition(DEFAULT_NAME, DEFAULT_PARTITION, True, members=everyone)
        )
    return tuple(sorted(found, key=lambda one: one.pkey != DEFAULT_PARTITION))


def _definition(rule: PartitionRule, fabric: FabricPolicy) -> Definition:
    members: list[Member] = []
    for text in rule.members:
        who, _, membership = text.rpartition("=")
        if who in WORDS:
            members.append(Member(who, membership))
            continue
        for guid in fabric.guids_of(who) or (who,):
            number = int(guid.replace(":", ""), 16)
            members.append(Member(guid_text(number), membership))
    flags = GroupFlags(
        mtu=None if rule.mtu is None else mtu_code(rule.mtu),
        rate=None if rule.rate is None else rate_code(rule.rate),
    )
    return Definition(
        rule.name,
        partition_bits(int(rule.pkey, 16)),
        rule.ipoib,
        flags=flags,
        members=tuple(sorted(members, key=_order)),
    )


def _order(member: Member) -> int:
    # The last membership of a port counts in opensm: what names many comes first.
    if member.is_guid:
        return len(WORDS)
    return len(WORDS) - 1 if member.port == SELF else WORDS.index(member.port)


def text_of(definitions: Sequence[Definition]) -> str:
    """Return partitions.conf with ``definitions``, below a comment on its origin."""
    return render(definitions, _HEAD)


def step_of(
    path: str, before: Optional[str], definitions: Sequence[Definition]
) -> Optional[Step]:
    """Return the step that writes ``definitions`` to ``path``; None if ``before``, its
    present text, is that already.
    """
    after = text_of(definitions)
    if before == after:
        return None
    number = len({one.pkey for one in definitions})
    return Step(
        rule=RULE,
        subject="host",
        sentence=f"write {path}",
        before="no file" if before is None else "another text",
        after=f"{number} partition{'' if number == 1 else 's'}",
        effect=LIVE,
        reason=f"the policy describes the partitions of the fabric; {path} differs",
        source="opensm(8), PARTITION CONFIGURATION",
        undo="the earlier text is written again",
        changes=(Change(OPENSM_FILE, path, before, after),),
    )


def reads_another(
    processes: Iterable[OpensmProcess], path: str
) -> Optional[OpensmProcess]:
    """Return a process whose settings name another file than ``path``."""
    return next((p for p in processes if p.partitions not in (None, path)), None)


def membership(
    definitions: Iterable[Definition], guid: str, *, manager: bool
) -> dict[int, str]:
    """Return the partitions of the host's port ``guid`` by P_Key (15 bits), as FULL or
    LIMITED. ``manager``: opensm runs at it.

    The last definition that names the port counts (osm_prtn_add_port, opensm 3.3.23).
    """
    found: dict[int, str] = {}
    for one in definitions:
        for member in one.members:
            everyone = member.port in (ALL, ALL_CAS)
            if everyone or member.port == guid or (manager and member.port == SELF):
                limited = member.membership == LIMITED
                found[one.pkey] = LIMITED if limited else FULL
    return found


def named_guids(definitions: Iterable[Definition]) -> tuple[str, ...]:
    """Return the GUIDs that ``definitions`` name, each once."""
    members = (member for one in definitions for member in one.members)
    return tuple(dict.fromkeys(m.port for m in members if m.is_guid))


def unlike(
    definitions: Sequence[Definition],
    groups: Optional[Sequence[BroadcastGroup]],
    tables: Mapping[str, Optional[Collection[int]]],
    managers: Collection[str],
    asked_by: str,
) -> tuple[Sentence, ...]:
    """Return how the fabric differs from ``definitions``, one sentence each.

    ``groups`` are the broadcast groups that the port ``asked_by`` can see, None if they
    are unknown: opensm shows a port only those of its own partitions. ``tables`` has
    the P_Key tables of ports, None for one that is not in the fabric. ``managers`` are
    the GUIDs of the ports with opensm.
    """
    own = membership(definitions, asked_by, manager=asked_by in managers)
    visible = [one for one in definitions if one.pkey in own]
    found = [] if groups is None else list(_of_groups(visible, groups))
    for guid, table in tables.items():
        if table is not None:
            wanted = membership(definitions, guid, manager=guid in managers)
            found += _of_table(guid, wanted, table)
    return tuple(found)


def _of_groups(
    definitions: Sequence[Definition], groups: Sequence[BroadcastGroup]
) -> Iterator[Sentence]:
    present = {group.pkey: group for group in groups}
    for pkey, ones in by_pkey(definitions).items():
        one = next((one for one in ones if one.ipoib), None)
        if one is None:
            continue
        group = present.get(pkey)
        mtu, rate = one.flags.used_mtu, one.flags.used_rate
        if group is None:
            yield Sentence(
                "broadcast-group-missing", f"{one.title} has no broadcast group"
            )
        elif (group.mtu, group.rate) != (mtu, rate):
            # osm_mcmr_rcv_find_or_create_new_mgrp() returns the group that exists.
            yield Sentence(
                "broadcast-group-differs",
                f"the broadcast group of {one.title} has "
                f"{group_text(group.mtu, group.rate)}, not {group_text(mtu, rate)}; "
                "opensm keeps the MTU and rate of a group as long as a port is in it",
            )


def _of_table(
    guid: str, wanted: Mapping[int, str], table: Collection[int]
) -> Iterator[Sentence]:
    for pkey, kind in wanted.items():
        full = full_member_bits(pkey)
        if (full if kind == FULL else pkey) not in table:
            other = "is no member" if not {pkey, full} & set(table) else "is not that"
            yield Sentence(
                "port-not-member",
                f"{guid} should be a {kind} member of {full_member(pkey)}, and {other}",
            )
    for pkey in sorted({partition_bits(one) for one in table} - wanted.keys()):
        # opensm always makes every port at least a limited member of the default one.
        if pkey != DEFAULT_PARTITION:
            yield Sentence(
                "port-is-member",
                f"{guid} is a member of {full_member(pkey)}, and should not be",
            )
