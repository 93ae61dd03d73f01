# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine double's networks, features, events and jobs, through the real SDK.

Rules: facts/engine.md, sections 4 to 6.
"""

from __future__ import annotations

import ovirtsdk4 as sdk
import pytest
from engine_double import EngineDouble, SimNic, features, jobs, sample_world
from engine_double.hooks import hook, our_hooks
from engine_double.host_nics import clamp
from ovirtsdk4 import types

pytestmark = pytest.mark.engine

STATIC = types.BootProtocol.STATIC


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
    data_center = types.DataCenter(name="dc1")
    made = system.networks_service().add(
        types.Network(name=name, data_center=data_center, mtu=mtu, usages=list(usages))
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
    host_of(system, world, host).setup_networks(
        modified_network_attachments=list(attachments or [attachment()]), **words
    )


def storage_on(system, world, host="host01"):
    wanted = world.network("storage").id
    found = host_of(system, world, host).network_attachments_service().list()
    return next((one for one in found if one.network.id == wanted), None)


# -- logical networks


def test_a_network_without_usages_is_no_vm_network(system, world):
    made = network(system, world)
    assert (made.usages, made.mtu) == ([], 2044)
    below = system.networks_service().network_service(made.id).get()
    assert below.data_center.id == world.data_center("dc1").id
    default = system.networks_service().add(
        types.Network(name="vms", data_center=types.DataCenter(name="dc1"))
    )
    assert default.usages == [types.NetworkUsage.VM]
    found = system.networks_service().list(search="name=stor*")
    assert [one.name for one in found] == ["storage"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ({"name": "ovirtmgmt"}, 409, "already used"),
        ({"name": "bond7"}, 400, "cannot start with 'bond'"),
        ({"name": "a", "mtu": 67}, 400, "MTU"),
        ({"name": "a", "vlan": types.Vlan(id=5000)}, 400, "VLAN"),
    ],
)
def test_networks_that_the_engine_refuses(system, world, words, code, text):
    add = system.networks_service().add
    centre = types.DataCenter(name="dc1")
    refused(code, text, add, types.Network(data_center=centre, **words))


@pytest.mark.parametrize("mtu", [0, 68, 4092, 65520])
def test_an_mtu_has_no_maximum(system, world, mtu):
    assert network(system, world, mtu=mtu).mtu == mtu


def test_attached_to_a_cluster_a_network_is_required_unless_it_is_said(system, world):
    centre = types.DataCenter(name="dc1")
    made = system.networks_service().add(types.Network(name="a", data_center=centre))
    networks = cluster_of(system, world).networks_service()
    added = networks.add(types.Network(id=made.id))
    assert added.required is True
    assert added.status == types.NetworkStatus.NON_OPERATIONAL
    refused(409, "already attached", networks.add, types.Network(name="a"))
    changed = networks.network_service(made.id).update(types.Network(required=False))
    assert changed.required is False
    assert changed.status == types.NetworkStatus.OPERATIONAL
    networks.network_service(made.id).remove()
    assert [one.name for one in networks.list()] == ["ovirtmgmt"]


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


def test_the_management_network_cannot_go(system, world):
    found = world.network("ovirtmgmt").id
    row = cluster_of(system, world).networks_service().network_service(found)
    refused(400, "mandatory", row.remove)
    refused(400, "must be required", row.update, types.Network(required=False))
    refused(400, "mandatory", system.networks_service().network_service(found).remove)


# -- attaching


def test_an_attached_network_has_its_address_and_is_in_sync(system, world):
    network(system, world)
    attach(system, world, commit_on_success=True)
    found = storage_on(system, world)
    assert found.in_sync is True
    ip = found.ip_address_assignments[0].ip
    assert (ip.address, ip.netmask) == ("10.0.0.1", "255.255.255.0")
    rows = {
        r.name: (r.expected_value, r.actual_value, r.in_sync)
        for r in (found.reported_configurations)
    }
    assert rows["mtu"] == ("2044", "2044", True)
    assert rows["bridged"] == ("false", "false", True)
    assert rows["ipv4_address"] == ("10.0.0.1", "10.0.0.1", True)
    nic = next(
        n for n in host_of(system, world).nics_service().list() if n.name == "ib0"
    )
    assert (nic.ip.address, nic.mtu, nic.bridged) == ("10.0.0.1", 2044, False)
    assert nic.network.id == world.network("storage").id
    assert nic.mac.address.count(":") == 19
    assert nic.speed == 100_000_000_000


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


@pytest.mark.parametrize("status", ["down", "non_responsive", "installing", "reboot"])
def test_hosts_that_do_not(system, world, status):
    network(system, world)
    world.host("host01").status = status
    refused(409, "only when Host status", attach, system, world)


def test_a_host_that_is_cut_off_rolls_back(system, world):
    network(system, world)
    world.host("host01").cut_off = True
    refused(400, "Reverting back to last known", attach, system, world)
    assert storage_on(system, world) is None
    # Without the check it is done, and the host is gone.
    attach(system, world, check_connectivity=False)
    assert storage_on(system, world) is not None
    assert world.host("host01").status == "non_responsive"


@pytest.mark.parametrize("seconds", [0, 121])
def test_the_connectivity_timeout_has_a_range(system, world, seconds):
    network(system, world)
    refused(400, "timeout", attach, system, world, connectivity_timeout=seconds)


VM = [types.NetworkUsage.VM]


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


@pytest.mark.parametrize(
    ("one", "code", "text"),
    [
        (attachment(nic="ib9"), 400, "ib9.* does not exist"),
        (attachment(name="nothing"), 400, "doesn't exist"),
        (attachment(address="10.0.0.300"), 400, "Bad IP"),
        (attachment(netmask="255.0.255.0"), 400, "Bad IP"),
        (attachment(address=None), 400, "Must define"),
        (_method(attachment(), None), 400, "Boot protocol is missing"),
        (_method(attachment(), types.BootProtocol.DHCP), 400, "Incompatible"),
        (attachment(nic="eth0"), 409, "At most one VLAN-untagged"),
    ],
)
def test_attachments_that_the_engine_refuses(system, world, one, code, text):
    network(system, world)
    refused(code, text, attach, system, world, one)
    assert storage_on(system, world) is None


def test_a_network_of_no_cluster_cannot_be_attached(system, world):
    centre = types.DataCenter(name="dc1")
    system.networks_service().add(types.Network(name="storage", data_center=centre))
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
    service = host_of(system, world)
    service.setup_networks(
        synchronized_network_attachments=[types.NetworkAttachment(id=found.id)]
    )
    assert storage_on(system, world).in_sync is True
    host.nic("ib0").mtu = 2044
    service.refresh()
    assert 1110 in world.log.codes()
    service.sync_all_networks()
    assert storage_on(system, world).in_sync is True


def test_a_changed_network_is_changed_on_the_hosts_that_can(system, world):
    made = network(system, world)
    attach(system, world)
    attach(system, world, attachment(address="10.0.0.2"), host="host02")
    world.host("host02").nic("ib0").max_mtu = 2044
    system.networks_service().network_service(made.id).update(types.Network(mtu=4092))
    assert storage_on(system, world).in_sync is True
    assert storage_on(system, world, "host02").in_sync is False
    assert world.host("host01").nic("ib0").mtu == 4092


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


def test_a_network_taken_from_the_cluster_stays_on_the_host_unmanaged(system, world):
    made = network(system, world)
    attach(system, world)
    cluster_of(system, world).networks_service().network_service(made.id).remove()
    assert storage_on(system, world) is None
    unmanaged = host_of(system, world).unmanaged_networks_service()
    assert [one.name for one in unmanaged.list()] == ["storage"]
    assert world.host("host01").nic("ib0").address == "10.0.0.1"
    unmanaged.unmanaged_network_service("storage").remove()
    assert unmanaged.list() == []
    assert world.host("host01").nic("ib0").address is None


@pytest.mark.parametrize(
    ("declared", "properties", "good"),
    [
        ("ipoib_mode=connected|datagram", {"ipoib_mode": "datagram"}, True),
        ("a=.*;ipoib_mode=connected|datagram", {"ipoib_mode": "connected"}, True),
        ("ipoib_mode=connected|datagram", {"ipoib_mode": "fast"}, False),
        ("", {"ipoib_mode": "datagram"}, False),
        ("", {"bridge_opts": "a=b"}, False),
    ],
)
def test_custom_properties_must_be_declared(system, world, declared, properties, good):
    world.options["UserDefinedNetworkCustomProperties", "4.7"] = declared
    option = system.options_service().option_service(
        "UserDefinedNetworkCustomProperties"
    )
    assert option.get(version="4.7").values[0].value == declared
    network(system, world)
    one = attachment()
    one.properties = [types.Property(name=n, value=v) for n, v in properties.items()]
    if good:
        attach(system, world, one)
        found = storage_on(system, world).properties
        assert {p.name: p.value for p in found} == properties
    else:
        refused(400, "custom properties contained errors", attach, system, world, one)


def test_an_option_that_there_is_not_is_404(system):
    with pytest.raises(sdk.NotFoundError):
        system.options_service().option_service("Nothing").get()


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


def test_a_host_without_a_required_network_comes_up_non_operational(system, world):
    made = network(system, world)
    for number, name in enumerate(("host01", "host02"), 1):
        attach(system, world, attachment(address=f"10.0.0.{number}"), host=name)
    networks = cluster_of(system, world).networks_service()
    row = networks.network_service(made.id)
    # Not all hosts that are up have it: nobody is held to it yet.
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


def test_two_ipoib_ports_make_an_active_backup_bond(system, world, two_ports):
    network(system, world)
    attach(system, world, attachment(nic="bond0"), modified_bonds=[bond()])
    nics = {nic.name: nic for nic in host_of(system, world).nics_service().list()}
    names = {nic.id: name for name, nic in nics.items()}
    shown = nics["bond0"]
    assert [names[one.id] for one in shown.bonding.slaves] == ["ib0", "ib1"]
    assert {o.name: o.value for o in shown.bonding.options}["mode"] == "1"
    assert (shown.ip.address, shown.mtu) == ("10.0.0.1", 2044)
    setup = host_of(system, world).setup_networks
    refused(
        409, "used by attachment", setup, removed_bonds=[types.HostNic(id=shown.id)]
    )
    gone = types.NetworkAttachment(id=storage_on(system, world).id)
    setup(
        removed_network_attachments=[gone], removed_bonds=[types.HostNic(name="bond0")]
    )
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


def test_a_bond_can_do_what_its_lesser_port_can(system, world, two_ports):
    network(system, world, mtu=4092)
    words = {"modified_bonds": [bond()]}
    one = attachment(nic="bond0")
    refused(400, "maximum allowed MTU 2044", attach, system, world, one, **words)
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (bond(mode="4"), 400, "other than active-backup"),
        (bond(mode=None), 400, "other than active-backup"),
        (bond(ports=("ib0",)), 400, "less than two"),
        (bond(ports=("ib0", "ib7")), 400, "ib7.* does not exist"),
        (bond(ports=("ib0", "eth0")), 409, "cannot become slave"),
        (bond(name="team0"), 400, "naming criteria"),
    ],
)
def test_bonds_that_are_refused(system, world, two_ports, wanted, code, text):
    setup = host_of(system, world).setup_networks
    refused(code, text, setup, modified_bonds=[wanted])
    assert [nic.name for nic in two_ports.nics] == ["eth0", "ib0", "ib1"]


# -- features


def test_any_update_of_a_cluster_wipes_its_features(system, world):
    made, other = (
        features.register(world, name, "4.7")[0] for name in ("NFS_RDMA", "OTHER")
    )
    level = system.cluster_levels_service().level_service("4.7")
    names = [one.name for one in level.cluster_features_service().list()]
    assert names == ["NFS_RDMA", "OTHER"]
    for host in world.hosts.values():
        host.features = {"NFS_RDMA", "OTHER"}
    cluster = world.cluster("cl1")
    cluster.features = {other.id}
    service = cluster_of(system, world).enabled_features_service()
    service.add(types.ClusterFeature(id=made.id, name="NFS_RDMA"))
    assert [one.name for one in service.list()] == ["NFS_RDMA"]
    cluster_of(system, world).update(types.Cluster(description="another"))
    assert service.list() == []
    cluster.features = {made.id, other.id}
    service.feature_service(made.id).remove()
    assert service.list() == []


def test_a_feature_that_hosts_lack(system, world):
    made = features.register(world, "NFS_RDMA", "4.7")[0]
    add = cluster_of(system, world).enabled_features_service().add
    wanted = types.ClusterFeature(id=made.id, name="NFS_RDMA")
    refused(400, "active hosts", add, wanted)
    refused(400, "id and its name", add, types.ClusterFeature(id=made.id))
    world.cluster("cl1").features = {made.id}
    host = world.host("host02")
    host.status = "maintenance"
    host_of(system, world, "host02").activate()
    world.settle()
    assert (host.status, 4149 in world.log.codes()) == ("non_operational", True)
    host.reported_features = {"NFS_RDMA"}
    host_of(system, world, "host02").activate()
    world.settle()
    assert host.status == "up"


# -- hooks and statistics


def test_hooks_and_statistics(system, world):
    host = world.host("host01")
    host.hooks = [hook("after_get_caps", "50_ovirt_rdma", b"content")]
    host.more["statistics"] = {"ib0 data.total.rx": 7}
    shown = system.hosts_service().list(search="name=host01", follow="hooks")[0]
    assert [(h.name, h.event_name) for h in shown.hooks] == [
        ("50_ovirt_rdma", "after_get_caps")
    ]
    assert len(shown.hooks[0].md5) == 64
    assert host_of(system, world).hooks_service().list()[0].id == shown.hooks[0].id
    host.hooks = our_hooks()
    points = [h.event_name for h in host_of(system, world).hooks_service().list()]
    assert "after_get_caps" in points and len(points) == 4
    found = host_of(system, world).statistics_service().list()
    values = {one.name: one.values[0].datum for one in found}
    assert values["memory.total"] == host.memory
    nics = host_of(system, world).nics_service()
    of_nic = nics.nic_service(host.nic("ib0").id).statistics_service().list()
    assert {o.name: o.values[0].datum for o in of_nic}["data.total.rx"] == 7


# -- events


def event(**words):
    base = {
        "origin": "ovirt-rdma",
        "severity": types.LogSeverity.WARNING,
        "custom_id": 7,
        "description": "something",
    }
    return types.Event(**{**base, **words})


def test_events_from_outside_have_unique_ids(system, world):
    events = system.events_service()
    about = types.Host(id=world.host("host01").id)
    made = events.add(event(host=about), query={"correlation_id": "me"})
    assert (made.code, made.host.name, made.correlation_id) == (9802, "host01", "me")
    refused(400, "custom id already exists", events.add, event())
    later = events.add(event(custom_id=8, description="x" * 10_001))
    assert int(later.id) > int(made.id)
    assert (len(later.description), later.description[-3:]) == (10_000, "...")
    assert [one.id for one in events.list(search="correlation_id=me")] == [made.id]
    assert [one.id for one in events.list(from_=int(made.id))] == [later.id]
    assert [one.id for one in events.list(max=1)] == [later.id]
    both = events.list(search="correlation_id=me and type=9801")
    assert both == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"origin": "OVIRT"}, "Illegal Origin"),
        ({"origin": None}, "origin"),
        ({"severity": None}, "severity"),
        ({"custom_id": None}, "custom_id"),
        ({"description": None}, "description"),
    ],
)
def test_events_that_are_refused(system, words, text):
    refused(400, text, system.events_service().add, event(**words))


def test_an_event_sets_the_external_status(system, world):
    wrong = types.ExternalStatus.ERROR
    about = types.Host(id=world.host("host01").id, external_status=wrong)
    system.events_service().add(event(host=about))
    assert host_of(system, world).get().external_status == wrong


# -- jobs


def test_an_external_job_has_steps_and_ends(system, world):
    service = system.jobs_service()
    job = service.add(types.Job(description="convert", auto_cleared=True))
    assert (job.external, job.status) == (True, types.JobStatus.STARTED)
    steps = service.job_service(job.id).steps_service()
    executing = types.StepEnum.EXECUTING
    first, second, _ = (
        steps.add(types.Step(type=executing, description=name))
        for name in ("first", "second", "third")
    )
    steps.step_service(first.id).end(succeeded=True)
    steps.step_service(second.id).end(succeeded=False)
    shown = [one.status.value for one in steps.list()]
    assert shown == ["finished", "failed", "started"]
    host_of(system, world).refresh(query={"JobId": job.id})
    service.job_service(job.id).end(succeeded=False)
    assert service.job_service(job.id).get().status == types.JobStatus.FAILED
    followed = service.list(follow="steps")[0]
    assert [one.status.value for one in followed.steps][2] == "failed"
    service.job_service(job.id).clear()
    assert service.list() == []


def test_jobs_that_cannot_be_ended(system, world):
    own = jobs.add(world, "the engine's own", external=False)
    service = system.jobs_service()
    refused(400, "only to external jobs", service.job_service(own.id).end)
    refused(400, "not found", service.job_service("none").end)
    with pytest.raises(sdk.NotFoundError):
        service.job_service("none").get()
    refused(400, "description", service.add, types.Job())
    job = service.add(types.Job(description="convert"))
    steps = service.job_service(job.id).steps_service()
    refused(400, "type", steps.add, types.Step(description="x"))
    refused(400, "not found", steps.step_service("none").end)
