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
from typing import NamedTuple, Optional

from ovirt_rdma.host.errors import Problem, Sentence
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
from ovirt_rdma.host.system.text import whole

# fgets() into 4096 bytes, of which it uses one less: a longer line is read as two.
LONGEST_LINE = 4094

_IPOIB, _INDX0, _DEFMEMBER = _WORDS = ("ipoib", "indx0", "defmember")
# The flags with a number, in the order in which opensm compares them: the smallest, the
# largest, and what they are. 0 stands for the default of a Q_Key and a traffic class.
_NUMBERS = {
    "mtu": (1, 5, "the code of an IB MTU"),
    "rate": (2, 24, "the code of a rate"),
    # That of all groups of IPoIB in Linux (ipoib_main.c, ipv4_bcast_addr).
    "scope": (2, 2, "the scope of a link"),
    "Q_Key": (1, 0xFFFFFFFF, "a Q_Key"),
    "TClass": (1, 0xFF, "a traffic class"),
    "sl": (0, 15, "a service level"),
    "FlowLabel": (0, 0xFFFFF, "a flow label"),
}
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


def guid_text(guid: int) -> str:
    """Return a GUID as partitions.conf has it: ``0x0002c90300fb1231``."""
    return f"0x{guid:016x}"


def by_pkey(definitions: Iterable[Definition]) -> dict[int, list[Definition]]:
    """Return the definitions of each partition, in their order."""
    found: dict[int, list[Definition]] = {}
    for definition in definitions:
        found.setdefault(definition.pkey, []).append(definition)
    return found


def render(definitions: Iterable[Definition], head: Iterable[str] = ()) -> str:
    """Return the text of the file, with the comment lines ``head`` at its top.

    :func:`parse` reads the same definitions from it. One member a line, so that no line
    reaches opensm's limit; each member with its membership, so that none depends on a
    default.
    """
    lines = [f"# {line}".rstrip() for line in head]
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
    return "\n".join(lines).lstrip("\n") + "\n"


def _flag_words(flags: Mapping[str, int]) -> list[str]:
    return [f"{name}={flags[name]}" for name in _NUMBERS if name in flags]


class Mistake(NamedTuple):
    """A sentence about ``line``, from 1; 0 for the whole file."""

    line: int
    sentence: Sentence


INVALID_FIX = (
    "correct the file; opensm itself does not report such mistakes by its exit code, "
    "and after some of them it makes every port a full member of the default partition"
)


class PartitionsProblem(Problem):
    """The file is invalid; ``mistakes`` has all of them, sorted by line."""

    exit_code = 3  # ExitCode.CHECKS_FAILED, without its module

    def __init__(self, where: str, mistakes: Sequence[Mistake]) -> None:
        self._reasons = tuple(
            sentence.about(f"{where}:{line}" if line else where)
            for line, sentence in mistakes
        )
        super().__init__("partitions-invalid", "\n".join(self._reasons), INVALID_FIX)
        self.mistakes = mistakes

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """Each mistake with file and line: ``FILE:LINE: sentence``."""
        return self._reasons


def parse(data: bytes, where: str) -> tuple[Definition, ...]:
    """Return the definitions in ``data``; ``where`` names the file in sentences.

    Raises PartitionsProblem with all mistakes.
    """
    reader = _Reader()
    for number, line in enumerate(data.split(b"\n"), 1):
        reader.read_line(number, line)
    reader.end()
    mistakes = reader.mistakes or [*mistakes_between(reader.definitions)]
    if mistakes:
        raise PartitionsProblem(where, sorted(set(mistakes)))
    return tuple(reader.definitions)


