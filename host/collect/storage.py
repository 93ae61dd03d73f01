# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountinfo, mountstats and vdsmd's marks of degraded mounts (pure), and read the
sessions of SRP and iSCSI in sysfs, and the kernel's NFS server on this host.

mountinfo is in proc(5) and fs/proc_namespace.c, mountstats in fs/nfs/super.c and
net/sunrpc/stats.c. Any bytes are accepted.

SRP: drivers/infiniband/ulp/srp/ib_srp.c and drivers/scsi/scsi_transport_srp.c; iSCSI,
with iSER: libiscsi.c and scsi_transport_iscsi.c in drivers/scsi. Nothing waits for a
target that does not respond. open-iscsi has one connection a session.

The NFS server: the files of /proc/fs/nfsd are in fs/nfsd/nfsctl.c, pool_stats in
net/sunrpc/svc_xprt.c, those of /proc/sys/sunrpc/svc_rdma in
net/sunrpc/xprtrdma/svc_rdma.c. The exports are in /var/lib/nfs/etab, which exportfs
writes with all options (nfs-utils, support/nfs/exports.c, putexportent); with
``rootdir`` in the section ``exports`` of nfs.conf(5) their folders are below that.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Optional, Union

from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.infiniband import TIMEOUTS
from ovirt_rdma.host.facts.model import DegradedMark, NfsExport, NfsMount, NfsServer
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.json_codec import Envelope, Records, json_value, plain
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree, conf_texts

MOUNTINFO = "/proc/self/mountinfo"
MOUNTSTATS = "/proc/self/mountstats"
NFS_TYPES = ("nfs", "nfs4")

_OCTAL = rb"\\([0-3][0-7]{2})"


class MountEntry(NamedTuple):
    """One mount, with escapes resolved; ``options`` as in /proc/mounts: those of the
    mount, then those of the file system.
    """

    mountpoint: str
    fstype: str
    source: str
    options: str


def parse_mountinfo(data: bytes) -> tuple[dict[str, MountEntry], list[str]]:
    """Return the visible mounts by mount point, in the kernel's order: of stacked ones
    the last; and a sentence for each invalid line. Any bytes are accepted.
    """
    mounts: dict[str, MountEntry] = {}
    problems = []
    # Not splitlines(): names may have a carriage return or a form feed.
    for number, line in enumerate(data.split(b"\n"), 1):
        entry = _entry(line.split(b" "))
        if entry:
            mounts.pop(entry.mountpoint, None)
            mounts[entry.mountpoint] = entry
        elif line:
            problems.append(f"{MOUNTINFO} line {number} is not a mount entry: skipped")
    return mounts, problems


def unescape(field: bytes) -> str:
    r"""Return a field of mountinfo or mountstats as text; ``\040`` is a space.

    Bytes that are not UTF-8 are kept by surrogateescape.
    """
    if b"\\" in field:
        field = re.sub(_OCTAL, lambda match: bytes([int(match.group(1), 8)]), field)
    return field.decode("utf-8", "surrogateescape")


def normalised_source(source: str) -> str:
    """Return ``server:/path`` without doubled and trailing slashes.

    VDSM does the same (lib/vdsm/storage/fileUtils.py, normalize_path). A source of
    another form is returned unchanged.
    """
    closing = "]:" if source.startswith("[") else ":"
    server, colon, path = source.partition(closing)
    if not colon or not path:
        return source
    normal = posixpath.normpath(path)
    return f"{server}{colon}{normal.replace('//', '/', 1)}"


def _entry(fields: list[bytes]) -> Optional[MountEntry]:
    """Read ``id parent major:minor root mountpoint options [tag...] - fstype source
    super-options``; kernels differ in the tags.
    """
    try:
        dash = fields.index(b"-", 6)
        fstype, source, super_options = fields[dash + 1 : dash + 4]
    except ValueError:
        return None
    if not (fields[0].isdigit() and fields[4].startswith(b"/") and fstype):
        return None
    access, _, rest = unescape(fields[5]).partition(",")
    super_access, _, super_rest = unescape(super_options).partition(",")
    access = "ro" if super_access == "ro" else access
    return MountEntry(
        mountpoint=unescape(fields[4]),
        fstype=unescape(fstype),
        source=unescape(source),
        options=",".join(part for part in (access, rest, super_rest) if part),
    )


class Section(NamedTuple):
    """An NFS mount in mountstats: its source, and the words of its lines, each with its
    number.
    """

    source: str
    lines: list[tuple[int, list[bytes]]]


