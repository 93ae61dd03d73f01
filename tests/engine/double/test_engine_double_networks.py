# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's networks with the real SDK."""

from __future__ import annotations

import ovirtsdk4 as sdk
import pytest
from engine_double import SimNic, new_id
from engine_double.host_nics import clamp
from ovirtsdk4 import types

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

STATIC, DHCP = types.BootProtocol.STATIC, types.BootProtocol.DHCP
DC1 = types.DataCenter(id=new_id("dc1"))


@pytest.fixture
def engine(make):
    return make(export=True, reads_per_stage=1)


@pytest.fixture
def world(engine):
    return engine.world


@pytest.fixture
def system(engine):
    return engine.system


def refused(code, words, call, *arguments, **more):
    with pytest.raises(sdk.Error, match=words) as error:
        call(*arguments, **more)
    assert error.value.code == code


def network(system, world, name="storage", *, mtu=2044, usages=(), **row):
    """Make a network and put it into the cluster, not required."""
    made = system.networks_service().add(
        types.Network(name=name, data_center=DC1, mtu=mtu, usages=list(usages))
    )
    words = {"required": False, **row}
    cluster_of(system, world).networks_service().add(types.Network(id=made.id, **words))
    return made


def cluster_of(system, world, name="cl1"):
    return system.clusters_service().cluster_service(world.cluster(name).id)


def host_of(system, world, name="host01"):
    return system.hosts_service().host_service(world.host(name).id)


def attachment(name="storage", nic="ib0", address="10.0.0.1", netmask="255.255.255.0"):
    assignment = types.IpAddressAssignment(
        assignment_method=STATIC,
        ip=types.Ip(address=address, netmask=netmask, version=types.IpVersion.V4),
    )
    return types.NetworkAttachment(
        network=types.Network(name=name),
        host_nic=types.HostNic(name=nic),
        ip_address_assignments=[assignment],
    )


def attach(system, world, *attachments, host="host01", **words):
    """Set up networks, which the attachments name; the engine gets their ids."""
    ids = {one.name: one.id for one in world.networks.values()}
    wanted = list(attachments or [attachment()])
    for one in wanted:
        if one.network and one.network.name:
            one.network = types.Network(id=ids.get(one.network.name, "nothing"))
    service = host_of(system, world, host)
    service.setup_networks(modified_network_attachments=wanted, **words)


def attachments(system, world, host="host01"):
    shown = host_of(system, world, host).get(follow="network_attachments")
    return shown.network_attachments


def storage_on(system, world, host="host01"):
    wanted = world.network("storage").id
    found = attachments(system, world, host)
    return next((one for one in found if one.network.id == wanted), None)


def nics_of(system, world, host="host01"):
    shown = host_of(system, world, host).get(follow="nics").nics
    return {nic.name: nic for nic in shown}


# -- logical networks


@pytest.mark.engine_does("NET-02")
def test_a_network_without_usages_is_no_vm_network(system, world):
    made = network(system, world)
    assert (made.usages, made.mtu) == ([], 2044)
    below = system.networks_service().network_service(made.id).get()
    assert below.data_center.id == world.data_center("dc1").id
    default = system.networks_service().add(types.Network(name="vms", data_center=DC1))
    assert default.usages == [types.NetworkUsage.VM]


@pytest.mark.engine_does("NET-03", "NET-04", "NET-05")
def test_networks_that_the_engine_refuses(system, world):
    add = system.networks_service().add
    for code, text, words in (
        (409, "already used", {"name": "ovirtmgmt"}),
        (400, "cannot start with 'bond'", {"name": "bond7"}),
        (400, "MTU", {"name": "a", "mtu": 67}),
    ):
        refused(code, text, add, types.Network(data_center=DC1, **words))


@pytest.mark.engine_does("NET-11", "NET-12")
def test_attached_to_a_cluster_a_network_is_required_unless_it_is_said(system, world):
    made = system.networks_service().add(types.Network(name="a", data_center=DC1))
    networks = cluster_of(system, world).networks_service()
    assert networks.add(types.Network(id=made.id)).required is True
    refused(409, "already attached", networks.add, types.Network(id=made.id))
    networks.network_service(made.id).remove()
    assert [one.name for one in networks.list()] == ["ovirtmgmt"]
    again = networks.add(types.Network(id=made.id, required=False))
    assert again.required is False


# -- attaching


