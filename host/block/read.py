# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the sessions of block storage over RDMA, their LUNs, and who uses these.

All paths are sysfs's and /proc's, so nothing waits for a target that does not respond.

Drop-ins of multipath.conf may keep vdsmd from starting. From VDSM 4.50.2.2 on,
``vdsm-tool is-configured``, which runs before vdsmd, reads all that multipathd uses,
its defaults too (``show config local``). It raises ValueError for a section that has
both keys and subsections, but for blacklists (_check_conf in
lib/vdsm/storage/mpathconf.py). VDSM's own ``overrides`` has a key, so a ``protocol {
}`` in the overrides of a drop-in, as multipath.conf(5) recommends for SRP, is such a
mix.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.collect.software import multipath_blacklist
from ovirt_rdma.host.collect.storage import ISCSI, RUNNING, Lun, Session, read_sessions
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.system.commands import CommandFailed, Runner
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree

SRP_LOCAL = "/sys/class/infiniband_srp"
SCSI_DEVICES = "/sys/class/scsi_device"
BLOCK = "/sys/class/block"
_MOUNTINFO, _SWAPS = "/proc/self/mountinfo", "/proc/swaps"

_MULTIPATH = "mpath-"
# A partition of a map has nothing of its own; its users are on top.
_PARTITION = re.compile(r"part[0-9]+-")
# The character devices of a SCSI device. QEMU has the first one of a virtual machine's
# host device (the engine's default, scsi_generic).
_CHARACTER = ("scsi_generic", "bsg", "scsi_tape", "scsi_changer")
# These keep block devices open, and close them when one goes.
_OPENERS = ("multipathd", "udevd", "systemd-udevd", "(udev-worker)")
# TOXIC_CHARS, of which the first one counts (getMPDevsIter, multipath.py of VDSM).
_TOXIC = tuple("()*+?|^$.\\")
# The designators of SCSI's page 0x83 by multipath's first digit (uid_attribute
# ID_SERIAL, scsi_id(8)).
_DESIGNATORS = {"naa.": "3", "eui.": "2"}
_SECTOR = 512
# Of the status of a multipath map: a path's number, and A or F (multipath_status,
# drivers/md/dm-mpath.c).
_ACTIVE = re.compile(r"(?<!\S)([0-9]+:[0-9]+) A(?!\S)")


@dataclass(frozen=True)
class BlockFacts:
    """The block storage over RDMA of a host.

    ``srp_ports`` are the local ports where ib_srp can log in, as in sysfs
    (``srp-mlx4_0-1``); None if the module is not loaded. ``srp_daemon`` is whether that
    program runs. ``problems`` are sentences about what could not be read.
    """

    sessions: tuple[Session, ...] = ()
    srp_ports: Optional[tuple[str, ...]] = None
    srp_daemon: bool = False
    problems: tuple[str, ...] = ()