def parse_mountstats(data: bytes) -> dict[str, Section]:
    """Return the NFS mounts in mountstats by mount point, in its order; of mounts
    stacked on one mount point the last one counts.
    """
    sections: dict[str, Section] = {}
    section: Optional[Section] = None
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if line.startswith((b"device ", b"no device ")):
            # device SOURCE mounted on PATH with fstype TYPE [statvers=1.1]: without
            # spaces, which the kernel escapes.
            section, words = None, line.split(b" ")
            if words[2:4] == [b"mounted", b"on"] and words[5:7] == [b"with", b"fstype"]:
                place, kind = unescape(words[4]), b"".join(words[7:8])
                sections.pop(place, None)
                if kind.decode("latin-1") in NFS_TYPES:
                    section = Section(normalised_source(unescape(words[1])), [])
                    sections[place] = section
        elif section is not None and words:
            section.lines.append((number, words))
    return sections


def nfs_mounts(
    mountinfo: bytes, mountstats: bytes, problems: list[str]
) -> tuple[NfsMount, ...]:
    """Return the visible NFS mounts, in the kernel's order, from the contents of both
    files. Invalid lines get a sentence in ``problems``; the others are used.
    """
    entries, odd = parse_mountinfo(mountinfo)
    problems += odd
    sections = parse_mountstats(mountstats)
    mounts = []
    for entry in entries.values():
        if entry.fstype not in NFS_TYPES:
            continue
        values = dict(
            option.split("=", 1) for option in entry.options.split(",") if "=" in option
        )
        protocols, age_s, program = [], None, None
        section = sections.get(entry.mountpoint)
        for _, (key, *words) in section.lines if section else ():
            if key == b"xprt:" and words:
                protocols.append(words[0].decode("utf-8", "surrogateescape"))
            elif key == b"age:" and len(words) == 1:
                age_s = whole(words[0].decode("ascii", "replace"))
            elif key == b"impl_id:":
                said = _PROGRAM.match(b" ".join(words))
                if said and any(said.groups()):
                    name = b"%b (%b)" % said.groups()
                    program = program or name.decode("utf-8", "surrogateescape")
        mounts.append(
            NfsMount(
                source=normalised_source(entry.source),
                mountpoint=entry.mountpoint,
                options=entry.options,
                version=values.get("vers"),
                protocol=values.get("proto"),
                port=whole(values.get("port", "")),
                address=values.get("addr"),
                age_s=age_s,
                protocols=tuple(protocols),
                server_program=program,
            )
        )
    return tuple(mounts)


# What the server says that it is (fs/nfs/super.c, show_implementation_id).
_PROGRAM = re.compile(rb"name='(.*?)',domain='(.*?)',date='")


@dataclass(frozen=True)
class _Marks:
    mounts: tuple[DegradedMark, ...]


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    since = values.get("since")
    try:
        if since is not None:
            datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return "since", f"is {since!a}, not a time"
    return "", ""


MARKS, _MARKS_FORM = Envelope("degraded-mounts"), Records("a mark", _check)


def marks_to_json(marks: Iterable[DegradedMark]) -> bytes:
    """Return the marks, which vdsmd writes to /run, as ASCII JSON."""
    return MARKS.text(plain(_Marks(tuple(marks)))).encode("ascii")


def marks_from_json(data: bytes) -> tuple[DegradedMark, ...]:
    """Return the marks in ``data``; raises ValueError with the reason if it is not a
    result of :func:`marks_to_json`.
    """
    return _MARKS_FORM.read(_Marks, MARKS.content(json_value(data))).mounts


SRP, ISER, ISCSI = "srp", "iser", "iscsi"
# The states in sysfs of a session that works.
RUNNING, LOGGED_IN = "running", "LOGGED_IN"
# A timeout of an SRP session that is off.
_OFF = "off"

SRP_PORTS = "/sys/class/srp_remote_ports"
SCSI_HOSTS = "/sys/class/scsi_host"
_ISCSI_SESSIONS = "/sys/class/iscsi_session"
_ISCSI_CONNECTIONS = "/sys/class/iscsi_connection"
_ISCSI_HOSTS = "/sys/class/iscsi_host"
_HOST = re.compile(r"host([0-9]+)")

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Lun:
    """A LUN as one session sees it, which is one path to it.

    ``device`` is ``sdb``; ``wwid`` is the one that multipath and VDSM use, such as
    ``36001405...``; ``size`` is in bytes, ``state`` that of the SCSI device. ``map`` is
    the multipath map above it. ``not_offered`` is a clause why VDSM does not offer the
    LUN to the engine; None if it does, unless it is a managed volume.
    """

    device: str
    number: int
    wwid: Optional[str] = None
    size: Optional[int] = None
    vendor: str = ""
    model: str = ""
    state: str = "unknown"
    map: Optional[str] = None
    not_offered: Optional[str] = None

    @property
    def shown_size(self) -> str:
        """The size in sentences and tables: ``1 GiB``."""
        if self.size is None:
            return "unknown size"
        if self.size < _GIB:
            return f"{self.size / _MIB:.4g} MiB"
        return f"{self.size / _GIB:.4g} GiB"


