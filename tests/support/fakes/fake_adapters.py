# SPDX-License-Identifier: GPL-2.0-or-later
"""Adapters of a fake host: PCI functions and their VFs; identity, MTUs, LIDs and P_Keys
of RDMA devices and ports.

    hca = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
    host.adapter(hca, "0x028000")
    host.mlx4_port(hca, 1, "ib", mtu=4096)
    host.rdma_device("mlx4_0", pci=hca)
    host.rdma_identity("mlx4_0", hw_rev="1", hca_type="MT4099")
    host.rdma_port("mlx4_0", 1)
    host.fabric_port("mlx4_0", 1, lid=5, sm_lid=1, pkeys=("0xffff", "0x8001"))
    host.ib_mtus("mlx4_0", 1, 4096, 2048)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from support.fakes.fake_files import FakeFiles
from support.fakes.fake_processes import run_process
from support.fakes.fake_runner import FakeRunner

if TYPE_CHECKING:
    from support.fakes.fake_root import Pci

# enum ib_mtu; a driver returns 0 as long as there is no link.
_MTU_NUMBERS = {0: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}


@dataclass
class FakeAdapters(FakeFiles):
    """PCI functions below /sys/bus/pci/devices, and details of RDMA ports."""

    runner: FakeRunner = field(default_factory=FakeRunner)
    # By device and port: the largest and the active IB MTU.
    _mtus: dict[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict, init=False, repr=False
    )
    _mads: int = field(default=0, init=False, repr=False)

    def adapter(
        self,
        pci: Pci,
        class_code: str = "0x020000",
        max_vfs: Optional[int] = None,
        physical_function: Optional[Pci] = None,
    ) -> None:
        """Add a PCI function of any kind; without ``pci.driver`` none is bound."""
        self.write(f"{pci.folder}/vendor", pci.vendor)
        self.write(f"{pci.folder}/device", pci.device)
        self.write(f"{pci.folder}/revision", pci.revision)
        self.write(f"{pci.folder}/class", class_code)
        if pci.driver:
            self.link(f"{pci.bound}/driver", f"/sys/bus/drivers/{pci.driver}")
        if max_vfs is not None:
            self.write(f"{pci.folder}/sriov_totalvfs", str(max_vfs))
            self.write(f"{pci.folder}/sriov_numvfs", "0")
        if physical_function:
            self.link(f"{pci.folder}/physfn", physical_function.folder)
        self.link(f"/sys/bus/pci/devices/{pci.address}", pci.folder)

    def virtual_functions(
        self,
        pci: Pci,
        count: int,
        device: str,
        driver: str = "mlx5_core",
        class_code: str = "0x020000",
    ) -> list[Pci]:
        """Add ``count`` VFs of an adapter, at the addresses after its own; return them.

        ``pci`` must be the only function of its device, as the VFs take the others.
        """
        domain, bus, _ = pci.address.split(":")
        made = []
        for number in range(1, count + 1):
            place = f"{number // 256 + int(bus, 16):02x}:{number % 256 // 8:02x}"
            address = f"{domain}:{place}.{number % 8}"
            vf = replace(pci, address=address, device=device, driver=driver)
            self.adapter(vf, class_code, physical_function=pci)
            self.link(f"{pci.folder}/virtfn{number - 1}", vf.folder)
            made.append(vf)
        self.write(f"{pci.folder}/sriov_numvfs", str(count))
        return made

    def ip_vfs(self, netdev: str, vfs: Sequence[tuple[str, str, str]]) -> None:
        """Set what ``ip`` shows of the VFs of ``netdev``: node GUID, port GUID, and the
        link state, as iproute2 6.1 prints them for mlx5.
        """
        rows = [
            {
                "vf": number,
                "link_type": "infiniband",
                "link_state": state,
                "query_rss_en": False,
                "node guid": _in_bytes(node),
                "port guid": _in_bytes(port),
            }
            for number, (node, port, state) in enumerate(vfs)
        ]
        text = json.dumps(
            [{"ifname": netdev, "num_vf": len(rows), "vfinfo_list": rows}]
        )
        self.runner.answer(f"ip -j link show dev {netdev}", text)

    def mlx4_vf(
        self, pci: Pci, device: str, number: int, guid: str, pkeys: Sequence[str] = ()
    ) -> None:
        """Set what mlx4 shows of VF ``number``, from 0: ``guid`` as the kernel prints
        it (``0``, ``ffffffffffffffff``), and its entries of port 1's P_Key table.
        """
        iov = f"/sys/class/infiniband/{device}/iov"
        self.write(f"{iov}/ports/1/admin_guids/{number + 1}", guid)
        name = f"{pci.address[:8]}{(number + 1) // 8:02d}.{(number + 1) % 8}"
        for entry in range(4):
            text = pkeys[entry] if entry < len(pkeys) else "none"
            self.write(f"{iov}/{name}/ports/1/pkey_idx/{entry}", text)

    def mlx4_port(self, pci: Pci, number: int, kind: str, mtu: int = 4096) -> None:
        """Set an mlx4 port's type (``ib``, ``auto (eth)``) and IB MTU."""
        self.write(f"{pci.folder}/mlx4_port{number}", kind)
        self.write(f"{pci.folder}/mlx4_port{number}_mtu", str(mtu))

    def rdma_identity(
        self,
        device: str,
        hw_rev: Optional[str] = None,
        hca_type: Optional[str] = None,
        board_id: Optional[str] = None,
    ) -> None:
        """Write the attributes that the driver of an RDMA device adds."""
        texts = {"hw_rev": hw_rev, "hca_type": hca_type, "board_id": board_id}
        for name, text in texts.items():
            if text is not None:
                self.write(f"/sys/class/infiniband/{device}/{name}", text)

    def fabric_port(
        self,
        device: str,
        number: int = 1,
        lid: int = 1,
        sm_lid: int = 1,
        pkeys: Sequence[str] = ("0xffff",),
        table_size: int = 16,
    ) -> None:
        """Write a port's LIDs and its P_Key table of ``table_size`` entries."""
        folder = f"/sys/class/infiniband/{device}/ports/{number}"
        self.write(f"{folder}/lid", f"0x{lid:x}")
        self.write(f"{folder}/sm_lid", f"0x{sm_lid:x}")
        for index in range(table_size):
            pkey = pkeys[index] if index < len(pkeys) else "0x0000"
            self.write(f"{folder}/pkeys/{index}", pkey)

    def default_gid_type(self, device: str, port: int, text: str) -> None:
        """Write the RDMA CM's choice, as if somebody had made the folder."""
        folder = f"/sys/kernel/config/rdma_cm/{device}/ports/{port}"
        self.write(f"{folder}/default_roce_mode", text)

    def ib_mtus(self, device: str, port: int, max_mtu: int, active_mtu: int) -> None:
        """Set what ``ibv_devinfo`` prints for a port, in bytes; 0 is invalid."""
        self._mtus[device, port] = (max_mtu, active_mtu)
        self.runner.answer("ibv_devinfo", self._devinfo)

    def _devinfo(self) -> str:
        devices = list(dict.fromkeys(device for device, _ in self._mtus))
        return "".join(self.devinfo_of(device) for device in devices)

    def cabled(self, device: str, port: int = 1, description: str = "leaf1") -> None:
        """Set what ``smpquery`` shows of the switch at the other end of a cable."""
        self.mad_device(device, port)
        ask = f"smpquery -t 300 -C {device} -P {port} -D"
        info = node_info("Switch", "0xec0d9a0300f51230", 7, f"0,{port}")
        self.runner.answer(f"{ask} nodeinfo 0,{port}", info)
        text = f"Node Description:{description.rjust(32, '.')}\n"
        self.runner.answer(f"{ask} nodedesc 0,{port}", text)

    def mad_device(self, device: str, port: int = 1) -> None:
        """Add the device of ib_umad by which datagrams are sent from a port."""
        folder = f"/sys/class/infiniband_mad/umad{self._mads}"
        self.write(f"{folder}/ibdev", device)
        self.write(f"{folder}/port", str(port))
        self._mads += 1

    def lldp(self, netdev: str, text: str) -> None:
        """Set what ``lldptool`` shows of the neighbour of ``netdev``; lldpad runs."""
        self.write("/run/lldpad.pid", b"812\n" + 28 * b"\0")
        run_process(self.path, 812, "/usr/sbin/lldpad", "-t")
        self.runner.answer(f"lldptool get-tlv -n -i {netdev}", text)

    def devinfo_of(self, device: str) -> str:
        """Return what ``ibv_devinfo -d DEVICE`` prints."""
        ports = {
            port: mtus for (one, port), mtus in self._mtus.items() if one == device
        }
        lines = [f"hca_id:\t{device}", "\ttransport:\t\t\tInfiniBand (0)"]
        lines += ["\tfw_ver:\t\t\t\t2.42.5000", "\tvendor_id:\t\t\t0x02c9"]
        lines += [
            "\tboard_id:\t\t\tMT_1090120019",
            f"\tphys_port_cnt:\t\t\t{len(ports)}",
        ]
        for port, (max_mtu, active_mtu) in ports.items():
            lines += [f"\t\tport:\t{port}", "\t\t\tstate:\t\t\tPORT_ACTIVE (4)"]
            lines += [f"\t\t\tmax_mtu:\t\t{_shown(max_mtu)}"]
            lines += [f"\t\t\tactive_mtu:\t\t{_shown(active_mtu)}"]
            lines += ["\t\t\tsm_lid:\t\t\t1", "\t\t\tport_lid:\t\t5"]
            lines += ["\t\t\tport_lmc:\t\t0x00", "\t\t\tlink_layer:\t\tInfiniBand", ""]
        return "\n".join(lines) + "\n"


