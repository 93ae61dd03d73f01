# SPDX-License-Identifier: GPL-2.0-or-later
"""Read adapters from the PCI bus, RDMA devices and their ports, and virtual functions.

The adapters are PCI functions in /sys/bus/pci/devices that are or could be RDMA
adapters. A hypervisor has hundreds of functions, most of them VFs; only vendor and
class are read of those that are not adapters.

The texts of RDMA devices are those of the kernel's drivers/infiniband/core/sysfs.c and
cma_configfs.c, and of the drivers' hw_rev, hca_type and board_id. Rates have the form
``40 Gb/sec (4X QDR)`` (rate_show()). The kernel has no file with the MTUs; the output
of ``ibv_devinfo`` is that of rdma-core's libibverbs/examples/devinfo.c. MLNX_OFED's has
more lines, which are ignored.

The kernel shows which functions are VFs (``virtfnN``, drivers/pci/iov.c). What a PF has
set for them, it shows in two ways:

- mlx5: netlink, by the PF's IPoIB netdev (``ip link show dev ib0``; the kernel's
  rtnl_fill_vfinfo() in net/core/rtnetlink.c, and mlx5's ib_virt.c): node and port GUID,
  and the policy for the link;
- mlx4: the folder ``iov`` of the PF's RDMA device (drivers/infiniband/hw/mlx4/sysfs.c):
  for each port the GUIDs, and which entries of the port's P_Key table a VF sees.

Here too is the host's id, of which the GUIDs of VFs are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.host.collect.tools import Tools, read_each, virtual_functions
from ovirt_rdma.host.facts.adapter_models import VENDORS, model_of
from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    SOFT_ROCE,
    Adapter,
    Gid,
    Guid,
    Netdev,
    PciIdentity,
    PciLink,
    PKey,
    RdmaDevice,
    RdmaPort,
    VfPort,
    VirtualFunction,
    mlx4_function,
)
from ovirt_rdma.host.facts.infiniband import MTUS, partition_of
from ovirt_rdma.host.facts.model import UNKNOWN, Facts
from ovirt_rdma.host.paths import RDMA_CM_CONFIG
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree

# domain:bus:device.function; VMD and Hyper-V use domains of five digits and more.
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PCI_DEVICES = "/sys/bus/pci/devices"
RDMA_CLASS = "/sys/class/infiniband"


def read_pci(tree: FileTree, folder: str) -> Optional[PciIdentity]:
    """Return the PCI function of ``folder``/device, or None.

    It is the device itself or its parent (virtio, and the sub-functions of mlx5). The
    PCI host controller of a USB adapter is not used.
    """
    place = tree.real_path(f"{folder}/device")
    if place is None:
        return None
    for function, link in ((place, "device"), (place.parent, "device/..")):
        if _ADDRESS.fullmatch(function.name):
            ids = [
                tree.text(f"{folder}/{link}/{name}") or UNKNOWN
                for name in ("vendor", "device", "revision")
            ]
            return PciIdentity(function.name, *ids)
    return None


_MELLANOX = "0x15b3"
# PCI base class and subclass, include/linux/pci_ids.h. Omni-Path is a "fabric
# controller"; old HCAs are InfiniBand controllers on the serial bus.
_NETWORK = "0x02"
_INFINIBAND, _FABRIC, _SERIAL_INFINIBAND = "0x0207", "0x0208", "0x0c06"
# drivers/net/ethernet/mellanox/mlx4/main.c: at most two ports.
_MLX4_PORTS = (1, 2)


def read_adapters(
    tree: FileTree, devices: tuple[RdmaDevice, ...], problems: list[str]
) -> tuple[Adapter, ...]:
    """Return the adapters by PCI address; :class:`Adapter` says which are included.

    An adapter that disappears during the read is left out, with a sentence.
    """
    with_rdma = {device.pci.address for device in devices if device.pci}

    def read(address: str, failures: list[str]) -> Optional[Adapter]:
        folder = f"{PCI_DEVICES}/{address}"
        vendor = tree.text(f"{folder}/vendor", failures)
        code = tree.text(f"{folder}/class", failures) or ""
        known = (
            address in with_rdma
            or code.startswith((_INFINIBAND, _FABRIC, _SERIAL_INFINIBAND))
            or (vendor == _MELLANOX and code.startswith(_NETWORK))
        )
        if not known and vendor in VENDORS and code.startswith(_NETWORK):
            device = tree.text(f"{folder}/device", failures) or ""
            known = model_of(PciIdentity(address, vendor, device, "")) is not None
        if not known:
            return None
        adapter = _adapter(tree, address, vendor, failures)
        if address in with_rdma and not adapter.physical_function:
            return replace(adapter, pci_link=_pci_link(tree, folder))
        return adapter

    names = tree.names(PCI_DEVICES)
    return tuple(read_each(tree, PCI_DEVICES, names, problems, read))


def _adapter(
    tree: FileTree, address: str, vendor: Optional[str], problems: list[str]
) -> Adapter:
    folder = f"{PCI_DEVICES}/{address}"
    device, revision = (
        tree.text(f"{folder}/{name}", problems) or UNKNOWN
        for name in ("device", "revision")
    )
    driver = tree.link_name(f"{folder}/driver")
    physfn = tree.link_name(f"{folder}/physfn")
    names = set(tree.names(folder))
    with_vfs = not physfn and "sriov_totalvfs" in names
    max_vfs, vfs = (
        tree.number(f"{folder}/sriov_{name}", problems) if with_vfs else None
        for name in ("totalvfs", "numvfs")
    )
    ports: list[tuple[str, int]] = []
    for path in (f"mlx4_port{number}" for number in _MLX4_PORTS):
        if driver == "mlx4_core" and path in names:
            kind = tree.text(f"{folder}/{path}", problems) or UNKNOWN
            # For Ethernet the MTU's file has no meaning, and the kernel logs a warning
            # if it is read.
            ethernet = "eth" in kind or f"{path}_mtu" not in names
            mtu = None if ethernet else tree.number(f"{folder}/{path}_mtu", problems)
            ports.append((kind, mtu or 0))
    return Adapter(
        pci=PciIdentity(address, vendor or UNKNOWN, device, revision),
        driver=driver,
        physical_function=physfn,
        vfs=vfs,
        max_vfs=max_vfs,
        port_types=tuple(kind for kind, _ in ports),
        port_mtus=tuple(mtu for _, mtu in ports),
        auxiliary=tuple(sorted(filter(_AUXILIARY.fullmatch, names)))
        if driver in _OFFERS
        else None,
    )


# Devices of the auxiliary bus, which the drivers of NICs offer to their RDMA module.
_OFFERS = ("ice", "i40e", "bnxt_en")
_AUXILIARY = re.compile(r"\w+\.(?:rdma|roce|iwarp)\.[0-9]+")

# drivers/pci/pci-sysfs.c: "8.0 GT/s PCIe"; "Unknown" if it has no link.
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9])?) GT/s(?: PCIe)?")


def _pci_link(tree: FileTree, folder: str) -> Optional[PciLink]:
    """Return the link; None if the kernel shows nothing of it."""
    above = tree.real_path(folder)
    # The folder of a function is inside that of the port above it.
    slot = bool(above and _ADDRESS.fullmatch(above.parent.name))
    ends = [(folder, "current"), (folder, "max"), (f"{folder}/..", "max")]
    values: list[Any] = []
    for place, which in ends if slot else ends[:2]:
        speed = tree.match(f"{place}/{which}_link_speed", _SPEED, "a speed")
        width = tree.number(f"{place}/{which}_link_width")
        values += [float(speed[1]) if speed else None, width or None]
    link = PciLink(*values)
    return None if link == PciLink() else link


_NUMBERED = re.compile(r"(?:\d+:\s*)?([A-Za-z<][^:]*)")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
# For verbs hfi1 shows 4096 at most, even if Omni-Path's MTU is 8192 or 10240
# (query_port() of drivers/infiniband/hw/hfi1/verbs.c).
_SHOWN_AT_MOST = {"hfi1": 4096}

Mtus = dict[str, Optional[int]]
"""A port's IB MTUs in bytes, ``max`` and ``active``; None: no valid one."""