@pytest.mark.engine_does("NET-56")
def test_networks_of_a_host_that_is_not_reached(system, world):
    network(system, world)
    world.host("host01").reachable = False
    refused(400, "Network error", attach, system, world)
    refused(400, "Network error", host_of(system, world).commit_net_config)


@pytest.mark.engine_does("NET-58")
def test_an_attached_network_has_its_address_and_is_in_sync(system, world):
    network(system, world)
    attach(system, world, commit_on_success=True)
    found = storage_on(system, world)
    assert found.in_sync is True
    ip = found.ip_address_assignments[0].ip
    assert (ip.address, ip.netmask) == ("10.0.0.1", "255.255.255.0")
    methods = [
        (each.ip.version.value, each.assignment_method.value)
        for each in found.ip_address_assignments
    ]
    assert methods == [("v4", "static"), ("v6", "none")]
    rows = {
        r.name: (r.expected_value, r.actual_value, r.in_sync)
        for r in (found.reported_configurations)
    }
    assert rows["mtu"] == ("2044", "2044", True)
    assert rows["bridged"] == ("false", "false", True)
    assert rows["ipv4_address"] == ("10.0.0.1", "10.0.0.1", True)
    nic = nics_of(system, world)["ib0"]
    assert (nic.ip.address, nic.mtu) == ("10.0.0.1", 2044)
    assert nic.network.id == world.network("storage").id
    assert nic.mac.address.count(":") == 19


@pytest.mark.engine_does("NET-53")
def test_what_is_not_committed_is_lost_at_a_reboot(system, world):
    network(system, world)
    attach(system, world)
    world.host("host01").reboot()
    world.settle()
    assert storage_on(system, world) is None
    assert world.host("host01").nic("ib0").address is None
    attach(system, world)
    host_of(system, world).commit_net_config()
    attach(system, world, attachment(address="10.0.0.99"))
    world.host("host01").reboot()
    world.settle()
    found = storage_on(system, world)
    assert found.ip_address_assignments[0].ip.address == "10.0.0.1"


@pytest.mark.engine_does("NET-21")
@pytest.mark.parametrize("status", ["down", "non_responsive", "installing", "reboot"])
def test_hosts_that_do_not(system, world, status):
    network(system, world)
    world.host("host01").status = status
    refused(409, "only when Host status", attach, system, world)


@pytest.mark.engine_does("NET-51", "NET-52")
def test_a_host_that_is_cut_off_rolls_back(system, world):
    network(system, world)
    world.host("host01").cut_off = True
    refused(400, "Reverting back to last known", attach, system, world)
    assert storage_on(system, world) is None
    # Without the check it is done, and the host is lost without a message.
    refused(
        400, r'Fault detail is "\[\]"', attach, system, world, check_connectivity=False
    )
    assert storage_on(system, world) is not None
    assert world.host("host01").status == "non_responsive"


@pytest.mark.engine_does("NET-22")
@pytest.mark.parametrize("seconds", [0, 121])
def test_the_connectivity_timeout_has_a_range(system, world, seconds):
    network(system, world)
    # The check comes before that of the host's status.
    world.host("host01").status = "down"
    refused(400, "timeout", attach, system, world, connectivity_timeout=seconds)


VM = [types.NetworkUsage.VM]


@pytest.mark.engine_does("NET-55")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"usages": VM}, "bridge storage cannot have infiniband port"),
        ({"mtu": 65520}, "bigger than maximum allowed MTU 4092"),
    ],
)
def test_what_an_ipoib_nic_cannot_do_fails_on_the_host(system, world, words, text):
    network(system, world, **words)
    refused(400, text, attach, system, world)
    assert storage_on(system, world) is None
    assert world.host("host01").nic("ib0").mtu == 2044


def _changed(address="10.0.0.1", netmask="255.255.255.0", **words):
    one = attachment(address=address, netmask=netmask)
    for name, value in words.items():
        part = one.ip_address_assignments[0]
        setattr(part.ip if name == "version" else part, name, value)
    return one


def _routed(*words, **more):
    one = _changed(*words, **more)
    one.ip_address_assignments[0].ip.gateway = "fd00::ff"
    return one


V6 = types.IpVersion.V6


