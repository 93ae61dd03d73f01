# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of netdevs and ports: the kinds SYSFS, OFFLOAD, DCB and ROCE_TOS.

The values in /sys are transport mode and MTU of a netdev, MTU and type of an mlx4 port,
which recreate the adapter's netdevs, and P_Key children where NetworkManager does not
manage the parent: a write to ``create_child`` makes a netdev, a write of the same P_Key
to ``delete_child`` removes it.

Offloads are set with ethtool. The requested state counts: in connected mode the kernel
turns TSO off and remembers the request, ``off [requested on]``, and turns it on again
in datagram mode (ipoib_fix_features, Linux ulp/ipoib/ipoib_main.c).

Data center bridging is set with dcb (iproute2), pause frames with ethtool. RDMA CM's
default type of service is in configfs, in a folder that somebody has to make.
"""

from __future__ import annotations

import contextlib
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
from ovirt_rdma.host.collect.netdevs import (
    buffers,
    dcb_show,
    dscp_priorities,
    features,
    pause_frames,
    pfc_priorities,
    port_of,
)
from ovirt_rdma.host.collect.rdma import read_rdma_devices
from ovirt_rdma.host.facts.devices import CELL, TSO_FEATURES, Buffer, Dcb, Offload
from ovirt_rdma.host.facts.infiniband import full_member, full_member_bits, partition_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS, RDMA_CM_CONFIG
from ovirt_rdma.host.rules.base import (
    DCB,
    LINK_DOWN,
    LIVE,
    OFFLOAD,
    ROCE_TOS,
    SYSFS,
    Change,
)
from ovirt_rdma.host.rules.ipoib import PARENT_LENGTH
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.safe_file import read_file

MODE_FILE = "mode"
MTU_FILE = "mtu"

_NET_FILE = re.compile(rf"{NET_CLASS}/({NETDEV})/([\w/]+)")
_PORT_FILE = re.compile(
    r"/sys/bus/pci/devices/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"/mlx4_port([12])(?:_mtu)?"
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


# Congestion notification of a priority, at one end: mlx5 of MLNX_OFED only. It takes no
# link down, and nobody else sets it.
_ECN_FILES = {
    f"ecn/{end}/enable/{priority}": "[01]"
    for end in ("roce_np", "roce_rp")
    for priority in range(8)
}


class Sysfs(Kind):
    """A file of a netdev or of an adapter. FILES has the netdev's files that it may
    write, with the patterns of their values.
    """

    name = SYSFS
    is_volatile = True
    FILES: ClassVar[dict[str, str]] = {MODE_FILE: MODE, MTU_FILE: NUMBER, **_ECN_FILES}

    def values(self) -> Optional[str]:
        if self.netdev:
            return self.FILES[self.sysfs_file]
        types = "ib|eth|auto"
        of_port = NUMBER if self.change.target.endswith("_mtu") else types
        return of_port if self.port else None

    @property
    def netdev(self) -> Optional[str]:
        found = _NET_FILE.fullmatch(self.change.target)
        return found[1] if found and found[2] in self.FILES else None

    @property
    def sysfs_file(self) -> str:
        found = _NET_FILE.fullmatch(self.change.target)
        return found[2] if found and found[2] in self.FILES else ""

    @property
    def port(self) -> Optional[tuple[str, int]]:
        found = _PORT_FILE.fullmatch(self.change.target)
        return (found[1], int(found[2])) if found else None

    @property
    def effect(self) -> str:
        return LIVE if self.sysfs_file in _ECN_FILES else LINK_DOWN

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        if not (self.netdev and self.is_mtu):
            return super().interrupts(users)
        return users.of_mtu(self.netdev)

    def lasts(self, managed: bool) -> bool:
        return managed and self.sysfs_file not in _ECN_FILES

    def on_netdev(self, name: str) -> Change:
        if self.netdev is None:
            return self.change
        return replace(self.change, target=f"{NET_CLASS}/{name}/{self.sysfs_file}")

    def describe(self) -> str:
        of_netdev = f"{self.sysfs_file} of {self.netdev}"
        return of_netdev if self.netdev else self.change.target

    def manual_fix(self, value: Optional[str]) -> str:
        return f"echo {shlex.quote(value or '')} > {shlex.quote(self.change.target)}"

    def read(self, host: Host) -> Reading:
        target = self.change.target
        try:
            data = read_file(host.path(target))
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
                return Reading()
            return Reading(problem=f"{target} cannot be read: {e.strerror}")
        # For the type "auto" of an mlx4 port, the kernel shows "auto (eth)".
        text = data.decode("utf-8", "surrogateescape").strip()
        return Reading(text.partition(" ")[0])

    def put(self, host: Host, value: str) -> None:
        before = netdevs_of_pci(host, self.port[0]) if self.port else {}
        self.write(host, self.change.target, value)
        if self.port:
            _wait_for_netdevs(host, self.port[0], before)

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

    def _explain(self, path: str, value: str, error: OSError) -> tuple[str, str]:
        """Return the sentence and the fix for an error of a write."""
        meaning, fix = _MEANINGS.get(error.errno or 0, ""), ""
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


def _wait_for_netdevs(host: Host, address: str, before: dict[str, int]) -> None:
    """Wait until each port has as many netdevs as before; their names may differ."""

    def back() -> bool:
        now = netdevs_of_pci(host, address).values()
        return not Counter(before.values()) - Counter(now)

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
    def effect(self) -> str:
        return LIVE

    def lasts(self, managed: bool) -> bool:
        return False

    @property
    def sets(self) -> Property:
        # All children of a netdev have one file.
        return SYSFS, self.change.target, self.change.after or ""

    @property
    def made_netdev(self) -> Optional[str]:
        """The child's name as the kernel makes it."""
        parent, pkey = self.netdev, self.change.after
        return child_name(parent, pkey) if parent and pkey else None

    def touched(self, facts: Facts) -> tuple[str, ...]:
        parent, pkey = self._parts()
        return tuple(
            netdev.name
            for netdev in facts.netdevs
            if netdev.ipoib
            and netdev.ipoib.parent == parent
            and partition_of(netdev.ipoib.pkey) == partition_of(pkey)
        ) or super().touched(facts)

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

    def undo(self, host: Host) -> None:
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
        if not host.wait_for(lambda: self.is_gone(host), CHILD_S):
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
            is_child = host.tree.text(f"{folder}/parent") == parent
            if is_child and own == partition_of(pkey):
                return name
        return None

    def _parts(self) -> tuple[str, str]:
        """The parent and the P_Key: a change without both is refused."""
        return self.netdev or "", self.change.after or ""


