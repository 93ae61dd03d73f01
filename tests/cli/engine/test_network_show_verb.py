# SPDX-License-Identifier: GPL-2.0-or-later
"""``network show``: how virtual machines can have virtual functions (VFs)."""

from __future__ import annotations

import pytest
from engine_double import EngineDouble, SimNic, sample_world
from engine_double.host_devices import (
    SimVnicProfile,
    add_sriov,
    devices_of,
    labels_of,
    profiles_of,
    vfs_of,
)
from engine_double.hosts_of_the_world import SimAttachment
from engine_double.world import SimNetwork, new_id
from support.engine.engine_command_line import run_engine

from ovirt_rdma.engine_sdk_tools.matrix import UNKNOWN
from ovirt_rdma.engine_sdk_tools.model import Host, Network, Nic, VfsConfig
from ovirt_rdma.engine_sdk_tools.networks.passthrough import (
    COLUMNS,
    SriovData,
    sriov_nics,
)

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def world():
    """Network ``vms`` has a profile with passthrough; ``storage`` is for no VMs."""
    world = sample_world(hosts=2)
    (center,) = world.data_centers
    for name, vm in (("vms", True), ("storage", False)):
        network = SimNetwork(new_id(name), name, center, vm=vm)
        world.networks[network.id] = network
    vms = world.network("vms").id
    profiles_of(world).append(SimVnicProfile("vf", vms, passthrough=True))
    return world


@pytest.fixture
def run(capsys, world):
    with EngineDouble(world) as double:
        yield lambda *words: run_engine(capsys, double, None, "network", "show", *words)
        assert double.strict_errors == []
        assert double.changes() == []


def nics(result):
    """Return the NICs of a document by ``HOST NIC``."""
    document = result.document
    assert document["kind"] == "network"
    return {f"{one['host']} {one['nic']}": one for one in document["sriov_nics"]}


def test_ethernet_is_given_as_vnics(run, world):
    vfs = add_sriov(world.host("host01"), "eth0", most=8, vfs=3, netdevs=2)
    result = run("vms", "-o", "json")
    (nic,) = nics(result).values()
    assert (result.code, nic["given_as"]) == (0, "vNIC")
    assert nic["free"] == [vfs[0].name, vfs[1].name]
    assert nic["checks"]["vfs"]["text"] == "3 of 8"
    assert nic["checks"]["network"]["text"] == "allowed"
    shown = run("vms")
    assert shown.code == 0
    assert "vNIC profile vms: no passthrough." in shown.out
    assert "vNIC profile vf: passthrough." in shown.out
    assert "host01 eth0" in shown.out


def test_infiniband_is_given_as_host_devices(run, world):
    """The VF with a netdev is the host's own."""
    vfs = add_sriov(world.host("host01"), "ib0", most=16, vfs=3, netdevs=1)
    result = run("storage", "-o", "json")
    (nic,) = nics(result).values()
    assert (result.code, nic["given_as"]) == (0, "host device")
    assert nic["free"] == [vfs[1].name, vfs[2].name]
    assert result.document["profiles"] == []
    shown = run("storage").out
    names = f"{vfs[1].name}, {vfs[2].name}"
    assert "Host devices of host01 for virtual machines, on ib0:" in shown
    assert names in shown.replace("\n", " ").replace("  ", " ")


def test_a_vnic_could_get_a_vf_of_infiniband(run, world):
    """The engine takes any VF with a free netdev; new ones may have all networks."""
    host = world.host("host01")
    add_sriov(host, "ib0", most=16, vfs=1, netdevs=1)
    (nic,) = nics(run("vms", "-o", "json")).values()
    assert nic["checks"]["network"]["verdict"] == "warn"
    assert "does not start" in nic["checks"]["network"]["sentence"]
    assert "without vms" in nic["checks"]["network"]["fix"]
    (nic,) = nics(run("storage", "-o", "json")).values()  # it has no profile
    assert nic["checks"]["network"]["verdict"] == "none"
    vfs_of(world, host, host.nic("ib0")).all_networks = False
    (nic,) = nics(run("vms", "-o", "json")).values()
    assert nic["checks"]["network"]["verdict"] == "none"


def attached(world, host, nic):
    network = next(iter(world.networks))
    host.attachments.append(SimAttachment(new_id(), network, host.nic(nic).id))


