# SPDX-License-Identifier: GPL-2.0-or-later
"""Read partitions.conf strictly, and report all mistakes at once. Pure.

opensm takes what it does not understand as something else, or leaves it out, and makes
every port a full member of the default partition where it cannot: it matches names by
their beginning (``A`` is ``ALL``), takes an unknown membership for ``limited`` and an
empty one for ``full``, and cuts numbers to their lowest bits. All that is refused here.
What is accepted, opensm accepts with the same meaning.

Source: opensm/osm_prtn_config.c (linux-rdma/opensm, 3.3.24), tried with 3.3.23.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.fabric.consistency import mistakes_between
from ovirt_rdma.host.fabric.flags import FlagReader, MistakeInFlag
from ovirt_rdma.host.fabric.line_buffer import LONGEST_LINE, LineBuffer
from ovirt_rdma.host.fabric.model import (
    DEFAULT_NAME,
    LONGEST_NAME,
    WORDS,
    Definition,
    Group,
    GroupFlags,
    Member,
    guid_text,
)
from ovirt_rdma.host.fabric.multicast import MgidProblem, mgid_of
from ovirt_rdma.host.facts.pkeys import FULL, LIMITED, MEMBERSHIPS, partition_bits
from ovirt_rdma.host.system.numbers import whole

_PRINTABLE = re.compile(r"[\t\x20-\x7e]*")
_NAME = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_GUID = re.compile(r"0x[0-9a-fA-F]{1,16}")


class Mistake(NamedTuple):
    """A sentence about ``line``, from 1; 0 for the whole file."""

    line: int
    sentence: Sentence

    def at(self, where: str) -> Sentence:
        """Return ``FILE:LINE: sentence``."""
        place = f"{where}:{self.line}" if self.line else where
        return self.sentence.about(place)


INVALID_FIX = (
    "correct the file; opensm itself does not report such mistakes by its exit code, "
    "and after some of them it makes every port a full member of the default partition"
)


class PartitionsProblem(Problem):
    """The file is invalid; ``mistakes`` has all of them, sorted by line."""

    exit_code = 3  # ExitCode.CHECKS_FAILED, without its module

    def __init__(self, where: str, mistakes: tuple[Mistake, ...]) -> None:
        self._reasons = tuple(mistake.at(where) for mistake in mistakes)
        super().__init__(
            "partitions-invalid",
            "\n".join(self._reasons),
            INVALID_FIX,
        )
        self.mistakes = mistakes

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """Each mistake with file and line."""
        return self._reasons


def parse(data: bytes, where: str) -> tuple[Definition, ...]:
    """Return the definitions in ``data``; ``where`` names the file in sentences.

    Raises PartitionsProblem with all mistakes.
    """
    reader = _Reader()
    for number, line in enumerate(data.split(b"\n"), 1):
        reader.read_line(number, line)
    reader.end()
    mistakes = reader.mistakes
    if not mistakes:
        mistakes = [Mistake(*each) for each in mistakes_between(reader.definitions)]
    if mistakes:
        raise PartitionsProblem(where, tuple(sorted(set(mistakes))))
    return tuple(reader.definitions)


class _Refused(Exception):
    """What is read is a mistake."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(text)
        self.sentence = Sentence(id, text)


class _Head(NamedTuple):
    """What is before the colon of a definition."""

    name: str
    pkey: int
    ipoib: bool
    indx0: bool
    membership: str
    flags: GroupFlags


