# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind SYSFS: set kernel values in /sys.

The values are transport mode and MTU of a netdev, and MTU and type of an mlx4 port,
which recreate the adapter's netdevs.
"""

from __future__ import annotations

import errno
import re
import shlex
from collections import Counter
from dataclasses import replace
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import MODE, NETDEV, NUMBER, Kind
from ovirt_rdma.host.changes.kinds.location import netdevs_of_pci
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import LINK_DOWN, SYSFS, Change
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

MODE_FILE = "mode"
MTU_FILE = "mtu"

_NET_FILE = re.compile(rf"{NET_CLASS}/({NETDEV})/(\w+)")
_PORT_FILE = re.compile(
    r"/sys/bus/pci/devices/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"/mlx4_port([12])(_mtu)?"
)

# mlx4 takes the ports' links down and up, and udev renames the netdevs.
NETDEVS_BACK_S = 30.0

_READ_ONLY = "this host's /sys is read-only, or you are not root"
_GONE = "the device no longer exists"
_MEANINGS = {
    errno.EPERM: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EROFS: _READ_ONLY,
    errno.ENOENT: _GONE,
    errno.ENODEV: _GONE,
    errno.EBUSY: "the device is busy",
    errno.EINVAL: "the device does not support it",
    errno.ENOTUNIQ: "a child with that P_Key already exists",
}


class Sysfs(Kind):
    """A file of a netdev or of an adapter. FILES has the netdev's files that it may
    write, with the patterns of their values.
    """

    name = SYSFS
    is_volatile = True
    FILES: ClassVar[dict[str, str]] = {MODE_FILE: MODE, MTU_FILE: NUMBER}

    def values(self) -> Optional[str]:
        if self.netdev:
            return self.FILES[self.sysfs_file]
        return NUMBER if self.port and self.change.target.endswith("_mtu") else None

    @property
    def netdev(self) -> Optional[str]:
        found = _NET_FILE.fullmatch(self.change.target)
        return found[1] if found and found[2] in self.FILES else None

    @property
    def sysfs_file(self) -> str:
        return self.change.target.rpartition("/")[2] if self.netdev else ""

    @property
    def port(self) -> Optional[tuple[str, int]]:
        found = _PORT_FILE.fullmatch(self.change.target)
        return (found[1], int(found[2])) if found else None

    @property
    def effect(self) -> str:
        return LINK_DOWN

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        if not (self.netdev and self.is_mtu):
            return super().interrupts(users)
        return users.of_mtu(self.netdev)

    def lasts(self, managed: bool) -> bool:
        return managed

    def on_netdev(self, name: str) -> Change:
        if self.netdev is None:
            return self.change
        return replace(self.change, target=f"{NET_CLASS}/{name}/{self.sysfs_file}")

    def describe(self) -> str:
        if self.netdev:
            return f"{self.sysfs_file} of {self.netdev}"
        return self.change.target

    def manual_fix(self, value: Optional[str]) -> str:
        return f"echo {shlex.quote(value or '')} > {shlex.quote(self.change.target)}"

    def read(self, host: Host) -> Reading:
        target = self.change.target
        try:
            data = read_file(host.path(target))
        except (FileNotFoundError, NotADirectoryError):
            return Reading()
        except OSError as e:
            if e.errno == errno.ENODEV:
                return Reading()
            return Reading(problem=f"{target} cannot be read: {e.strerror}")
        return Reading(data.decode("utf-8", "surrogateescape").strip())

    def do(self, host: Host) -> None:
        self._set(host, self.change.after or "")

    def undo(self, host: Host, before: Optional[str]) -> None:
        present = self.read(host)
        if before is None or (present.value is None and not present.problem):
            return
        if present.value != before:
            self._set(host, before)

    def is_gone(self, host: Host) -> bool:
        folder, _, name = self.change.target.rpartition("/")
        return name not in FileTree(host.root).names(folder)

    def write(self, host: Host, path: str, value: str) -> None:
        """Write a value and a newline with one write(2); without the newline the kernel
        refuses a transport mode (ipoib_set_mode, Linux ulp/ipoib/ipoib_main.c).

        Raises EffectFailed.
        """
        try:
            host.write(
                host.path(path), value.encode("utf-8", "surrogateescape") + b"\n"
            )
        except OSError as e:
            raise EffectFailed(
                "sysfs-write-failed", *self._explain(path, value, e)
            ) from None

    def _set(self, host: Host, value: str) -> None:
        before = netdevs_of_pci(host, self.port[0]) if self.port else {}
        self.write(host, self.change.target, value)
        if self.port:
            _wait_for_netdevs(host, self.port[0], before)

    def _explain(self, path: str, value: str, error: OSError) -> tuple[str, str]:
        """Return the sentence and the fix for an error of a write."""
        meaning = _MEANINGS.get(error.errno or 0, "")
        fix = ""
        if error.errno == errno.EINVAL and self.sysfs_file == MODE_FILE:
            meaning = f"the adapter of {self.netdev} has no {value} mode"
            fix = "write transport_mode: auto or datagram for it in the policy"
        elif error.errno == errno.EINVAL and self.netdev and path == self.change.target:
            meaning = f"{value} is not a valid value for {self.netdev}"
        elif meaning == _READ_ONLY:
            fix = "run this as root, on the host itself and not in a container"
        message = error.strerror or str(error)
        sentence = f"{path}: the kernel does not accept {value}: {meaning or message}"
        return (f"{sentence} ({message})" if meaning else sentence), fix


class PortType(Sysfs):
    """The type of an mlx4 port; the kernel shows ``auto (eth)`` for ``auto``."""

    @classmethod
    def is_for(cls, change: Change) -> bool:
        found = _PORT_FILE.fullmatch(change.target)
        return change.kind == SYSFS and found is not None and not found[3]

    def values(self) -> Optional[str]:
        return "ib|eth|auto" if self.port else None

    def read(self, host: Host) -> Reading:
        reading = super().read(host)
        words = (reading.value or "").split()
        return Reading(words[0], reading.problem) if words else reading


def _wait_for_netdevs(host: Host, address: str, before: dict[str, int]) -> None:
    """Wait until each port has as many netdevs as before; their names may differ."""
    wanted = Counter(before.values())

    def back() -> bool:
        now = Counter(netdevs_of_pci(host, address).values())
        return not wanted - now

    if not host.wait_for(back, NETDEVS_BACK_S):
        names = " and ".join(sorted(before))
        raise EffectFailed(
            "netdevs-not-back",
            f"{names} of the adapter {address} did not appear again within "
            f"{NETDEVS_BACK_S:g} s",
            "read the kernel's log (journalctl -k), and see ip link",
        )