def a_vlan(world, host, nic):
    host.nics.append(SimNic(new_id(), f"{nic}.7", host.nic(nic).mac))
    tagged = SimNetwork(new_id(), "tagged", next(iter(world.data_centers)), vlan=7)
    world.networks[tagged.id] = tagged
    host.attachments.append(SimAttachment(new_id(), tagged.id, host.nic(nic).id))


def a_bond(world, host, nic):
    host.nics.append(
        SimNic(new_id(), "bond0", "52:54:00:00:00:b0", ports=(nic, "eth0"))
    )


def a_machine(world, host, nic):
    vf = next(one for one in devices_of(host) if one.physical_function)
    vf.vm = new_id("vm1")


def one_group(world, host, nic):
    devices_of(host)[0].iommu_group = 101


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (attached, "1 has a network"),
        (a_vlan, "1 has a VLAN"),
        (a_bond, "1 has a bond"),
        (a_machine, "1 has a virtual machine"),
        (one_group, "1 has an IOMMU group with other devices"),
    ],
)
def test_a_vf_that_is_in_use(run, world, taken, why):
    host = world.host("host01")
    add_sriov(host, "eth0", most=8, vfs=1, netdevs=1)
    assert run("vms").code == 0
    taken(world, host, "eth0v0")
    result = run("vms", "-o", "json")
    (nic,) = (one for one in nics(result).values() if one["nic"] == "eth0")
    assert (result.code, nic["free"]) == (3, [])
    assert nic["checks"]["free"]["sentence"].endswith(f"is free: {why}")


def test_vfs_without_netdevs_on_ethernet(run, world):
    add_sriov(world.host("host01"), "eth0", most=8, vfs=2)
    result = run("vms")
    assert result.code == 3
    assert "no virtual function is free: 2 have no netdev" in result.out
    assert "ovirt-rdma-host apply" in result.out


def test_a_network_that_is_not_allowed(run, world):
    host = world.host("host01")
    add_sriov(host, "eth0", most=8, vfs=1, netdevs=1)
    vfs = vfs_of(world, host, host.nic("eth0"))
    vfs.all_networks = False
    result = run("vms")
    assert result.code == 3
    assert "vms is not allowed on the virtual functions" in result.out
    network = world.network("vms").id
    vfs.networks = {network}
    assert run("vms").code == 0
    vfs.networks, vfs.labels = set(), {"fast"}
    assert run("vms").code == 3
    labels_of(world, network).add("fast")
    assert run("vms").code == 0


def test_what_else_is_missing(run, world):
    for name in ("host01", "host02"):
        add_sriov(world.host(name), "eth0", most=8, vfs=0)
        world.host(name).iommu = False
    result = run("vms", "--hosts", "host01")
    assert result.code == 3
    assert "there are no virtual functions; 8 are possible" in result.out
    assert "the IOMMU is off" in result.out
    assert "host02" not in result.out
    both = run("vms").out
    assert both.count("the IOMMU is off") == 1
    assert "host01 eth0, host02 eth0: the IOMMU is off" in both


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("ovirtmgmt", "ovirtmgmt has no vNIC profile with passthrough"),
        ("storage", "storage is not for virtual machines"),
    ],
)
def test_a_network_without_a_profile(run, world, network, says):
    add_sriov(world.host("host01"), "eth0", most=8, vfs=1, netdevs=1)
    result = run(network)
    assert result.code == 3
    assert says in result.out


def test_devices_that_could_not_be_read():
    vfs = VfsConfig(4, 8, all_networks=True)
    nic = Nic("nic-1", "eth0", "52:54:00:00:00:01", vfs=vfs)
    host = Host("host-1", "hv1", "hv1.example.com", "cl1", nics=(nic,))
    (found,) = sriov_nics(Network("net-1", "vms"), [host], SriovData())
    cells = dict(zip(COLUMNS, found.cells))
    assert (cells["free"].verdict, found.free) == (UNKNOWN, ())
    assert cells["iommu"].verdict == UNKNOWN


def test_without_sriov(run):
    result = run("vms")
    assert result.code == 0
    assert "No NIC of these hosts has SR-IOV" in result.out


def test_a_name_that_is_not_there(run):
    run("storag").refused(2, "there is no network 'storag'", "storage")
