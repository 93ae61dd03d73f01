# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS mount options: parse, merge, and what engine and VDSM make of them. Pure.

NFS mount options as data: parse, normalise, merge, find conflicts.

Two options are about the same *subject* when the rightmost of them silently
wins in mount.nfs or the kernel: ``rdma`` and ``proto=tcp``, ``port=2049`` and
``port=20049``, ``hard`` and ``soft``, ``vers=`` and ``nfsvers=`` (nfs(5);
nfs-utils utils/mount/network.c takes the rightmost of each such group).

The option string that stock VDSM makes of an NFS storage connection. Pure.

Source: VDSM's storageServer.NFSConnection, unchanged from 4.40.14 on; the tests
compare both, letter for letter.

What the engine takes as an NFS storage connection's mount options. Pure.

What goes wrong with the engine's options on an export that no rule names. Pure.

VDSM passes them to mount as they are, so mount's silence is the admin's problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import IpAddress
from ovirt_rdma.host.policy.model import DEFAULT_PORT

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
                "mount-option-port-invalid",
                f"mount option {option.text!r} has no valid port",
                "give a number from 0 to 65535, as in port=20049",
            )
        return int(value)


def is_rdma(netid: Optional[str]) -> bool:
    """Whether a protocol name of mountinfo, mountstats or ``proto=`` means RDMA."""
    return netid in _RDMA_NETIDS


TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Optional

DEFAULT_TIMEOUT = 100
DEFAULT_RETRANS = 3
# The engine's words for a storage connection's NFS version.
AUTO = "auto"
VERSIONS = ("3", "4", "4.0", "4.1", "4.2", AUTO)


def option_string(
    version: Optional[str],
    extra_options: str = "",
    timeout: int = DEFAULT_TIMEOUT,
    retrans: int = DEFAULT_RETRANS,
) -> str:
    """Return what VDSM passes to ``mount -o`` for an NFS storage connection.

    ``version`` is as VDSM's connection class takes it: ``"3"``, ``"4.2"``, or None
    for automatic. ``timeout`` in deciseconds, as in ``timeo=``.
    """
    options = ["soft", "nosharecache", f"timeo={timeout}", f"retrans={retrans}"]
    if version:
        major, _, minor = version.partition(".")
        options.append(f"nfsvers={major}")
        if minor:
            options.append(f"minorversion={minor}")
    extra = [item for item in extra_options.split(",") if item]
    # Local locks, unless the engine's options say otherwise (VDSM, bug 1550127).
    if version in (None, "3") and not {"lock", "nolock"} & set(extra):
        extra.append("nolock")
    return ",".join(options + extra)


# storage_server_connections.mount_options is varchar(500) and the engine itself
# does not look at the length.
ENGINE_LIMIT = 500
# NFS_MANAGED_OPTIONS in the engine's ConnectStorageToVdsCommand.
ENGINE_REFUSES = (
    "timeo",
    "retrans",
    "vfs_type",
    "protocol_version",
    "nfsvers",
    "vers",
    "minorversion",
    "addr",
    "clientaddr",
)


def engine_problems(text: str) -> tuple[str, ...]:
    """Say why the engine would not take ``text`` as an NFS domain's mount options.

    Returns sentences, none where it would. The limits are those of the database
    column and of the engine's list of options that it manages itself.
    """
    problems = []
    if len(text) > ENGINE_LIMIT:
        problems.append(
            f"the mount options have {len(text)} characters; "
            f"the engine stores at most {ENGINE_LIMIT}"
        )
    names = {option.name.lower() for option in MountOptions.parse(text).items}
    refused = [name for name in ENGINE_REFUSES if name in names]
    if refused:
        problems.append(
            f"the engine refuses {', '.join(refused)} among the mount options; "
            "set version, timeout and retransmissions in the storage connection's "
            "own fields"
        )
    return tuple(problems)


def stock_warnings(
    engine_options: str, address: Optional[IpAddress] = None
) -> tuple[str, ...]:
    """Return sentences about the engine's options, none where they are in order.

    ``address`` is the server's, None where the export has a name. A port is not
    missed: the kernel has one for RDMA, 20049 (fs/nfs/fs_context.c). Source: nfs(5).
    """
    options = MountOptions.parse(engine_options)
    warnings = [str(conflict) for conflict in options.conflicts()]
    netid, port = options.netid, options.port
    if options.wants_rdma:
        warnings.append(
            "RDMA without a rule: readiness is not checked and there is no fallback"
        )
        if options.last(RETRY) is None:
            # nfs(5), retry=: two minutes for a mount in the foreground.
            warnings.append(
                "without retry=0 a server that does not listen blocks the mount for "
                "two minutes"
            )
        wanted = "rdma6" if address is not None and address.version == 6 else "rdma"
        if address is not None and netid != wanted:
            warnings.append(
                f"{netid} does not reach an IPv{address.version} server: write "
                f"proto={wanted}"
            )
    elif port == DEFAULT_PORT:
        warnings.append(
            f"port={DEFAULT_PORT} is the port of NFS over RDMA, but the transport is "
            f"{netid or 'TCP'}: no server answers there over TCP"
        )
    return tuple(warnings)
