# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's networks and features with the real SDK."""

from __future__ import annotations

import ovirtsdk4 as sdk
import pytest
from engine_double import EngineDouble, SimNic, clusters, new_id, sample_world
from engine_double.host_nics import clamp
from ovirtsdk4 import types

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

STATIC = types.BootProtocol.STATIC
DC1 = types.DataCenter(id=new_id("dc1"))


@pytest.fixture
def world():
    return sample_world(hosts=3, reads_per_stage=1)


@pytest.fixture
def double(world):
    with EngineDouble(world) as started:
        yield started
        assert started.strict_errors == []


@pytest.fixture
def system(double):
    user, password = "admin@ovirt@internalsso", "secret"
    connection = sdk.Connection(url=double.url, username=user, password=password)
    yield connection.system_service()
    connection.close(logout=False)


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


@pytest.mark.engine_does("NET-01")
def test_a_network_wants_a_name_and_a_data_center(system, world):
    add = system.networks_service().add
    refused(400, r"\[name, dataCenter.name.id\] required", add, types.Network())
    nowhere = types.Network(name="a", data_center=types.DataCenter(id="nowhere"))
    refused(400, "does not exist", add, nowhere)


@pytest.mark.parametrize("mtu", [0, 68, 4092, 65520])
def test_an_mtu_has_no_maximum(system, world, mtu):
    assert network(system, world, mtu=mtu).mtu == mtu


@pytest.mark.engine_does("NET-11", "NET-12", "NET-17")
def test_attached_to_a_cluster_a_network_is_required_unless_it_is_said(system, world):
    made = system.networks_service().add(types.Network(name="a", data_center=DC1))
    networks = cluster_of(system, world).networks_service()
    added = networks.add(types.Network(id=made.id))
    assert added.required is True
    assert added.status == types.NetworkStatus.NON_OPERATIONAL
    refused(409, "already attached", networks.add, types.Network(id=made.id))
    changed = networks.network_service(made.id).update(types.Network(required=False))
    assert changed.required is False
    assert changed.status == types.NetworkStatus.OPERATIONAL
    networks.network_service(made.id).remove()
    assert [one.name for one in networks.list()] == ["ovirtmgmt"]


@pytest.mark.engine_does("NET-13")
def test_one_network_of_a_cluster_is_for_migration(system, world):
    made = network(system, world)
    networks = cluster_of(system, world).networks_service()
    one = networks.network_service(made.id)
    migration = types.NetworkUsage.MIGRATION
    assert one.update(types.Network(usages=[migration])).usages == [migration]

    def roles():
        return {n.name: migration in n.usages for n in networks.list()}

    assert roles() == {"ovirtmgmt": False, "storage": True}
    one.remove()
    assert roles() == {"ovirtmgmt": True}


@pytest.mark.engine_does("NET-07", "NET-14")
def test_the_management_network_cannot_go(system, world):
    found = world.network("ovirtmgmt").id
    row = cluster_of(system, world).networks_service().network_service(found)
    refused(400, "mandatory", row.remove)
    refused(400, "must be required", row.update, types.Network(required=False))
    refused(400, "mandatory", system.networks_service().network_service(found).remove)


# -- attaching


@pytest.mark.engine_does("NET-59")
def test_the_default_route_has_a_row_for_name_servers(system, world):
    network(system, world)
    attach(system, world)
    rows = {
        world.networks[one.network.id].name: {
            row.name: row.expected_value for row in one.reported_configurations
        }
        for one in attachments(system, world)
    }
    assert "dns_configuration" in rows["ovirtmgmt"]
    assert "dns_configuration" not in rows["storage"]
    default = {name: row["default_route"] for name, row in rows.items()}
    assert default == {"ovirtmgmt": "true", "storage": "false"}


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