@pytest.mark.engine_does("NET-23", "NET-27", "NET-28", "NET-30", "NET-33")
def test_attachments_that_the_engine_refuses(system, world):
    network(system, world)
    for one, code, text in (
        (attachment(nic="ib9"), 400, "ib9.* does not exist"),
        (_changed("10.0.0.300"), 400, "Bad IP"),
        (_changed(netmask="255.0.255.0"), 400, "Bad IP"),
        (_changed("fd00::1", "64"), 400, "Bad IP"),
        (_changed("fd00::1", "ffff::", version=V6), 400, "Bad IP"),
        (_changed("fd00::1", "129", version=V6), 400, "Bad IP"),
        (_changed(None), 400, "Must define"),
        (_changed(netmask=None), 400, "Must define"),
        (_changed(assignment_method=None), 400, "Boot protocol is missing"),
        (_changed(assignment_method=DHCP), 400, "Incompatible"),
        (_routed("fd00::1", "64", version=V6), 400, "not the default route"),
        (attachment(nic="eth0"), 409, "At most one VLAN-untagged"),
    ):
        refused(code, text, attach, system, world, one)
        assert storage_on(system, world) is None
    row = world.cluster("cl1").networks[world.network("storage").id]
    row.usages.add("migration")
    bare = _changed(None, None, assignment_method=types.BootProtocol.NONE)
    refused(409, "no boot protocol", attach, system, world, bare)
    attach(system, world, _changed("fd00::1", "64", version=V6))
    row.usages.add("default_route")
    attach(system, world, _routed("fd00::1", "64", version=V6))


@pytest.mark.engine_does("NET-34")
def test_networks_on_a_nic_have_the_mtu_of_the_one_without_a_vlan(system, world):
    network(system, world, mtu=9000)
    world.network("storage").vlan = 100
    words = {"address": "10.0.0.1", "nic": "eth0"}
    refused(409, "same MTU", attach, system, world, attachment(**words))
    world.network("storage").mtu = 1500
    attach(system, world, attachment(**words))


@pytest.mark.engine_does("NET-24", "NET-29")
def test_an_attachment_is_there_and_changed_or_removed(system, world):
    network(system, world)
    attach(system, world)
    mine = storage_on(system, world)
    network(system, world, name="other")
    other = types.NetworkAttachment(id=mine.id, network=types.Network(name="other"))
    refused(400, "cannot change", attach, system, world, other)
    both = {"removed_network_attachments": [types.NetworkAttachment(id=mine.id)]}
    changed = attachment(address="10.0.0.9")
    refused(400, "both changed and removed", attach, system, world, changed, **both)
    gone = types.NetworkAttachment(id="11111111-2222-3333-4444-555555555555")
    refused(400, "does not exist", attach, system, world, gone)


@pytest.mark.engine_does("NET-26")
def test_a_network_of_no_cluster_cannot_be_attached(system, world):
    system.networks_service().add(types.Network(name="storage", data_center=DC1))
    refused(400, "does not exist in Cluster", attach, system, world)


@pytest.mark.engine_does("NET-36", "NET-57")
def test_a_clamped_mtu_is_out_of_sync_until_it_is_synchronised(system, world):
    network(system, world, mtu=4092)
    attach(system, world)
    host = world.host("host01")
    clamp(host, "ib0", 2044)
    found = storage_on(system, world)
    assert found.in_sync is False
    wrong = [row for row in found.reported_configurations if not row.in_sync]
    assert [(r.name, r.expected_value, r.actual_value) for r in wrong] == [
        ("mtu", "4092", "2044")
    ]
    refused(409, "synchronize", attach, system, world, attachment(address="10.0.0.2"))
    host.nic("ib0").max_mtu = 4092
    host_of(system, world).setup_networks(
        synchronized_network_attachments=[types.NetworkAttachment(id=found.id)]
    )
    assert storage_on(system, world).in_sync is True


@pytest.mark.engine_does("NET-24", "NET-31")
def test_a_removed_attachment_frees_the_nic(system, world):
    network(system, world)
    attach(system, world)
    gone = types.NetworkAttachment(id=storage_on(system, world).id)
    host_of(system, world).setup_networks(removed_network_attachments=[gone])
    nic = world.host("host01").nic("ib0")
    assert (storage_on(system, world), nic.address, nic.mtu) == (None, None, 1500)
    setup = host_of(system, world).setup_networks
    refused(400, "do not exist", setup, removed_network_attachments=[gone])
    kept = types.NetworkAttachment(id=world.host("host01").attachments[0].id)
    refused(400, "mandatory", setup, removed_network_attachments=[kept])


