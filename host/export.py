# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse an NFS export, ``SERVER:/PATH``, as mount.nfs and VDSM write it; and parse,
merge and check its mount options, as the engine and VDSM use them. Pure.

Two options have the same *subject* if mount.nfs or the kernel silently uses the
rightmost of them: ``rdma`` and ``proto=tcp``, ``port=2049`` and ``port=20049``,
``hard`` and ``soft``, ``vers=`` and ``nfsvers=`` (nfs(5); nfs-utils
utils/mount/network.c).

:func:`option_string` builds the option string of stock VDSM (VDSM's
storageServer.NFSConnection, unchanged since 4.40.14; the tests compare both, character
by character). :func:`engine_problems` checks the limits of the engine.
"""

from __future__ import annotations

import functools
import ipaddress
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence, did_you_mean

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


_EXPORT = re.compile(r"(?:\[([^\]]+)\]|([^\[:/\s][^:/\s]*)):(/.*)", re.DOTALL)


def nfs_check(export: str) -> str:
    """Return the command that checks ``export``."""
    return f"ovirt-rdma-host nfs check {shlex.quote(export)}"


class ExportProblem(Problem):
    """The text is not an export."""

    def __init__(self, text: str) -> None:
        fix = "write it as SERVER:/PATH, an IPv6 address in brackets: [fd00::1]:/PATH"
        server, _, path = text.partition(":/")
        if _is_ipv6(server):
            fix = f"write [{server}]:/{path}"
        super().__init__("export-invalid", f"export {text!r} is not SERVER:/PATH", fix)


@dataclass(frozen=True)
class Export:
    """A server and a path.

    ``server`` is the name or address as written, without IPv6 brackets; ``path``
    is absolute and normalised as in VDSM: without doubled and trailing slashes.
    """

    server: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Export:
        """Parse ``server:/path`` or ``[v6 address]:/path``. Raises ExportProblem."""
        found = _EXPORT.fullmatch(text)
        if found is None or any(c < " " or c == "\x7f" for c in text):
            raise ExportProblem(text)
        bracketed, name, path = found.groups()
        # An IPv6 address without brackets has colons before that of the path.
        if not _is_ipv6(bracketed) if bracketed else _is_ipv6(text.partition(":/")[0]):
            raise ExportProblem(text)
        return cls(bracketed or name, "/" + posixpath.normpath(path).lstrip("/"))

    @classmethod
    def maybe(cls, text: str) -> Optional[Export]:
        """Parse as :meth:`parse` does; return None for what is not an export."""
        try:
            return cls.parse(text)
        except ExportProblem:
            return None

    @functools.cached_property
    def key(self) -> tuple[str, str]:
        """A value that is equal for all notations of the same server."""
        name = self.server.rstrip(".").lower()
        return (name if self.address is None else str(self.address)), self.path

    def same_as(self, other: Optional[Export]) -> bool:
        """Whether ``other`` is the same export, perhaps in another notation."""
        # The path first: a host may have thousands of mounts, and it costs nothing.
        return other is not None and self.path == other.path and self.key == other.key

    @functools.cached_property
    def address(self) -> Optional[IpAddress]:
        """The server as an IP address, or None if it is a name."""
        return _address(self.server)

    def __str__(self) -> str:
        shown = f"[{self.server}]" if ":" in self.server else self.server
        return f"{shown}:{self.path}"


def _address(text: str) -> Optional[IpAddress]:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_ipv6(text: str) -> bool:
    return isinstance(_address(text), ipaddress.IPv6Address)


TRANSPORT = "transport"
PORT = "port"
VERSION = "version"

RDMA, TCP = "rdma", "tcp"
_TRANSPORT_WORDS = (RDMA, "rdma6", TCP, "tcp6", "udp", "udp6")

# Options that exclude each other, by subject. Names with "no" in front: _NEGATED.
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
# Of a size in bytes.
_DIGITS = 10
_NEGATED = re.compile(
    "no(ac|acl|cto|dev|diratime|exec|fsc|intr|lock|migration|rdirplus|resvport|"
    "sharecache|suid)"
)


class OptionsProblem(Problem):
    """A mount option that every mount would refuse."""


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
        """The part after ``=``; None if the option has no ``=``."""
        _, equals, value = self.text.partition("=")
        return value if equals else None

    @property
    def subject(self) -> str:
        """The subject that the option sets; options of one subject override each
        other.
        """
        if self.name in _SUBJECTS:
            return _SUBJECTS[self.name]
        negated = _NEGATED.fullmatch(self.name)
        return negated[1] if negated else self.name

    @property
    def netid(self) -> Optional[str]:
        """The transport that the option chooses (``rdma6``, ``tcp``), or None."""
        if self.subject != TRANSPORT:
            return None
        return self.value if self.name == "proto" else self.name


@dataclass(frozen=True)
class MountOptions:
    """A list of options in the order written; ``str()`` returns the original text."""

    items: tuple[MountOption, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MountOptions:
        """Split at commas outside double quotes (as libmount does); lossless."""
        if not text:
            return cls()
        items = [""]
        # The odd parts are inside quotes.
        for number, part in enumerate(text.split('"')):
            first, *others = [part] if number % 2 else part.split(",")
            items[-1] += f'"{first}' if number else first
            items += others
        return cls(tuple(map(MountOption, items)))

    def __str__(self) -> str:
        return ",".join(option.text for option in self.items)

    def last(self, subject: str) -> Optional[MountOption]:
        """Return the option that wins for ``subject``, or None."""
        options = (one for one in reversed(self.items) if one.text)
        return next((one for one in options if one.subject == subject), None)

    def number(self, name: str) -> Optional[int]:
        """Return the value of ``name`` (``nconnect``, ``rsize``); None if it is not
        there, or is no number.
        """
        option = self.last(name)
        value = (option.value if option else None) or ""
        digits = value.isascii() and value.isdecimal() and len(value) <= _DIGITS
        return int(value) if digits else None

    def subjects(self) -> frozenset[str]:
        """Return the subjects that the options set."""
        return frozenset(option.subject for option in self.items if option.text)

    def without(self, *subjects: str) -> MountOptions:
        """Return the options that have none of ``subjects``."""
        return MountOptions(
            tuple(option for option in self.items if option.subject not in subjects)
        )

    def normalised(self) -> MountOptions:
        """Return the winning option of each subject, in the order of these."""
        kept: dict[str, MountOption] = {}
        for option in self.items:
            if option.text:
                kept.pop(option.subject, None)
                kept[option.subject] = option
        return MountOptions(tuple(kept.values()))

    def merged(self, over: MountOptions) -> MountOptions:
        """Return these options with ``over``, which wins for every subject it sets.

        Both are normalised and keep their order; ``over`` comes last.
        """
        base = self.without(*over.subjects()).normalised()
        return MountOptions(base.items + over.normalised().items)

    def conflicts(self) -> tuple[str, ...]:
        """Return a clause for each subject that is set more than once, with different
        values: the last one wins.
        """
        found: dict[str, list[MountOption]] = {}
        for option in self.items:
            if option.text:
                found.setdefault(option.subject, []).append(option)
        return tuple(
            f"{' and '.join(option.text for option in options)} contradict each other "
            f"({subject}); mount would silently use {options[-1].text}"
            for subject, options in found.items()
            if len({option.netid or option.text for option in options}) > 1
        )

    @property
    def netid(self) -> Optional[str]:
        """The transport that mount would use; None if the options name none."""
        option = self.last(TRANSPORT)
        return option.netid if option else None

    @property
    def wants_rdma(self) -> bool:
        """Whether the winning transport is RDMA."""
        return is_rdma(self.netid)

    @property
    def port(self) -> Optional[int]:
        """The winning port; None if the options have none.

        Raises OptionsProblem if it is not a number from 0 to 65535.
        """
        option = self.last(PORT)
        if option is None:
            return None
        port = self.number(PORT)
        if port is None or port > 65535:
            raise OptionsProblem(
                "mount-option-port-invalid",
                f"mount option {option.text!r} has no valid port",
                "give a number from 0 to 65535, as in port=20049",
            )
        return port


def is_rdma(netid: Optional[str]) -> bool:
    """Whether a protocol name of mountinfo, mountstats or ``proto=`` means RDMA."""
    return netid is not None and transport_of(netid) == RDMA


def transport_of(netid: str) -> str:
    """Return RDMA or TCP for a netid of either address family, or another netid."""
    return netid[:-1] if netid in ("rdma6", "tcp6") else netid


def netid_for(transport: str, *, ipv6: bool) -> str:
    """Return the netid of RDMA or TCP: without the 6 it means IPv4 to mount.nfs
    (nfs(5), proto=).
    """
    return f"{transport}6" if ipv6 else transport


DEFAULT_TIMEOUT = 100
DEFAULT_RETRANS = 3
# The engine's values for the NFS version of a storage connection.
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
    # Local locks, unless the engine's options set them (VDSM, bug 1550127).
    if version in (None, "3") and not {"lock", "nolock"} & set(extra):
        extra.append("nolock")
    return ",".join(options + extra)


# storage_server_connections.mount_options is varchar(500); the engine itself does not
# check the length.
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


def engine_problems(text: str) -> tuple[Sentence, ...]:
    """Return why the engine would refuse ``text`` as an NFS domain's mount options.

    Empty if it would accept them. The limits are the length of the database column
    and the engine's list of options that it manages itself.
    """
    problems = []
    if len(text) > ENGINE_LIMIT:
        sentence = (
            f"the mount options have {len(text)} characters; "
            f"the engine stores at most {ENGINE_LIMIT}"
        )
        problems.append(Sentence("mount-options-too-long", sentence))
    names = {option.name.lower() for option in MountOptions.parse(text).items}
    refused = [name for name in ENGINE_REFUSES if name in names]
    if refused:
        sentence = (
            f"the engine refuses {', '.join(refused)} in the mount options; "
            "set version, timeout and retransmissions in the storage connection's own "
            "fields"
        )
        problems.append(Sentence("mount-option-refused-by-engine", sentence))
    return tuple(problems)


# What vendors' documents say of NFS over RDMA with their servers, and the options that
# the Linux client knows. docs/servers.md has the documents, and what else they say.
# What none says is None or empty here, and never a limit.

# NFS_MAX_CONNECTIONS in the kernel's fs/nfs/internal.h; what VAST's client takes.
MOST_NCONNECT, MOST_NCONNECT_OF_VENDORS = 16, 64


@dataclass(frozen=True)
class ServerKind:
    """The NFS servers of a vendor.

    versions: those over RDMA, with the kernel's own client; empty if none is named
    client_versions: with the vendor's client for Linux; empty if there is none
    largest: the largest rsize and wsize in bytes
    programs: how a server of it calls itself (NfsMount.server_program), in part
    """

    name: str
    title: str
    versions: tuple[str, ...] = ()
    client_versions: tuple[str, ...] = ()
    largest: Optional[int] = None
    programs: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The mount options that its document asks for."""
        size = self.largest
        return "" if size is None else f"rsize={size},wsize={size}"