class _Reader:
    """Reads line by line, as opensm does: a definition's head is on one line."""

    def __init__(self) -> None:
        self.definitions: list[Definition] = []
        self.mistakes: list[Mistake] = []
        self._line = 0
        # The definition that is not ended yet: where it began (0: there is none), what
        # is before its colon, and the membership of members without one.
        self._begin = 0
        self._head: Optional[Definition] = None
        self._membership = LIMITED
        self._members: list[Member] = []
        self._groups: list[Group] = []
        # Where a line ends, or its comment begins, and the last = in a comment so far.
        self._length = 0
        self._equals = -1

    def _no(self, id: str, text: str) -> None:
        self.mistakes.append(Mistake(self._line, Sentence(id, text)))

    def read_line(self, number: int, data: bytes) -> None:
        self._line = number
        if len(data) + 1 > LONGEST_LINE:
            self._no(
                "line-too-long",
                f"has {len(data)} bytes, and opensm reads a line of more than "
                f"{LONGEST_LINE - 1} as two; break it",
            )
        content, _, comment = data.partition(b"#")
        self._length = len(content)
        if b"=" in comment:
            self._equals = max(self._equals, data.rindex(b"="))
        text = content.decode("latin-1")
        if b"\0" in data or not _PRINTABLE.fullmatch(text):
            self._no(
                "character-not-allowed",
                "has a character that is not printable ASCII, such as a carriage "
                "return; opensm takes it as a part of a name",
            )
            return
        while text.strip():
            part, end, text = text.partition(";")
            self._part(part, ended=bool(end), more=bool(text.strip()))

    def end(self) -> None:
        """Note what is missing at the end of the file."""
        if self._begin:
            self._line = self._begin
            self._no("definition-not-ended", "the definition has no ; at its end")
        elif not self.definitions and not self.mistakes:
            self._line = 0
            self._no(
                "no-definition",
                "has no definition; opensm then makes every port a full member of the "
                "default partition",
            )

    def _part(self, part: str, *, ended: bool, more: bool) -> None:
        """Read what is up to a semicolon or to the end of the line."""
        if not self._begin:
            self._begin, self._head, self._membership = self._line, None, LIMITED
            self._members, self._groups = [], []
            head, colon, part = part.partition(":")
            if colon:
                self._head = self._read_head(head)
            elif not head.strip():
                self._no("semicolon-alone", "has a ; without a definition before it")
            else:
                self._no(
                    "colon-missing",
                    f"{head.strip()!r} is no definition; write NAME=P_KEY,flags : "
                    "members ; with the colon on the first line",
                )
        elif not part.strip():
            self._no(
                "semicolon-first",
                "begins with a ; behind which opensm reads on in what an earlier line "
                "has left; write it after the last member",
            )
        if part.strip():
            self._body(part, ended=ended, more=more)
        if ended:
            if self._head is not None:
                made = tuple(self._members), tuple(self._groups)
                self.definitions.append(
                    dataclasses.replace(self._head, members=made[0], groups=made[1])
                )
            self._begin = 0

    def _read_head(self, text: str) -> Optional[Definition]:
        first, *words = text.split(",")
        flags = self._flags(words, (*_NUMBERS, *_WORDS))
        name, equals, number = (one.strip() for one in first.partition("="))
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
        if value is None:
            self._no(
                "pkey-invalid",
                f"{number!r} is not a P_Key; allowed: hex with 0x, 0x0001 to 0xffff "
                "but not 0x8000",
            )
            return None
        pkey = partition_bits(value)
        if value > 0xFFFF or not pkey:
            means = f"takes it for 0x{pkey:04x}" if pkey else "chooses another one"
            self._no(
                "pkey-out-of-range",
                f"{number} is not a partition; allowed: 0x0001 to 0xffff but not "
                f"0x8000 (opensm {means})",
            )
            return None
        ipoib, indx0 = flags.pop(_IPOIB, 0), flags.pop(_INDX0, 0)
        return Definition(name, pkey, bool(ipoib), bool(indx0), flags, line=self._begin)

    def _flags(self, words: Iterable[str], allowed: Sequence[str]) -> dict[str, int]:
        """Return the flags in ``words``, without the scope, which is always the same.
        ``defmember`` counts for the members that follow.
        """
        found: dict[str, int] = {}
        for word in map(str.strip, words):
            name, equals, value = (one.strip() for one in word.partition("="))
            if name not in allowed:
                # indx0 is compared as a whole.
                means = _taken(name, [one for one in allowed if one != _INDX0])
                self._no(
                    "flag-unknown",
                    f"{name!r} is not a flag; allowed: {', '.join(sorted(allowed))} "
                    f"(opensm {means or 'ignores it'})",
                )
            elif name in found:
                self._no(
                    "flag-repeated",
                    f"{name} is given twice, and opensm uses the last one",
                )
            elif name in _NUMBERS:
                found[name] = self._number(name, word, value)
            elif name == _DEFMEMBER:
                found[name] = 1
                self._membership = self._read_membership(word, value)
            elif equals:
                self._no(
                    "flag-has-value",
                    f"{word} has a value, which opensm ignores; write {name}",
                )
            else:
                found[name] = 1
        return {k: v for k, v in found.items() if k not in ("scope", _DEFMEMBER)}

    def _number(self, name: str, word: str, value: str) -> int:
        low, high, shown = _NUMBERS[name]
        allowed = f"allowed: {shown}, {low if low == high else f'{low} to {high}'}"
        number = whole(value, 0)
        if number is None:
            self._no("flag-value-invalid", f"{word} has no valid number; {allowed}")
        elif not low <= number <= high:
            meant = {"mtu": infiniband.MTU_CODES, "rate": infiniband.RATE_CODES}
            code = meant.get(name, {}).get(number)
            self._no(
                "flag-value-out-of-range",
                f"{word} is out of range; {allowed}"
                + (f"; did you mean {name}={code}?" if code else ""),
            )
        return number or 0

    def _read_membership(self, word: str, value: str) -> str:
        if value in MEMBERSHIPS:
            return value
        self._no(
            "membership-unknown",
            f"{word} has no membership; allowed: {', '.join(MEMBERSHIPS)} "
            f"(opensm {_taken(value, MEMBERSHIPS) or f'takes it for {LIMITED}'})",
        )
        return LIMITED

    def _body(self, text: str, *, ended: bool, more: bool) -> None:
        words = [word.strip() for word in text.split(",")]
        if not words[-1] and not ended:
            words.pop()  # the list continues in the next line
        for position, word in enumerate(words, 1):
            name, equals, value = (one.strip() for one in word.partition("="))
            if name == "mgid":
                self._group(value, words[position:], ended=ended)
                if more:
                    self._no(
                        "definition-after-group",
                        "has a definition after a multicast group; begin it on a new "
                        "line, because opensm may read it as flags of the group",
                    )
                return
            port = self._port(name)
            member = self._membership
            if equals:
                member = self._read_membership(word, value)
            self._members.append(Member(port, member))

    def _port(self, text: str) -> str:
        if text in PORT_WORDS:
            return text
        guid = whole(text, 0)
        if guid and guid < 1 << 64:
            return guid_text(guid)
        means = _taken(text, (*PORT_WORDS, "NONE")) if text else ""
        self._no(
            "member-invalid",
            f"{text!r} is not a member; allowed: {', '.join(PORT_WORDS)}, or a GUID "
            "of up to 64 bits, such as 0x0002c90300fb1231"
            + (f" (opensm {means})" if means else ""),
        )
        return text

    def _group(self, text: str, words: Sequence[str], *, ended: bool) -> None:
        flags = self._flags(words, tuple(_NUMBERS))
        # Without a flag, opensm reads on behind the end of the text: in the comment of
        # the line, or in what an earlier longer line has left in its buffer, where only
        # comments still have flags with values (mgroup_create, parse_name_token).
        if not words and not ended and self._equals >= self._length:
            self._no(
                "group-takes-comment",
                f"mgid={text} has no flag, so that opensm may take one from a comment "
                "with a =; write one, such as rate=3",
            )
        if self._head and not flags:
            flags = {"rate": self._head.rate}
        try:
            # Not of inet_pton(3), which opensm uses: a zone.
            bits = int(ipaddress.IPv6Address("" if "%" in text else text))
        except ValueError:
            bits = 0
        if bits >> 112 != _SCOPE_2:
            self._no(
                "mgid-invalid",
                f"mgid={text} is not the GID of a multicast group with scope 2; it "
                "begins with ff12, such as ff12:401b::1",
            )
        elif _signature(bits) == _SA_ASSIGNED:
            self._no(
                "mgid-reserved",
                f"mgid={text} is one that the subnet manager gives out itself",
            )
        self._groups.append(Group(str(ipaddress.IPv6Address(bits)), flags))