@pytest.mark.engine_does("NET-16", "NET-63")
def test_a_network_taken_from_the_cluster_stays_on_the_host_unmanaged(system, world):
    made = network(system, world)
    attach(system, world)
    cluster_of(system, world).networks_service().network_service(made.id).remove()
    assert storage_on(system, world) is None
    named = nics_of(system, world)["ib0"].network
    assert named is not None and (named.name, named.id) == ("storage", None)
    assert world.host("host01").nic("ib0").address == "10.0.0.1"


IPOIB_MODE = "ipoib_mode=connected|datagram"


@pytest.mark.engine_does("NET-37", "NET-38")
def test_an_unmanaged_network_is_in_the_way_until_it_is_managed(
    system, world, two_ports
):
    made = network(system, world)
    network(system, world, name="other")
    attach(system, world)
    networks = cluster_of(system, world).networks_service()
    networks.network_service(made.id).remove()
    other = attachment(name="other")
    refused(400, "unmanaged network storage", attach, system, world, other)
    setup = host_of(system, world).setup_networks
    refused(400, "unmanaged network storage", setup, modified_bonds=[bond()])
    networks.add(types.Network(id=made.id, required=False))
    found = storage_on(system, world)
    assert found is not None and found.in_sync is True
    assert found.ip_address_assignments[0].ip.address == "10.0.0.1"


def with_properties(world, declared, properties):
    world.options["UserDefinedNetworkCustomProperties", "4.7"] = declared
    one = attachment()
    one.properties = [types.Property(name=n, value=v) for n, v in properties.items()]
    return one


@pytest.mark.engine_does("NET-35")
@pytest.mark.parametrize(
    ("declared", "properties"),
    [
        (IPOIB_MODE, {"ipoib_mode": "fast"}),
        ("", {"ipoib_mode": "datagram"}),
        ("", {"bridge_opts": "a=b"}),
    ],
)
def test_custom_properties_must_be_declared(system, world, declared, properties):
    one = with_properties(world, declared, properties)
    network(system, world)
    refused(400, "custom properties contained errors", attach, system, world, one)


# -- bonds


def bond(name="bond0", mode="1", ports=("ib0", "ib1")):
    return types.HostNic(
        name=name,
        bonding=types.Bonding(
            options=[types.Option(name="mode", value=mode)] if mode else [],
            slaves=[types.HostNic(name=port) for port in ports],
        ),
    )


@pytest.fixture
def two_ports(world):
    host = world.host("host01")
    mac = host.nic("ib0").mac[:-2] + "f1"
    host.nics.append(SimNic("ib1", "ib1", mac, mtu=2044, max_mtu=2044, infiniband=True))
    return host


@pytest.mark.engine_does("NET-45")
def test_two_ipoib_ports_make_an_active_backup_bond(system, world, two_ports):
    network(system, world)
    attach(system, world, attachment(nic="bond0"), modified_bonds=[bond()])
    nics = nics_of(system, world)
    names = {nic.id: name for name, nic in nics.items()}
    shown = nics["bond0"]
    assert [names[one.id] for one in shown.bonding.slaves] == ["ib0", "ib1"]
    assert {o.name: o.value for o in shown.bonding.options}["mode"] == "1"
    assert (shown.ip.address, shown.mtu) == ("10.0.0.1", 2044)
    setup = host_of(system, world).setup_networks
    made = [types.HostNic(name="bond0")]
    refused(409, "used by an attachment", setup, removed_bonds=made)
    gone = types.NetworkAttachment(id=storage_on(system, world).id)
    setup(removed_network_attachments=[gone], removed_bonds=made)
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


@pytest.mark.engine_does("NET-41", "NET-42", "NET-43", "NET-55")
def test_bonds_that_are_refused(system, world, two_ports):
    setup = host_of(system, world).setup_networks
    for wanted, code, text in (
        (bond(mode="4"), 400, "other than active-backup"),
        (bond(mode=None), 400, "other than active-backup"),
        (bond(ports=("ib0",)), 400, "less than two"),
        (bond(ports=("ib0", "ib7")), 400, "ib7.* does not exist"),
        (bond(ports=("ib0", "eth0")), 409, "cannot become slave"),
        (bond(name="team0"), 400, "naming criteria"),
        (bond(name="bond_of_infiniband"), 400, "longer than"),
    ):
        refused(code, text, setup, modified_bonds=[wanted])
        assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


# -- the order of NICs


@pytest.mark.engine_does("NET-64")
def test_nics_come_in_any_order(system, world):
    names = ("host01", "host02", "host03")
    orders = {tuple(nics_of(system, world, name)) for name in names}
    assert orders == {("eth0", "ib0"), ("ib0", "eth0")}