@dataclass(frozen=True)
class Session:
    """A login to a target. ``host`` is the number of its SCSI host.

    ``device`` and ``port`` are the local RDMA port of an SRP session. ``id_ext`` and
    ``ioc_guid`` are 16 hex digits; ``dgid`` is 32, and None for RDMA CM: the kernel
    shows no address then. ``initiator_ext``, which it never shows, is known of sessions
    that we made. ``remote_port`` is SRP's in sysfs, and ``timeouts`` (seconds or
    ``off``) are in the order of TIMEOUTS.

    ``iqn``, ``portal``, ``interface`` (the name of open-iscsi's record) and ``number``
    are for iSCSI and iSER; ``netdev`` is the one that the session is bound to,
    ``local`` and ``remote`` are the addresses of its connection.

    ``state`` is as in sysfs: ``running``, ``blocked``, ``fail-fast`` or ``lost`` for
    SRP, ``LOGGED_IN``, ``FAILED`` or ``FREE`` for iSCSI.
    """

    protocol: str
    host: Optional[int]
    state: str
    device: Optional[str] = None
    port: Optional[int] = None
    id_ext: Optional[str] = None
    ioc_guid: Optional[str] = None
    dgid: Optional[str] = None
    initiator_ext: Optional[str] = None
    remote_port: Optional[str] = None
    timeouts: tuple[Union[int, str, None], ...] = (None, None, None)
    iqn: Optional[str] = None
    portal: Optional[str] = None
    interface: Optional[str] = None
    number: Optional[int] = None
    netdev: Optional[str] = None
    local: Optional[str] = None
    remote: Optional[str] = None
    luns: tuple[Lun, ...] = ()

    @property
    def target(self) -> str:
        """The target in sentences and tables."""
        return self.iqn or self.ioc_guid or "unknown"

    @property
    def title(self) -> str:
        """The session in sentences: ``0002c90300fb1230 by mlx4_0/1``."""
        if self.device:
            return f"{self.target} by {self.device}/{self.port}"
        return f"{self.target} at {self.portal}" if self.portal else self.target

    @property
    def is_up(self) -> bool:
        """Whether its LUNs can be used."""
        return self.state in {RUNNING, LOGGED_IN}


def read_sessions(tree: FileTree, problems: list[str]) -> tuple[Session, ...]:
    """Return all sessions, without their LUNs. One that is being removed is a sentence
    in ``problems``, and left out if it cannot be said what it is.
    """
    return (*_srp(tree, problems), *_iscsi(tree, problems))


def _srp(tree: FileTree, problems: list[str]) -> Iterator[Session]:
    # port-HOST:N
    remote_ports = {
        name.removeprefix("port-").partition(":")[0]: name
        for name in tree.names(SRP_PORTS)
    }
    for name in tree.names(SCSI_HOSTS):
        folder, host = f"{SCSI_HOSTS}/{name}", _HOST.fullmatch(name)
        if "local_ib_device" not in tree.names(folder) or host is None:
            continue
        device, id_ext, ioc_guid = (
            tree.text(f"{folder}/{key}", problems)
            for key in ("local_ib_device", "id_ext", "ioc_guid")
        )
        port = tree.number(f"{folder}/local_ib_port", problems)
        if device is None or port is None or id_ext is None or ioc_guid is None:
            continue
        # The target of the login; dgid is where that has sent it.
        dgid = tree.text(f"{folder}/orig_dgid")
        remote = remote_ports.get(host[1])
        texts = [
            tree.text(f"{SRP_PORTS}/{remote}/{key}") if remote else None
            for key in ("state", *TIMEOUTS)
        ]
        yield Session(
            SRP,
            int(host[1]),
            texts[0] or "unknown",
            device=device,
            port=port,
            id_ext=id_ext.removeprefix("0x"),
            ioc_guid=ioc_guid.removeprefix("0x"),
            dgid=dgid.replace(":", "") if dgid else None,
            remote_port=remote,
            timeouts=tuple(
                _OFF if text == _OFF else whole(text or "") for text in texts[1:]
            ),
        )