def _taken(text: str, words: Iterable[str]) -> str:
    """Return for which of ``words`` opensm takes ``text``, or ""."""
    found = next((one for one in words if one.startswith(text)), None)
    return f"takes it for {found}" if found else ""


def _signature(bits: int) -> int:
    return bits >> 96 & 0xFFFF


def mistakes_between(definitions: Sequence[Definition]) -> Iterator[Mistake]:
    """Yield the mistakes between ``definitions``, each of them valid.

    opensm joins definitions of one P_Key. The first name and the first broadcast group
    win, the last service level and the last membership of a port: what is written
    before or after is without effect, and opensm does not report it.
    """
    yield from _names(definitions)
    for same in by_pkey(definitions).values():
        yield from _joined(same)
        yield from _memberships(same)
        yield from _groups(same)


def _names(definitions: Sequence[Definition]) -> Iterator[Mistake]:
    keys = {DEFAULT_NAME: Definition(DEFAULT_NAME, DEFAULT_PARTITION)}
    names: dict[int, Definition] = {}
    for one in definitions:
        first = keys.setdefault(one.name, one) if one.name else one
        if first.pkey != one.pkey:
            text = f"{one.title} has the name of {first.title}; give it another"
            yield Mistake(one.line, Sentence("partition-name-repeated", text))
        first = names.setdefault(one.pkey, one)
        if first.name != one.name:
            text = (
                f"{one.title} is the same partition as {first.title} in line "
                f"{first.line}; opensm joins them, so give it its own P_Key or the "
                "same name"
            )
            yield Mistake(one.line, Sentence("pkey-repeated", text))


