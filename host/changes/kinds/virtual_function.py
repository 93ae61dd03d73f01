# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind VF: the number of VFs of an adapter, and what their PF sets for them.

The target is the PF's PCI address, ``name`` one of these properties. All but the number
have a value for some VFs, such as ``0=auto 1=disable``; other VFs are no part of it.
Rules make a change for each VF:

- ``number``: sriov_numvfs. The VFs are made without a driver, so that none sees a VF
  without GUID.
- ``guids``: for mlx5 the node and the port GUID, for mlx4 the GUID of each port.
- ``link-states``: auto, enable or disable (mlx5).
- ``pkeys``: where in the port's P_Key table the VF's entries are, by port (mlx4).
- ``drivers``: the driver on this host, ``-`` for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.kind import (
    NUMBER,
    EffectFailed,
    Host,
    Kind,
    Property,
    Reading,
    netdevs_of_pci,
)
from ovirt_rdma.host.changes.kinds.netdev import Sysfs
from ovirt_rdma.host.collect.rdma import PCI_DEVICES
from ovirt_rdma.host.collect.tools import rows, virtual_functions
from ovirt_rdma.host.facts.devices import (
    NO_GUID,
    Guid,
    VirtualFunction,
    is_passthrough,
    mlx4_function,
)
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS, VF_MEANWHILE
from ovirt_rdma.host.policy.model import ENABLE
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, SYSFS, VF, Change
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.files import write_atomically

VF_NUMBER, VF_GUIDS, VF_STATES = "number", "guids", "link-states"
VF_PKEYS, VF_DRIVERS = "pkeys", "drivers"
NO_DRIVER = "-"

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GUID = r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}"
# What the kernel shows for no driver_override; an empty line removes it.
_NONE = "(null)"
_PROBE = "/sys/bus/pci/drivers_probe"


def _joined(values: dict[int, str]) -> str:
    """Return the values of a property of VFs, by number, as one text:
    ``0=auto 1=disable``.
    """
    return " ".join(f"{number}={value}" for number, value in sorted(values.items()))


def _by_number(text: Optional[str]) -> dict[int, str]:
    pairs = (entry.partition("=") for entry in (text or "").split())
    return {int(number): value for number, _, value in pairs}


def _write(host: Host, path: str, value: str) -> None:
    """Write to a file of /sys. Raises EffectFailed."""
    Sysfs(Change(SYSFS, path, None, value)).write(host, path, value)


@contextmanager
def _set_meanwhile(host: Host, path: str, value: str) -> Iterator[None]:
    """Set a file of /sys, if it exists, and restore it afterwards; if this process is
    killed, the next run does that. Raises EffectFailed.
    """
    restore_meanwhile(host)
    earlier = host.tree.text(path)
    if earlier is not None:
        record = f"{path}\n{'' if earlier == _NONE else earlier}"
        try:
            write_atomically(host.path(VF_MEANWHILE), record.encode(), 0o600)
        except OSError as e:
            raise EffectFailed(
                "file-not-written", f"{VF_MEANWHILE} cannot be written: {e.strerror}"
            ) from None
    try:
        if earlier is not None:
            _write(host, path, value)
        yield
    finally:
        restore_meanwhile(host)


def restore_meanwhile(host: Host) -> None:
    """Restore what a run that was killed had set meanwhile. Raises EffectFailed."""
    record = host.tree.text(VF_MEANWHILE)
    if record is None:
        return
    path, _, earlier = record.partition("\n")
    if host.path(path).exists():  # the VF may be gone
        _write(host, path, earlier)
    host.path(VF_MEANWHILE).unlink()


