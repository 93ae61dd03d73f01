# SPDX-License-Identifier: GPL-2.0-or-later
"""LUNs of a fake host, and the writes to sysfs as its kernel takes them.

drivers/infiniband/ulp/srp/ib_srp.c and drivers/scsi/scsi_transport_srp.c, Linux 6.1.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from ovirt_rdma.host.block import sessions
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree
from support.fakes.fake_root import FakeRoot

GUID = "0002c90300fb1230"
NAA = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa"


class FakeBlock:
    """The SRP sessions of ``root``; ``targets`` are those that accept a login: their
    ioc_guid to the sizes of their LUNs in sectors. ``errors`` has the errno for others.
    ``log`` is the kernel's log, ``written`` has each login, ``nodes`` the devices of
    nodes that do not have the kernel's name. ``status`` has the paths of multipath maps
    as dmsetup(8) shows them, None if it fails; ``open_counts`` those that are not 0.
    """

    def __init__(self, root: FakeRoot) -> None:
        self.root = root
        self.targets: dict[str, list[int]] = {}
        self.errors: dict[str, int] = {}
        self.log: list[str] = ["[    1.000000] an older line"]
        self.written: list[tuple[str, str]] = []
        self.nodes: dict[str, str] = {}
        self.status: dict[str, Optional[str]] = {}
        self.open_counts: dict[str, int] = {}
        self._hosts = 0
        self._extensions: dict[int, str] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the verbs of block storage act on this host."""
        monkeypatch.setattr(
            FileTree, "open_device", lambda tree, link: self.open_device(link)
        )
        srp = sessions.Srp
        monkeypatch.setattr(
            sessions, "HostReader", lambda top: HostReader(top, self.root.runner)
        )
        monkeypatch.setattr(
            sessions, "Srp", lambda top, _: srp(top, self.run, self.write)
        )
        write = sessions._written

        def written(path: Path, text: str) -> bool:
            if path.name == "delete":
                port = path.parent.name.removeprefix("port-").partition(":")[0]
                self.remove(int(port))
            return write(path, text)

        monkeypatch.setattr(sessions, "_written", written)

    def run(self, argv: Sequence[str]) -> str:
        """Run modprobe, dmesg, and dmsetup status and info."""
        if argv[0] == "dmsetup":
            status = self.status[argv[-1]]
            if status is None:
                raise CommandFailed("Device does not exist.", 1)
            if argv[1] == "info":
                return f"{self.open_counts.get(argv[-1], 0)}\n"
            return f"0 2048 multipath 2 0 0 0 1 1 A 0 2 2 {status}\n"
        return {"modprobe": "", "dmesg": "\n".join(self.log)}[argv[0]]

    def local_port(self, name: str) -> None:
        """Let ib_srp offer a local port, such as srp-mlx4_0-1."""
        self.root.write(f"/sys/class/infiniband_srp/{name}/port", "1")
        self.root.write(f"/sys/class/infiniband_srp/{name}/add_target", "")

    def write(self, path: Path, text: str, timeout_s: float) -> int:
        """Take a login as add_target_store() does, and anything for another file;
        return the errno.
        """
        local = path.parent.name
        if not path.exists():
            return errno.ENOENT
        if path.name != "add_target":
            path.write_text(text)
            return 0
        self.written.append((local, text))
        values = dict(word.split("=") for word in text.split(","))
        guid, extension = values["ioc_guid"], values.get("initiator_ext", "")
        for host, name, other in self._sessions():
            same = (name, other, self._extensions.get(int(host), ""))
            if same == (local, guid, extension):
                self.log.append(f"scsi host{host}: ib_srp: Already connected")
                return errno.EEXIST
        if guid in self.targets:
            self.session(local, values)
            return 0
        return self.errors.get(guid, errno.ECONNRESET)

    def reuse_numbers(self) -> None:
        """Let the next SCSI host have the lowest free number, as scsi_host_alloc() of
        drivers/scsi/hosts.c.
        """
        used = {int(host) for host, *_ in self._sessions()}
        self._hosts = min({*range(len(used) + 1)} - used)

    def session(self, local: str, values: dict[str, str]) -> int:
        """Add a session by a local port; return the number of its SCSI host."""
        number, self._hosts = self._hosts, self._hosts + 1
        self._extensions[number] = values.get("initiator_ext", "")
        _, device, port = local.split("-")
        folder = f"/sys/class/scsi_host/host{number}"
        remote = f"/sys/class/srp_remote_ports/port-{number}:1"
        for name, text in {
            "local_ib_device": device,
            "local_ib_port": port,
            "id_ext": f"0x{values['id_ext']}",
            "ioc_guid": f"0x{values['ioc_guid']}",
            "scan": "",
        }.items():
            self.root.write(f"{folder}/{name}", text)
        for name, text in {
            "state": "running",
            "fast_io_fail_tmo": "15",
            "dev_loss_tmo": "600",
            "reconnect_delay": "10",
            "delete": "",
        }.items():
            self.root.write(f"{remote}/{name}", text)
        if "dgid" in values:
            gid = values["dgid"]
            parts = [gid[n : n + 4] for n in range(0, 32, 4)]
            self.root.write(f"{folder}/orig_dgid", ":".join(parts))
        else:
            self.root.unreadable(f"{folder}/orig_dgid")  # ENOENT on reading
        for lun, sectors in enumerate(self.targets.get(values["ioc_guid"], [])):
            self.lun(number, lun, f"sd{chr(97 + number)}{lun or ''}", sectors)
        return number

    def remove(self, host: int) -> None:
        """Remove a session with its LUNs."""
        top = self.root.path / "sys/class"
        for path in top.glob(f"scsi_device/{host}:*"):
            shutil.rmtree(path)
        for name in (f"scsi_host/host{host}", f"srp_remote_ports/port-{host}:1"):
            shutil.rmtree(top / name, ignore_errors=True)

    def lun(self, host: int, number: int, device: str, sectors: int) -> None:
        """Add a LUN; its WWID ends with its number."""
        path = f"/sys/devices/host{host}/{host}:0:0:{number}"
        block = f"{path}/block/{device}"
        self.root.link(f"/sys/class/scsi_device/{host}:0:0:{number}/device", path)
        for name, text in {
            "vendor": "LIO-ORG",
            "model": f"disk{number}",
            "state": "running",
            "wwid": f"naa.{NAA[:-2]}{number:02}",
            "rescan": "",
        }.items():
            self.root.write(f"{path}/{name}", text)
        self.root.write(f"{block}/size", str(sectors))
        self.root.write(f"{block}/dev", f"8:{host * 16 + number}")
        self.root.link(f"{block}/device", path)
        self.root.link(f"/sys/class/block/{device}", block)

    def character_device(self, address: str, kind: str, name: str, number: str) -> None:
        """Add one, such as st0 of the class scsi_tape, to a SCSI device, which may be
        new.
        """
        path = f"/sys/devices/host{address.partition(':')[0]}/{address}"
        self.root.write(f"{path}/{kind}/{name}/dev", number)
        self.root.link(f"/sys/class/{kind}/{name}", f"{path}/{kind}/{name}")
        if not (self.root.path / f"sys/class/scsi_device/{address}").exists():
            self.root.link(f"/sys/class/scsi_device/{address}/device", path)

    def mapped(self, minor: int, name: str, uuid: str, *slaves: str) -> str:
        """Add a device-mapper device on others; return its name, dm-N."""
        device = f"dm-{minor}"
        path = f"/sys/devices/virtual/block/{device}"
        self.root.write(f"{path}/dm/name", name)
        active = (self.root.path / f"sys/class/block/{one}/dev" for one in slaves)
        self.status[name] = " ".join(
            f"{dev.read_text().strip()} A 0 0 1" for dev in active
        )
        self.root.write(f"{path}/dm/uuid", uuid)
        self.root.write(f"{path}/dev", f"253:{minor}")
        self.root.link(f"/sys/class/block/{device}", path)
        for slave in slaves:
            own = (self.root.path / f"sys/class/block/{slave}").resolve()
            inside = "/" + str(own.relative_to(self.root.path.resolve()))
            self.root.link(f"{inside}/holders/{device}", path)
            self.root.link(f"{path}/slaves/{slave}", inside)
        return device

    def process(self, pid: int, program: str, *opened: str) -> None:
        """Add a process with open devices, such as sda, or files."""
        self.root.write(f"/proc/{pid}/comm", program)
        for number, name in enumerate(opened, 3):
            link = self.root.path / f"proc/{pid}/fd/{number}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path("/dev", name))

    def open_device(self, link: str) -> Optional[str]:
        """Stand for FileTree.open_device, because only root may make device nodes."""
        opened = (self.root.path / link.lstrip("/")).readlink()
        plain = opened.name if opened.parent == Path("/dev") else None
        name = self.nodes.get(str(opened), plain)
        for kind, found in (("block", "block"), ("char", "scsi_*")):
            for file in self.root.path.glob(f"sys/class/{found}/{name}/dev"):
                return f"{kind}/{file.read_text().strip()}"
        return None

    def _sessions(self) -> list[tuple[str, str, str]]:
        found = []
        hosts = self.root.path / "sys/class/scsi_host"
        for host in hosts.iterdir() if hosts.is_dir() else ():
            read = {f: (host / f).read_text().strip() for f in _IDENTITY}
            local = f"srp-{read['local_ib_device']}-{read['local_ib_port']}"
            number, guid = host.name.removeprefix("host"), read["ioc_guid"]
            found.append((number, local, guid.removeprefix("0x")))
        return found


_IDENTITY = ("local_ib_device", "local_ib_port", "ioc_guid")