def node_info(kind: str, guid: str, port: int, path: str) -> str:
    """Return what ``smpquery nodeinfo`` prints (infiniband-diags 44, ibsim)."""
    fields = {
        "BaseVers": "1",
        "ClassVers": "1",
        "NodeType": kind,
        "NumPorts": "36",
        "SystemGuid": guid,
        "Guid": guid,
        "PortGuid": guid,
        "PartCap": "8",
        "DevId": "0xcb20",
        "Revision": "0x000000a0",
        "LocalPort": str(port),
        "VendorId": "0x0002c9",
    }
    lines = [f"{name}:{'.' * (32 - len(name))}{text}" for name, text in fields.items()]
    return "\n".join(
        [f"# Node info: DR path slid 65535; dlid 65535; {path}", *lines, ""]
    )


def lldp_text(
    name: str = "leaf1",
    port: str = "Ifname: Ethernet1/7",
    chassis: str = "MAC: 00:1c:73:aa:00:01",
    description: str = "to hv1",
    enabled: str = "Bridge, Router",
) -> str:
    """Return what ``lldptool get-tlv -n`` prints of a switch (lldpad 1.1)."""
    return (
        f"Chassis ID TLV\n\t{chassis}\nPort ID TLV\n\t{port}\n"
        f"Time to Live TLV\n\t120\nPort Description TLV\n\t{description}\n"
        f"System Name TLV\n\t{name}\nSystem Description TLV\n\tEOS version 4.30\n"
        f"System Capabilities TLV\n\tSystem capabilities:  Bridge, Router\n"
        f"\tEnabled capabilities: {enabled}\n"
        "Management Address TLV\n\tIPv4: 10.21.0.40\n\tIfindex: 36\n"
        "Port VLAN ID TLV\n\tPVID: 1\nEnd of LLDPDU TLV\n"
    )


def _in_bytes(guid: str) -> str:
    digits = guid.replace(":", "")
    return ":".join(digits[at : at + 2] for at in range(0, 16, 2))


def _shown(mtu: int) -> str:
    return f"{mtu or 'invalid MTU'} ({_MTU_NUMBERS[mtu]})"