_ALL = ("3", "4.0", "4.1", "4.2")
KINDS = {
    kind.name: kind
    for kind in (
        ServerKind("linux", "Linux", _ALL, programs=("(kernel.org)",)),
        ServerKind(
            "ontap",
            "NetApp ONTAP",
            versions=("3", "4.0", "4.1"),
            largest=1 << 16,
            programs=("(netapp.com)",),
        ),
        ServerKind(
            "powerscale",
            "Dell PowerScale (OneFS)",
            versions=("3",),
            client_versions=("3", "4.1", "4.2"),
        ),
        ServerKind("vast", "VAST", client_versions=("3", "4.1")),
        ServerKind("truenas", "TrueNAS", programs=("truenas",)),
        ServerKind("solaris", "Oracle Solaris"),
        ServerKind("ganesha", "NFS-Ganesha", _ALL),
    )
}
CHOICES = (AUTO, *KINDS)


def kind_of(named: str, program: Optional[str] = None) -> Optional[ServerKind]:
    """Return the kind that a rule names; for AUTO, that of what the server says it is;
    None if nothing tells.
    """
    if named != AUTO:
        return KINDS.get(named)
    said = (program or "").lower()
    # TrueNAS runs Linux, and so its program is both.
    found = [k for k in KINDS.values() if any(p in said for p in k.programs)]
    return found[-1] if found else None


