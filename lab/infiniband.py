# SPDX-License-Identifier: GPL-2.0-or-later
"""Simulate InfiniBand in one guest: HCAs joined by a fabric with a subnet manager.

fabric = InfiniBand(hcas=2, group_mtu=2048, pkeys=(0xFFFF, 0x8001))
fabric.load(guest)                 # mlx4_0 and mlx4_1, ib0 and ib1 with carrier
fabric.port_down(guest, "mlx4_0")

The kernel's own ib_ipoib, rpcrdma etc. bind to them; lab/ib_fabric/ is the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Optional

from lab import modules
from lab.guest import Guest
from lab.ib_fabric_build import NAME, built_module
from lab.second_host import Host

# Where SELinux lets kmod load modules from.
_FILE = f"/usr/lib/modules/$(uname -r)/{NAME}.ko"
_PARAMETERS = f"/sys/module/{NAME}/parameters"
# If the module refuses a value, its reason is in the new lines of the kernel's log.
_INSERT = f"""
cat > {_FILE}
old_lines=$(dmesg | grep -c '{NAME}:')
insmod {_FILE} "$@" && exit
dmesg | grep '{NAME}:' | tail -n "+$((old_lines + 1))" >&2
exit 1
"""
_SET_UP = """
for netdev in "$@"; do
    until ip link set "$netdev" up 2>/dev/null; do sleep 0.05; done
done
"""
_WAIT_FOR_CARRIER = """
for netdev in "$@"; do
    until grep -qx 1 "/sys/class/net/$netdev/carrier"; do sleep 0.05; done
