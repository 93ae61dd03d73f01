# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse mountinfo, mountstats and vdsmd's marks of degraded mounts (pure), and read the
sessions of SRP and iSCSI in sysfs.

mountinfo is in proc(5) and fs/proc_namespace.c, mountstats in fs/nfs/super.c and
net/sunrpc/stats.c. Any bytes are accepted.

SRP: drivers/infiniband/ulp/srp/ib_srp.c and drivers/scsi/scsi_transport_srp.c; iSCSI,
with iSER: libiscsi.c and scsi_transport_iscsi.c in drivers/scsi. Nothing waits for a
target that does not respond. open-iscsi has one connection a session.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.system.json_codec import Envelope, Records, json_value, plain
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree

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


MARKS, _MARKS_FORM = Envelope("degraded-mounts"), Records("a mark")


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
# The timeouts of an SRP session, and the word for one that is off.
TIMEOUTS = ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")
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
    shows no address then. ``remote_port`` is SRP's in sysfs, and ``timeouts`` (seconds
    or ``off``) are in the order of TIMEOUTS.

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
        dgid = tree.text(f"{folder}/dgid")
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