def _iscsi(tree: FileTree, problems: list[str]) -> Iterator[Session]:
    for name in tree.names(_ISCSI_SESSIONS):
        folder, number = f"{_ISCSI_SESSIONS}/{name}", name.removeprefix("session")
        # .../host3/session1/iscsi_session/session1
        place = tree.real_path(folder)
        hosts = [
            part for part in (place.parts if place else ()) if _HOST.fullmatch(part)
        ]
        host = hosts[-1] if hosts else ""
        transport = tree.text(f"{SCSI_HOSTS}/{host}/proc_name") if host else None
        connection = f"{_ISCSI_CONNECTIONS}/connection{number}:0"
        address = tree.text(f"{connection}/persistent_address")
        port = tree.text(f"{connection}/persistent_port")
        shown = f"[{address}]" if address and ":" in address else address
        yield Session(
            ISER if transport and ISER in transport else ISCSI,
            whole(host.removeprefix("host")),
            tree.text(f"{folder}/state") or "unknown",
            iqn=tree.text(f"{folder}/targetname", problems) or f"of {name}",
            portal=f"{shown}:{port}" if address and port else shown,
            interface=tree.text(f"{folder}/ifacename"),
            number=whole(number),
            netdev=tree.text(f"{_ISCSI_HOSTS}/{host}/netdev") if host else None,
            local=tree.text(f"{_ISCSI_HOSTS}/{host}/ipaddress") if host else None,
            # A connection that is down has only the persistent address.
            remote=tree.text(f"{connection}/address") or address,
        )


NFSD = "/proc/fs/nfsd"
_ETAB, _EXPORTS, _CONF = "/var/lib/nfs/etab", "/etc/exports", "/etc/nfs.conf"
_SVC_RDMA = "/proc/sys/sunrpc/svc_rdma"
# Each folder costs two programs.
_MOST_EXPORTS = 64


def read_nfs_server(
    tree: FileTree, tools: Tools, problems: list[str], exports: bool
) -> Optional[NfsServer]:
    """Return the NFS server of this host; None if it never ran since boot. Exports,
    which tools look at, are read only with ``exports``.
    """
    if "threads" not in tree.names(NFSD):
        return None
    listeners = tree.data(f"{NFSD}/portlist", problems)
    versions = tree.text(f"{NFSD}/versions", problems)
    queued, woken = pool_statistics(tree.text(f"{NFSD}/pool_stats") or "")
    return NfsServer(
        threads=tree.number(f"{NFSD}/threads", problems),
        listeners=None if listeners is None else port_list(listeners.decode("latin-1")),
        versions=None if versions is None else offered(versions),
        clients=len(tree.names(f"{NFSD}/clients"))
        if tree.is_folder(f"{NFSD}/clients")
        else None,
        queued=queued,
        woken=woken,
        max_requests=tree.number(f"{_SVC_RDMA}/max_requests"),
        max_block_size=tree.number(f"{NFSD}/max_block_size"),
        exports=_exports(tree, tools, problems) if exports else None,
        configured=tuple(
            folder
            for text in _texts(tree, _EXPORTS, ".exports", problems)
            for folder in configured_folders(text)
        ),
    )


def _texts(
    tree: FileTree, file: str, suffix: str, problems: list[str]
) -> Iterator[str]:
    """Yield the texts of a file and of its folder ``FILE.d``."""
    yield _text(tree, file)
    for _, text in conf_texts(tree, (f"{file}.d",), suffix, problems):
        yield text


def _text(tree: FileTree, path: str) -> str:
    return (tree.data(path) or b"").decode("utf-8", "surrogateescape")


def port_list(text: str) -> tuple[str, ...]:
    """Return the listeners of portlist, ``rdma 20049``, each once: there is a line for
    each address family. Any text is accepted.
    """
    lines = (line.split() for line in text.splitlines())
    found = (f"{w[0]} {w[1]}" for w in lines if len(w) == 2 and whole(w[1]) is not None)
    return tuple(dict.fromkeys(found))


def offered(text: str) -> tuple[str, ...]:
    """Return the versions with a plus sign in ``-2 +3 +4 +4.1``. The kernel shows 4.0
    only if it is off (nfsd_print_version_support), and ``-4`` if all of NFS 4 is.
    """
    words = text.split()
    known = ("3", "4.0", "4.1", "4.2")
    implied = "4.0" if "+4" in words and "-4.0" not in words else ""
    return tuple(
        one
        for one in known
        if (f"+{one}" in words or one == implied) and (one == "3" or "-4" not in words)
    )