class _Reader:
    """Reads line by line, as opensm does: a definition's head is on one line."""

    def __init__(self) -> None:
        self.definitions: list[Definition] = []
        self.mistakes: list[Mistake] = []
        self._line = 0
        # The definition that is not ended yet, and what it has so far.
        self._open = False
        self._begin = 0
        self._head: Optional[_Head] = None
        self._members: list[Member] = []
        self._groups: list[Group] = []
        self._buffer = LineBuffer()

    def read_line(self, number: int, data: bytes) -> None:
        self._line = number
        if len(data) + 1 > LONGEST_LINE:
            self._no(
                "line-too-long",
                f"has {len(data)} bytes, and opensm reads a line of more than "
                f"{LONGEST_LINE - 1} as two; break it",
            )
        self._buffer.fill(data)
        text = data.partition(b"#")[0].decode("latin-1")
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
        if self._open:
            self._line = self._begin
            self._no("definition-not-ended", "the definition has no ; at its end")
        elif not self.definitions and not self.mistakes:
            self._line = 0
            self._no(
                "no-definition",
                "has no definition; opensm then makes every port a full member of the "
                "default partition",
            )

    def _no(self, id: str, text: str) -> None:
        self.mistakes.append(Mistake(self._line, Sentence(id, text)))

    def _part(self, part: str, *, ended: bool, more: bool) -> None:
        """Read what is up to a semicolon or to the end of the line."""
        body: Optional[str] = part
        if not self._open:
            body = self._begin_definition(part)
        elif not part.strip():
            self._no(
                "semicolon-first",
                "begins with a ; behind which opensm reads on in what an earlier line "
                "has left; write it after the last member",
            )
        if body is not None:
            self._body(body, ended=ended, more=more)
        if ended:
            self._end_definition()

    def _begin_definition(self, part: str) -> Optional[str]:
        self._open, self._begin, self._head = True, self._line, None
        self._members, self._groups = [], []
        head, colon, body = part.partition(":")
        if not part.strip():
            self._no("semicolon-alone", "has a ; without a definition before it")
        elif not colon:
            self._no(
                "colon-missing",
                f"{part.strip()!r} is no definition; write NAME=P_KEY,flags : members "
                "; with the colon on the first line",
            )
        else:
            try:
                self._head = self._read_head(head)
            except _Refused as refused:
                self._no(refused.sentence.id, refused.sentence)
            return body
        return None

    def _end_definition(self) -> None:
        self._open = False
        if self._head is None:
            return
        name, pkey, ipoib, indx0, _, flags = self._head
        self.definitions.append(
            Definition(
                name,
                pkey,
                ipoib,
                indx0,
                flags,
                tuple(self._members),
                tuple(self._groups),
                self._begin,
            )
        )

    def _read_head(self, text: str) -> _Head:
        first, *rest = text.split(",")
        name, pkey = _name_and_pkey(first)
        flags = FlagReader()
        for word in rest:
            try:
                flags.add(word.strip())
            except MistakeInFlag as mistake:
                self._no(mistake.sentence.id, mistake.sentence)
        return _Head(
            name, pkey, flags.ipoib, flags.indx0, flags.membership, flags.group_flags
        )

    def _body(self, text: str, *, ended: bool, more: bool) -> None:
        if not text.strip():
            return
        words = [word.strip() for word in text.split(",")]
        if not words[-1] and not ended:
            words.pop()  # the list continues in the next line
        for position, word in enumerate(words):
            name, equals, value = (one.strip() for one in word.partition("="))
            if name == "mgid":
                self._group(value, words[position + 1 :], ended=ended, more=more)
                return
            try:
                self._members.append(self._member(name, equals, value))
            except _Refused as refused:
                self._no(refused.sentence.id, refused.sentence)

    def _member(self, name: str, equals: str, value: str) -> Member:
        port = _port(name)
        if not equals:
            return Member(port, self._head.membership if self._head else LIMITED)
        if value in MEMBERSHIPS:
            return Member(port, value)
        taken = LIMITED
        if FULL.startswith(value):
            taken = FULL
        elif "both".startswith(value):
            taken = "both"
        raise _Refused(
            "membership-unknown",
            f"{name}={value} has no membership; allowed: {', '.join(MEMBERSHIPS)} "
            f"(opensm takes it for {taken})",
        )

    def _group(self, mgid: str, words: list[str], *, ended: bool, more: bool) -> None:
        flags = FlagReader(of_group=True)
        for word in words:
            try:
                flags.add(word)
            except MistakeInFlag as mistake:
                self._no(mistake.sentence.id, mistake.sentence)
        if more:
            self._no(
                "definition-after-group",
                "has a definition after a multicast group; begin it on a new line, "
                "because opensm may read it as flags of the group",
            )
        stray = "" if words or ended else self._buffer.stray_flag()
        if stray:
            self._no(
                "group-takes-comment",
                f"mgid={mgid} has no flag, so that opensm takes {stray!r} for one, "
                "from a comment; write one, such as rate=3",
            )
        own = flags.group_flags
        if self._head and own == GroupFlags():
            # Written out, because opensm takes flags from an earlier line otherwise.
            own = GroupFlags(rate=self._head.flags.used_rate)
        try:
            self._groups.append(Group(mgid_of(mgid), own))
        except MgidProblem as problem:
            self._no(problem.sentence.id, problem.sentence)


def _name_and_pkey(text: str) -> tuple[str, int]:
    name, equals, number = (one.strip() for one in text.partition("="))
    if not equals and name[:1].isdigit():
        name, number = "", name
    elif not equals:
        default = f"{DEFAULT_NAME}=0x7fff" if name == DEFAULT_NAME else f"{name}=0x8001"
        raise _Refused(
            "pkey-missing",
            f"{name!r} has no P_Key, so that opensm numbers it by its place in the "
            f"file; write one, for example {default}",
        )
    if name and (not _NAME.fullmatch(name) or len(name) > LONGEST_NAME):
        raise _Refused(
            "partition-name-invalid",
            f"{name!r} is not a name; allowed: up to {LONGEST_NAME} printable ASCII "
            "characters, of which opensm keeps the first",
        )
    return name, _pkey(number)


def _pkey(text: str) -> int:
    value = whole(text, 0)
    if value is None:
        raise _Refused(
            "pkey-invalid",
            f"{text!r} is not a P_Key; allowed: hex with 0x, 0x0001 to 0xffff but not "
            "0x8000",
        )
    if value > 0xFFFF or not partition_bits(value):
        reason = (
            f"opensm takes it for 0x{partition_bits(value):04x}"
            if partition_bits(value)
            else "opensm chooses another one"
        )
        raise _Refused(
            "pkey-out-of-range",
            f"{text} is not a partition; allowed: 0x0001 to 0xffff but not 0x8000 "
            f"({reason})",
        )
    return partition_bits(value)


def _port(text: str) -> str:
    if text in WORDS:
        return text
    if _GUID.fullmatch(text):
        if int(text, 16):
            return guid_text(int(text, 16))
        raise _Refused("guid-zero", f"{text} is the GUID of no port")
    if not text:
        raise _Refused("member-empty", "has an empty member; write single commas")
    for word in (*WORDS, "NONE"):
        if word.startswith(text):
            means = "for no port" if word == "NONE" else f"for {word}"
            raise _Refused(
                "member-unknown",
                f"{text!r} is not a member; opensm takes it {means}; "
                f"allowed: {', '.join(WORDS)}, or a GUID such as 0x0002c90300fb1231",
            )
    raise _Refused(
        "member-invalid",
        f"{text!r} is not a member; allowed: {', '.join(WORDS)}, or a GUID in hex with "
        "0x and up to 16 digits, such as 0x0002c90300fb1231",
    )