class BlockReader:
    """Reads the block storage of the host whose files are in ``tree``; ``run`` runs its
    tools, which only :meth:`users` needs.
    """

    def __init__(self, tree: FileTree, run: Optional[Runner] = None) -> None:
        self._tree, self._run = tree, run
        self._problems: list[str] = []
        self._blacklist: Optional[frozenset[str]] = frozenset()

    def facts(self) -> BlockFacts:
        """Return all sessions with their LUNs."""
        self._problems = []
        self._blacklist = multipath_blacklist(self._tree.root, self._problems)
        sessions = tuple(
            replace(one, luns=self.luns(one.host))
            for one in read_sessions(self._tree, self._problems)
            if one.protocol != ISCSI
        )
        loaded = self._tree.is_folder(SRP_LOCAL)
        ports = tuple(self._tree.names(SRP_LOCAL)) if loaded else None
        daemon = any(name == "srp_daemon" for _, name in self._processes())
        return BlockFacts(sessions, ports, daemon, tuple(self._problems))

    def luns(self, host: Optional[int]) -> tuple[Lun, ...]:
        """Return the LUNs of a SCSI host, by number."""
        found = [
            self._lun(device, name.rpartition(":")[2], folder)
            for name, folder in self._scsi_devices(host)
            for device in self._tree.names(f"{folder}/block")
        ]
        return tuple(sorted(found, key=lambda lun: (lun.number, lun.device)))

    def users(self, sessions: Collection[Session]) -> tuple[str, ...]:
        """Return what would lose something if all of ``sessions`` ended:
        ``sdb: process 812 (qemu-kvm)``.

        A multipath map that still has another running path loses nothing, so what is
        on top of it is not counted.
        """
        devices = [lun.device for one in sessions for lun in one.luns]
        names: dict[str, str] = {}
        found: list[str] = []
        for device in devices:
            self._reach(device, device, set(devices), names, found)
        paths = {
            number: path
            for name, path in names.items()
            if (number := self._tree.text(f"{BLOCK}/{name}/dev"))
        }
        nodes = {f"block/{number}": path for number, path in paths.items()}
        for one in sessions:
            nodes.update(self._character_devices(one.host))
        found += self._mounts(paths)
        found += self._swaps(names)
        found += self._open(nodes)
        if not found:
            found += self._open_maps(names)
        return tuple(dict.fromkeys(found))

    def _scsi_devices(self, host: Optional[int]) -> Iterator[tuple[str, str]]:
        """Yield the SCSI devices of a host, ``7:0:0:1``, and their folders."""
        for name in self._tree.names(SCSI_DEVICES):
            if name.partition(":")[0] == str(host):
                yield name, f"{SCSI_DEVICES}/{name}/device"

    def _character_devices(self, host: Optional[int]) -> Iterator[tuple[str, str]]:
        """Yield those of a SCSI host, as FileTree.open_device() returns them, and whose
        they are: ``sdb``, or ``7:0:0:1`` for a tape, which is no block device.
        """
        for name, folder in self._scsi_devices(host):
            path = (*self._tree.names(f"{folder}/block"), name)[0]
            for kind in _CHARACTER:
                for node in self._tree.names(f"{folder}/{kind}"):
                    if number := self._tree.text(f"{folder}/{kind}/{node}/dev"):
                        yield f"char/{number}", path

    def _lun(self, device: str, number: str, folder: str) -> Lun:
        text = self._tree.text
        wwid, map = _wwid(text(f"{folder}/wwid")), None
        for holder in self._tree.names(f"{BLOCK}/{device}/holders"):
            uuid = text(f"{BLOCK}/{holder}/dm/uuid") or ""
            if uuid.startswith(_MULTIPATH):
                wwid, map = uuid[len(_MULTIPATH) :], text(f"{BLOCK}/{holder}/dm/name")
        sectors = whole(text(f"{BLOCK}/{device}/size") or "")
        why = self._not_offered(map)
        return Lun(
            device,
            whole(number) or 0,
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
        found: list[str],
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
            if uuid.startswith(_MULTIPATH) and self._has_other(holder, leaving):
                continue
            if not uuid.startswith(_MULTIPATH) and not _PARTITION.match(uuid):
                name = self._tree.text(f"{BLOCK}/{holder}/dm/name") or holder
                found.append(f"{path}: device {name}")
            self._reach(holder, path, leaving, names, found)

    def _has_other(self, map: str, leaving: set[str]) -> bool:
        """Return whether a multipath map has a path that runs and is not ``leaving``.

        multipathd fails a path in the map alone: its SCSI device still says running.
        """
        text = self._tree.text
        others = set(self._tree.names(f"{BLOCK}/{map}/slaves")) - leaving
        running = {
            text(f"{BLOCK}/{one}/dev")
            for one in others
            if text(f"{BLOCK}/{one}/device/state") == RUNNING
        }
        name = text(f"{BLOCK}/{map}/dm/name")
        if not running or name is None or self._run is None:
            return False
        try:
            status = self._run(("dmsetup", "status", "--noflush", name))
        except CommandFailed:
            return False
        return not running.isdisjoint(_ACTIVE.findall(status))

    def _mounts(self, paths: dict[str, str]) -> Iterator[str]:
        unread: list[str] = []
        table = self._tree.data(_MOUNTINFO, unread) or b""
        yield from unread  # what is mounted is unknown: a user of all
        for line in table.decode("utf-8", "surrogateescape").splitlines():
            words = line.split(" ")
            if len(words) > 4 and words[2] in paths:
                yield f"{paths[words[2]]}: mounted at {words[4]}"

    def _swaps(self, names: dict[str, str]) -> Iterator[str]:
        # NAME TYPE SIZE USED PRIORITY; the kernel writes blanks in names as \040.
        for line in (self._tree.text(_SWAPS) or "").splitlines()[1:]:
            file, type, *_ = (*line.split(), "", "")
            name = file.rpartition("/")[2]
            if type == "partition" and name in names:
                yield f"{names[name]}: swap"

    def _open(self, nodes: dict[str, str]) -> Iterator[str]:
        for pid, program in self._processes():
            if program in _OPENERS:
                continue
            folder = f"/proc/{pid}/fd"
            opened = {
                self._tree.open_device(f"{folder}/{n}")
                for n in self._tree.names(folder)
            }
            for node, path in nodes.items():
                if node in opened:
                    yield f"{path}: process {pid} ({program})"

    def _open_maps(self, names: dict[str, str]) -> Iterator[str]:
        """Yield the multipath maps that the kernel itself has open, which nothing else
        shows: a mount in another namespace, btrfs, a target of this host.

        An exclusive open of the LUN would show it without a map too, but waits for a
        target that does not respond.
        """
        for name, path in names.items():
            map = self._tree.text(f"{BLOCK}/{name}/dm/name")
            holders = self._tree.names(f"{BLOCK}/{name}/holders")
            if map is None or holders or self._run is None:
                continue
            argv = ("dmsetup", "info", "-c", "--noheadings", "-o", "open", map)
            try:
                count = self._run(argv).strip()
            except CommandFailed as error:
                count = f"unknown: {error}"
            if count != "0":
                yield f"{path}: device {map}, whose open count is {count}"

    def _processes(self) -> Iterator[tuple[str, str]]:
        for pid in self._tree.names("/proc"):
            if pid.isdecimal():
                yield pid, self._tree.text(f"/proc/{pid}/comm") or "unknown"


def _wwid(text: Optional[str]) -> Optional[str]:
    for prefix, digit in _DESIGNATORS.items():
        if text and text.startswith(prefix):
            return digit + text[len(prefix) :]
    return text


MAIN = "/etc/multipath.conf"
FOLDER = "/etc/multipath/conf.d"
_SKIPPED = ("blacklist", "blacklist_exceptions")


def multipath_findings(tree: FileTree, problems: list[str]) -> list[Sentence]:
    """Return a sentence for each file that makes a section a mix. What cannot be read
    is a sentence in ``problems``.
    """
    folder, _, main = MAIN.rpartition("/")
    names = [n for n in tree.names(FOLDER) if n.endswith(".conf") and n[0] != "."]
    files = [MAIN] if main in tree.names(folder) else []
    files += (f"{FOLDER}/{name}" for name in names)
    data = [(file, tree.data(file, problems) or b"") for file in files]
    return mixed_sections((file, text.decode(errors="replace")) for file, text in data)


def mixed_sections(texts: Iterable[tuple[str, str]]) -> list[Sentence]:
    """Return a sentence for each subsection in a section that also has keys, of the
    files and texts that multipathd merges. Pure.
    """
    keys: set[str] = set()
    inner: dict[tuple[str, str, str], None] = {}
    for file, text in texts:
        for section, entry, is_section in _entries(text):
            if section in _SKIPPED:
                continue
            if is_section:
                inner[file, section, entry] = None
            else:
                keys.add(section)
    return [
        Sentence(
            "multipath-stops-vdsmd",
            f"{file} has {entry} {{ }} in its section {section}, which also has keys: "
            "vdsm-tool of VDSM 4.50.2.2 and later fails on that, and vdsmd does not "
            "start; use devices { device { } } in its place",
        )
        for file, section, entry in inner
        if section in keys
    ]


def _entries(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of each section: its name, the entry's, and whether that is a
    section itself.
    """
    path: list[str] = []
    for line in text.splitlines():
        # A brace within quotes is no brace; the lexer of multipath knows both marks.
        words = line.split('"')[0].split("#")[0].split("!")[0]
        words = words.replace("{", " { ").replace("}", " } ")
        name = ""
        for word in words.split():
            if word == "{":
                if len(path) == 1:
                    yield path[0], name, True
                path.append(name)
                name = ""
            elif word == "}":
                if len(path) == 1 and name:
                    yield path[0], name, False
                name = ""
                if path:
                    path.pop()
            elif not name:
                name = word
        if len(path) == 1 and name:
            yield path[0], name, False
