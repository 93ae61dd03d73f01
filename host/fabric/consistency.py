# SPDX-License-Identifier: GPL-2.0-or-later
"""Find mistakes between the definitions of partitions.conf. Pure.

opensm joins definitions of one P_Key. The first name and the first broadcast group
win, the last service level and the last membership of a port: what is written before
or after is without effect, and opensm does not report it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import (
    ALL,
    ALL_CAS,
    DEFAULT_NAME,
    Definition,
    Group,
    Member,
    by_pkey,
)
from ovirt_rdma.host.fabric.multicast import is_ip, pkey_in, scope_of
from ovirt_rdma.host.facts.pkeys import DEFAULT_PARTITION, full_member_bits

Found = Iterator[tuple[int, Sentence]]

# opensm's default scope.
_LINK_LOCAL = 2
# Of the broadcast group, in a definition with ipoib.
_FLAGS = ("mtu", "rate", "q_key", "tclass", "flow_label")


def mistakes_between(definitions: Sequence[Definition]) -> Found:
    """Yield line and sentence of each mistake."""
    yield from _names(definitions)
    for same in by_pkey(definitions).values():
        yield from _joined(same)
        yield from _memberships(same)
        yield from _groups(same)
        if not any(one.members for one in same):
            sentence = (
                f"{same[0].title} has no member, so that opensm removes the partition"
            )
            yield same[0].line, Sentence("partition-empty", sentence)


def _names(definitions: Sequence[Definition]) -> Found:
    default = Definition(DEFAULT_NAME, DEFAULT_PARTITION)
    keys: dict[str, Definition] = {DEFAULT_NAME: default}
    names: dict[int, Definition] = {}
    for one in definitions:
        if one.name:
            first = keys.setdefault(one.name, one)
            if first.pkey != one.pkey:
                yield (
                    one.line,
                    Sentence(
                        "partition-name-repeated",
                        f"{one.title} has the name of {first.title}; give it another",
                    ),
                )
        earlier = names.setdefault(one.pkey, one)
        if earlier.name != one.name:
            yield (
                one.line,
                Sentence(
                    "pkey-repeated",
                    f"{one.title} is the same partition as {earlier.title} in line "
                    f"{earlier.line}; opensm joins them, so give it its own P_Key or "
                    "the same name",
                ),
            )


def _joined(same: Sequence[Definition]) -> Found:
    first_ipoib = next((one for one in same if one.ipoib), None)
    for one in same[1:]:
        differ = []
        if (one.flags.sl or 0) != (same[0].flags.sl or 0):
            differ.append("sl")
        if one.ipoib and first_ipoib is not None:
            differ += [
                flag for flag in _FLAGS if _used(one, flag) != _used(first_ipoib, flag)
            ]
        if differ:
            yield (
                one.line,
                Sentence(
                    "definitions-differ",
                    f"{one.title} is defined in line {same[0].line} too, with another "
                    f"{', '.join(differ)}; opensm uses one of the two",
                ),
            )


def _used(one: Definition, flag: str) -> object:
    if flag in ("mtu", "rate"):
        return getattr(one.flags, f"used_{flag}")
    return getattr(one.flags, flag) or 0


def _memberships(same: Sequence[Definition]) -> Found:
    # What comes after, by port and membership: the first of each.
    after: dict[str, dict[str, tuple[int, Member]]] = {}
    number = 0
    for one in reversed(same):
        here: set[Member] = set()
        found = []
        for member in reversed(one.members):
            over = [
                later
                for port in _covering(member)
                for membership, later in after.get(port, {}).items()
                if membership != member.membership
            ]
            if over:
                sentence = (
                    f"{member} of {one.title} is without effect, because "
                    f"{max(over, key=_number)[1]} comes after it and opensm uses the "
                    "last; write it last"
                )
                found.append((one.line, Sentence("member-overridden", sentence)))
            elif member in here:
                sentence = f"{member.port} is twice in {one.title}"
                found.append((one.line, Sentence("member-repeated", sentence)))
            number += 1
            after.setdefault(member.port, {})[member.membership] = (number, member)
            here.add(member)
        yield from reversed(found)


def _number(later: tuple[int, Member]) -> int:
    return later[0]


def _covering(member: Member) -> set[str]:
    """Return the ports whose members are all, or may be, that of ``member`` too."""
    # Ports with a GUID in the file, and that of the subnet manager, are hosts' ports.
    hosts = {ALL_CAS} if member.is_guid or member.port == "SELF" else set()
    return {member.port, ALL, *hosts}


def _groups(same: Iterable[Definition]) -> Found:
    seen: dict[str, Group] = {}
    ipoib = False
    for one in same:
        ipoib |= one.ipoib
        for group in one.groups:
            flags = group.flags.over(one.flags)
            if seen.setdefault(group.mgid, group).flags != group.flags:
                yield (
                    one.line,
                    Sentence(
                        "group-repeated",
                        f"mgid={group.mgid} of {one.title} is given twice, with "
                        "other flags; opensm uses the first",
                    ),
                )
            # opensm adds the group's scopes to those of the definition.
            scopes = {*one.flags.scopes, *group.flags.scopes} or {_LINK_LOCAL}
            if scope_of(group.mgid) not in scopes:
                yield (
                    one.line,
                    Sentence(
                        "group-scope-differs",
                        f"mgid={group.mgid} has scope {scope_of(group.mgid)}, and "
                        f"opensm puts scope {min(scopes)} there; write "
                        f"scope={scope_of(group.mgid)}",
                    ),
                )
            if not is_ip(group.mgid):
                continue
            # The broadcast group always has scope 2, whatever the definition says.
            if not ipoib or scopes != {_LINK_LOCAL}:
                yield (
                    one.line,
                    Sentence(
                        "group-without-broadcast",
                        f"mgid={group.mgid} needs the IPoIB broadcast group of "
                        f"{one.title} with the same scope, which is always 2; "
                        "write ipoib in the definition, and ff12",
                    ),
                )
            pkey = pkey_in(group.mgid)
            if pkey not in (None, full_member_bits(one.pkey)):
                yield (
                    one.line,
                    Sentence(
                        "group-pkey-differs",
                        f"mgid={group.mgid} has the P_Key 0x{pkey:04x}, and the "
                        f"partition is {one.pkey_text}; opensm leaves the group out",
                    ),
                )
            if (flags.used_mtu, flags.used_rate) != (
                one.flags.used_mtu,
                one.flags.used_rate,
            ):
                yield (
                    one.line,
                    Sentence(
                        "group-differs",
                        f"mgid={group.mgid} has another MTU or rate than the "
                        f"definition of {one.title}; opensm leaves the group out",
                    ),
                )