_STATES = {True: "on", False: "off"}


class NetdevSetting(Kind):
    """A setting of the netdev that is the target."""

    is_volatile = True

    @property
    def netdev(self) -> Optional[str]:
        return self.change.target

    def on_netdev(self, name: str) -> Change:
        return replace(self.change, target=name)

    def describe(self) -> str:
        return f"{self.change.name} of {self.change.target}"

    def do(self, host: Host) -> None:
        if self.is_gone(host):
            raise EffectFailed("netdev-gone", f"{self.describe()} no longer exists")
        super().do(host)

    def is_gone(self, host: Host) -> bool:
        return self.change.target not in host.tree.names(NET_CLASS)


class OffloadState(NetdevSetting):
    """An offload of a netdev, ``on`` or ``off``."""

    name = OFFLOAD
    is_named = True

    def values(self) -> Optional[str]:
        known = re.fullmatch(NETDEV, self.change.target)
        return SWITCH if known and self.change.name in TSO_FEATURES else None

    @property
    def goes_with_mode(self) -> bool:
        return True  # a mode turns offloads off and on

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

    def put(self, host: Host, value: str) -> None:
        """Raises EffectFailed also if the kernel only remembers the request."""
        name, feature = self.change.target, self.change.name
        failure = f"{feature} of {name} cannot be turned {value}"
        host.run_or_fail(failure, ("ethtool", "-K", name, feature, value))
        try:
            shown = self._feature(host)
        except CommandFailed as e:
            sentence = f"{failure}: ethtool -k {name}: {e}"
            raise EffectFailed("ethtool-failed", sentence) from None
        if shown is None or _STATES[shown.on] != value:
            raise EffectFailed("offload-unchanged", f"{failure}: it did not change")

    def undo(self, host: Host) -> None:
        """Request the earlier state. In connected mode ethtool reports an error because
        nothing changed; the request is enough then.
        """
        before = self.change.before
        if before is None or self.is_gone(host) or self.read(host).value == before:
            return
        name, feature = self.change.target, self.change.name
        try:
            host.tool("ethtool", "-K", name, feature, before)
        except CommandFailed as e:
            if self.read(host).value != before:
                failure = f"{feature} of {name} cannot be turned {before}"
                raise EffectFailed("ethtool-failed", f"{failure}: {e}") from None

    def _feature(self, host: Host) -> Optional[Offload]:
        text = host.tool("ethtool", "-k", self.change.target)
        offloads = features(text).get(self.change.target, ())
        return next((o for o in offloads if o.name == self.change.name), None)


