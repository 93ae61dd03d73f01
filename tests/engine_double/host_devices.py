# SPDX-License-Identifier: GPL-2.0-or-later
"""PCI devices of hosts, virtual functions (VFs) of their NICs, and vNIC profiles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from ovirtsdk4 import types

from engine_double.answers import API, Answer, Mistake, linked, listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost, SimNic
from engine_double.routing import Call, known, route
from engine_double.views import with_href
from engine_double.world import SimNetwork, World, new_id

_NICS = "restapi/resource/BackendHostNicsResource.java"
OF_PFS = behaviour(
    "SRIOV-01",
    "The NIC of a physical function shows how many VFs it has and could have, and that "
    "of a VF its physical function's NIC.",
    f"{_NICS}:173-193",
    "mapper/HostNicMapper.java:347-354",
)
LINKS_OF_PFS = behaviour(
    "SRIOV-02",
    "Only the NIC of a physical function has links to the networks and labels that its "
    "VFs may have.",
    f"{_NICS}:117-130",
)
ALL_NETWORKS = behaviour(
    "SRIOV-03",
    "VFs may have all networks until somebody restricts that.",
    "bll/hostdev/RefreshHostDevicesCommand.java:233-247",
)
IDS_ONLY = behaviour(
    "SRIOV-04",
    "The networks and labels that VFs may have are shown by their ids only.",
    "restapi/resource/BackendVirtualFunctionAllowedNetworksResource.java:31-42",
    "restapi/resource/BackendVirtualFunctionAllowedLabelsResource.java:32-41",
)
DEVICES = behaviour(
    "SRIOV-05",
    "A host's devices are shown with parent, physical function, IOMMU group and the "
    "virtual machine that has them; not with the netdev's name.",
    "mapper/HostDeviceMapper.java:19-78",
)
MODE = behaviour(
    "VNIC-01",
    "A vNIC profile always shows its passthrough mode; whether it is migratable only "
    "with passthrough.",
    "mapper/VnicProfileMapper.java:96-106",
)
OF_NETWORK = behaviour(
    "VNIC-02",
    "A new network for virtual machines gets a profile of its name, without "
    "passthrough, unless the request says no; other networks have none.",
    "bll/network/dc/AddNetworkCommand.java:234-241",
    "bll/validator/VnicProfileValidator.java:94-97",
)


@dataclass
class SimDevice:
    """A device by libvirt's name. ``vfs``: how many a physical function could have."""

    name: str
    capability: str
    parent: str = "computer"
    physical_function: Optional[str] = None
    vfs: Optional[int] = None
    iommu_group: Optional[int] = None
    vm: Optional[str] = None


@dataclass
class SimVfs:
    """What VFs of a NIC may have: all networks, or some by id, or by label."""

    all_networks: bool = True
    networks: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


@dataclass
class SimVnicProfile:
    """A vNIC profile of a network."""

    name: str
    network: str
    passthrough: bool = False
    migratable: bool = False
    id: str = field(default_factory=new_id)


def devices_of(host: SimHost) -> list[SimDevice]:
    """Return the devices of a host; tests add theirs."""
    found: list[SimDevice] = host.more.setdefault("devices", [])
    return found


def vfs_of(world: World, host: SimHost, nic: SimNic) -> SimVfs:
    """Return what the VFs of ``nic`` may have."""
    found: SimVfs = host.more.setdefault("vfs", {}).setdefault(
        nic.id, SimVfs(world.does(ALL_NETWORKS))
    )
    return found


def labels_of(world: World, network: str) -> set[str]:
    """Return the labels of a network."""
    found: set[str] = world.more.setdefault("labels", {}).setdefault(network, set())
    return found


def profiles_of(world: World) -> list[SimVnicProfile]:
    """Return the vNIC profiles; networks from the start have one of their name."""
    found: Optional[list[SimVnicProfile]] = world.more.get("vnic profiles")
    if found is None:
        found = world.more["vnic profiles"] = []
        for network in world.networks.values():
            add_profile(world, network)
    return found


def add_profile(world: World, network: SimNetwork, wanted: bool = True) -> None:
    """Add the profile that a new network gets, before it is in the world."""
    found = profiles_of(world)
    if wanted and network.vm and world.does(OF_NETWORK):
        found.append(SimVnicProfile(network.name, network.id))


def add_sriov(
    host: SimHost, name: str, most: int, vfs: int, netdevs: int = 0
) -> list[SimDevice]:
    """Give the NIC ``name`` SR-IOV, and return its VFs, each in an IOMMU group of its
    own; the first ``netdevs`` have a NIC on the host.
    """
    nic = host.nic(name)
    bus = f"pci_0000_{0x5E + len(devices_of(host)):02x}"
    pf = SimDevice(f"{bus}_00_0", "pci", vfs=most, iommu_group=100)
    devices_of(host).extend((pf, _netdev(nic, pf)))
    made = [
        SimDevice(
            f"{bus}_{number // 8:02x}_{number % 8}",
            "pci",
            physical_function=pf.name,
            iommu_group=100 + number,
        )
        for number in range(1, vfs + 1)
    ]
    for number, vf in enumerate(made):
        devices_of(host).append(vf)
        if number < netdevs:
            mac = f"{nic.mac[:-2]}{0xA0 + number:02x}"
            child = SimNic(new_id(), f"{name}v{number}", mac, infiniband=nic.infiniband)
            host.nics.append(child)
            devices_of(host).append(_netdev(child, vf))
    return made