def read_rdma_devices(
    tree: FileTree,
    problems: list[str],
    most_gids: Optional[int] = None,
    tools: Optional[Tools] = None,
) -> tuple[RdmaDevice, ...]:
    """Return all RDMA devices by name; none if no RDMA module is loaded.

    Only the first ``most_gids`` entries of each GID table are read; None: all, of which
    Soft-RoCE has 1024. With ``tools``: with details that a mount does not need.

    A device that disappears during the read is left out, invalid text becomes UNKNOWN
    or None, each with a sentence in ``problems``.
    """
    names = tree.names(RDMA_CLASS)
    mtus = _mtus(tools, names, problems) if tools else None

    def read(name: str, failures: list[str]) -> RdmaDevice:
        return _device(tree, name, failures, most_gids, mtus)

    return tuple(read_each(tree, RDMA_CLASS, names, problems, read))


def _mtus(
    tools: Tools, devices: Sequence[str], problems: list[str]
) -> dict[tuple[str, int], Mtus]:
    """Run ``ibv_devinfo`` for all devices together. If it fails, which it does if it
    cannot open one of them, run it for each device.
    """
    failed: list[str] = []
    text = tools.text(["ibv_devinfo"], failed, optional=True) if devices else None
    mtus = parse_port_mtus(text or "")
    if len(devices) == 1:
        problems.extend(failed)
    for device in devices if failed and len(devices) > 1 else ():
        text = tools.text(["ibv_devinfo", "-d", device], problems, optional=True)
        mtus.update(parse_port_mtus(text or ""))
    return mtus


