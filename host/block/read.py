# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the sessions of block storage over RDMA, their LUNs, and who uses these.

Sessions: drivers/infiniband/ulp/srp/ib_srp.c and drivers/scsi/scsi_transport_srp.c for
SRP, drivers/scsi/scsi_transport_iscsi.c for iSER. All paths are sysfs's and /proc's, so
nothing waits for a target that does not respond.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Optional

from ovirt_rdma.host.block.model import (
    ISER,
    RUNNING,
    SRP,
    TIMEOUTS,
    BlockFacts,
    Lun,
    Session,
    User,
)
from ovirt_rdma.host.collect.parsers.vdsm_conf import multipath_blacklist
from ovirt_rdma.host.policy.block_fields import OFF, Timeout
from ovirt_rdma.host.system.tree import FileTree

SRP_LOCAL = "/sys/class/infiniband_srp"
SRP_PORTS = "/sys/class/srp_remote_ports"
SCSI_HOSTS = "/sys/class/scsi_host"
SCSI_DEVICES = "/sys/class/scsi_device"
BLOCK = "/sys/class/block"
_ISCSI_SESSIONS = "/sys/class/iscsi_session"
_ISCSI_CONNECTIONS = "/sys/class/iscsi_connection"
_MOUNTINFO, _SWAPS = "/proc/self/mountinfo", "/proc/swaps"

_MULTIPATH = "mpath-"
# A partition of a map has nothing of its own; its users are on top.
_PARTITION = re.compile(r"part[0-9]+-")
# These keep block devices open, and close them when one goes.
_OPENERS = ("multipathd", "udevd", "systemd-udevd", "(udev-worker)")
# TOXIC_CHARS, of which the first one counts (getMPDevsIter, multipath.py of VDSM).
_TOXIC = tuple("()*+?|^$.\\")
# The designators of SCSI's page 0x83 by multipath's first digit (uid_attribute
# ID_SERIAL, scsi_id(8)).
_DESIGNATORS = {"naa.": "3", "eui.": "2"}
_SECTOR = 512