# Mount options. Those of nfs(5) in nfs-utils 2.9.1, and of fs/nfs/fs_context.c in Linux
# 6.18 that it does not list.
_NFS = (
    "ac acdirmax acdirmin acl acregmax acregmin actimeo bg bsize clientaddr cto fg fsc "
    "fatal_neterrors hard intr local_lock lock lookupcache max_connect migration "
    "minorversion mountaddr mounthost mountport mountproto mountvers namlen nconnect "
    "nfsvers noac noacl noalignwrite alignwrite nocto nofsc nointr nolock nomigration "
    "nordirplus noresvport nosharecache nosoftreval notrunkdiscovery port posix proto "
    "rdirplus rdma rdma6 resvport retrans retry rsize sec sharecache sloppy soft "
    "softerr softreval tcp tcp6 timeo trunkdiscovery udp udp6 v2 v3 v4 v4.0 v4.1 v4.2 "
    "vers write wsize xprtsec cert_serial privkey_serial addr"
)
# mount(8), options of every file system; x-… and X-… are for user space.
_MOUNT = (
    "async atime auto comment context defaults defcontext dev diratime dirsync exec "
    "fscontext group iversion lazytime loud mand _netdev noatime noauto nodev "
    "nodiratime noexec nofail noiversion nolazytime nomand norelatime nostrictatime "
    "nosuid nosymfollow nouser owner relatime remount ro rootcontext rw silent "
    "strictatime suid sync user users"
)
KNOWN = frozenset(f"{_NFS} {_MOUNT}".split())
# Of the clients of VAST and PowerScale (their documents above), not of the kernel's.
_VENDORS = (
    "localports localports_failover mdconnect noextend noidlexprt optlockflush "
    "pconnect remoteports remoteports_offset spread_reads spread_writes"
)
OF_VENDORS = frozenset(_VENDORS.split())


