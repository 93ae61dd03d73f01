# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake host that can be changed: its files in /sys react to writes, and the tools
that changes use have an effect.

    host = ChangingRoot(tmp_path)               # or: changing(connectx3_ib, tmp_path)
    host.network_manager()
    host.nm_device("ib0", "disconnected")
    effects = host.effects()
    effects.do(act)
    assert host.state("ib0") == ("connected", "65520", "off [requested on]")

``host.reader()`` reads it. ``host.fail("nmcli connection up", 4)`` makes a tool fail,
``host.refusals["/sys/class/net/ib0/mode"] = errno.EROFS`` makes the kernel refuse. The
kernel accepts writes to the files in ``host.ignored``, and ignores them.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.paths import DAEMON_UNIT, RDMA_CM_CONFIG
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from support.fakes import fake_hosts as host_fake_hosts
from support.fakes.fake_changing_nm import ChangingNetworkManager
from support.fakes.fake_netdevs import NOT_SUPPORTED
from support.fakes.fake_root import FakeRoot

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_OPENSM = "ovirt-rdma-opensm@0x0002c90300fb1231.service"


@dataclass
class ChangingRoot(ChangingNetworkManager):
    """``failures`` are tools that fail, by the first words of their command; ``failed``
    are the commands that did.

    ``units`` has the state of our own systemd units. ``waited`` counts the seconds
    that effects have waited, which pass at once. ``roce_tos`` is what RDMA CM keeps of
    each port's default type of service, also without its folder of configfs
    (drivers/infiniband/core/cma.c:224).
    """

    failures: dict[tuple[str, ...], CommandFailed] = field(default_factory=dict)
    failed: list[tuple[str, ...]] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    roce_tos: dict[str, str] = field(default_factory=dict)
    waited: float = 0.0
    time: float = 1_700_003_600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.write(_BOOT_ID, str(uuid.uuid4()))
        for name in ("dcb", "ethtool", "ip", "modprobe"):
            self.runner.program(name, getattr(self, f"_{name}"))

    def network_manager(self, running: bool = True) -> None:
        """Install NetworkManager."""
        super().network_manager(running)
        (self.path / "etc/NetworkManager/system-connections").mkdir(
            parents=True, exist_ok=True
        )
        self.runner.program("nmcli", self.nm_command)

    def systemd(self) -> None:
        """Make systemd run, with our own units installed, one of opensm disabled."""
        (self.path / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        self.units = {_OPENSM: "disabled"}
        self.unit(DAEMON_UNIT, "inactive", "static")
        self.runner.program("systemctl", self._systemctl)

    def effects(self) -> HostEffects:
        """Return the backend for this host."""
        host = HostEffects(
            self.path, self.run, self.sleep, lambda: self.time, self.kernel_write
        )
        host.make_folder = self.make_cm_folder  # type: ignore[method-assign]
        return host

    def make_cm_folder(self, path: str) -> None:
        """Make the folder of an RDMA device, with those of its ports (make_cma_dev,
        cma_configfs.c).
        """
        ports = self.path / f"sys/class/infiniband/{Path(path).name}/ports"
        if not (self.path / RDMA_CM_CONFIG.lstrip("/")).is_dir():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not ports.is_dir():
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        for port in ports.iterdir():
            tos = f"{path}/ports/{port.name}/default_roce_tos"
            self.write(tos, self.roce_tos.get(tos, "0"))
            self.write(tos.replace("_tos", "_mode"), "RoCE v2")

    def kernel_write(self, path: Path, data: bytes) -> None:
        """Write to a file of /sys, also to those of configfs and of MLNX_OFED."""
        target = "/" + str(path.relative_to(self.path))
        cm, ecn = target.startswith(RDMA_CM_CONFIG), "/ecn/roce_" in target
        if not (cm or ecn) or target in self.refusals or not path.is_file():
            super().kernel_write(path, data)
            return
        value = data.decode().removesuffix("\n")
        assert 0 <= int(value) < (256 if cm else 2)
        self.written.append((target, value))
        self.write(target, value)
        if cm:
            self.roce_tos[target] = value

    def run(self, argv: Sequence[str]) -> str:
        """Run a tool: the runner of changes and readers."""
        for words, failure in self.failures.items():
            if tuple(argv[: len(words)]) == words:
                self.failed.append(tuple(argv))
                raise failure
        return self.runner(argv)

    def fail(self, command: str, code: int = 1, said: str = "Error: it failed") -> None:
        """Make commands fail that begin with these words."""
        self.failures[tuple(command.split())] = CommandFailed(said, code)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.waited += seconds
        self.time += seconds

    def reboot(self) -> None:
        """Boot: the kernel forgets its values, NetworkManager activates its profiles.
        The caller has to do what our own units do at boot.
        """
        self.write(_BOOT_ID, str(uuid.uuid4()))
        for path in sorted((self.path / "run").rglob("*"), reverse=True):
            if path.is_file():
                path.unlink()
        for name in self.base_netdevs():
            self.anew(name)
        for port in self.dcb_ports.values():
            port.__init__()  # type: ignore[misc]
        self.roce_tos.clear()
        shutil.rmtree(self.path / RDMA_CM_CONFIG.lstrip("/"), ignore_errors=True)
        self.nm_boot()

    # Tools

    def _prepared(self, argv: Sequence[str]) -> str:
        """Return FakeRoot's answer to a command that changes nothing."""
        known = self.runner.answers.get(tuple(argv))
        if known is None:
            raise AssertionError(f"no answer is prepared for: {' '.join(argv)}")
        if isinstance(known, CommandFailed):
            raise known
        return known() if callable(known) else known

    def _dcb(self, argv: Sequence[str]) -> str:
        if not self.dcb_ports:
            raise NotInstalled("No such file or directory")
        if argv[1] == "-j" and argv[-1] not in self.dcb_ports:
            raise NOT_SUPPORTED
        if argv[1] == "-j":
            return self._prepared(argv)
        self.dcb_ports[argv[4]].command(argv[1:])
        return ""

    def _ethtool(self, argv: Sequence[str]) -> str:
        if argv[1] == "-A":
            _, _, name, rx, receive, tx, send = argv
            assert (rx, tx) == ("rx", "tx")
            self.pause(name, receive == "on", send == "on")
            return ""
        if argv[1] == "-K":
            _, _, name, feature, wanted = argv
            assert wanted in ("on", "off")
            if name not in self.netdevs():
                raise CommandFailed("netlink error: No such device", 1)
            if not self.set_feature(name, feature, wanted == "on"):
                raise CommandFailed("Could not change any device features", 1)
            return ""
        if argv[1] == "-k" and argv[2] != "*":
            if argv[2] not in self._features:
                raise CommandFailed("netlink error: No such device", 1)
            lines = [
                f"{key}: {state}" for key, state in self._features[argv[2]].items()
            ]
            return "\n".join([f"Features for {argv[2]}:", *lines]) + "\n"
        if argv[1] == "-a" and tuple(argv) not in self.runner.answers:
            assert argv[2] in self.netdevs()
            raise NOT_SUPPORTED  # a netdev that was renamed
        return self._prepared(argv)

    def _ip(self, argv: Sequence[str]) -> str:
        if list(argv[1:3]) == ["link", "delete"]:
            (name,) = argv[3:]
            self.remove_netdev(name)
            return ""
        if list(argv[1:3]) != ["link", "set"]:
            return self._prepared(argv)
        _, _, _, name, up = argv
        assert up == "up"
        if name not in self.netdevs():
            raise CommandFailed(f'Cannot find device "{name}"', 1)
        self.write(f"/sys/class/net/{name}/operstate", "up")
        return ""

    def _modprobe(self, argv: Sequence[str]) -> str:
        _, name = argv
        if name == "rdma_cm":
            (self.path / RDMA_CM_CONFIG.lstrip("/")).mkdir(parents=True, exist_ok=True)
            return ""
        dep = self.path / f"lib/modules/{self.kernel}/modules.dep"
        files = {Path(line.partition(":")[0]).name for line in dep.read_text().split()}
        if f"{name}.ko.xz" not in files:
            words = (
                f"modprobe: FATAL: Module {name} not found in directory /lib/modules"
            )
            raise CommandFailed(words, 1)
        path = self.path / "proc/modules"
        path.write_text(path.read_text() + f"{name} 45056 0 - Live 0x0\n")
        return ""

    def _systemctl(self, argv: Sequence[str]) -> str:
        words = list(argv[1:])
        if words[:4] == ["show", "-p", "UnitFileState", "--value"]:
            return self.units.get(words[4], "") + "\n"
        if words[0] not in ("enable", "disable"):
            return self._prepared(argv)
        verb, now, unit = words
        assert now == "--now"
        if unit not in self.units:
            raise CommandFailed(
                f"Failed to {verb} unit: Unit file {unit} not found.", 1
            )
        self.units[unit] = f"{verb}d"
        return ""


def changing(make: Callable[[Path], FakeRoot], path: Path) -> ChangingRoot:
    """Return a host of ``fake_hosts`` that can be changed."""
    kept = host_fake_hosts.FakeRoot
    host_fake_hosts.FakeRoot = ChangingRoot  # type: ignore[misc]
    try:
        made = make(path)
    finally:
        host_fake_hosts.FakeRoot = kept  # type: ignore[misc]
    assert isinstance(made, ChangingRoot), "a host of host_fake_hosts"
    return made