def _netdev(nic: SimNic, on: SimDevice) -> SimDevice:
    """Return libvirt's device of a netdev (udevGenerateDeviceName())."""
    name = re.sub("[^0-9A-Za-z]", "_", f"net_{nic.name}_{nic.mac}")
    return SimDevice(name, "net", on.name)


def show_vfs(world: World, host: SimHost, nic: SimNic, shown: types.HostNic) -> None:
    """Add to a NIC's view what is shown of VFs."""
    on = _pci_of(host, nic)
    if on is None or not world.does(OF_PFS):
        return
    if on.vfs is not None:
        vfs = [d for d in devices_of(host) if d.physical_function == on.name]
        shown.virtual_functions_configuration = (
            types.HostNicVirtualFunctionsConfiguration(
                all_networks_allowed=vfs_of(world, host, nic).all_networks,
                max_number_of_virtual_functions=on.vfs,
                number_of_virtual_functions=len(vfs),
            )
        )
    elif on.physical_function is not None:
        for other in host.nics:
            pci = _pci_of(host, other)
            if pci is not None and pci.name == on.physical_function:
                shown.physical_function = types.HostNic(id=other.id)


def links_of_vfs(world: World, host: SimHost, nic: SimNic, own: str) -> dict[str, str]:
    """Return the links of a NIC to what its VFs may have."""
    on = _pci_of(host, nic)
    if (on is None or on.vfs is None) and world.does(LINKS_OF_PFS):
        return {}
    rels = ("virtualfunctionallowednetworks", "virtualfunctionallowedlabels")
    return {rel: f"{own}/{rel}" for rel in rels}


def _pci_of(host: SimHost, nic: SimNic) -> Optional[SimDevice]:
    devices = {device.name: device for device in devices_of(host)}
    netdev = devices.get(re.sub("[^0-9A-Za-z]", "_", f"net_{nic.name}_{nic.mac}"))
    return devices.get(netdev.parent) if netdev else None


@route("GET", "/hosts/{host}/devices", query=("max",))
def list_devices(call: Call) -> Answer:
    host: SimHost = known(call.world.hosts, call.ids["host"])
    return listed(
        "host_devices",
        [_device(call.world, host, one) for one in call.first(devices_of(host))],
    )


def _device(world: World, host: SimHost, one: SimDevice) -> types.HostDevice:
    shown = types.HostDevice(
        id=one.name.encode().hex(),
        name=one.name,
        host=types.Host(id=host.id),
        capability=one.capability,
    )
    if world.does(DEVICES):
        shown.parent_device = _reference(host, one.parent)
        shown.iommu_group = one.iommu_group
        shown.virtual_functions = one.vfs
        shown.vm = types.Vm(id=one.vm) if one.vm else None
        if one.physical_function:
            shown.physical_function = _reference(host, one.physical_function)
    return with_href(shown, f"/hosts/{host.id}/devices/{shown.id}")


def _reference(host: SimHost, name: str) -> types.HostDevice:
    return types.HostDevice(
        id=name.encode().hex(), name=name, host=types.Host(id=host.id)
    )


@route("GET", "/hosts/{host}/nics/{nic}/virtualfunctionallowednetworks")
def list_allowed_networks(call: Call) -> Answer:
    vfs, names = _allowed(call), call.world.networks
    only = call.world.does(IDS_ONLY)
    return listed(
        "networks",
        [
            types.Network(id=one, name=None if only else names[one].name)
            for one in sorted(vfs.networks)
        ],
    )


@route("GET", "/hosts/{host}/nics/{nic}/virtualfunctionallowedlabels")
def list_allowed_labels(call: Call) -> Answer:
    labels = sorted(_allowed(call).labels)
    return listed("network_labels", [types.NetworkLabel(id=one) for one in labels])


def _allowed(call: Call) -> SimVfs:
    host: SimHost = known(call.world.hosts, call.ids["host"])
    nics = {nic.id: nic for nic in host.nics}
    nic: SimNic = known(nics, call.ids["nic"])
    on = _pci_of(host, nic)
    if on is None or on.vfs is None:
        raise Mistake(f"{nic.name} has no VFs that could have networks")
    return vfs_of(call.world, host, nic)


@route("GET", "/networks/{network}/networklabels")
def list_labels(call: Call) -> Answer:
    network: SimNetwork = known(call.world.networks, call.ids["network"])
    labels = sorted(labels_of(call.world, network.id))
    return listed("network_labels", [types.NetworkLabel(id=one) for one in labels])


@route("GET", "/vnicprofiles", query=("max",))
def list_profiles(call: Call) -> Answer:
    world = call.world
    found = [one for one in profiles_of(world) if one.network in world.networks]
    return listed("vnic_profiles", [_profile(world, one) for one in call.first(found)])


def _profile(world: World, one: SimVnicProfile) -> types.VnicProfile:
    mode = types.VnicPassThroughMode
    shown = types.VnicProfile(
        id=one.id,
        name=one.name,
        network=types.Network(id=one.network),
        port_mirroring=False,
    )
    if world.does(MODE):
        enabled = mode.ENABLED if one.passthrough else mode.DISABLED
        shown.pass_through = types.VnicPassThrough(mode=enabled)
        shown.migratable = one.migratable if one.passthrough else None
    shown = with_href(shown, f"/vnicprofiles/{one.id}")
    return linked(shown, permissions=f"{API}/vnicprofiles/{one.id}/permissions")