class _OfVfs(Kind):
    """A property of the VFs of one PF. VALUE is the pattern of one VF's value, "" of
    the number; NEW is the value that the kernel gives a new VF.
    """

    name = VF
    is_named = True
    is_volatile = True
    PROPERTY: ClassVar[str] = ""
    VALUE: ClassVar[str] = ""
    NEW: ClassVar[str] = ""

    @classmethod
    def is_for(cls, change: Change) -> bool:
        return change.kind == VF and change.name == cls.PROPERTY

    def values(self) -> Optional[str]:
        if not _PCI.fullmatch(self.change.target):
            return None
        if not self.VALUE:
            return NUMBER
        one = rf"[0-9]{{1,5}}={self.VALUE}"
        return rf"(?:{one}(?: {one})*)?"

    @property
    def adapter(self) -> Optional[str]:
        return self.change.target

    @property
    def sets(self) -> Property:
        numbers = ",".join(map(str, self._numbers))
        return VF, self.change.target, f"{self.change.name} {numbers}".strip()

    @property
    def effect(self) -> str:
        return LINK_DOWN if self._interrupts(self.change.after) else LIVE

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        return users.of_vfs(self.change.target, self._numbers)

    @property
    def undo_interrupts(self) -> bool:
        return self._interrupts(self.change.before)

    def _interrupts(self, values: Optional[str]) -> bool:
        """Whether those who use the VFs lose something if ``values`` are set."""
        return True

    @property
    def _numbers(self) -> tuple[int, ...]:
        """The VFs that it is about."""
        return tuple(_by_number(self.change.after)) if self.VALUE else ()

    def describe(self) -> str:
        numbers = ", ".join(map(str, self._numbers))
        return f"{self.change.name} of VF {numbers} of {self.change.target}"

    def normal(self, value: str) -> Optional[str]:
        return value.strip()

    def is_gone(self, host: Host) -> bool:
        return not self._own(host)

    def read(self, host: Host) -> Reading:
        present = self._own(host)
        if not present:
            return Reading()
        try:
            return Reading(_joined(self._present(host, present)) or None)
        except (CommandFailed, EffectFailed, ValueError) as error:
            return Reading(problem=f"{self.describe()} cannot be read: {error}")

    def do(self, host: Host) -> None:
        self._make(host, _by_number(self.change.after))

    def undo(self, host: Host) -> None:
        present, earlier = self._own(host), _by_number(self.change.before)
        self._make(host, {n: earlier.get(n, self.NEW) for n in present})

    def _make(self, host: Host, wanted: dict[int, str]) -> None:
        present = self._addresses(host)
        reading = self.read(host)
        if reading.problem:
            raise EffectFailed("vf-unreadable", reading.problem)
        found = _by_number(reading.value)
        for number, value in wanted.items():
            if number in present and found.get(number) != value:
                self._set(host, number, present[number], value)
            elif number not in present and value != self.NEW:
                raise EffectFailed("vf-gone", f"{self._vf(number)} does not exist")

    def _present(self, host: Host, present: dict[int, str]) -> dict[int, str]:
        """Return the value of each VF. Raises what :meth:`read` catches."""
        raise NotImplementedError

    def _set(self, host: Host, number: int, address: str, value: str) -> None:
        raise NotImplementedError

    def _own(self, host: Host) -> dict[int, str]:
        """Return the PCI addresses of the VFs that it is about."""
        present = self._addresses(host)
        return {n: present[n] for n in self._numbers if n in present}

    def _addresses(self, host: Host) -> dict[int, str]:
        """Return the PCI addresses of the VFs by number."""
        folder = f"{PCI_DEVICES}/{self.change.target}"
        return {
            int(name[len("virtfn") :]): address
            for name in host.tree.names(folder)
            if name.startswith("virtfn") and name[len("virtfn") :].isdecimal()
            for address in [host.tree.link_name(f"{folder}/{name}")]
            if address
        }

    def _driver(self, host: Host, address: str) -> Optional[str]:
        return host.tree.link_name(f"{PCI_DEVICES}/{address}/driver")

    def _vf(self, number: int) -> str:
        return f"VF {number} of {self.change.target}"

    def _refuse_guest(self, host: Host, number: int, address: str) -> None:
        """Raise EffectFailed if a virtual machine has the VF. The kernel would wait
        until it is shut down, and nothing could end that wait.
        """
        if is_passthrough(self._driver(host, address)):
            raise EffectFailed(
                "vf-in-virtual-machine",
                f"{self._vf(number)} ({address}) is in use by a virtual machine",
                "shut that virtual machine down, or migrate it",
            )

    def _bind(
        self, host: Host, number: int, address: str, driver: Optional[str]
    ) -> None:
        """Unbind the driver of a VF, and bind ``driver``. Raises EffectFailed.

        While the PF's sriov_drivers_autoprobe is 0, the kernel binds none to its VFs,
        not even on request, but the VF's driver_override (pci_device_can_probe() in
        drivers/pci/pci-driver.c). Writes to drivers_probe succeed without one, too.
        """
        folder = f"{PCI_DEVICES}/{address}"
        if self._driver(host, address):
            _write(host, f"{folder}/driver/unbind", address)
        if driver is None:
            return
        with _set_meanwhile(host, f"{folder}/driver_override", driver):
            _write(host, _PROBE, address)
        if self._driver(host, address) != driver:
            raise EffectFailed(
                "vf-driver-not-bound",
                f"{driver} was not bound to {self._vf(number)} ({address})",
                f"read the kernel's log (journalctl -k), then: echo {address} > "
                f"/sys/bus/pci/drivers/{driver}/bind",
            )

    def _ip_vfs(self, host: Host) -> dict[int, VirtualFunction]:
        """Return what the PF's netdev shows of the VFs."""
        text = host.tool("ip", "-j", "link", "show", "dev", self._netdev(host))
        return virtual_functions(rows(text))

    def _netdev(self, host: Host) -> str:
        """Return the PF's netdev, not a P_Key child. Raises EffectFailed."""
        for name in sorted(netdevs_of_pci(host, self.change.target)):
            if "parent" not in host.tree.names(f"{NET_CLASS}/{name}"):
                return name
        raise EffectFailed("vf-without-netdev", f"{self.change.target} has no netdev")

    def _by_ip(self, host: Host, number: int, *words: str) -> None:
        """Run ``ip link set NETDEV vf N ...``. Raises EffectFailed."""
        of_vf = ("dev", self._netdev(host), "vf", str(number))
        failure = f"{self._vf(number)} cannot be set"
        host.run_or_fail(failure, ("ip", "link", "set", *of_vf, *words))

    def _iov(self, host: Host) -> Optional[str]:
        """Return mlx4's folder ``iov``; None for other drivers."""
        folder = f"{PCI_DEVICES}/{self.change.target}/infiniband"
        for device in host.tree.names(folder):
            if host.tree.is_folder(f"{folder}/{device}/iov"):
                return f"{folder}/{device}/iov"
        return None