class BlockReader:
    """Reads the block storage of the host whose files are in ``tree``."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._problems: list[str] = []
        self._blacklist: Optional[frozenset[str]] = frozenset()

    def facts(self) -> BlockFacts:
        """Return all sessions with their LUNs."""
        self._problems = []
        self._blacklist = multipath_blacklist(self._tree.root, self._problems)
        sessions = (*self._srp(), *self._iser())
        loaded = self._tree.is_folder(SRP_LOCAL)
        ports = tuple(self._tree.names(SRP_LOCAL)) if loaded else None
        daemon = any(name == "srp_daemon" for _, name in self._processes())
        return BlockFacts(sessions, ports, daemon, tuple(self._problems))

    def luns(self, host: int) -> tuple[Lun, ...]:
        """Return the LUNs of a SCSI host, by number."""
        found = []
        for name in self._tree.names(SCSI_DEVICES):
            number, _, rest = name.partition(":")
            if number != str(host):
                continue
            folder = f"{SCSI_DEVICES}/{name}/device"
            for device in self._tree.names(f"{folder}/block"):
                found.append(self._lun(device, rest.rpartition(":")[2], folder))
        return tuple(sorted(found, key=lambda lun: (lun.number, lun.device)))

    def users(self, devices: Collection[str]) -> tuple[User, ...]:
        """Return what uses ``devices``, such as sdb, if all of them went.

        A multipath map that still has another running path loses nothing, so what is
        on top of it is not counted.
        """
        names: dict[str, str] = {}
        found: list[User] = []
        for device in devices:
            self._reach(device, device, set(devices), names, found)
        paths = {
            number: path
            for name, path in names.items()
            if (number := self._tree.text(f"{BLOCK}/{name}/dev"))
        }
        found += self._mounts(paths)
        found += self._swaps(names)
        found += self._open(paths)
        return tuple(dict.fromkeys(found))

    def _srp(self) -> Iterator[Session]:
        remote = self._remote_ports()
        for name in self._tree.names(SCSI_HOSTS):
            folder = f"{SCSI_HOSTS}/{name}"
            number = name.removeprefix("host")
            if "local_ib_device" not in self._tree.names(folder):
                continue
            texts = {
                key: self._tree.text(f"{folder}/{key}", self._problems)
                for key in ("local_ib_device", "local_ib_port", "id_ext", "ioc_guid")
            }
            if None in texts.values() or not number.isdecimal():
                continue  # it is being removed; the problem is noted
            port = remote.get(number)
            dgid = self._tree.text(f"{folder}/dgid")
            yield Session(
                SRP,
                int(number),
                (port and self._tree.text(f"{SRP_PORTS}/{port}/state")) or "unknown",
                texts["local_ib_device"],
                _number(texts["local_ib_port"]),
                _digits(texts["id_ext"]),
                _digits(texts["ioc_guid"]),
                dgid.replace(":", "") if dgid else None,
                remote_port=port,
                timeouts=tuple(self._timeout(port, key) for key in TIMEOUTS),
                luns=self.luns(int(number)),
            )

    def _remote_ports(self) -> dict[str, str]:
        """Return the names of SRP's remote ports, ``port-HOST:N``, by HOST."""
        return {
            name.removeprefix("port-").partition(":")[0]: name
            for name in self._tree.names(SRP_PORTS)
        }

    def _timeout(self, port: Optional[str], key: str) -> Timeout:
        text = self._tree.text(f"{SRP_PORTS}/{port}/{key}") if port else None
        return OFF if text == OFF else _number(text)

    def _iser(self) -> Iterator[Session]:
        for name in self._tree.names(_ISCSI_SESSIONS):
            folder = f"{_ISCSI_SESSIONS}/{name}"
            place = self._tree.real_path(folder)
            hosts = (
                [part for part in place.parts if re.fullmatch(r"host\d+", part)]
                if place
                else []
            )
            if not hosts:
                continue
            kind = self._tree.text(f"{SCSI_HOSTS}/{hosts[-1]}/proc_name") or ""
            if "iser" not in kind:
                continue
            number = name.removeprefix("session")
            connection = f"{_ISCSI_CONNECTIONS}/connection{number}:0"
            address = self._tree.text(f"{connection}/persistent_address")
            port = self._tree.text(f"{connection}/persistent_port")
            host = int(hosts[-1].removeprefix("host"))
            shown = f"[{address}]" if address and ":" in address else address
            yield Session(
                ISER,
                host,
                self._tree.text(f"{folder}/state") or "unknown",
                iqn=self._tree.text(f"{folder}/targetname", self._problems),
                portal=f"{shown}:{port}" if address and port else None,
                interface=self._tree.text(f"{folder}/ifacename"),
                number=_number(number),
                luns=self.luns(host),
            )

    def _lun(self, device: str, number: str, folder: str) -> Lun:
        text = self._tree.text
        wwid, map = _wwid(text(f"{folder}/wwid")), None
        for holder in self._tree.names(f"{BLOCK}/{device}/holders"):
            uuid = text(f"{BLOCK}/{holder}/dm/uuid") or ""
            if uuid.startswith(_MULTIPATH):
                wwid, map = uuid[len(_MULTIPATH) :], text(f"{BLOCK}/{holder}/dm/name")
        sectors = _number(text(f"{BLOCK}/{device}/size"))
        why = self._not_offered(map)
        return Lun(
            device,
            _number(number) or 0,
            wwid,
            None if sectors is None else sectors * _SECTOR,
            text(f"{folder}/vendor") or "",
            text(f"{folder}/model") or "",
            text(f"{folder}/state") or "unknown",
            map,
            why,
        )

    def _not_offered(self, map: Optional[str]) -> Optional[str]:
        if map is None:
            return "multipath has no map for it"
        if map.startswith(_TOXIC):
            return f"its map's name begins with {map[0]!r}"
        if self._blacklist is None:
            return "vdsm.conf cannot be read"
        if map in self._blacklist:
            return f"[multipath] blacklist in vdsm.conf has its map {map}"
        return None

    def _reach(
        self,
        device: str,
        path: str,
        leaving: set[str],
        names: dict[str, str],
        found: list[User],
    ) -> None:
        """Add the block devices on ``device`` to ``names``, each with its ``path``."""
        if device in names:
            return
        names[device] = path
        folder = f"{BLOCK}/{device}"
        for inner in self._tree.names(folder):
            if inner.startswith(device) and self._tree.text(
                f"{folder}/{inner}/partition"
            ):
                self._reach(inner, path, leaving, names, found)
        for holder in self._tree.names(f"{folder}/holders"):
            uuid = self._tree.text(f"{BLOCK}/{holder}/dm/uuid") or ""
            if uuid.startswith(_MULTIPATH) and self._other_path(holder, leaving):
                continue
            if not uuid.startswith(_MULTIPATH) and not _PARTITION.match(uuid):
                name = self._tree.text(f"{BLOCK}/{holder}/dm/name") or holder
                found.append(User(path, f"device {name}"))
            self._reach(holder, path, leaving, names, found)

    def _other_path(self, map: str, leaving: set[str]) -> bool:
        others = set(self._tree.names(f"{BLOCK}/{map}/slaves")) - leaving
        return any(
            self._tree.text(f"{BLOCK}/{other}/device/state") == RUNNING
            for other in others
        )

    def _mounts(self, paths: dict[str, str]) -> Iterator[User]:
        table = self._tree.data(_MOUNTINFO, self._problems) or b""
        for line in table.decode("utf-8", "surrogateescape").splitlines():
            words = line.split(" ")
            if len(words) > 4 and words[2] in paths:
                yield User(paths[words[2]], f"mounted at {words[4]}")

    def _swaps(self, names: dict[str, str]) -> Iterator[User]:
        # NAME TYPE SIZE USED PRIORITY; the kernel writes blanks in names as \040.
        for line in (self._tree.text(_SWAPS) or "").splitlines()[1:]:
            file, type, *_ = (*line.split(), "", "")
            name = file.rpartition("/")[2]
            if type == "partition" and name in names:
                yield User(names[name], "swap")

    def _open(self, paths: dict[str, str]) -> Iterator[User]:
        for pid, program in self._processes():
            if program in _OPENERS:
                continue
            folder = f"/proc/{pid}/fd"
            opened = {
                self._tree.open_device(f"{folder}/{n}")
                for n in self._tree.names(folder)
            }
            for number, path in paths.items():
                if number in opened:
                    yield User(path, f"process {pid} ({program})")

    def _processes(self) -> Iterator[tuple[str, str]]:
        for pid in self._tree.names("/proc"):
            if pid.isdecimal():
                yield pid, self._tree.text(f"/proc/{pid}/comm") or "unknown"


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _digits(text: Optional[str]) -> Optional[str]:
    return text.removeprefix("0x") if text else None


def _wwid(text: Optional[str]) -> Optional[str]:
    for prefix, digit in _DESIGNATORS.items():
        if text and text.startswith(prefix):
            return digit + text[len(prefix) :]
    return text