def pool_statistics(text: str) -> tuple[Optional[int], Optional[int]]:
    """Return the sums of sockets-enqueued and threads-woken over all pools."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    numbers = [[whole(word) for word in row] for row in rows if len(row) >= 4]
    queued, woken = ([row[n] for row in numbers] for n in (2, 3))
    if not numbers or None in queued or None in woken:
        return None, None
    return sum(filter(None, queued)), sum(filter(None, woken))


_ENTRY = re.compile(r"(\S+)\s+(\S*)\(([^()]*)\)")


def export_table(text: str) -> tuple[NfsExport, ...]:
    """Return the exports of etab; lines of another form are left out."""
    entries = (_ENTRY.match(line) for line in text.split("\n"))
    return tuple(
        NfsExport(unescaped(e[1]), unescaped(e[1]), unescaped(e[2]), e[3])
        for e in entries
        if e
    )


def configured_folders(text: str) -> Iterator[str]:
    """Yield the folders in the text of an exports(5) file."""
    for line in text.replace("\\\n", " ").split("\n"):
        found = re.match(r'\s*(?:"([^"]*)"|([^\s#"]\S*))', line)
        folder = unescaped(found[1] or found[2] or "") if found else ""
        if folder.startswith("/"):
            yield folder.rstrip("/") or "/"


def unescaped(text: str) -> str:
    r"""Return a name of these files; ``\040`` is a space."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)


def root_folder(text: str) -> str:
    """Return ``rootdir`` of the section ``exports`` in the text of nfs.conf(5)."""
    section, found = "", ""
    for line in text.split("\n"):
        heading = re.match(r"\s*\[\s*(\S+)", line)
        value = re.match(r"\s*rootdir\s*=\s*(/\S*)", line)
        section = heading[1].rstrip("]").lower() if heading else section
        if value and section == "exports":
            found = value[1].rstrip("/")
    return found


def _exports(
    tree: FileTree, tools: Tools, problems: list[str]
) -> Optional[tuple[NfsExport, ...]]:
    if tree.data(_ETAB, problems) is None:
        return None
    confs = [*_texts(tree, _CONF, ".conf", problems)]
    root = next(filter(None, map(root_folder, reversed(confs))), "")
    entries, _ = parse_mountinfo(tree.data(MOUNTINFO, problems) or b"")
    options = {place: one.options for place, one in entries.items()}
    found: list[NfsExport] = []
    for export in export_table(_text(tree, _ETAB)):
        if len(found) == _MOST_EXPORTS:
            problems.append(f"only the first {_MOST_EXPORTS} exports are looked at")
            break
        folder = f"{root}{export.path}"
        found.append(_looked_at(replace(export, folder=folder), options, tools))
    return tuple(found)


def _looked_at(export: NfsExport, options: dict[str, str], tools: Tools) -> NfsExport:
    """Add the folder and its file system. A tool with a time limit looks at them: a
    disk that hangs must not hang this process.
    """
    folder = export.folder
    owner, problem = _numbers(tools, ["stat", "-L", "-c", "%u %g %a", "--", folder])
    space, _ = _numbers(tools, ["stat", "-f", "-c", "%a %b %S %d %c", "--", folder])
    if owner is None or len(owner) != 3:
        return replace(export, problem=problem or None)
    # The mode is in octal digits.
    mode = int(str(owner[2]), 8) if set(str(owner[2])) <= set("01234567") else None
    export = replace(export, uid=owner[0], gid=owner[1], mode=mode)
    below = (p for p in options if f"{folder}/".startswith(f"{p.rstrip('/')}/"))
    place = max(below, key=len, default=None)
    if place is not None:
        export = replace(export, read_only=options[place].split(",")[0] == "ro")
    if space is not None and len(space) == 5:
        free, blocks, size, files, all_files = space
        export = replace(
            export,
            free=free * size,
            size=blocks * size,
            # File systems without a limit, such as btrfs, have no files in all.
            free_files=files if all_files else None,
        )
    return export


def _numbers(tools: Tools, argv: list[str]) -> tuple[Optional[list[int]], str]:
    if tools.run is None:
        return None, ""
    try:
        found = [whole(word) for word in tools.run(argv).split()]
    except CommandFailed as error:
        return None, str(error)
    numbers = [number for number in found if number is not None]
    return (numbers if len(numbers) == len(found) else None), ""