def _joined(same: Sequence[Definition]) -> Iterator[Mistake]:
    first = same[0]
    if not any(one.members for one in same):
        text = f"{first.title} has no member, so that opensm removes the partition"
        yield Mistake(first.line, Sentence("partition-empty", text))
    with_group = next((one for one in same if one.ipoib), first)
    for one in same[1:]:
        differ = _differences(one, first, ["sl"])
        if one.ipoib:
            differ += _differences(one, with_group, _NUMBERS.keys() - {"sl"})
        if differ:
            text = (
                f"{one.title} is defined in line {first.line} too, with another "
                f"{', '.join(differ)}; opensm uses one of the two"
            )
            yield Mistake(one.line, Sentence("definitions-differ", text))


def _differences(one: Definition, other: Definition, names: Iterable[str]) -> list[str]:
    flags, others = one.used_flags, other.used_flags
    return sorted(name for name in names if flags.get(name) != others.get(name))


def _memberships(same: Sequence[Definition]) -> Iterator[Mistake]:
    # The last of each port so far, with its line.
    last: dict[str, tuple[int, Member]] = {}
    for one in same:
        here: set[Member] = set()
        for member in one.members:
            if member in here:
                text = f"{member.port} is twice in {one.title}"
                yield Mistake(one.line, Sentence("member-repeated", text))
            here.add(member)
            covered = [port for port in _covered(member, last) if port in last]
            for line, earlier in map(last.pop, covered):
                if earlier.membership != member.membership:
                    text = (
                        f"{earlier} of {one.title} is without effect, because {member} "
                        "comes after it and opensm uses the last; write it last"
                    )
                    yield Mistake(line, Sentence("member-overridden", text))
            last[member.port] = (one.line, member)


def _covered(member: Member, ports: Iterable[str]) -> list[str]:
    """Return those of ``ports`` that are, or may be, ``member`` too."""
    if member.port == ALL:
        return list(ports)
    if member.port == ALL_CAS:
        # Ports with a GUID in the file, and the subnet manager's, are hosts' ports.
        return [one for one in ports if one not in PORT_WORDS or one in (SELF, ALL_CAS)]
    return [member.port]


def _groups(same: Iterable[Definition]) -> Iterator[Mistake]:
    seen: dict[str, Group] = {}
    ipoib = False
    for one in same:
        ipoib |= one.ipoib
        for group in one.groups:
            name = f"mgid={group.mgid}"
            if seen.setdefault(group.mgid, group).flags != group.flags:
                text = (
                    f"{name} of {one.title} is given twice, with other flags; opensm "
                    "uses the first"
                )
                yield Mistake(one.line, Sentence("group-repeated", text))
            bits = int(ipaddress.IPv6Address(group.mgid))
            if _signature(bits) not in (_IPV4, _IPV6):
                continue
            if not ipoib:
                text = (
                    f"{name} needs the IPoIB broadcast group of {one.title}; write "
                    "ipoib in the definition"
                )
                yield Mistake(one.line, Sentence("group-without-broadcast", text))
            # 0: opensm puts the partition's own there.
            pkey = bits >> 80 & 0xFFFF
            if pkey not in (0, full_member_bits(one.pkey)):
                text = (
                    f"{name} has the P_Key 0x{pkey:04x}, and the partition is "
                    f"{full_member(one.pkey)}; opensm leaves the group out"
                )
                yield Mistake(one.line, Sentence("group-pkey-differs", text))
            flags = {**one.used_flags, **group.flags}
            if (flags["mtu"], flags["rate"]) != (one.mtu, one.rate):
                text = (
                    f"{name} has another MTU or rate than the definition of "
                    f"{one.title}; opensm leaves the group out"
                )
                yield Mistake(one.line, Sentence("group-differs", text))
