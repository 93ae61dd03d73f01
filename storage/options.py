# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS mount options as data: parse, normalise, merge, find conflicts.

Two options are about the same *subject* when the rightmost of them silently
wins in mount.nfs or the kernel: ``rdma`` and ``proto=tcp``, ``port=2049`` and
``port=20049``, ``hard`` and ``soft``, ``vers=`` and ``nfsvers=`` (nfs(5);
nfs-utils utils/mount/network.c takes the rightmost of each such group).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.problem import Problem

TRANSPORT = "transport"
PORT = "port"
RETRY = "retry"
VERSION = "version"

_TRANSPORT_WORDS = ("rdma", "rdma6", "tcp", "tcp6", "udp", "udp6")
_RDMA_NETIDS = ("rdma", "rdma6")

# Options that exclude each other, by subject; a "no" before a name is found below.
_SUBJECTS = {
    **dict.fromkeys((*_TRANSPORT_WORDS, "proto"), TRANSPORT),
    **dict.fromkeys(("vers", "nfsvers", "v2", "v3", "v4"), VERSION),
    **dict.fromkeys(("v4.0", "v4.1", "v4.2"), VERSION),
    **dict.fromkeys(("soft", "hard", "softerr"), "soft or hard"),
    **dict.fromkeys(("fg", "bg"), "foreground or background"),
    **dict.fromkeys(("ro", "rw"), "read-only or writable"),
    **dict.fromkeys(("atime", "relatime", "strictatime"), "access times"),
    **dict.fromkeys(("noatime",), "access times"),
}
_NEGATABLE = (
    "ac",
    "acl",
    "cto",
    "dev",
    "diratime",
    "exec",
    "fsc",
    "intr",
    "lock",
    "migration",
    "rdirplus",
    "resvport",
    "sharecache",
    "suid",
)


class OptionsProblem(Problem):
    """A mount option that no mount would take."""


@dataclass(frozen=True)
class MountOption:
    """One option as written: ``rsize=1048576``, ``nolock``, or an empty item."""

    text: str

    @property
    def name(self) -> str:
        """The part before ``=``."""
        return self.text.partition("=")[0]

    @property
    def value(self) -> Optional[str]:
        """The part after ``=``, or None for a bare word."""
        _, equals, value = self.text.partition("=")
        return value if equals else None

    @property
    def subject(self) -> str:
        """What the option decides; options of one subject override each other."""
        if self.name in _SUBJECTS:
            return _SUBJECTS[self.name]
        if self.name.startswith("no") and self.name[2:] in _NEGATABLE:
            return self.name[2:]
        return self.name

    @property
    def netid(self) -> Optional[str]:
        """The transport that the option chooses (``rdma6``, ``tcp``), or None."""
        if self.subject != TRANSPORT:
            return None
        return self.value if self.name == "proto" else self.name


@dataclass(frozen=True)
class Conflict:
    """Options of one subject that contradict each other; the last wins silently."""

    subject: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{' and '.join(self.options)} contradict each other "
            f"({self.subject}); mount would silently use {self.options[-1]}"
        )


@dataclass(frozen=True)
class MountOptions:
    """A list of options in the order written; ``str()`` gives the text back."""

    items: tuple[MountOption, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MountOptions:
        """Split at commas outside double quotes (as libmount does); lossless."""
        if not text:
            return cls()
        items = [""]
        quoted = False
        for character in text:
            if character == '"':
                quoted = not quoted
            if character == "," and not quoted:
                items.append("")
            else:
                items[-1] += character
        return cls(tuple(MountOption(item) for item in items))

    def __str__(self) -> str:
        return ",".join(option.text for option in self.items)

    def last(self, subject: str) -> Optional[MountOption]:
        """Return the option that wins for ``subject``, or None."""
        for option in reversed(self.items):
            if option.text and option.subject == subject:
                return option
        return None

    def subjects(self) -> frozenset[str]:
        """Return the subjects that the options decide."""
        return frozenset(option.subject for option in self.items if option.text)

    def without(self, *subjects: str) -> MountOptions:
        """Return the options that are not about ``subjects``."""
        return MountOptions(
            tuple(option for option in self.items if option.subject not in subjects)
        )

    def normalised(self) -> MountOptions:
        """Keep one option a subject, the winning one, where it last stood."""
        kept: dict[str, MountOption] = {}
        for option in self.items:
            if option.text:
                kept.pop(option.subject, None)
                kept[option.subject] = option
        return MountOptions(tuple(kept.values()))

    def merged(self, over: MountOptions) -> MountOptions:
        """Lay ``over`` over these options: it wins for every subject it decides.

        Both sides are normalised, their order is kept, ``over`` comes last.
        """
        base = self.without(*over.subjects()).normalised()
        return MountOptions(base.items + over.normalised().items)

    def conflicts(self) -> tuple[Conflict, ...]:
        """Return the subjects that are decided more than once, and differently."""
        texts: dict[str, list[str]] = {}
        meanings: dict[str, set[str]] = {}
        for option in self.items:
            if option.text:
                texts.setdefault(option.subject, []).append(option.text)
                meaning = option.netid or option.text
                meanings.setdefault(option.subject, set()).add(meaning)
        return tuple(
            Conflict(subject, tuple(texts[subject]))
            for subject, different in meanings.items()
            if len(different) > 1
        )

    @property
    def netid(self) -> Optional[str]:
        """The transport that mount would use, or None where none is named."""
        option = self.last(TRANSPORT)
        return option.netid if option else None

    @property
    def wants_rdma(self) -> bool:
        """Whether the winning transport is RDMA."""
        return self.netid in _RDMA_NETIDS

    @property
    def port(self) -> Optional[int]:
        """The winning port, or None where none is given.

        Raises OptionsProblem where it is not a number from 0 to 65535.
        """
        option = self.last(PORT)
        if option is None:
            return None
        value = option.value or ""
        # int() does not take thousands of digits.
        number = value.isascii() and value.isdigit() and len(value) < 10
        if not number or int(value) > 65535:
            raise OptionsProblem(
                f"mount option {option.text!r} has no valid port",
                "give a number from 0 to 65535, as in port=20049",
            )
        return int(value)


def is_rdma(netid: Optional[str]) -> bool:
    """Whether a protocol name of mountinfo, mountstats or ``proto=`` means RDMA."""
    return netid in _RDMA_NETIDS