done
"""


@dataclass(frozen=True)
class PciFunction:
    """The identity of an HCA's PCI function; by default a ConnectX of revision a0.

    ``driver`` is the name of its driver in sysfs.
    """

    vendor: int = 0x15B3
    device: int = 0x634A
    revision: int = 0xA0
    pci_class: int = 0x0C0600
    driver: str = NAME


@dataclass(frozen=True)
class InfiniBand:
    """HCAs and their fabric, as they are after loading; MTUs are in bytes.

    Each of ``hcas`` (1 to 8) has ``ports`` (1 or 2), can have ``max_vfs`` virtual
    functions (0 to 16, with one port only), and supports ``hca_mtu``; links use
    ``active_mtu``, by default the same; multicast groups, and so IPoIB, have
    ``group_mtu``: above ``active_mtu`` the SA refuses the join, as OpenSM does.
    ``pkeys`` is the table of every port; bit 15 stands for a full member. Without
    ``tso`` HCAs do not segment TCP; without ``fast_registration``, as with qib, there
    is no NFS over RDMA; without ``subnet_manager`` ports stay at INIT. ``firmware``,
    ``board_id`` and ``hca_type`` are what sysfs shows; the default of the last is the
    value that Mellanox's drivers derive from the PCI device.
    """

    hcas: int = 2
    ports: int = 1
    max_vfs: int = 0
    hca_mtu: int = 4096
    active_mtu: Optional[int] = None
    group_mtu: int = 4096
    pkeys: tuple[int, ...] = (0xFFFF,)
    tso: bool = True
    fast_registration: bool = True
    subnet_manager: bool = True
    device_name: str = "mlx4_%d"
    firmware: str = "2.9.1000"
    board_id: str = "MT_0000000000"
    hca_type: str = ""
    pci: PciFunction = field(default_factory=PciFunction)

    # rdma_ucm is for our probe, ib_uverbs for rping, ib_umad for ibstat.
    modules: ClassVar[tuple[str, ...]] = (
        "ib_ipoib",
        "ib_umad",
        "ib_uverbs",
        "rdma_ucm",
    )

    @property
    def devices(self) -> tuple[str, ...]:
        """The RDMA devices: ``mlx4_0``, ``mlx4_1``."""
        return tuple(self.device_name % number for number in range(self.hcas))

    @property
    def netdevs(self) -> tuple[str, ...]:
        """The IPoIB netdevs, one per port: ``ib0``, ``ib1``."""
        return tuple(f"ib{number}" for number in range(self.hcas * self.ports))

    @property
    def gives_carrier(self) -> bool:
        """Whether IPoIB can join its groups: there is an SM, and links support their
        MTU.
        """
        return self.subnet_manager and self.group_mtu <= self.link_mtu

    @property
    def link_mtu(self) -> int:
        """The MTU of the links."""
        return self.active_mtu or self.hca_mtu

    def parameters(self) -> list[str]:
        """Return the module's parameters, as insmod takes them. Pure."""
        values = {
            "hcas": self.hcas,
            "ports": self.ports,
            "max_vfs": self.max_vfs,
            "hca_mtu": self.hca_mtu,
            "active_mtu": self.link_mtu,
            "group_mtu": self.group_mtu,
            "pkeys": _pkeys(self.pkeys),
            "tso": int(self.tso),
            "fast_registration": int(self.fast_registration),
            "subnet_manager": int(self.subnet_manager),
            "device_name": self.device_name,
            "firmware": self.firmware,
            "board_id": self.board_id,
            "pci_vendor": self.pci.vendor,
            "pci_device": self.pci.device,
            "pci_revision": self.pci.revision,
            "pci_class": self.pci.pci_class,
            "driver": self.pci.driver,
        }
        if self.hca_type:
            values["hca_type"] = self.hca_type
        return [f"{name}={value}" for name, value in values.items()]

    def load(self, guest: Guest) -> None:
        """Load the fabric. Then all netdevs are up, and have carrier if there is an SM.

        Raises CommandFailed, with the module's reason if it refuses a value.
        """
        modules.load(guest, *self.modules)
        guest.run(
            ["bash", "-c", _INSERT, "insmod", *self.parameters()],
            input=built_module().read_bytes(),
            check=True,
        )
        wait = _SET_UP + (_WAIT_FOR_CARRIER if self.gives_carrier else "")
        guest.run(["bash", "-c", wait, "netdevs", *self.netdevs], check=True)

    def unload(self, guest: Guest) -> None:
        """Remove HCAs, fabric and netdevs, even if they are in use."""
        guest.run(["rmmod", NAME], check=True)

    def bring_up(self, guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
        """Plug in the cable of ``netdev`` and set its addresses; load it if necessary.

        With :meth:`take_down` this is a :class:`lab.topology.Fabric`.
        """
        if guest.run(["test", "-e", _PARAMETERS]).exit_code:
            self.load(guest)
        self.port_up(guest, *self.port_of(netdev))
        set_up(guest, netdev, addresses)

    def take_down(self, guest: Guest, netdev: str) -> None:
        """Pull the cable of ``netdev``. Its RDMA device stays: without it the IPoIB
        netdev would disappear, with its addresses.
        """
        self.port_down(guest, *self.port_of(netdev))

    def port_of(self, netdev: str) -> tuple[str, int]:
        """Return the RDMA device and the port behind ``netdev``."""
        number = self.netdevs.index(netdev)
        return self.devices[number // self.ports], number % self.ports + 1

    def port_down(self, guest: Guest, device: str, port: int = 1) -> None:
        """Pull the cable: ``ports/N/state`` is DOWN, no carrier, connections end."""
        self._write(guest, _port(device, port, "cable"), "0")

    def port_up(self, guest: Guest, device: str, port: int = 1) -> None:
        """Plug in the cable: ACTIVE at once, INIT without a subnet manager."""
        self._write(guest, _port(device, port, "cable"), "1")

    def set_pkeys(
        self, guest: Guest, device: str, pkeys: Sequence[int], port: int = 1
    ) -> None:
        """Set the P_Key table of a port, as the admin of partitions does."""
        self._write(guest, _port(device, port, "pkeys"), _pkeys(pkeys))

    def set_group_mtu(self, guest: Guest, mtu: int) -> None:
        """Let the SM create its groups again with another MTU; IPoIB joins again."""
        self._write(guest, f"{_PARAMETERS}/group_mtu", str(mtu))

    def set_subnet_manager(self, guest: Guest, there: bool) -> None:
        """Stop or start the SM. Ports that it has set up stay ACTIVE without it."""
        self._write(guest, f"{_PARAMETERS}/subnet_manager", str(int(there)))

    def unbind(self, guest: Guest, number: int) -> None:
        """Unbind HCA ``number``, from 0, from its driver; only the adapter remains."""
        path = f"/sys/bus/pci/drivers/{self.pci.driver}/unbind"
        self._write(guest, path, _pci_address(number))

    def bind(self, guest: Guest, number: int) -> None:
        """Bind the adapter to its driver again."""
        path = f"/sys/bus/pci/drivers/{self.pci.driver}/bind"
        self._write(guest, path, _pci_address(number))

    @staticmethod
    def wait_for_carrier(host: Host, *netdevs: str) -> None:
        """Wait until ``netdevs``, which are up, have joined their groups."""
        host.run(["bash", "-c", _WAIT_FOR_CARRIER, "carrier", *netdevs], check=True)

    @staticmethod
    def _write(guest: Guest, path: str, text: str) -> None:
        guest.run(["bash", "-c", 'echo "$1" > "$2"', "write", text, path], check=True)


def set_up(host: Host, netdev: str, addresses: Sequence[str]) -> None:
    """Give ``netdev`` its addresses (``10.0.0.1/24``) and set it up."""
    lines = [f"ip link set {netdev} up"]
    for address in addresses:
        # Without duplicate address detection an IPv6 address can be used at once.
        nodad = " nodad" if ":" in address else ""
        lines.append(f"ip address replace {address} dev {netdev}{nodad}")
    host.run(" && ".join(lines), check=True)


def _pkeys(pkeys: Sequence[int]) -> str:
    return ",".join(f"{pkey:#06x}" for pkey in pkeys)


def _port(device: str, port: int, name: str) -> str:
    return f"/sys/class/infiniband/{device}/ports/{port}/fabric/{name}"


def _pci_address(number: int) -> str:
    """Return the address of HCA ``number``, as in lab/ib_fabric/pci_function.c."""
    return f"001b:00:{number:02x}.0"