def _device(
    tree: FileTree,
    name: str,
    problems: list[str],
    most_gids: Optional[int],
    mtus: Optional[Mapping[tuple[str, int], Mtus]],
) -> RdmaDevice:
    """Read a device, with details if there are ``mtus`` of ports."""
    folder = f"{RDMA_CLASS}/{name}"
    driver = tree.link_name(f"{folder}/device/driver")
    if driver is None and tree.text(f"{folder}/parent"):
        # Only rxe of the drivers without a bus device has this attribute.
        driver = SOFT_ROCE
    texts = set(tree.names(folder, problems)) if mtus is not None else set()
    hw_rev, hca_type = (
        _text(tree, f"{folder}/{key}", problems) if key in texts else None
        for key in ("hw_rev", "hca_type")
    )
    ports = []
    for number in filter(None, map(whole, tree.names(f"{folder}/ports", problems))):
        place = f"{folder}/ports/{number}"
        port = _port(tree, place, driver, problems, most_gids)
        if mtus is not None:
            # An MTU that the driver shows for all larger ones is unknown.
            most = _SHOWN_AT_MOST.get(driver or "")
            shown = mtus.get((name, number), {}).items()
            known = {key: mtu for key, mtu in shown if mtu != most}
            port = _with_details(tree, place, port, known, problems)
        ports.append(port)
    return RdmaDevice(
        name=name,
        node_type=_word(tree, f"{folder}/node_type", problems),
        node_guid=tree.text(f"{folder}/node_guid", problems) or UNKNOWN,
        driver=driver,
        firmware=tree.text(f"{folder}/fw_ver"),
        pci=read_pci(tree, folder),
        hw_rev=hw_rev,
        hca_type=hca_type,
        ports=tuple(sorted(ports, key=lambda port: port.number)),
    )


def _port(
    tree: FileTree,
    folder: str,
    driver: Optional[str],
    problems: list[str],
    most_gids: Optional[int],
) -> RdmaPort:
    link_layer = tree.text(f"{folder}/link_layer", problems) or UNKNOWN
    text = tree.text(f"{folder}/rate") or ""  # some ports have none
    rate, data_rate = rates_mbps(text, link_layer)
    if text and rate is None:
        problems.append(f"{folder}/rate reads {text!a}, not a rate in Gb/sec")
    return RdmaPort(
        number=int(folder.rpartition("/")[2]),
        state=_word(tree, f"{folder}/state", problems),
        physical_state=_word(tree, f"{folder}/phys_state", problems),
        link_layer=link_layer,
        rate_mbps=rate,
        # Soft-RoCE has no link of its own.
        data_rate_mbps=None if driver == SOFT_ROCE else data_rate,
        gids=_gids(tree, folder, problems, most_gids),
    )


def _word(tree: FileTree, path: str, problems: list[str]) -> str:
    """Return ``ACTIVE`` for ``4: ACTIVE``."""
    match = tree.match(path, _NUMBERED, "NUMBER: WORD", problems)
    return match[1] if match else UNKNOWN


def _gids(
    tree: FileTree, folder: str, problems: list[str], most: Optional[int]
) -> tuple[Gid, ...]:
    """Return the used ones of the first ``most`` entries of a GID table.

    Tables have up to 1024 entries, nearly all zero. To read the attributes of a zero
    entry fails with EINVAL, so they are read for used entries only.
    """
    gids = []
    for name in tree.names(f"{folder}/gids", problems):
        if most is not None and name.isdecimal() and int(name) >= most:
            continue
        # An entry may be removed at any time: then it reads as zero or fails.
        text = tree.text(f"{folder}/gids/{name}")
        if text is None or not text.strip("0:"):
            continue
        if not name.isdecimal() or not _GID.fullmatch(text):
            problems.append(f"{folder}/gids/{name} reads {text!a}, not a GID")
            continue
        gids.append(
            Gid(
                index=int(name),
                gid=text,
                type=tree.text(f"{folder}/gid_attrs/types/{name}"),
                netdev=tree.text(f"{folder}/gid_attrs/ndevs/{name}"),
            )
        )
    return tuple(sorted(gids, key=lambda gid: gid.index))


