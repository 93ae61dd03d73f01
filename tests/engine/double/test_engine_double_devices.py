# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's devices, virtual functions and vNIC profiles with the real SDK."""

from __future__ import annotations

import ovirtsdk4 as sdk
import pytest
from engine_double import EngineDouble, sample_world
from engine_double.host_devices import (
    SimVnicProfile,
    add_sriov,
    profiles_of,
    vfs_of,
)
from ovirtsdk4 import types

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]


@pytest.fixture
def world():
    return sample_world(hosts=1)


@pytest.fixture
def system(world):
    user, password = "admin@ovirt@internalsso", "secret"
    with EngineDouble(world) as double:
        connection = sdk.Connection(url=double.url, username=user, password=password)
        yield connection.system_service()
        connection.close(logout=False)
        assert double.strict_errors == []


def host_of(system, world):
    return system.hosts_service().host_service(world.host("host01").id)


def nics(system, world):
    found = system.hosts_service().list(follow="nics")[0].nics
    return {nic.name: nic for nic in found}


@pytest.mark.engine_does("SRIOV-01")
def test_a_pf_and_its_vf(system, world):
    add_sriov(world.host("host01"), "eth0", most=8, vfs=2, netdevs=1)
    found = nics(system, world)
    config = found["eth0"].virtual_functions_configuration
    assert config is not None
    assert config.number_of_virtual_functions == 2
    assert config.max_number_of_virtual_functions == 8
    assert found["eth0v0"].physical_function.id == found["eth0"].id
    assert found["ib0"].virtual_functions_configuration is None


@pytest.mark.engine_does("SRIOV-02")
def test_links_of_a_pf(system, world):
    add_sriov(world.host("host01"), "eth0", most=8, vfs=1)
    own = host_of(system, world).nics_service()
    by_name = {nic.name: nic.id for nic in own.list()}
    allowed = own.nic_service(by_name["eth0"])
    assert allowed.virtual_function_allowed_networks_service().list() == []
    text = str(sdk_text(system, world))
    assert text.count('rel="virtualfunctionallowednetworks"') == 1


def sdk_text(system, world):
    """Return the NICs as the engine sends them."""
    request = sdk.http.Request(
        method="GET", path=f"/hosts/{world.host('host01').id}/nics"
    )
    connection = system._connection
    return connection.wait(connection.send(request)).body


@pytest.mark.engine_does("SRIOV-03")
def test_new_vfs_may_have_all_networks(system, world):
    add_sriov(world.host("host01"), "eth0", most=8, vfs=1)
    config = nics(system, world)["eth0"].virtual_functions_configuration
    assert config.all_networks_allowed is True


@pytest.mark.engine_does("SRIOV-04")
def test_allowed_networks_are_ids(system, world):
    host = world.host("host01")
    add_sriov(host, "eth0", most=8, vfs=1)
    (network,) = world.networks.values()
    vfs = vfs_of(world, host, host.nic("eth0"))
    vfs.all_networks, vfs.networks, vfs.labels = False, {network.id}, {"fast"}
    nic = host_of(system, world).nics_service().nic_service(host.nic("eth0").id)
    (found,) = nic.virtual_function_allowed_networks_service().list()
    assert (found.id, found.name) == (network.id, None)
    (label,) = nic.virtual_function_allowed_labels_service().list()
    assert label.id == "fast"


@pytest.mark.engine_does("SRIOV-05")
def test_devices(system, world):
    host = world.host("host01")
    (vf,) = add_sriov(host, "ib0", most=8, vfs=1)
    vf.vm = "vm-1"
    found = {one.name: one for one in host_of(system, world).devices_service().list()}
    shown = found[vf.name]
    assert shown.physical_function is not None
    assert shown.physical_function.name in found
    assert (shown.vm.id, shown.iommu_group, shown.virtual_functions) == (
        "vm-1",
        101,
        None,
    )
    assert found[shown.physical_function.name].virtual_functions == 8
    (netdev,) = (one for one in found.values() if one.capability == "net")
    assert netdev.name.startswith("net_ib0_80_00_02_08_fe_80")
    assert netdev.parent_device.name == shown.physical_function.name


@pytest.mark.engine_does("HOST-04")
@pytest.mark.parametrize("on", [True, False])
def test_the_iommu_of_a_host(system, world, on):
    world.host("host01").iommu = on
    (host,) = system.hosts_service().list()
    assert host.device_passthrough is not None
    assert host.device_passthrough.enabled is on


@pytest.mark.engine_does("VNIC-01")
def test_a_profile_with_passthrough(system, world):
    (network,) = world.networks.values()
    profiles_of(world).append(SimVnicProfile("vf", network.id, True, True))
    plain, vf = system.vnic_profiles_service().list()
    assert plain.pass_through is not None
    assert plain.pass_through.mode == types.VnicPassThroughMode.DISABLED
    assert vf.pass_through.mode == types.VnicPassThroughMode.ENABLED
    assert (plain.migratable, vf.migratable) == (None, True)


@pytest.mark.engine_does("VNIC-02")
def test_a_new_network_has_a_profile(system):
    add = system.networks_service().add
    dc1 = types.DataCenter(name="dc1")
    add(types.Network(name="vms", data_center=dc1))
    add(types.Network(name="bare", data_center=dc1, profile_required=False))
    add(types.Network(name="storage", data_center=dc1, usages=[]))
    names = [one.name for one in system.vnic_profiles_service().list()]
    assert names == ["ovirtmgmt", "vms"]