class VfNumber(_OfVfs):
    """The number of VFs, which is changed from 0 and to 0 only (sriov_numvfs_store() in
    drivers/pci/iov.c). They disappear with all that was set for them.
    """

    PROPERTY = VF_NUMBER
    is_maker = True

    def owns(self, other: Kind) -> bool:
        change = other.change
        return (change.kind, change.target) == (VF, self.change.target) and (
            change.name != VF_NUMBER
        )

    def describe(self) -> str:
        return f"number of VFs of {self.change.target}"

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        address = self.change.target
        making = users.of_new_vfs(address) or ()
        return tuple(dict.fromkeys((*making, *users.of_vfs(address))))

    def normal(self, value: str) -> Optional[str]:
        # Without VFs there is nothing that was made.
        return None if value.strip() == "0" else value.strip()

    def manual_fix(self, value: Optional[str]) -> str:
        return f"echo {value or 0} > {self._file('sriov_numvfs')}"

    def is_gone(self, host: Host) -> bool:
        return self.read(host).value is None

    def read(self, host: Host) -> Reading:
        return Reading(host.tree.text(self._file("sriov_numvfs")))

    def do(self, host: Host) -> None:
        self._change_to(host, self.change.after or "0")

    def undo(self, host: Host) -> None:
        if not self.is_gone(host):
            self._change_to(host, self.change.before or "0")

    def _change_to(self, host: Host, wanted: str) -> None:
        present = self.read(host).value
        if present == wanted:
            return
        for number, address in self._addresses(host).items():
            self._refuse_guest(host, number, address)
        if present != "0":
            _write(host, self._file("sriov_numvfs"), "0")
        if wanted == "0":
            return
        with _set_meanwhile(host, self._file("sriov_drivers_autoprobe"), "0"):
            _write(host, self._file("sriov_numvfs"), wanted)

    def _file(self, name: str) -> str:
        return f"{PCI_DEVICES}/{self.change.target}/{name}"


