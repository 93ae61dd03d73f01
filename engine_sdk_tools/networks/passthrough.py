# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide which virtual functions (VFs) virtual machines can have, and how. Pure.

**Ethernet:** a vNIC whose profile has passthrough. The engine takes the first free VF
of a NIC with SR-IOV whose VFs may have the network (VfSchedulerImpl.java:125-161; all
networks may, until somebody restricts that: RefreshHostDevicesCommand.java:246). A VF
is free without a virtual machine and with a netdev on the host that has no network, no
VLAN and no bond (NetworkDeviceHelperImpl.java:199-214), and alone in its IOMMU group.
Only networks for virtual machines have profiles (VnicProfileValidator.java:94-97).

**InfiniBand:** a host device, which pins the virtual machine to the host. The engine
knows no link layer, and would take such a VF for a vNIC too. libvirt then sets its MAC
address through the physical function, which IPoIB does not have (no ndo_set_vf_mac in
drivers/infiniband/ulp/ipoib/ipoib_main.c), so that the virtual machine does not start.
A VF with a netdev is one that this host uses: VFs for guests have none (VF-04).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.engine_sdk_tools.matrix import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Axis,
    Cell,
    Matrix,
)
from ovirt_rdma.engine_sdk_tools.model import Host, Network, Nic, VfsConfig
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.host.facts.interfaces import ETHERNET, INFINIBAND

KIND = "passthrough"
COLUMNS = ("link layer", "iommu", "vfs", "free", "network", "given as")
VNIC, HOST_DEVICE = "vNIC", "host device"
_REFRESH = "in the engine: Management, Refresh Capabilities of the host"
# How many free VFs a note names.
_NAMED = 16
# libvirt's name of a netdev's device: the name and the address, with _ for all but
# letters and digits (udevGenerateDeviceName() in node_device_udev.c).
_PAIR = "[0-9a-f]{2}"
_NETDEV = re.compile(rf"net_(.+?)_((?:{_PAIR}_){{5}}{_PAIR}|(?:{_PAIR}_){{19}}{_PAIR})")


@dataclass(frozen=True)
class VnicProfile:
    """A vNIC profile; ``migratable`` is known of those with passthrough."""

    id: str
    name: str
    passthrough: bool
    migratable: bool = False


@dataclass(frozen=True)
class HostDevice:
    """A device of a host, by libvirt's name (``pci_0000_5e_00_1``).

    ``parent`` and ``physical_function`` are names of devices, ``vm`` is the id of the
    virtual machine that has it.
    """

    name: str
    capability: str
    parent: Optional[str] = None
    physical_function: Optional[str] = None
    iommu_group: Optional[int] = None
    vm: Optional[str] = None


@dataclass(frozen=True)
class SriovData:
    """What the engine has about a network's passthrough: the network's profiles; the
    devices by a host's id (None: they could not be read); and the NICs, by id, whose
    VFs may have only some networks, and whether this one is among them.
    """

    profiles: tuple[VnicProfile, ...] = ()
    devices: Mapping[str, Optional[tuple[HostDevice, ...]]] = field(
        default_factory=dict
    )
    restricted: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Vf:
    """A VF by its device's name. ``why_not`` says why no virtual machine can have it
    now, "" for one that is free. ``for_vnic``: the engine may give it to a vNIC.
    """

    name: str
    why_not: str
    for_vnic: bool


@dataclass(frozen=True)
class SriovNic:
    """A NIC with SR-IOV; ``vfs`` is None if its devices are not known. ``cells`` are in
    the order of COLUMNS.
    """

    host: Host
    nic: Nic
    vfs: Optional[tuple[Vf, ...]]
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """``hv1 ib0``."""
        return f"{self.host.name} {self.nic.name}"

    @property
    def given_as(self) -> str:
        """How virtual machines get its VFs."""
        return HOST_DEVICE if self.nic.infiniband else VNIC

    @property
    def free(self) -> tuple[str, ...]:
        """The VFs that virtual machines can have, by their devices' names."""
        return tuple(vf.name for vf in self.vfs or () if not vf.why_not)