def test_ipv6_addresses_have_a_prefix(system, world):
    network(system, world)
    one = attachment(address="fd00::7", netmask="64")
    one.ip_address_assignments[0].ip.version = types.IpVersion.V6
    attach(system, world, one)
    rows = {
        row.name: row.actual_value
        for row in storage_on(system, world).reported_configurations
    }
    assert (rows["ipv6_address"], rows["ipv6_prefix"]) == ("fd00::7", "64")


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


@pytest.mark.parametrize("status", ["maintenance", "up", "non_operational"])
def test_hosts_that_take_networks(system, world, status):
    network(system, world)
    world.host("host01").status = status
    attach(system, world)
    assert storage_on(system, world) is not None


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


def test_a_vlan_over_infiniband_fails_on_the_host(system, world):
    network(system, world)
    world.network("storage").vlan = 100
    refused(400, "no VLAN", attach, system, world)


def _method(one, word):
    one.ip_address_assignments[0].assignment_method = word
    return one


@pytest.mark.engine_does("NET-23", "NET-25", "NET-28", "NET-30", "NET-33")
def test_attachments_that_the_engine_refuses(system, world):
    network(system, world)
    for one, code, text in (
        (attachment(nic="ib9"), 400, "ib9.* does not exist"),
        (attachment(name="nothing"), 400, "doesn't exist"),
        (attachment(address="10.0.0.300"), 400, "Bad IP"),
        (attachment(netmask="255.0.255.0"), 400, "Bad IP"),
        (attachment(address=None), 400, "Must define"),
        (_method(attachment(), None), 400, "Boot protocol is missing"),
        (_method(attachment(), types.BootProtocol.DHCP), 400, "Incompatible"),
        (attachment(nic="eth0"), 409, "At most one VLAN-untagged"),
    ):
        refused(code, text, attach, system, world, one)
        assert storage_on(system, world) is None


@pytest.mark.engine_does("NET-32")
def test_a_call_puts_a_network_on_a_host_once(system, world, two_ports):
    network(system, world)
    both = [attachment(), attachment(nic="ib1")]
    refused(400, "refer to the same network", attach, system, world, *both)


@pytest.mark.engine_does("NET-34")
def test_networks_on_a_nic_have_the_mtu_of_the_one_without_a_vlan(system, world):
    network(system, world, mtu=9000)
    world.network("storage").vlan = 100
    words = {"address": "10.0.0.1", "nic": "eth0"}
    refused(409, "same MTU", attach, system, world, attachment(**words))
    world.network("storage").mtu = 1500
    attach(system, world, attachment(**words))


@pytest.mark.engine_does("NET-24", "NET-29")
def test_an_attachment_keeps_its_network(system, world):
    network(system, world)
    network(system, world, name="other")
    attach(system, world)
    mine = storage_on(system, world)
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


def test_the_same_network_is_changed_and_what_is_not_said_stays(system, world):
    network(system, world)
    attach(system, world)
    before = storage_on(system, world).id
    attach(system, world, attachment(address="10.0.0.2"))
    found = storage_on(system, world)
    assert found.id == before
    assert found.ip_address_assignments[0].ip.address == "10.0.0.2"
    attach(system, world, types.NetworkAttachment(id=before, properties=[]))
    found = storage_on(system, world)
    assert found.ip_address_assignments[0].ip.address == "10.0.0.2"


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


@pytest.mark.parametrize("declared", [IPOIB_MODE, f"a=.*;{IPOIB_MODE}"])
def test_custom_properties_that_are_declared(system, world, declared):
    one = with_properties(world, declared, {"ipoib_mode": "connected"})
    option = system.options_service().option_service(
        "UserDefinedNetworkCustomProperties"
    )
    assert option.get(version="4.7").values[0].value == declared
    network(system, world)
    attach(system, world, one)
    found = storage_on(system, world).properties
    assert {p.name: p.value for p in found} == {"ipoib_mode": "connected"}


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


@pytest.mark.engine_does("OPTION-01")
def test_an_option_that_there_is_not_is_404(system):
    with pytest.raises(sdk.NotFoundError):
        system.options_service().option_service("Nothing").get()


