# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from engine_double.faults import AnswerLost, Conflict, DropConnection, Status
from engine_double.host_nics import clamp, give_address
from engine_double.setup_checks import USER_PROPERTIES
from engine_double.world import SimAssignment, SimNic
from support.engine.engine_door import DoubleDoor
from support.engine.refusals import reason, refused_for

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.networks.attach import (
    ATTACH,
    CHANGE,
    NOTHING,
    SYNC,
    AttachRequest,
    attach_network,
    plan_network_attach,
)
from ovirt_rdma.engine_sdk_tools.networks.create import (
    NetworkRequest,
    create_network,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.facts.model import NfsMount

pytestmark = pytest.mark.engine

REQUEST = AttachRequest("storage", ("*",), "ib0", span="10.20.0.11/24")
OPTION = "ipoib_mode=^(auto|datagram|connected)$"


@pytest.fixture(autouse=True)
def network(double, session):
    """The network of the tests, with MTU 2044."""
    wanted = NetworkRequest("storage", "dc1", 2044)
    plan = plan_network_create(read_engine(session, networks=True), {}, wanted)
    create_network(session, plan, Listener())
    double.requests.clear()
    return double.world.network("storage")


@pytest.fixture
def door(double):
    for host in double.world.hosts.values():
        host.addon, host.policy_text = True, "version: 1\n"
        host.nic("ib0").mtu = 4092
    return DoubleDoor(double.world)


def planned(session, door=None, request=REQUEST):
    engine = read_engine(session, networks=True, nics=True, attachments=True)
    reports = door.reports(engine.hosts) if door else {}
    return plan_network_attach(engine, reports, request)


def attached(session, door=None, request=REQUEST, **how):
    plan = planned(session, door, request)
    return attach_network(session, plan, Listener(), **how)


def refused(session, id, *arguments, door=None, **changes):
    with refused_for(id, *arguments) as caught:
        planned(session, door, replace(REQUEST, **changes))
    return caught.value


def nic(double, name, nic="ib0"):
    return double.world.host(name).nic(nic)


def of(double, name):
    """Return the networks of a host, by NIC."""
    host = double.world.host(name)
    names = {nic.id: nic.name for nic in host.nics}
    return {
        names[a.nic]: double.world.networks[a.network].name for a in host.attachments
    }


def second_port(double, *names):
    for name in names:
        host = double.world.host(name)
        host.nics.append(
            replace(
                host.nic("ib0"),
                id=f"{name}-ib1",
                name="ib1",
                mac=host.nic("ib0").mac[:-5] + "01:" + host.nic("ib0").mac[-2:],
            )
        )


def group_gives(double, mtu, *names):
    """Give the broadcast group a smaller MTU than the ports of these hosts have: the
    kernel accepts a larger MTU, but uses that of the group.
    """
    hosts = [double.world.host(name) for name in names or ("host01",)]

    def changed(seen):
        for host in hosts:
            if host.id in seen.path:
                for nic in host.nics:
                    nic.mtu = min(nic.mtu, mtu) if nic.infiniband else nic.mtu

    double.on_change = changed


def test_all_hosts_have_it_in_sync_and_over_a_reboot(session, double):
    result = attached(session)

    assert [(r.host, r.address, r.outcome) for r in result.rows] == [
        ("host01", "10.20.0.11/24", "done"),
        ("host02", "10.20.0.12/24", "done"),
        ("host03", "10.20.0.13/24", "done"),
    ]
    assert result.exit_code == 0
    assert nic(double, "host02").address == "10.20.0.12"
    double.world.host("host02").reboot()
    assert of(double, "host02") == {"eth0": "ovirtmgmt", "ib0": "storage"}


def test_a_second_run_has_nothing_to_do(session, double):
    attached(session)
    before = len(double.changes())

    plan = planned(session)

    assert [row.act for row in plan.rows] == [NOTHING] * 3
    assert plan.calls == ()
    attach_network(session, plan, Listener())
    assert len(double.changes()) == before


@pytest.mark.parametrize("batch", [0, 3])
def test_several_at_a_time(session, double, batch):
    assert attached(session, batch=batch).exit_code == 0
    assert {of(double, f"host0{n}")["ib0"] for n in (1, 2, 3)} == {"storage"}


def test_addresses_of_a_plan(session, double):
    asked = {
        f"host0{n}": ipaddress.ip_interface(f"10.20.0.{20 - n}/24") for n in (1, 2, 3)
    }

    attached(session, request=replace(REQUEST, addresses=asked))

    assert nic(double, "host03").address == "10.20.0.17"


def test_ipv6(session, double):
    attached(session, request=replace(REQUEST, span="fd00:20::11/64"))

    found = nic(double, "host01")
    assert (found.address_v6, found.netmask_v6) == ("fd00:20::11", "64")


def test_a_host_that_stays_below_the_mtu_is_set_back_and_the_rest_not_begun(
    session, double
):
    group_gives(double, 1500, "host02")

    result = attached(session)

    assert [r.outcome for r in result.rows] == ["done", "as before", "not begun"]
    assert "mtu is 1500 on the host, not 2044" in result.rows[1].sentence
    assert "ovirt-rdma-host check" in result.rows[1].fix
    assert of(double, "host02") == {"eth0": "ovirtmgmt"}
    assert result.exit_code == 5


def test_it_goes_on_where_it_is_told_to(session, double):
    group_gives(double, 1500)

    result = attached(session, keep_going=True)

    assert [r.outcome for r in result.rows] == ["as before", "done", "done"]


def test_a_port_that_cannot_have_the_mtu_is_refused_by_the_host(session, double):
    clamp(double.world.host("host01"), "ib0", 1500)

    result = attached(session)

    assert [r.outcome for r in result.rows] == ["as before", "not begun", "not begun"]
    assert "bigger than maximum allowed MTU" in result.rows[0].sentence
    assert result.exit_code == 6


def test_six_where_none_has_it_and_all_are_as_before(session, double):
    group_gives(double, 1500, "host01", "host02", "host03")

    assert attached(session, keep_going=True).exit_code == 6


def test_a_host_that_is_cut_off_goes_back_by_itself(session, double):
    double.world.host("host01").cut_off = True

    result = attached(session, keep_going=True)

    assert result.rows[0].outcome == "as before"
    assert of(double, "host01") == {"eth0": "ovirtmgmt"}
    assert double.world.host("host01").status == "up"


def test_the_earlier_address_comes_back(session, double):
    attached(session)
    group_gives(double, 1500, "host02")

    result = attached(
        session, request=replace(REQUEST, span="10.20.0.51/24"), keep_going=True
    )

    assert [r.outcome for r in result.rows] == ["done", "as before", "done"]
    assert nic(double, "host01").address == "10.20.0.51"
    assert nic(double, "host02").address == "10.20.0.12"


def has_addresses(double, name, *given):
    """Give ``storage`` these assignments on a host that has it."""
    host = double.world.host(name)
    host.attachments[-1].addresses = list(given)
    for each in given:
        give_address(host.nic("ib0"), each)


DHCP = SimAssignment("dhcp")
AUTOCONF = SimAssignment("autoconf", v6=True)
ROUTED = SimAssignment("static", "10.20.0.11", "255.255.255.0", "10.20.0.1")


@pytest.mark.parametrize("before", [[DHCP], [ROUTED], [DHCP, AUTOCONF], [AUTOCONF]])
def test_how_a_host_had_its_address_comes_back(session, double, before):
    one = replace(REQUEST, hosts=("host01",))
    attached(session, request=one)
    has_addresses(double, "host01", *before)
    group_gives(double, 1500)

    result = attached(session, request=replace(one, span="10.20.0.51/24"))

    assert result.rows[0].outcome == "as before"
    now = double.world.host("host01").attachments[-1].addresses
    assert now == before


@pytest.mark.parametrize(
    ("span", "gateway"),
    [
        ("10.20.0.11/24", "10.20.0.1"),
        ("10.20.0.51/24", "10.20.0.1"),
        ("10.30.0.11/24", None),
    ],
)
def test_the_gateway_and_the_other_ip_version_stay(session, double, span, gateway):
    one = replace(REQUEST, hosts=("host01",))
    attached(session, request=one)
    has_addresses(double, "host01", ROUTED, AUTOCONF)
    nic(double, "host01").mtu = 1500

    request = replace(one, span=span)
    assert attached(session, request=request).exit_code == 0

    address = SimAssignment("static", span[:-3], "255.255.255.0", gateway)
    assert double.world.host("host01").attachments[-1].addresses == [address, AUTOCONF]
    assert [row.act for row in planned(session, request=request).rows] == [NOTHING]


@pytest.mark.parametrize("way", ["proven", "rolled back", "rolled back, answer lost"])
@pytest.mark.parametrize("routes", [False, True])
@pytest.mark.parametrize("span", ["10.20.0.51/24", "fd00:20::51/64"])
def test_a_gateway_of_ipv6_stays_only_with_the_default_route(
    session, double, network, span, routes, way
):
    """The engine refuses it otherwise, on the way back too; it may be from before."""
    one = replace(REQUEST, hosts=("host01",))
    attached(session, request=one)
    six = SimAssignment("static", "fd00:20::11", "64", "fd00:20::1", True)
    has_addresses(double, "host01", ROUTED, six)
    rows = double.world.cluster("cl1").networks
    for id, row in rows.items() if routes else ():
        row.usages.discard("default_route")
        row.usages |= {"default_route"} if id == network.id else set()
    if not (proven := way == "proven"):
        group_gives(double, 1500)
    if "lost" in way:
        double.fail_next("POST", "/setupnetworks", AnswerLost(), after=1)

    result = attached(session, request=replace(one, span=span))

    assert result.rows[0].outcome == ("done" if proven else "as before")
    now = double.world.host("host01").attachments[-1].addresses
    has = {each.v6: (each.address, each.gateway) for each in now}
    gateway = "fd00:20::1" if routes else None
    four, new = span.startswith("10"), span[:-3] if proven else ""
    assert has[False] == ((four and new) or "10.20.0.11", "10.20.0.1")
    assert has[True] == ((not four and new) or "fd00:20::11", gateway)


def test_an_address_of_the_other_ip_version_is_added(session, double):
    one = replace(REQUEST, hosts=("host01",))
    attached(session, request=one)

    request = replace(one, span="fd00:20::11/64")
    assert attached(session, request=request).exit_code == 0

    now = nic(double, "host01")
    assert (now.address, now.address_v6) == ("10.20.0.11", "fd00:20::11")
    assert [row.act for row in planned(session, request=request).rows] == [NOTHING]


def test_a_network_that_lags_is_synchronised(session, double, network):
    attached(session)
    network.mtu = 1500

    plan = planned(session)
    result = attach_network(session, plan, Listener())

    assert [row.act for row in plan.rows] == [SYNC] * 3
    assert result.exit_code == 0
    assert nic(double, "host01").mtu == 1500


@pytest.mark.parametrize("way", [AnswerLost(), Status(503, html=True, applied=True)])
def test_an_answer_that_is_lost_is_looked_up_and_committed(session, double, way):
    double.fail_next("POST", "/setupnetworks", way)

    assert attached(session).exit_code == 0
    double.world.host("host01").reboot()
    assert of(double, "host01")["ib0"] == "storage"


def test_a_host_that_may_yet_change_is_not_as_before(session, double):
    """The engine continues with the request, and nothing of it shows yet."""
    double.fail_next("POST", "/setupnetworks", DropConnection())

    result = attached(session)

    assert [r.outcome for r in result.rows] == ["failed", "not begun", "not begun"]
    assert "state is unknown" in result.rows[0].sentence
    assert "run the command again" in result.rows[0].fix
    assert result.exit_code == 1


def test_what_cannot_be_taken_back_is_said(session, double):
    group_gives(double, 1500)
    double.fail_next("POST", "/setupnetworks", Conflict("Not now."), after=1)

    result = attached(session)

    assert result.rows[0].outcome == "failed"
    assert "Not now" in result.rows[0].sentence
    assert "Setup Host Networks of host01: " in result.rows[0].fix
    assert "storage" in result.rows[0].fix
    assert result.exit_code == 1


def test_a_network_that_went_is_put_back_as_it_was(session, double):
    attached(session)

    def lose(seen):
        double.on_change = None
        double.world.host("host01").attachments.pop()
        nic(double, "host01").address = None

    double.on_change = lose
    result = attached(session, request=replace(REQUEST, span="10.20.0.51/24"))

    assert result.rows[0].outcome == "as before"
    assert of(double, "host01")["ib0"] == "storage"
    assert nic(double, "host01").address == "10.20.0.11"


def test_a_lost_answer_to_taking_back_is_committed_too(session, double):
    group_gives(double, 1500, "host01")
    fault = Status(503, html=True, applied=True)
    double.fail_next("POST", "/setupnetworks", fault, after=1)

    result = attached(session)

    assert result.rows[0].outcome == "as before"
    last = [seen.path for seen in double.changes()][-1]
    assert last.endswith("/commitnetconfig")


def test_a_host_that_changed_meanwhile_is_left(session, double):
    plan = planned(session)
    double.world.host("host02").status = "installing"

    result = attach_network(session, plan, Listener(), keep_going=True)

    assert [r.outcome for r in result.rows] == ["done", "as before", "done"]
    assert "host02: it is installing" in result.rows[1].sentence


def test_a_bond_of_both_ports(session, double):
    second_port(double, "host01")
    request = replace(REQUEST, hosts=("host01",), nic_match="ib*", bond=True)

    assert attached(session, request=request).exit_code == 0

    bond = double.world.host("host01").nic("bond0")
    assert (bond.ports, bond.bond_mode) == (("ib0", "ib1"), "1")
    assert of(double, "host01")["bond0"] == "storage"
    assert [row.act for row in planned(session, request=request).rows] == [NOTHING]


def test_a_bond_goes_again_with_its_network(session, double):
    second_port(double, "host01")
    group_gives(double, 1500)
    request = replace(REQUEST, hosts=("host01",), nic_match="ib*", bond=True)

    result = attached(session, request=request)

    assert result.rows[0].outcome == "as before"
    assert [n.name for n in double.world.host("host01").nics] == ["eth0", "ib0", "ib1"]


def test_custom_properties_that_a_host_has_stay(session, double):
    double.world.options[USER_PROPERTIES, "4.7"] = OPTION
    attached(session)
    host, has = double.world.host("host01"), {"ipoib_mode": "connected"}
    host.attachments[-1].properties = has
    moved = replace(REQUEST, span="10.20.0.31/24")
    assert [row.act for row in planned(session, request=moved).rows] == [CHANGE] * 3
    attached(session, request=moved)
    assert host.attachments[-1].properties == has


@pytest.mark.parametrize(
    "match", ["ib0", "ib?", "0002:c903:0000:0001,0x0002c90300000003"]
)
def test_ways_to_name_a_nic(session, match):
    request = replace(REQUEST, nic_match=match, hosts=("host01", "host03"))

    assert [row.chosen.target for row in planned(session, request=request).rows] == [
        "ib0",
        "ib0",
    ]


def test_a_pci_address_needs_facts(session):
    refused(session, "nic-match-needs-facts", "--facts-dir", nic_match="04:00.0")


@pytest.mark.parametrize(
    ("change", "id", "arguments"),
    [
        (
            lambda w: setattr(w.host("host02"), "status", "down"),
            "host-status",
            ("host02", "down"),
        ),
        (
            lambda w: setattr(w.network("storage"), "vm", True),
            "vm-network-on-infiniband",
            ("host01", "storage", "ib0", "network create"),
        ),
        (
            lambda w: setattr(w.network("storage"), "vlan", 7),
            "vlan-on-infiniband",
            ("host01", "storage", "VLAN tag 7", "ib0"),
        ),
        (
            lambda w: w.cluster("cl1").networks.pop(w.network("storage").id),
            "network-not-in-cluster",
            ("host01", "network create storage --datacenter dc1 --clusters cl1 --mtu"),
        ),
        (
            lambda w: setattr(w.host("host02").nic("eth0"), "address", "10.20.0.11"),
            "address-in-use",
            ("host01 cannot have 10.20.0.11", "eth0 of host02"),
        ),
    ],
)
def test_what_is_against_it(session, double, change, id, arguments):
    change(double.world)

    refused(session, id, *arguments)


def ethernet(double):
    """Give the hosts an Ethernet NIC ``eth1`` without a network."""
    for host in double.world.hosts.values():
        mac = host.nic("eth0").mac[:-2] + "aa"
        host.nics.append(SimNic(f"{host.name}-eth1", "eth1", mac))


def test_an_ethernet_nic_takes_a_vm_network(session, double, network):
    ethernet(double)
    network.vm = True

    attached(session, request=replace(REQUEST, nic_match="eth1"))

    assert {of(double, f"host0{n}")["eth1"] for n in (1, 2, 3)} == {"storage"}


def test_an_ethernet_nic_takes_a_vlan(session, double, network):
    ethernet(double)
    network.vlan = 7

    rows = planned(session, request=replace(REQUEST, nic_match="eth1")).rows

    assert [(row.chosen.target, row.act) for row in rows] == [("eth1", ATTACH)] * 3


def test_a_network_for_ethernet_is_added_to_a_cluster_as_such(session, double):
    ethernet(double)
    network = double.world.network("storage")
    network.vlan, network.mtu = 7, 9000
    double.world.cluster("cl1").networks.pop(network.id)
    words = "--clusters cl1 --link-layer ethernet --vlan 7 --mtu 9000"
    refused(session, "network-not-in-cluster", words, nic_match="eth1")


def test_a_vlan_goes_beside_a_network_without_one(session, double):
    ethernet(double)
    request = replace(REQUEST, nic_match="eth1", hosts=("host01",))
    attached(session, request=request)
    wanted = NetworkRequest("other", "dc1", 2044)
    plan = plan_network_create(read_engine(session, networks=True), {}, wanted)
    create_network(session, plan, Listener())
    more = {"network": "other", "nic_match": "eth1", "hosts": ("host01",)}
    more["span"] = "10.30.0.11/24"
    refused(session, "nic-has-network", "eth1", "storage", **more)

    double.world.network("other").vlan = 7

    assert planned(session, request=replace(REQUEST, **more)).todo
    # The engine refuses another MTU beside it (NET-34).
    double.world.network("other").mtu = 9000
    refused(session, "nic-mtu-differs", "eth1", "storage", 9000, **more)
    double.world.network("storage").vlan = 8
    assert planned(session, request=replace(REQUEST, **more)).todo


@pytest.mark.parametrize(
    ("changes", "id", "arguments"),
    [
        ({"nic_match": "eth0"}, "nic-has-management-network", ["eth0", "ovirtmgmt"]),
        ({"network": "ovirtmgmt"}, "management-network", ["host01", "ovirtmgmt"]),
        ({"nic_match": "mlx*"}, "nic-unmatched", ["host01", "mlx*", "eth0, ib0"]),
        ({"nic_match": "*"}, "nic-ambiguous", ["host01", "eth0, ib0"]),
        ({"nic_match": "ib*", "bond": True}, "bond-needs-nics", ["ib*", "ib0", 2]),
        ({"nic_match": "*", "bond": True}, "bond-mixes-link-layers", ["ib0"]),
        ({"span": "10.20.0.253/24"}, "address-missing", ["host03"]),
    ],
)
def test_wrong_words(session, changes, id, arguments):
    refused(session, id, *arguments, **changes)


def test_all_offenders_are_named(session, double):
    double.world.host("host01").status = "down"
    double.world.host("host03").nics = [double.world.host("host03").nic("eth0")]

    error = refused(session, "host-status", "host01", "down")

    reason(error.reasons, "nic-unmatched", "host03", "ib0")


def test_a_nic_with_another_network(session, double):
    attached(session)
    wanted = NetworkRequest("other", "dc1", 2044)
    plan = plan_network_create(read_engine(session, networks=True), {}, wanted)
    create_network(session, plan, Listener())

    refused(session, "nic-has-network", "ib0", "storage", network="other")


def test_a_port_of_a_bond(session, double):
    second_port(double, "host01")
    host = double.world.host("host01")
    host.nics.append(
        SimNic("b", "bond7", host.nic("ib0").mac, ports=("ib0", "ib1"), bond_mode="4")
    )

    refused(session, "nic-is-bond-port", "ib0", "bond7", hosts=("host01",))
    bond7 = {"hosts": ("host01",), "nic_match": "bond7"}
    refused(session, "bond-mode", "bond7", "mode 4", "active-backup (1)", **bond7)


def test_no_host_gets_the_address_of_a_mounted_server(session, double, door):
    mount = NfsMount(
        "nas:/vm", "/rhev/data-center/mnt/nas:_vm", "", address="fd00:20::12"
    )
    reports = door.reports(read_engine(session).hosts)
    told = reports["host03"]
    facts = replace(
        told.facts, nfs_mounts=(mount, replace(mount, address="10.20.0.12"))
    )
    door.reports = lambda hosts: {**reports, "host03": replace(told, facts=facts)}
    words = ("host02", "cannot have 10.20.0.12: ", "nas:/vm")
    refused(session, "address-in-use", *words, door=door)
    words = ("host02", "cannot have fd00:20::12: ", "nas:/vm")
    refused(session, "address-in-use", *words, door=door, span="fd00:20::11/64")
    assert planned(session, door, replace(REQUEST, span="10.20.0.13/24")).todo


def test_an_mtu_that_facts_say_is_too_large(session, double, door, network):
    network.mtu = 65520
    refused(session, "mtu-too-large", "ib0", 4092, 65520, door=door)


def test_an_mtu_that_nobody_can_check_is_a_warning(session):
    (warning,) = planned(session).warnings
    assert "MTU 2044" in warning
    assert "host01, host02, host03" in warning


def test_facts_take_the_warning_away(session, door):
    assert planned(session, door).warnings == ()