def needs_vendors_client(options: MountOptions) -> tuple[str, ...]:
    """Return the options that only a vendor's client takes."""
    names = [one.text for one in options.items if one.name in OF_VENDORS]
    if (options.number("nconnect") or 0) > MOST_NCONNECT:
        names.append(f"nconnect={options.number('nconnect')}")
    return tuple(names)


def contradiction(options: MountOptions, over_rdma: bool) -> Optional[Sentence]:
    """Return why a mount over RDMA can never have these options, and what works."""
    option = options.last("xprtsec")
    if option is None or not over_rdma or option.value not in ("tls", "mtls"):
        return None
    return Sentence(
        "option-not-over-rdma",
        f"{option.text} is for TCP only, so every mount over RDMA fails; write "
        "transport: tcp in this rule, or remove the option (over RDMA, sec=krb5 "
        "authenticates hosts, and sec=krb5p encrypts)",
    )


def remarks(
    options: MountOptions, kind: Optional[ServerKind] = None
) -> Iterator[Sentence]:
    """Yield what may be wrong with mount options for a server of ``kind``."""
    known = KNOWN | OF_VENDORS
    for option in options.items:
        name = option.name
        if not name or name[:2].lower() == "x-":
            continue
        if name not in known:
            near = did_you_mean(name, sorted(known))
            yield Sentence(
                "option-unknown",
                f"{name} is in neither nfs(5) nor mount(8), and the kernel's client "
                f"refuses the mount for it{near and '; '}{near}",
            )
    needed = needs_vendors_client(options)
    if needed and not (kind and kind.client_versions):
        yield Sentence(
            "option-of-vendor",
            f"{', '.join(needed)}: only the client driver of PowerScale or VAST takes "
            "this, and the kernel's own client refuses the mount; each host needs it",
        )
    if kind is not None and kind.largest is not None:
        for name in ("rsize", "wsize"):
            if (options.number(name) or 0) > kind.largest:
                yield Sentence(
                    "option-beyond-server",
                    f"{name}={options.number(name)} is more than {kind.title} takes "
                    f"well over RDMA: {kind.largest}",
                )