@pytest.mark.engine_does("OPTION-02", "OPTION-03")
def test_an_option_has_a_value_for_each_version(system, world):
    name = "UserDefinedNetworkCustomProperties"
    world.options[name, "4.6"] = IPOIB_MODE
    option = system.options_service().option_service(name)
    values = {one.version: one.value or "" for one in option.get().values}
    assert values == {"4.6": IPOIB_MODE, "4.7": ""}
    assert [one.value for one in option.get(version="4.6").values] == [IPOIB_MODE]


@pytest.mark.engine_does("NET-15", "NET-27")
def test_a_network_with_a_role_needs_an_address(system, world):
    usages = [types.NetworkUsage.MIGRATION]
    network(system, world, usages=usages)
    row = cluster_of(system, world).networks_service()
    row = row.network_service(world.network("storage").id)
    one = _method(attachment(address=None, netmask=None), types.BootProtocol.NONE)
    attach(system, world, one)
    refused(400, "IP address has to be set", row.update, types.Network(usages=usages))
    attach(system, world, attachment())
    row.update(types.Network(usages=usages))
    refused(409, "no boot protocol", attach, system, world, one)


# -- required networks


@pytest.mark.engine_does("NET-18")
def test_a_host_without_a_required_network_comes_up_non_operational(system, world):
    made = network(system, world)
    for number, name in enumerate(("host01", "host02"), 1):
        attach(system, world, attachment(address=f"10.0.0.{number}"), host=name)
    networks = cluster_of(system, world).networks_service()
    row = networks.network_service(made.id)
    # Not all hosts that are up have it: no host must have it yet.
    required = types.Network(required=True)
    assert row.update(required).status == types.NetworkStatus.NON_OPERATIONAL
    host = world.host("host03")
    host.status = "maintenance"
    assert row.update(required).status == types.NetworkStatus.OPERATIONAL
    host_of(system, world, "host03").activate()
    world.settle()
    assert (host.status, world.log.codes().count(519)) == ("non_operational", 1)
    attach(system, world, attachment(address="10.0.0.3"), host="host03")
    host_of(system, world, "host03").activate()
    world.settle()
    assert host.status == "up"


@pytest.mark.engine_does("NET-18")
def test_a_host_that_loses_a_required_network_is_non_operational(system, world):
    made = network(system, world)
    names = ("host01", "host02", "host03")
    for number, name in enumerate(names, 1):
        attach(system, world, attachment(address=f"10.0.0.{number}"), host=name)
    row = cluster_of(system, world).networks_service().network_service(made.id)
    row.update(types.Network(required=True))
    gone = types.NetworkAttachment(id=storage_on(system, world).id)
    host_of(system, world).setup_networks(removed_network_attachments=[gone])
    assert world.host("host01").status == "non_operational"
    assert 519 in world.log.codes()
    # The host is no longer up; the next one must have it all the same.
    row = cluster_of(system, world).networks_service().network_service(made.id)
    gone = types.NetworkAttachment(id=storage_on(system, world, "host02").id)
    host_of(system, world, "host02").setup_networks(removed_network_attachments=[gone])
    assert row.get().status == types.NetworkStatus.OPERATIONAL
    world.host("host03").status = "maintenance"
    gone = types.NetworkAttachment(id=storage_on(system, world, "host03").id)
    host_of(system, world, "host03").setup_networks(removed_network_attachments=[gone])
    assert world.host("host03").status == "maintenance"
    assert row.get().status == types.NetworkStatus.OPERATIONAL


@pytest.mark.engine_does("NET-54")
def test_a_set_up_looks_at_the_networks_that_it_puts_there(system, world):
    made = network(system, world)
    network(system, world, name="other", mtu=1500)
    world.network("other").vlan = 7
    for number, name in enumerate(("host01", "host02"), 1):
        attach(system, world, attachment(address=f"10.0.0.{number}"), host=name)
    row = cluster_of(system, world).networks_service().network_service(made.id)
    row.update(types.Network(required=True))
    world.host("host03").status = "maintenance"
    attach(system, world, attachment(name="other", nic="eth0"))
    assert row.get().status == types.NetworkStatus.NON_OPERATIONAL
    attach(system, world, attachment(address="10.0.0.9"))
    assert row.get().status == types.NetworkStatus.OPERATIONAL


