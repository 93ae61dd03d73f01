# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of netdevs and ports: the kinds SYSFS and OFFLOAD.

The values in /sys are transport mode and MTU of a netdev, MTU and type of an mlx4 port,
which recreate the adapter's netdevs, and P_Key children where NetworkManager does not
manage the parent: a write to ``create_child`` makes a netdev, a write of the same P_Key
to ``delete_child`` removes it.

Offloads are set with ethtool. The requested state counts: in connected mode the kernel
turns TSO off and remembers the request, ``off [requested on]``, and turns it on again
in datagram mode (ipoib_fix_features, Linux ulp/ipoib/ipoib_main.c).
"""

from __future__ import annotations

import errno
import re
import shlex
from collections import Counter
from dataclasses import replace
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.kind import (
    MODE,
    NETDEV,
    NUMBER,
    PKEY,
    SWITCH,
    EffectFailed,
    Host,
    Kind,
    Property,
    Reading,
    netdevs_of_pci,
    normal_text,
)
from ovirt_rdma.host.collect.netdevs import KEPT, features
from ovirt_rdma.host.facts.devices import Offload
from ovirt_rdma.host.facts.infiniband import full_member, full_member_bits, partition_of
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, OFFLOAD, SYSFS, Change
from ovirt_rdma.host.rules.ipoib_children import PARENT_LENGTH
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.safe_file import read_file

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
        return name not in host.tree.names(folder)

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
        elif error.errno == errno.ENOMEM and path.endswith("/sriov_numvfs"):
            meaning = "the machine gives the adapter too little address space for VFs"
            fix = (
                "switch on SR-IOV and decoding above 4 GiB in the machine's firmware "
                "setup (BIOS), or boot with pci=realloc; journalctl -k says: not "
                "enough MMIO resources"
            )
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


CREATE_CHILD = "create_child"
DELETE_CHILD = "delete_child"

# For a child to appear or disappear: the kernel's workqueue does it, and udev takes
# part.
CHILD_S = 5.0


def child_name(parent: str, pkey: str) -> str:
    """Return the name that ``create_child`` gives: the parent's, cut to ten characters,
    and the P_Key that is written (Linux ulp/ipoib/ipoib_vlan.c).
    """
    return f"{parent[:PARENT_LENGTH]}.{int(pkey, 16):04x}"


class PkeyChild(Sysfs):
    """A child of ``netdev`` with the P_Key ``after``; its value is that P_Key if the
    child exists, else None. Each child is a property of its own.
    """

    is_maker = True
    FILES: ClassVar[dict[str, str]] = {CREATE_CHILD: PKEY}

    @classmethod
    def is_for(cls, change: Change) -> bool:
        return change.kind == SYSFS and cls(change).netdev is not None

    @property
    def sets(self) -> Property:
        # All children of a netdev have one file.
        return Property(SYSFS, self.change.target, self.change.after or "")

    @property
    def effect(self) -> str:
        return LIVE

    def lasts(self, managed: bool) -> bool:
        return False

    @property
    def made_netdev(self) -> Optional[str]:
        """The child's name as the kernel makes it."""
        parent, pkey = self.netdev, self.change.after
        return child_name(parent, pkey) if parent and pkey else None

    def describe(self) -> str:
        return f"the netdev {self.made_netdev}"

    def normal(self, value: str) -> Optional[str]:
        number = normal_text(value.strip())
        # The kernel sets the bit itself.
        return str(full_member_bits(int(number))) if number.isdecimal() else number

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target).replace(CREATE_CHILD, DELETE_CHILD)
        return f"echo {shlex.quote(self.change.after or '')} > {target}"

    def read(self, host: Host) -> Reading:
        return Reading(self.change.after if self.child(host) else None)

    def do(self, host: Host) -> None:
        """Make the child, wait until it exists, and set it up: nobody else does."""
        parent, pkey = self._parts()
        name = child_name(parent, pkey)
        try:
            if name in host.tree.names(NET_CLASS):
                raise EffectFailed("netdev-exists", f"netdev {name} already exists")
            self.write(host, self.change.target, pkey)
        except EffectFailed as failed:
            failed.untouched = True  # a child that exists is somebody else's
            raise
        if not host.wait_for(lambda: self.child(host) is not None, CHILD_S):
            raise EffectFailed(
                "netdev-not-created", f"{name} did not appear within {CHILD_S:g} s"
            )
        host.run_or_fail(f"{name} cannot be set up", ("ip", "link", "set", name, "up"))

    def undo(self, host: Host, before: Optional[str]) -> None:
        parent, pkey = self._parts()
        name = self.child(host)
        if name is None:
            return
        # delete_child needs the P_Key with the bit of full members.
        value = full_member(int(pkey, 16))
        try:
            self.write(host, f"{NET_CLASS}/{parent}/{DELETE_CHILD}", value)
        except EffectFailed:
            if self.child(host) is None:
                return
            raise
        if not host.wait_for(lambda: self.child(host) is None, CHILD_S):
            raise EffectFailed(
                "netdev-not-removed",
                f"{name} still exists {CHILD_S:g} s after its removal",
                f"ip link delete {name}",
            )

    def is_gone(self, host: Host) -> bool:
        return self.child(host) is None

    def child(self, host: Host) -> Optional[str]:
        """Return the child's netdev, whatever its name; None if it does not exist."""
        parent, pkey = self._parts()
        for name in host.tree.names(NET_CLASS):
            folder = f"{NET_CLASS}/{name}"
            own = partition_of(host.tree.text(f"{folder}/pkey"))
            if (
                own == partition_of(pkey)
                and host.tree.text(f"{folder}/parent") == parent
            ):
                return name
        return None

    def _parts(self) -> tuple[str, str]:
        if self.netdev is None or not self.change.after:
            raise EffectFailed(
                "change-not-allowed",
                f"{self.change.target} does not make a P_Key child",
            )
        return self.netdev, self.change.after