def sriov_nics(
    network: Network, hosts: Sequence[Host], data: SriovData
) -> tuple[SriovNic, ...]:
    """Return the NICs with SR-IOV of ``hosts``, which were read with their NICs."""
    return tuple(
        _sriov_nic(network, host, nic, nic.vfs, data)
        for host in hosts
        for nic in host.nics or ()
        if nic.vfs is not None
    )


def matrix_of(nics: Sequence[SriovNic]) -> Matrix:
    """Return the matrix: a row for each NIC; notes name free VFs of InfiniBand."""
    return Matrix(
        KIND,
        tuple(Axis(one.name, one.nic.id, one.host.address) for one in nics),
        tuple(Axis(name) for name in COLUMNS),
        tuple(one.cells for one in nics),
        tuple(
            f"Host devices of {one.host.name} for virtual machines, on {one.nic.name}: "
            f"{listed(one.free, _NAMED)}."
            for one in nics
            if one.nic.infiniband and one.free
        ),
    )


def _sriov_nic(
    network: Network, host: Host, nic: Nic, config: VfsConfig, data: SriovData
) -> SriovNic:
    devices = data.devices.get(host.id)
    vfs = None if devices is None else _vfs(host, nic, devices)
    layer = INFINIBAND if nic.infiniband else ETHERNET
    return SriovNic(
        host,
        nic,
        vfs,
        (
            Cell(NONE, layer, source="engine"),
            _iommu_cell(host),
            _vfs_cell(config),
            _free_cell(nic, config, vfs),
            _network_cell(network, nic, config.all_networks, vfs, data),
            _given_cell(network, nic, data),
        ),
    )


def _vfs(
    host: Host, nic: Nic, devices: Sequence[HostDevice]
) -> Optional[tuple[Vf, ...]]:
    """Return the VFs of ``nic``; None if the devices do not have its adapter."""
    nics = {_as_in_devices(one.name): one for one in host.nics or ()}
    netdevs: dict[str, str] = {}
    for device in devices:
        match = _NETDEV.fullmatch(device.name)
        if match and device.parent:
            netdevs.setdefault(device.parent, match[1])
    own = _as_in_devices(nic.name)
    pf = next((pci for pci, name in netdevs.items() if name == own), None)
    if pf is None:
        return None
    groups = Counter(one.iommu_group for one in devices)
    found = []
    for device in devices:
        if device.physical_function != pf:
            continue
        netdev = netdevs.get(device.name)
        why_netdev = _why_not_free(host, nics.get(netdev)) if netdev else "no netdev"
        why = ""
        if device.vm:
            why = "a virtual machine"
        elif device.iommu_group is not None and groups[device.iommu_group] > 1:
            why = "an IOMMU group with other devices"
        for_vnic = not why and not why_netdev
        if not why:
            why = why_netdev if not nic.infiniband else "a netdev" if netdev else ""
        found.append(Vf(device.name, why, for_vnic))
    return tuple(found)


def _as_in_devices(name: str) -> str:
    return re.sub("[^0-9A-Za-z]", "_", name)


def _why_not_free(host: Host, nic: Optional[Nic]) -> str:
    """Return why a VF with this netdev is in use for the engine; "" if it is not."""
    if nic is None:
        return "a netdev that the engine does not know"
    if nic.network or nic.unmanaged:
        return "a network"
    others = host.nics or ()
    if any(other.vlan_of == nic.name for other in others):
        return "a VLAN"
    return "a bond" if any(nic.name in other.bond_ports for other in others) else ""