def required_without_host03(system, world):
    """Return the cluster's row of a required network that host03 lacks, and is up."""
    made = network(system, world)
    for number, name in enumerate(("host01", "host02"), 1):
        attach(system, world, attachment(address=f"10.0.0.{number}"), host=name)
    row = cluster_of(system, world).networks_service().network_service(made.id)
    row.update(types.Network(required=True))
    assert row.get().status == types.NetworkStatus.NON_OPERATIONAL
    return row


@pytest.mark.engine_does("NET-20")
def test_an_activation_looks_at_the_hosts_that_are_up(system, world):
    row = required_without_host03(system, world)
    world.host("host03").status = "maintenance"
    host_of(system, world, "host03").activate()
    world.settle()
    assert row.get().status == types.NetworkStatus.OPERATIONAL
    assert world.host("host03").status == "non_operational"


@pytest.mark.engine_does("NET-39")
def test_a_host_that_goes_takes_its_lack_with_it(system, world):
    row = required_without_host03(system, world)
    host_of(system, world, "host03").deactivate()
    assert row.get().status == types.NetworkStatus.OPERATIONAL


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
    refused(409, "used by attachment", setup, removed_bonds=made)
    gone = types.NetworkAttachment(id=storage_on(system, world).id)
    setup(removed_network_attachments=[gone], removed_bonds=made)
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


def test_a_bond_can_do_what_its_lesser_port_can(system, world, two_ports):
    network(system, world, mtu=4092)
    words = {"modified_bonds": [bond()]}
    one = attachment(nic="bond0")
    refused(400, "maximum allowed MTU 2044", attach, system, world, one, **words)
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


@pytest.mark.engine_does("NET-41", "NET-42", "NET-43", "NET-44", "NET-55")
def test_bonds_that_are_refused(system, world, two_ports):
    setup = host_of(system, world).setup_networks
    for wanted, code, text in (
        (bond(mode=None), 400, "other than active-backup"),
        (bond(mode="4"), 400, "other than active-backup"),
        (bond(ports=("ib0",)), 400, "less than two"),
        (bond(ports=("ib0", "ib7")), 400, "ib7.* does not exist"),
        (bond(ports=("ib0", "eth0")), 409, "cannot become slave"),
        (bond(name="team0"), 400, "naming criteria"),
        (bond(name="bond_of_infiniband"), 400, "longer than"),
    ):
        refused(code, text, setup, modified_bonds=[wanted])
        assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


@pytest.mark.engine_does("NET-46")
def test_virtual_machines_want_certain_modes_of_a_bond(system, world, two_ports):
    world.kind.add("NET-55")
    network(system, world, usages=VM)
    words = {"modified_bonds": [bond(mode="0")]}
    refused(
        400, "does not fit", attach, system, world, attachment(nic="bond0"), **words
    )


# -- features and the order of NICs


@pytest.mark.engine_does("FEATURE-06")
def test_only_a_registered_feature_shows_its_level(system, world):
    (made,) = clusters.register(world, "NFS_RDMA", "4.7")
    level = system.cluster_levels_service().level_service("4.7")
    (found,) = level.cluster_features_service().list()
    assert (found.name, found.cluster_level.id) == ("NFS_RDMA", "4.7")
    world.cluster("cl1").features = {made.id}
    (found,) = cluster_of(system, world).enabled_features_service().list()
    assert (found.name, found.cluster_level) == ("NFS_RDMA", None)


@pytest.mark.engine_does("NET-64")
def test_nics_come_in_any_order(system, world):
    names = ("host01", "host02", "host03")
    orders = {tuple(nics_of(system, world, name)) for name in names}
    assert orders == {("eth0", "ib0"), ("ib0", "eth0")}