_STATES = {True: "on", False: "off"}


class OffloadState(Kind):
    """An offload of a netdev, ``on`` or ``off``."""

    name = OFFLOAD
    is_named = True
    is_volatile = True
    title = "ethtool -K {}"

    def values(self) -> Optional[str]:
        known = re.fullmatch(NETDEV, self.change.target)
        return SWITCH if known and self.change.name in KEPT.values() else None

    @property
    def netdev(self) -> Optional[str]:
        return self.change.target

    @property
    def goes_with_mode(self) -> bool:
        return True  # a mode turns offloads off and on

    def on_netdev(self, name: str) -> Change:
        return replace(self.change, target=name)

    def describe(self) -> str:
        return f"{self.change.name} of {self.change.target}"

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        return f"ethtool -K {target} {self.change.name} {shlex.quote(value or '')}"

    def read(self, host: Host) -> Reading:
        """Return the requested state, ``on`` or ``off``; None without the netdev."""
        if self.is_gone(host):
            return Reading()
        try:
            feature = self._feature(host)
        except CommandFailed as e:
            return Reading(problem=f"ethtool -k {self.change.target} failed: {e}")
        if feature is None:
            return Reading(problem=f"ethtool does not show {self.change.name}")
        on = feature.on if feature.requested is None else feature.requested
        return Reading(_STATES[on])

    def do(self, host: Host) -> None:
        """Turn the offload on or off. Raises EffectFailed, also if the kernel only
        remembers the request.
        """
        change = self.change
        name, wanted = change.target, change.after or ""
        if self.is_gone(host):
            raise EffectFailed("netdev-gone", f"{name} no longer exists")
        failure = f"{change.name} of {name} cannot be turned {wanted}"
        host.run_or_fail(failure, ("ethtool", "-K", name, change.name, wanted))
        try:
            feature = self._feature(host)
        except CommandFailed as e:
            raise EffectFailed(
                "ethtool-failed", f"{failure}: ethtool -k {name}: {e}"
            ) from None
        if feature is None or _STATES[feature.on] != wanted:
            raise EffectFailed("offload-unchanged", f"{failure}: it did not change")

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Request the earlier state. In connected mode ethtool reports an error because
        nothing changed; the request is enough then.
        """
        if before is None or self.is_gone(host):
            return
        if self.read(host).value == before:
            return
        name, feature = self.change.target, self.change.name
        try:
            host.tool("ethtool", "-K", name, feature, before)
        except CommandFailed as e:
            if self.read(host).value != before:
                failure = f"{feature} of {name} cannot be turned {before}"
                raise EffectFailed("ethtool-failed", f"{failure}: {e}") from None

    def is_gone(self, host: Host) -> bool:
        return self.change.target not in host.tree.names(NET_CLASS)

    def _feature(self, host: Host) -> Optional[Offload]:
        text = host.tool("ethtool", "-k", self.change.target)
        offloads = features(text).get(self.change.target, ())
        return next((o for o in offloads if o.name == self.change.name), None)