class VfGuids(_OfVfs):
    """The GUIDs. A driver reads them when it is bound, so it is bound again."""

    PROPERTY = VF_GUIDS
    VALUE = f"{_GUID}(?:/{_GUID})*"
    NEW = NO_GUID

    def normal(self, value: str) -> Optional[str]:
        # mlx4: nobody has assigned one.
        return value.replace("ffff:ffff:ffff:ffff", NO_GUID).strip()

    def _present(self, host: Host, present: dict[int, str]) -> dict[int, str]:
        iov = self._iov(host)
        if iov is None:
            return {
                number: f"{vf.node_guid}/{vf.ports[0].guid}"
                for number, vf in self._ip_vfs(host).items()
                if number in present and vf.node_guid and vf.ports
            }
        guids: dict[int, list[str]] = {}
        for port in host.tree.names(f"{iov}/ports"):
            for number in present:
                text = host.tree.text(f"{iov}/ports/{port}/admin_guids/{number + 1}")
                int(text or "", 16)
                guid = Guid((text or "").zfill(16)).in_groups
                guids.setdefault(number, []).append(guid)
        return {number: "/".join(values) for number, values in guids.items()}

    def _set(self, host: Host, number: int, address: str, value: str) -> None:
        self._refuse_guest(host, number, address)
        guids = [Guid(guid.replace(":", "")) for guid in value.split("/")]
        iov = self._iov(host)
        if iov is not None:
            # The subnet manager tells the VF's driver.
            ports = host.tree.names(f"{iov}/ports")
            for port, guid in zip(ports, guids * 2):
                path = f"{iov}/ports/{port}/admin_guids/{number + 1}"
                _write(host, path, f"0x{guid}")
            return
        node, port_guid = (guids * 2)[:2]
        self._by_ip(host, number, "node_guid", node.in_bytes)
        self._by_ip(host, number, "port_guid", port_guid.in_bytes)
        driver = self._driver(host, address)
        if driver:
            self._bind(host, number, address, driver)


class VfStates(_OfVfs):
    """The policy for the links."""

    PROPERTY = VF_STATES
    VALUE = "(?:auto|enable|disable)"
    NEW = "auto"

    def _interrupts(self, values: Optional[str]) -> bool:
        # auto may be down too: it follows the port.
        return set(_by_number(values).values()) != {ENABLE}

    def _present(self, host: Host, present: dict[int, str]) -> dict[int, str]:
        return {
            number: vf.link_state
            for number, vf in self._ip_vfs(host).items()
            if number in present and vf.link_state
        }

    def _set(self, host: Host, number: int, address: str, value: str) -> None:
        self._by_ip(host, number, "state", value)


class VfPkeys(_OfVfs):
    """mlx4: for each port ``PORT:INDEX,INDEX``, ports with a ``/`` between them. Other
    ports are no part of it: they may be Ethernet, whose table nobody can write.
    """

    PROPERTY = VF_PKEYS
    VALUE = r"[12]:[0-9,]*(?:/[12]:[0-9,]*)?"
    NEW = "1:"

    def _present(self, host: Host, present: dict[int, str]) -> dict[int, str]:
        return {
            number: "/".join(
                f"{port}:{','.join(self._entries(host, folder))}"
                for port, folder in self._tables(host, number)
            )
            for number in present
        }

    def _set(self, host: Host, number: int, address: str, value: str) -> None:
        wanted = dict(part.split(":") for part in value.split("/"))
        for port, folder in self._tables(host, number):
            if port not in wanted:
                continue
            indexes = [index for index in wanted[port].split(",") if index]
            used = len(self._entries(host, folder))
            indexes += ["none"] * (used - len(indexes))
            for entry, index in enumerate(indexes):
                _write(host, f"{folder}/{entry}", index)

    def _tables(self, host: Host, number: int) -> list[tuple[str, str]]:
        """Return the ports of a VF, each with the folder of its table."""
        name = mlx4_function(self.change.target, number)
        folder = f"{self._iov(host)}/{name}/ports"
        own = re.findall(r"([12]):", self.change.after or "")
        ports = [port for port in host.tree.names(folder) if port in own]
        return [(port, f"{folder}/{port}/pkey_idx") for port in ports]

    def _entries(self, host: Host, folder: str) -> list[str]:
        """Return the first entries of a table, up to one that is not used."""
        entries: list[str] = []
        while (index := host.tree.number(f"{folder}/{len(entries)}")) is not None:
            entries.append(str(index))
        return entries


class VfDrivers(_OfVfs):
    """The drivers on this host."""

    PROPERTY = VF_DRIVERS
    VALUE = r"(?:-|[A-Za-z0-9_-]{1,60})"
    NEW = NO_DRIVER

    def _present(self, host: Host, present: dict[int, str]) -> dict[int, str]:
        return {
            number: self._driver(host, address) or NO_DRIVER
            for number, address in present.items()
        }

    def _set(self, host: Host, number: int, address: str, value: str) -> None:
        self._refuse_guest(host, number, address)
        self._bind(host, number, address, None if value == NO_DRIVER else value)