def _with_details(
    tree: FileTree, folder: str, port: RdmaPort, mtus: Mtus, problems: list[str]
) -> RdmaPort:
    names = set(tree.names(folder, problems))
    lid, sm_lid = (
        tree.number(f"{folder}/{name}", problems) if name in names else None
        for name in ("lid", "sm_lid")
    )
    guid = gid_type = tos = None
    # To create its folder would show both, but would change the host. Without it they
    # are as in the beginning, unless a tool created it and removed it again.
    config = f"{RDMA_CM_CONFIG}{folder.removeprefix(RDMA_CLASS)}"
    if port.is_ethernet and tree.is_folder(config):
        gid_type = _text(tree, f"{config}/default_roce_mode", problems)
        tos = tree.number(f"{config}/default_roce_tos")
    elif port.is_ethernet and tree.is_folder(RDMA_CM_CONFIG):
        tos = 0
    if not port.is_ethernet:
        # The low half of the GID at index 0. A VF has none (all zero) until its
        # physical function assigns one.
        guids = [Guid.of_gid(gid.gid) for gid in port.gids if gid.index == 0]
        guid = guids[0].in_groups if guids and guids[0].assigned else None
    return replace(
        port,
        max_mtu=mtus.get("max"),
        active_mtu=mtus.get("active"),
        lid=lid,
        sm_lid=sm_lid,
        guid=guid,
        default_gid_type=gid_type,
        default_tos=tos,
        # iWARP has none.
        pkeys=_pkeys(tree, f"{folder}/pkeys", problems) if "pkeys" in names else (),
    )


def _pkeys(tree: FileTree, folder: str, problems: list[str]) -> tuple[PKey, ...]:
    """Return the used entries of a P_Key table; most of its 128 or so are 0x0000."""
    pkeys = []
    for name in tree.names(folder, problems):
        found = tree.match(f"{folder}/{name}", _PKEY, "a P_Key", problems)
        index = whole(name)
        if found and index is not None and partition_of(found[0]) is not None:
            pkeys.append(PKey(index, found[0]))
    return tuple(sorted(pkeys, key=lambda pkey: pkey.index))


def _text(tree: FileTree, path: str, problems: list[str]) -> Optional[str]:
    """Return a text, or None if it is empty, which is valid for some drivers."""
    data = tree.data(path, problems)
    return data.decode("utf-8", "surrogateescape").strip() or None if data else None


# Mb/s of one lane after encoding. SDR to QDR use 8b/10b, the others 64b/66b on
# 10.3125, 14.0625 and 25.78125 Gb/s per lane. The kernel's figure is before encoding up
# to QDR and for FDR (14 per lane), and after it for FDR10 and from EDR on.
_LANE_MBPS = {
    "SDR": 2_000.0,
    "DDR": 4_000.0,
    "QDR": 8_000.0,
    "FDR10": 10_000.0,
    "FDR": 14_062.5 * 64 / 66,
    "EDR": 25_000.0,
    "HDR": 50_000.0,
    "NDR": 100_000.0,
    "XDR": 200_000.0,
}
_RATE = re.compile(
    r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b"
    r"(?: \(([0-9]{1,2})X ?([A-Z0-9]*)\))?.*"
)


def rates_mbps(text: str, link_layer: str) -> tuple[Optional[int], Optional[int]]:
    """Return the signalling rate and the data rate, 40000 and 32000 for ``40 Gb/sec (4X
    QDR)``; None for a text that is no rate, and for the data rate of an unknown
    generation. Ethernet's speeds are those after encoding.
    """
    match = _RATE.fullmatch(text)
    if not match:
        return None, None
    rate = round(float(match[1]) * 1000)
    # Old kernels print no name for SDR.
    lane = _LANE_MBPS.get(match[3] or "SDR") if match[2] else None
    data = None if lane is None else round(int(match[2]) * lane)
    return rate, rate if link_layer == "Ethernet" else data


# enum ib_mtu and enum opa_mtu of the kernel's include/rdma/ib_verbs.h. The number is
# read, not the text before it, which is "invalid MTU" for values unknown to the tool.
_BYTES = {**MTUS, 6: 8192, 7: 10240}
_DEVICE = re.compile(r"hca_id:\s+(\S+)\s*")
_PORT = re.compile(r"\s+port:\s+([0-9]{1,3})\s*")
_MTU = re.compile(r"\s+(max|active)_mtu:\s+.*\(([0-9]{1,3})\)\s*")