_DSCP = re.compile(r"dscp-([0-9]|[1-5][0-9]|6[0-3])")
_BUFFERS = r"[0-9]{1,8}:[0-7,]*(?: [0-9]{1,8}:[0-7,]*){1,7}"
# What there may have been, and what a policy makes of it.
_DCB_VALUES = {
    "pause": (r"off|rx|tx|rx tx", "off"),
    "pfc": (r"none|[0-7](?:,[0-7])*", "[0-7]"),
    "dscp": ("none|[0-7]", "[0-7]"),
    "buffers": (_BUFFERS, _BUFFERS),
}
# For a link to come back with its speed, from which the driver computes what a buffer
# has to hold (mlx5/core/en/port_buffer.c, calculate_xoff).
CARRIER_S = 30.0


class DcbSetting(NetdevSetting):
    """A setting of data center bridging of an Ethernet netdev, or its pause frames.

    A change of PFC takes the physical port down and up, and so the links of its VFs
    (mlx5/core/en_dcbnl.c:394, mlx5_toggle_port_link).
    """

    name = DCB
    is_named = True

    def values(self) -> Optional[str]:
        known = re.fullmatch(NETDEV, self.change.target) is not None
        return _DCB_VALUES[self._setting][0] if known and self._setting else None

    def refusal(self) -> str:
        refused, after = super().refusal(), self.change.after or ""
        if refused:
            return refused
        right = re.fullmatch(_DCB_VALUES[self._setting][1], after) is not None
        if right and self._setting == "buffers":
            made = _buffers(after)
            each = sorted(n for one in made for n in one.priorities) == [*range(8)]
            right = each and all(one.size or not one.priorities for one in made)
        return "" if right else f"no rule sets {self.describe()} to {after[:60]!a}"

    @property
    def _dscp(self) -> Optional[str]:
        found = _DSCP.fullmatch(self.change.name)
        return found[1] if found else None

    @property
    def _setting(self) -> str:
        """Its name in _DCB_VALUES, or "" if it has none."""
        name = "dscp" if self._dscp else self.change.name
        return name if name in _DCB_VALUES else ""

    @property
    def effect(self) -> str:
        return LINK_DOWN if self.change.name == "pfc" else LIVE

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        return users.of_port(self.change.target)

    def accepts(self, value: Optional[str]) -> bool:
        if self.change.name != "buffers" or value is None:
            return super().accepts(value)
        wanted, present = _buffers(self.change.after or ""), _buffers(value)
        return len(wanted) == len(present) and all(
            one.priorities == other.priorities and 0 <= one.size - other.size < CELL
            for one, other in zip(wanted, present)
        )

    def manual_fix(self, value: Optional[str]) -> str:
        return "; ".join(
            shlex.join(argv) for argv in self._commands(self.change.after, value or "")
        )

    def read(self, host: Host) -> Reading:
        """Return the value in the form of plans; None without the netdev."""
        if self.is_gone(host):
            return Reading()
        try:
            return Reading(self._shown(host))
        except (CommandFailed, ValueError) as e:
            return Reading(problem=f"{self.describe()} cannot be read: {e}")

    def _shown(self, host: Host) -> Optional[str]:
        name, setting = self.change.target, self.change.name
        if setting == "pause":
            rx, tx = pause_frames(host.tool("ethtool", "-a", name))
            dcb = Dcb(pause_rx=rx, pause_tx=tx)
        elif setting == "pfc":
            shown = host.tool(*dcb_show("pfc", name))
            dcb = Dcb(pfc_priorities=pfc_priorities(shown))
        elif setting == "buffers":
            dcb = Dcb(buffers=buffers(host.tool(*dcb_show("buffer", name))))
        else:
            shown = host.tool(*dcb_show("app", name))
            dcb = Dcb(dscp_priorities=dscp_priorities(shown))
        value = dcb.value(setting)
        if value is None:
            raise ValueError("the tool does not show it")
        return value

    def put(self, host: Host, value: str) -> None:
        present = self.read(host)
        if present.value == value:
            return
        failure = f"{self.describe()} cannot be set to {value}"
        if present.problem:
            raise EffectFailed("dcb-unread", f"{failure}: {present.problem}")
        carrier = f"{NET_CLASS}/{self.change.target}/carrier"
        was = host.tree.text(carrier)
        for argv in self._commands(present.value, value):
            host.run_or_fail(failure, argv)
        if self.change.name == "pfc" and was == "1":
            # The other port of a bond may be next.
            host.wait_for(lambda: host.tree.text(carrier) == "1", CARRIER_S)

    def _commands(
        self, present: Optional[str], value: str
    ) -> tuple[tuple[str, ...], ...]:
        """Return the commands that set ``value`` where ``present`` is now."""
        name, numbers = self.change.target, _numbers(value)
        if self.change.name == "pause":
            sides = (word for s in ("rx", "tx") for word in (s, _STATES[s in value]))
            return (("ethtool", "-A", name, *sides),)
        if self.change.name == "pfc":
            on = (f"{priority}:on" for priority in numbers)
            return (("dcb", "pfc", "set", "dev", name, "prio-pfc", "all:off", *on),)
        if self._dscp is None:
            return self._buffer_commands(_buffers(present or ""), _buffers(value))
        # An entry replaces that of another priority, which then cannot be deleted any
        # more (mlx5e_dcbnl_ieee_setapp and _delapp).
        verb = "add" if numbers else "del"
        return tuple(
            ("dcb", "app", verb, "dev", name, "dscp-prio", f"{self._dscp}:{priority}")
            for priority in numbers or _numbers(present or "")
        )

    def _buffer_commands(
        self, present: tuple[Buffer, ...], wanted: tuple[Buffer, ...]
    ) -> tuple[tuple[str, ...], ...]:
        """Return the commands; the driver checks the sizes before it when it changes
        the priorities (en/port_buffer.c, mlx5e_port_manual_buffer_config): a buffer is
        large before it gets one, and small after it has lost it.
        """
        table = list(enumerate(wanted))
        to = sorted(f"{prio}:{n}" for n, one in table for prio in one.priorities)
        first = ("buffer-size", *(f"{n}:{one.size}" for n, one in table))
        second = ("prio-buffer", *to)
        used = [bool(one.priorities) for one in present]
        if any(was and not one.priorities for was, one in zip(used, wanted)):
            first, second = second, first
        head = ("dcb", "buffer", "set", "dev", self.change.target)
        return (*head, *first), (*head, *second)


