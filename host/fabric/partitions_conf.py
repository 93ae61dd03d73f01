# SPDX-License-Identifier: GPL-2.0-or-later
"""Read opensm's partitions.conf strictly, all mistakes at once, and write it. Pure.

opensm takes what it does not understand as something else, or leaves it out, and makes
every port a full member of the default partition where it cannot: it matches names by
their beginning (``A`` is ``ALL``, ``s=3`` a scope), takes an unknown membership for
``limited`` and an empty one for ``full``, and cuts numbers to their lowest bits. A
wrong MTU or rate leaves the partition without its broadcast group, so that IPoIB never
gets a carrier. All that is refused here. What is accepted, opensm accepts with the same
meaning.

Source: opensm/osm_prtn_config.c (linux-rdma/opensm, 3.3.24), tried with 3.3.23.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts import infiniband
from ovirt_rdma.host.facts.infiniband import (
    ALL,
    ALL_CAS,
    DEFAULT_NAME,
    DEFAULT_PARTITION,
    LIMITED,
    LONGEST_NAME,
    MEMBERSHIPS,
    PORT_WORDS,
    SELF,
    full_member,
    full_member_bits,
    partition_bits,
)
from ovirt_rdma.host.policy.forms import Diagnostic, PolicyProblem
from ovirt_rdma.host.system.text import whole

# fgets() into 4096 bytes, of which it uses one less: a longer line is read as two.
LONGEST_LINE = 4094

_IPOIB, _INDX0, _DEFMEMBER = _WORDS = ("ipoib", "indx0", "defmember")
# The flags with a number: the smallest and the largest. 0 stands for the default of a
# Q_Key and a traffic class. The scope is that of all groups of IPoIB in Linux
# (ipoib_main.c, ipv4_bcast_addr).
_NUMBERS = {
    "mtu": (1, 5),
    "rate": (2, 24),
    "scope": (2, 2),
    "Q_Key": (1, 0xFFFFFFFF),
    "TClass": (1, 0xFF),
    "sl": (0, 15),
    "FlowLabel": (0, 0xFFFFF),
}
_SHOWN = ", ".join(
    f"{name}={low} to {high}" if low != high else f"{name}={low}"
    for name, (low, high) in _NUMBERS.items()
)
_CODES = {"mtu": infiniband.MTU_CODES, "rate": infiniband.RATE_CODES}
_OF_HEAD = f"ipoib, indx0, defmember={'|'.join(MEMBERSHIPS)}"
# OSM_DEFAULT_MGRP_MTU and OSM_DEFAULT_MGRP_RATE (osm_base.h): 2048 bytes, 10 Gb/s.
_DEFAULTS = {"mtu": 4, "rate": 3, "sl": 0, "FlowLabel": 0}

_PRINTABLE = re.compile(r"[\t\x20-\x7e]*")
_NAME = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

# RFC 4391 section 4: ff12:401b:8001::ffff:ffff is the IPv4 broadcast group of the
# partition 0x8001, with scope 2. 0xa01b are groups that the subnet manager gives out.
_SCOPE_2 = 0xFF12
_IPV4, _IPV6, _SA_ASSIGNED = 0x401B, 0x601B, 0xA01B


@dataclass(frozen=True)
class Member:
    """A port of a partition: one of PORT_WORDS, or a GUID such as
    ``0x0002c90300fb1231``. ``membership`` is one of MEMBERSHIPS.
    """

    port: str
    membership: str

    @property
    def is_guid(self) -> bool:
        """Whether it is one port."""
        return self.port not in PORT_WORDS

    def __str__(self) -> str:
        return f"{self.port}={self.membership}"


@dataclass(frozen=True)
class Group:
    """A multicast group that opensm creates: ``mgid`` as ``ff12:401b::1``. ``flags`` as
    in Definition; there is at least one.
    """

    mgid: str
    flags: Mapping[str, int]


@dataclass(frozen=True)
class Definition:
    """One definition of the file. Several may be about one partition.

    ``pkey`` has 15 bits, ``name`` may be empty. With ``ipoib`` opensm creates the
    broadcast group, with ``flags``: numbers by their names in the file (``mtu``,
    ``rate``, ``sl``, ``Q_Key``, ``TClass``, ``FlowLabel``), MTU and rate as codes
    (:mod:`~ovirt_rdma.host.facts.infiniband`). ``indx0`` puts the P_Key at index 0 of
    the table. ``line`` is where it begins, 0 if it is not from a file.
    """

    name: str
    pkey: int
    ipoib: bool = False
    indx0: bool = False
    flags: Mapping[str, int] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    groups: tuple[Group, ...] = ()
    line: int = field(default=0, compare=False)

    @property
    def title(self) -> str:
        """The partition in sentences: ``storage (0x8001)``."""
        pkey = full_member(self.pkey)
        return f"{self.name} ({pkey})" if self.name else pkey

    @property
    def used_flags(self) -> Mapping[str, int]:
        """The flags that opensm uses: those of the file over its defaults."""
        return {**_DEFAULTS, **self.flags}

    @property
    def mtu(self) -> int:
        """The code of the MTU that opensm uses."""
        return self.used_flags["mtu"]

    @property
    def rate(self) -> int:
        """The code of the rate that opensm uses."""
        return self.used_flags["rate"]


def guid_text(guid: Union[int, str]) -> str:
    """Return a GUID, a number or as the facts have it, as partitions.conf has it:
    ``0x0002c90300fb1231``.
    """
    number = guid if isinstance(guid, int) else int(guid.replace(":", ""), 16)
    return f"0x{number:016x}"


def by_pkey(definitions: Iterable[Definition]) -> dict[int, list[Definition]]:
    """Return the definitions of each partition, in their order."""
    found: dict[int, list[Definition]] = {}
    for definition in definitions:
        found.setdefault(definition.pkey, []).append(definition)
    return found


_HEAD = (
    "Partitions of the InfiniBand fabric, for opensm.",
    "Made from the policy of ovirt-rdma by: ovirt-rdma-host fabric partitions render",
    "To keep the file as it is, add a line that reads: # mine",
)


def render(definitions: Iterable[Definition]) -> str:
    """Return the text of the file, below a comment on its origin.

    :func:`parse` reads the same definitions from it. One member a line, so that no line
    reaches opensm's limit; each member with its membership, so that none depends on a
    default.
    """
    lines = [f"# {line}" for line in _HEAD]
    for one in definitions:
        lines.append("")
        if one.ipoib:
            text = infiniband.group_text(one.mtu, one.rate)
            lines.append(f"# IPoIB broadcast group: {text}")
        words = [_INDX0] * one.indx0 + [_IPOIB] * one.ipoib + _flag_words(one.flags)
        lines.append(f"{','.join([f'{one.name}=0x{one.pkey:04x}', *words])} :")
        lines += [
            f"    mgid={','.join([group.mgid, *_flag_words(group.flags)])}"
            for group in one.groups
        ]
        lines += [f"    {member}," for member in one.members]
        # A ; at the begin of a line ends more than the definition (semicolon-first).
        lines[-1] = lines[-1].rstrip(",") + ";"
    return "\n".join(lines) + "\n"


def _flag_words(flags: Mapping[str, int]) -> list[str]:
    return [f"{name}={flags[name]}" for name in _NUMBERS if name in flags]


INVALID_FIX = (
    "correct the file; opensm itself does not report such mistakes by its exit code, "
    "and after some of them it makes every port a full member of the default partition"
)


class PartitionsProblem(PolicyProblem):
    """The file is invalid; ``errors`` has all mistakes, sorted by line."""

    kind = "partitions-invalid"


def parse(data: bytes, where: str) -> tuple[Definition, ...]:
    """Return the definitions in ``data``; ``where`` names the file in sentences.

    Raises PartitionsProblem with all mistakes.
    """
    reader = _Reader()
    reader.read(data)
    mistakes = reader.mistakes or [*mistakes_between(reader.definitions)]
    if mistakes:
        found = sorted(set(mistakes), key=lambda one: (one.line or 0, one.sentence))
        raise PartitionsProblem(where, tuple(found), INVALID_FIX)
    return tuple(reader.definitions)


def _mistake(line: Optional[int], id: str, text: str) -> Diagnostic:
    return Diagnostic(line, "", Sentence(id, text))


def _pair(word: str) -> tuple[str, str, str]:
    name, equals, value = word.partition("=")
    return name.strip(), equals, value.strip()


class _Reader:
    """Reads as opensm does: a definition ends at a semicolon, and its head is on one
    line.
    """

    def __init__(self) -> None:
        self.definitions: list[Definition] = []
        self.mistakes: list[Diagnostic] = []
        self._line: Optional[int] = None
        # Of the definition that is read; the membership is that of members without one.
        self._membership = LIMITED
        self._members: list[Member] = []
        self._groups: list[Group] = []
        # Where each line ends, or its comment begins, and the last = in a comment up to
        # it: see _group().
        self._lengths: dict[int, tuple[int, int]] = {}

    def _no(self, id: str, text: str) -> None:
        self.mistakes.append(_mistake(self._line, id, text))

    def read(self, data: bytes) -> None:
        """Read the file."""
        parts: list[tuple[int, str]] = []
        equals = -1
        for number, line in enumerate(data.split(b"\n"), 1):
            self._line = number
            content, _, comment = line.partition(b"#")
            if b"=" in comment:
                equals = max(equals, line.rindex(b"="))
            self._lengths[number] = len(content), equals
            *ended, rest = self._checked(line, content).split(";")
            for position, part in enumerate(ended, 1):
                self._definition([*parts, (number, part)], ended=True)
                parts = []
                if "mgid" in part and "".join([*ended[position:], rest]).strip():
                    self._no(
                        "definition-after-group",
                        "has a definition after a multicast group; begin it on a new "
                        "line, because opensm may read it as flags of the group",
                    )
            if rest.strip():
                parts.append((number, rest))
        if parts:
            self._definition(parts, ended=False)
            self._line = parts[0][0]
            self._no("definition-not-ended", "the definition has no ; at its end")
        elif not self.definitions and not self.mistakes:
            self._line = None
            self._no(
                "no-definition",
                "has no definition; opensm then makes every port a full member of the "
                "default partition",
            )

    def _checked(self, line: bytes, content: bytes) -> str:
        if len(line) + 1 > LONGEST_LINE:
            self._no(
                "line-too-long",
                f"has {len(line)} bytes, and opensm reads a line of more than "
                f"{LONGEST_LINE - 1} as two; break it",
            )
        text = content.decode("latin-1")
        if b"\0" not in line and _PRINTABLE.fullmatch(text):
            return text
        self._no(
            "character-not-allowed",
            "has a character that is not printable ASCII, such as a carriage return; "
            "opensm takes it as a part of a name",
        )
        return ""

    def _definition(self, parts: Sequence[tuple[int, str]], *, ended: bool) -> None:
        """Read what is up to a semicolon, ``parts`` by line."""
        self._line, first = parts[0]
        begin = self._line
        text, colon, body = first.partition(":")
        if not colon:
            if text.strip():
                self._no(
                    "colon-missing",
                    f"{text.strip()!r} is no definition; write NAME=P_KEY,flags : "
                    "members ; with the colon on the first line",
                )
            else:
                self._no("semicolon-alone", "has a ; without a definition before it")
            return
        self._membership, self._members, self._groups = LIMITED, [], []
        head = self._head(text)
        lines = [(begin, body), *parts[1:]]
        for self._line, part in lines:
            last = ended and (self._line, part) == lines[-1]
            words = [word.strip() for word in part.split(",")]
            if not words[-1] and not last:
                words.pop()  # the list continues in the next line
            if words == [""] and len(parts) > 1:
                self._no(
                    "semicolon-first",
                    "begins with a ; behind which opensm reads on in what an earlier "
                    "line has left; write it after the last member",
                )
            elif words != [""]:
                self._body(words, head, ended=last)
        if head is not None:
            made = tuple(self._members), tuple(self._groups)
            self.definitions.append(
                dataclasses.replace(head, members=made[0], groups=made[1], line=begin)
            )

    def _head(self, text: str) -> Optional[Definition]:
        first, *words = text.split(",")
        flags = self._flags(words, f"{_SHOWN}, {_OF_HEAD}")
        name, equals, number = _pair(first)
        if not equals and name[:1].isdigit():
            name, number = "", name
        elif not equals:
            key = "0x7fff" if name == DEFAULT_NAME else "0x8001"
            self._no(
                "pkey-missing",
                f"{name!r} has no P_Key, so that opensm numbers it by its place in the "
                f"file; write one, for example {name}={key}",
            )
            return None
        if name and (not _NAME.fullmatch(name) or len(name) > LONGEST_NAME):
            self._no(
                "partition-name-invalid",
                f"{name!r} is not a name; allowed: up to {LONGEST_NAME} printable "
                "ASCII characters, of which opensm keeps the first",
            )
            return None
        value = whole(number, 0)
        pkey = partition_bits(value or 0)
        if value is None or value > 0xFFFF or not pkey:
            self._no(
                "pkey-invalid",
                f"{number[:40]!r} is not a P_Key; allowed: hex with 0x, 0x0001 to "
                "0xffff but not 0x8000",
            )
            return None
        ipoib, indx0 = (flags.pop(one, None) is not None for one in (_IPOIB, _INDX0))
        return Definition(name, pkey, ipoib, indx0, flags)

    def _flags(self, words: Iterable[str], shown: str) -> dict[str, int]:
        """Return the flags in ``words``, without the scope, which is always the same.
        ``defmember`` counts for the members that follow. ``shown`` are those allowed.
        """
        found: dict[str, int] = {}
        for word in words:
            name, equals, value = _pair(word)
            low, high = _NUMBERS.get(name, (1, 0))
            number = whole(value, 0)
            allowed = number is not None and low <= number <= high
            if name in _WORDS and _OF_HEAD in shown:
                allowed = value in MEMBERSHIPS if name == _DEFMEMBER else not equals
            if name == _DEFMEMBER and allowed:
                self._membership = value
            if not allowed or name in found:
                code = _CODES.get(name, {}).get(number or 0)
                self._no(
                    "flag-invalid",
                    f"{word.strip()[:40]!r} is not valid; allowed, once each: {shown}"
                    + (f"; did you mean {name}={code}?" if code else ""),
                )
            found[name] = number or 0
        return {k: v for k, v in found.items() if k not in ("scope", _DEFMEMBER)}

    def _body(
        self, words: Sequence[str], head: Optional[Definition], *, ended: bool
    ) -> None:
        """Read members, and the group that may be last in a line."""
        for position, word in enumerate(words, 1):
            name, equals, value = _pair(word)
            if name == "mgid":
                self._group(value, words[position:], head, ended=ended)
                return
            membership = value if equals else self._membership
            if membership not in MEMBERSHIPS:
                self._no(
                    "membership-unknown",
                    f"{value!r} is not a membership; allowed: {', '.join(MEMBERSHIPS)}",
                )
            guid = whole(name, 0)
            if name in PORT_WORDS:
                self._members.append(Member(name, membership))
            elif guid and guid < 1 << 64:
                self._members.append(Member(guid_text(guid), membership))
            else:
                self._no(
                    "member-invalid",
                    f"{name!r} is not a member; allowed: {', '.join(PORT_WORDS)}, or a "
                    "GUID of up to 64 bits, such as 0x0002c90300fb1231",
                )

    def _group(
        self,
        text: str,
        words: Sequence[str],
        head: Optional[Definition],
        *,
        ended: bool,
    ) -> None:
        flags = self._flags(words, _SHOWN)
        # Without a flag, opensm reads on behind the end of the text: in the comment of
        # the line, or in what an earlier longer line has left in its buffer, where only
        # comments still have flags with values (mgroup_create, parse_name_token).
        length, equals = self._lengths[self._line or 0]
        if not words and not ended and equals >= length:
            self._no(
                "group-takes-comment",
                f"mgid={text} has no flag, so that opensm may take one from a comment "
                "with a =; write one, such as rate=3",
            )
        if head and not flags:
            flags = {"rate": head.rate}
        try:
            # Not of inet_pton(3), which opensm uses: a zone.
            bits = int(ipaddress.IPv6Address("" if "%" in text else text))
        except ValueError:
            bits = 0
        if bits >> 112 != _SCOPE_2 or _signature(bits) == _SA_ASSIGNED:
            self._no(
                "mgid-invalid",
                f"mgid={text} is not the GID of a multicast group with scope 2 that "
                "may be chosen; it begins with ff12, such as ff12:401b::1, but not "
                "with ff12:a01b",
            )
        self._groups.append(Group(str(ipaddress.IPv6Address(bits)), flags))


def _signature(bits: int) -> int:
    return bits >> 96 & 0xFFFF


def mistakes_between(definitions: Sequence[Definition]) -> Iterator[Diagnostic]:
    """Yield the mistakes between ``definitions``, each of them valid.

    opensm joins definitions of one P_Key. The first name and the first broadcast group
    win, the last service level and the last membership of a port: what is written
    before or after is without effect, and opensm does not report it.
    """
    keys = {DEFAULT_NAME: Definition(DEFAULT_NAME, DEFAULT_PARTITION)}
    for one in definitions:
        first = keys.setdefault(one.name, one) if one.name else one
        if first.pkey != one.pkey:
            text = f"{one.title} has the name of {first.title}; give it another"
            yield _mistake(one.line, "partition-name-repeated", text)
    for same in by_pkey(definitions).values():
        first = same[0]
        if not any(one.members for one in same):
            text = f"{first.title} has no member, so that opensm removes the partition"
            yield _mistake(first.line, "partition-empty", text)
        for one in same[1:]:
            also = f"is the same partition as {first.title} in line {first.line}"
            if one.name != first.name:
                text = (
                    f"{one.title} {also}; opensm joins them, so give it its own P_Key "
                    "or the same name"
                )
                yield _mistake(one.line, "pkey-repeated", text)
            if one.used_flags != first.used_flags:
                text = f"{one.title} {also}, with other flags; opensm uses some of both"
                yield _mistake(one.line, "definitions-differ", text)
        yield from _memberships(same)
        yield from _groups(same)


def _memberships(same: Sequence[Definition]) -> Iterator[Diagnostic]:
    # The last of each port so far, with its line.
    last: dict[str, tuple[int, Member]] = {}
    for one in same:
        here: set[Member] = set()
        for member in one.members:
            if member in here:
                text = f"{member.port} is twice in {one.title}"
                yield _mistake(one.line, "member-repeated", text)
            here.add(member)
            covered = [member.port] if member.port in last else []
            if member.port in (ALL, ALL_CAS):
                # Ports with a GUID, and the subnet manager's, are hosts' ports.
                others = {*PORT_WORDS} - {SELF, ALL_CAS} if member.port != ALL else ()
                covered = [port for port in last if port not in others]
            for line, earlier in map(last.pop, covered):
                if earlier.membership != member.membership:
                    text = (
                        f"{earlier} of {one.title} is without effect, because {member} "
                        "comes after it and opensm uses the last; write it last"
                    )
                    yield _mistake(line, "member-overridden", text)
            last[member.port] = (one.line, member)


def _groups(same: Iterable[Definition]) -> Iterator[Diagnostic]:
    seen: dict[str, Group] = {}
    ipoib = False
    for one in same:
        ipoib |= one.ipoib
        for group in one.groups:
            name, bits = f"mgid={group.mgid}", int(ipaddress.IPv6Address(group.mgid))
            if seen.setdefault(group.mgid, group).flags != group.flags:
                text = f"{name} of {one.title} is given twice, with other flags"
                yield _mistake(one.line, "group-repeated", text)
            if _signature(bits) not in (_IPV4, _IPV6):
                continue
            if not ipoib:
                text = (
                    f"{name} needs the IPoIB broadcast group of {one.title}; write "
                    "ipoib in the definition"
                )
                yield _mistake(one.line, "group-without-broadcast", text)
            # 0: opensm puts the partition's own there.
            pkey = bits >> 80 & 0xFFFF
            flags = {**one.used_flags, **group.flags}
            own = pkey in (0, full_member_bits(one.pkey))
            if not own or (flags["mtu"], flags["rate"]) != (one.mtu, one.rate):
                text = (
                    f"{name} has another P_Key, MTU or rate than {one.title}, so that "
                    "opensm leaves the group out"
                )
                yield _mistake(one.line, "group-differs", text)