def parse_port_mtus(text: str) -> dict[tuple[str, int], Mtus]:
    """Return the MTUs by device and port number; other lines are ignored."""
    mtus: dict[tuple[str, int], Mtus] = {}
    device: Optional[str] = None
    port: Optional[tuple[str, int]] = None
    for line in text.split("\n"):
        if match := _DEVICE.fullmatch(line):
            device, port = match.group(1), None
        elif match := _PORT.fullmatch(line):
            port = None if device is None else (device, int(match.group(1)))
        elif port is not None and (match := _MTU.fullmatch(line)):
            bytes_ = _BYTES.get(int(match.group(2)))
            mtus.setdefault(port, {})[match.group(1)] = bytes_
    return mtus


_VIRTFN = re.compile(r"virtfn([0-9]{1,5})")
_ADMIN_GUID = re.compile(r"[0-9a-f]{1,16}")
# The subnet manager, or nobody, assigns the GUID (sysfs.c, show_admin_alias_guid).
_NOBODYS = "ffffffffffffffff"

# As VDSM does it (lib/vdsm/host/__init__.py, uuid); dmidecode reads the same value.
_VDSM_ID = "/etc/vdsm/vdsm.id"
_PRODUCT_UUID = "/sys/class/dmi/id/product_uuid"


def read_host_uuid(tree: FileTree) -> Optional[str]:
    """Return the host's id in VDSM; None if it has none, or only root may read it."""
    text = tree.text(_VDSM_ID) or tree.text(_PRODUCT_UUID)
    return text.splitlines()[0].strip().lower() if text else None


def with_virtual_functions(
    tree: FileTree, tools: Tools, facts: Facts, problems: list[str]
) -> tuple[Adapter, ...]:
    """Return the adapters of ``facts`` with their VFs; ``ip`` is run for each PF that
    has some.
    """
    devices = {d.pci.address: d.name for d in facts.rdma_devices if d.pci}
    # The first netdev of each PCI function that is no P_Key child.
    base: dict[str, Netdev] = {}
    for one in facts.netdevs:
        if one.pci and not (one.ipoib and one.ipoib.parent):
            base.setdefault(one.pci.address, one)
    found = []
    for adapter in facts.adapters:
        pf, is_mlx4 = adapter.pci.address, adapter.driver == "mlx4_core"
        folder = f"{PCI_DEVICES}/{pf}"
        links = {
            int(match[1]): address
            for name in (tree.names(folder) if adapter.vfs else ())
            if (match := _VIRTFN.fullmatch(name))
            and (address := tree.link_name(f"{folder}/{name}"))
        }
        shown: Mapping[int, VirtualFunction] = {}
        netdev = base.get(pf) if links and not is_mlx4 else None
        if netdev and netdev.type == ARPHRD_INFINIBAND:
            command = ["ip", "-j", "link", "show", "dev", netdev.name]
            shown = virtual_functions(tools.rows(command, problems) or [])
        vfs = []
        for number, address in sorted(links.items()):
            vf = replace(
                shown.get(number, VirtualFunction(number, "")),
                address=address,
                driver=tree.link_name(f"{PCI_DEVICES}/{address}/driver"),
                netdev=base[address].name if address in base else None,
            )
            if is_mlx4 and pf in devices:
                ports = _vf_ports(tree, pf, devices[pf], number, problems)
                vf = replace(vf, ports=ports)
            vfs.append(vf)
        found.append(replace(adapter, virtual_functions=tuple(vfs)) if vfs else adapter)
    return tuple(found)


def _vf_ports(
    tree: FileTree, pf: str, device: str, number: int, problems: list[str]
) -> tuple[VfPort, ...]:
    """Return mlx4's ports of VF ``number``: entry ``number`` + 1 of a port's GUIDs, and
    the first entries of the VF's P_Key table, up to one that is not used.
    """
    iov = f"{RDMA_CLASS}/{device}/iov"
    ports = []
    for port in tree.names(f"{iov}/ports"):
        path = f"{iov}/ports/{port}/admin_guids/{number + 1}"
        found = tree.match(path, _ADMIN_GUID, "a GUID", problems)
        if found is None or not port.isdecimal():
            continue
        digits = "0" if found[0] == _NOBODYS else found[0]
        folder = f"{iov}/{mlx4_function(pf, number)}/ports/{port}/pkey_idx"
        indexes: list[int] = []
        while (index := tree.number(f"{folder}/{len(indexes)}")) is not None:
            indexes.append(index)
        guid = Guid(digits.zfill(16)).in_groups
        ports.append(VfPort(int(port), guid, tuple(indexes)))
    return tuple(ports)