def _numbers(value: str) -> tuple[str, ...]:
    return () if value in ("none", "") else tuple(value.split(","))


def _buffers(value: str) -> tuple[Buffer, ...]:
    """Read what :func:`buffers_text` has made."""
    parts = (part.partition(":") for part in value.split())
    return tuple(
        Buffer(int(size), tuple(int(n) for n in of.split(",") if n))
        for size, _, of in parts
    )


# For RDMA CM to know an RDMA device that is in sysfs already.
RDMA_CM_S = 10.0
_FOR_RDMA_CM = (
    ("modprobe", "rdma_cm"),
    # As systemd does it, where its unit is not masked.
    ("mount", "-t", "configfs", "configfs", "/sys/kernel/config"),
)


class RoceTos(NetdevSetting):
    """RDMA CM's default type of service at the RoCE port of a netdev, for all
    connections that set none: those of the kernel.

    It is in configfs, and can only be read in a folder that somebody has to make. It
    stays without the folder, and ends with the RDMA device (cma_configfs.c; cma.c:224,
    5329). So the folder is made before the first reading, and never removed.
    """

    name = ROCE_TOS

    def values(self) -> Optional[str]:
        known = re.fullmatch(NETDEV, self.change.target)
        return r"25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]" if known else None

    def describe(self) -> str:
        return f"default_roce_tos of {self.change.target}"

    def is_due(self, host: Host) -> bool:
        return self._file(host) is not None

    def is_gone(self, host: Host) -> bool:
        return self._file(host) is None

    def make_readable(self, host: Host) -> None:
        file = self._file(host)
        folder = file and file.partition("/ports/")[0]
        if not folder or host.tree.is_folder(folder):
            return
        for needed in _FOR_RDMA_CM:
            if not host.tree.is_folder(RDMA_CM_CONFIG):
                with contextlib.suppress(CommandFailed):
                    host.tool(*needed)

        def made() -> bool:
            with contextlib.suppress(OSError):
                host.make_folder(folder)
            return host.tree.is_folder(folder)

        host.wait_for(made, RDMA_CM_S)

    def read(self, host: Host) -> Reading:
        file = self._file(host)
        if file is None:
            return Reading()
        value = host.tree.text(file)
        if value is None:
            folder = file.partition("/ports/")[0]
            return Reading(problem=f"{file} is not there: mkdir {folder} makes it")
        return Reading(value)

    def manual_fix(self, value: Optional[str]) -> str:
        return (
            f"echo {shlex.quote(value or '0')} > default_roce_tos of the port of "
            f"{self.change.target}, below {RDMA_CM_CONFIG}"
        )

    def _file(self, host: Host) -> Optional[str]:
        devices = read_rdma_devices(host.tree, [], most_gids=1)
        port = port_of(host.tree, self.change.target, devices)
        if port is None:
            return None
        return f"{RDMA_CM_CONFIG}/{port[0]}/ports/{port[1]}/default_roce_tos"

    def put(self, host: Host, value: str) -> None:
        self.make_readable(host)
        file, now = self._file(host) or "", self.read(host)
        if now.problem:
            fix = "modprobe rdma_cm, and run this as root"
            raise EffectFailed("sysfs-write-failed", now.problem, fix)
        if now.value != value:
            Sysfs(replace(self.change, target=file)).write(host, file, value)