def _iommu_cell(host: Host) -> Cell:
    if host.passthrough:
        return Cell(OK, "on", source="engine")
    if host.passthrough is None:
        sentence = "the engine does not say whether the IOMMU is on"
        return Cell(UNKNOWN, "unknown", sentence, _REFRESH, "engine")
    sentence = "the IOMMU is off, so virtual machines can have no PCI device"
    fix = (
        "switch it on in the firmware, set intel_iommu=on (Hosts, Edit, Kernel, "
        "Hostdev Passthrough), reinstall and reboot the host"
    )
    return Cell(FAIL, "off", sentence, fix, "engine")


def _vfs_cell(config: VfsConfig) -> Cell:
    text = f"{config.number} of {config.most}"
    if config.number:
        return Cell(OK, text, source="engine")
    sentence = f"there are no virtual functions; {config.most} are possible"
    fix = (
        "virtual_functions in the host's policy, ovirt-rdma-host apply there, then "
        f"{_REFRESH}"
    )
    return Cell(WARN, text, sentence, fix, "engine")


def _free_cell(nic: Nic, config: VfsConfig, vfs: Optional[Sequence[Vf]]) -> Cell:
    if not config.number:
        return Cell(NONE, "-", source="engine")
    if vfs is None:
        sentence = "the engine does not know the devices of this adapter"
        return Cell(UNKNOWN, "unknown", sentence, _REFRESH, "engine")
    free = [vf for vf in vfs if not vf.why_not]
    if free:
        return Cell(OK, str(len(free)), source="engine")
    reasons = Counter(vf.why_not for vf in vfs)
    have = ", ".join(
        f"{number} {'has' if number == 1 else 'have'} {why}"
        for why, number in sorted(reasons.items())
    )
    sentence = f"no virtual function is free: {have}"
    fix = (
        "guests in the policy says which VFs are for virtual machines: change it, or "
        "count"
        if nic.infiniband
        else f"ovirt-rdma-host apply on the host gives VFs netdevs; then {_REFRESH}"
        if "no netdev" in reasons
        else "take the networks off a VF, or a VF from a virtual machine"
    )
    return Cell(FAIL, "0", sentence, fix, "engine")


def _network_cell(
    network: Network,
    nic: Nic,
    all_networks: bool,
    vfs: Optional[Sequence[Vf]],
    data: SriovData,
) -> Cell:
    allowed = all_networks or data.restricted.get(nic.id, False)
    where = "in Setup Host Networks, the pencil of the NIC"
    if not nic.infiniband:
        if allowed:
            return Cell(OK, "allowed", source="engine")
        sentence = f"{network.name} is not allowed on the virtual functions"
        fix = f"{where}: allow {network.name}"
        return Cell(FAIL, "not allowed", sentence, fix, "engine")
    taken = any(vf.for_vnic for vf in vfs or ())
    if not (allowed and taken and _with_passthrough(data)):
        return Cell(NONE, "-", source="engine")
    sentence = (
        f"the engine may give a vNIC on {network.name} a virtual function of this "
        "NIC, which is InfiniBand: libvirt cannot set its MAC address, and the virtual "
        "machine does not start"
    )
    fix = f"{where}: allow only specific networks, without {network.name}"
    return Cell(WARN, "allowed", sentence, fix, "engine")


def _given_cell(network: Network, nic: Nic, data: SriovData) -> Cell:
    if nic.infiniband:
        return Cell(OK, HOST_DEVICE, source="engine")
    if _with_passthrough(data):
        return Cell(OK, VNIC, source="engine")
    if not network.vm:
        sentence = (
            f"{network.name} is not for virtual machines, so it can have no profile"
        )
        fix = "use a network for virtual machines; a VF needs no bridge"
        return Cell(FAIL, "no profile", sentence, fix, "engine")
    sentence = f"{network.name} has no vNIC profile with passthrough"
    fix = (
        "Network, vNIC Profiles, New: Pass Through; then a vNIC of type PCI Passthrough"
    )
    return Cell(FAIL, "no profile", sentence, fix, "engine")


def _with_passthrough(data: SriovData) -> bool:
    return any(profile.passthrough for profile in data.profiles)
