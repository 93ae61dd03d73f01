# SPDX-License-Identifier: GPL-2.0-or-later
"""The report is made of the engine's data and the hosts' reports, without effects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.told_hosts import (
    SERVER,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
    status,
)

from ovirt_rdma.engine_sdk_tools.model import FAIL, UNKNOWN
from ovirt_rdma.engine_sdk_tools.report.model import report_of, row_of, verdict_text
from ovirt_rdma.host.facts.devices import Neighbour, OvirtNetwork
from ovirt_rdma.host.facts.model import DegradedMark, Route

pytestmark = pytest.mark.engine

EXPORT = f"{SERVER}:/exports/data1"


def told(name="hv1", transport="rdma", policy="prefer-rdma", **more):
    text = rules(policy)
    words = {"facts": facts(mount(EXPORT, transport)), "status": status(text)}
    return report(name, **{**words, "policy_text": text, **more})


def made(*reports, domains=None, hosts=None, clusters=None):
    domains = (domain(),) if domains is None else domains
    hosts = hosts or [host(one.host) for one in reports]
    its = engine(*hosts, domains=domains)
    rows = [
        row_of(its, one, report, None, domains) for one, report in zip(hosts, reports)
    ]
    return report_of(
        its, rows, None, domains, made_at="2026-11-23T16:00:00Z", version="0.2.0"
    )


def test_a_host_has_the_engines_words_and_its_own():
    (found,) = made(told()).hosts
    assert (found.name, found.data_center, found.cluster) == ("hv1", "dc1", "cl1")
    (device,) = found.devices
    assert (device.name, device.product) == ("rxe0", "Soft-RoCE")
    (port,) = device.ports
    assert (port.state, port.link_layer) == ("ACTIVE", "Ethernet")
    assert [one.netdev for one in port.attached]
    assert port.attached[0].subnets


def test_both_matrices_have_the_hosts_rows():
    found = made(told("hv1"), told("hv2", "tcp"))
    assert [row.name for row in found.checks.rows] == ["hv1", "hv2"]
    assert [row.name for row in found.transports.rows] == ["hv1", "hv2"]
    assert [cells[0].text for cells in found.transports.cells] == ["rdma", "tcp"]
    assert found.domains[0].used == (("rdma", 1), ("tcp", 1))
    assert found.hosts[1].worst == FAIL


def test_the_worst_verdict_includes_a_policy_that_differs():
    """Only all hosts together show which policy differs."""
    one, other = told("hv1"), told("hv2", policy="require-rdma")
    same = made(one, told("hv2"), told("hv3"))
    assert {host.worst for host in same.hosts} == {same.hosts[0].worst}
    found = made(one, other, told("hv3"))
    policy = [column.name for column in found.checks.columns].index("policy")
    assert found.checks.cells[1][policy].verdict == FAIL
    assert found.hosts[1].worst == FAIL


def test_a_silent_host_is_unknown_and_has_nothing():
    (found,) = made(report("hv1", problem="it does not answer", fix="wake it")).hosts
    assert found.worst != "ok"
    assert (found.devices, found.paths, found.steps) == (None,) * 3
    assert (found.problem, found.fix) == ("it does not answer", "wake it")
    assert made(report("hv1")).domains[0].used == (("unknown", 1),)


def test_a_path_leads_by_the_route_of_a_mount():
    its = facts(mount(EXPORT, "rdma", address="192.0.2.1"))
    its = replace(its, routes=(Route("192.0.2.1", "eth9", "192.0.2.2"),))
    (found,) = made(told(facts=its)).hosts
    (path,) = found.paths
    assert (path.server, path.netdev) == (SERVER, "eth9")
    assert path.transports == (("rdma", 1),)


def test_a_logical_network_names_what_is_on_a_port():
    its = facts()
    port = its.rdma_devices[0].ports[0]
    netdev = next(
        n.name
        for n in its.netdevs
        if n.rdma_device == "rxe0" or n.name in {gid.netdev for gid in port.gids}
    )
    its = replace(its, ovirt_networks=(OvirtNetwork("storage", netdev),))
    (found,) = made(told(facts=its)).hosts
    assert found.devices[0].ports[0].attached[0].network == "storage"


def test_a_port_has_its_neighbours_within_limits():
    """A host's report may be anything."""
    long = Neighbour("switch", "i" * 999, "n" * 999, None, "d" * 999, "eth0")
    its = facts()
    (device,) = its.rdma_devices
    port = replace(device.ports[0], neighbours=(long,) * 999)
    its = replace(its, rdma_devices=(replace(device, ports=(port,)),))
    (found,) = made(told(facts=its)).hosts
    neighbours = found.devices[0].ports[0].neighbours
    assert len(neighbours) == 200
    assert [neighbours[0].id, neighbours[0].name] == [f"{c * 255}..." for c in "in"]
    assert neighbours[0].description == f"{'d' * 255}..."


def test_odd_addresses_are_no_subnets():
    its = facts()
    netdevs = tuple(
        replace(n, addresses=("x", "fe80::1/64", "10.1.2.3/24", "::1/1000"))
        for n in its.netdevs
    )
    (found,) = made(told(facts=replace(its, netdevs=netdevs))).hosts
    attached = found.devices[0].ports[0].attached
    assert {one.subnets for one in attached} == {("10.1.2.0/24",)}


def test_a_host_of_another_data_center_has_no_cell():
    elsewhere = domain("far", data_center="d2")
    found = made(told(), domains=(domain(), elsewhere))
    assert [cell.verdict for cell in found.transports.cells[0]][1] == "none"
    assert found.domains[1].used == ()


def test_the_plan_is_the_hosts_own():
    (found,) = made(told()).hosts
    assert found.steps == ()


def test_a_degraded_mount_is_told_with_its_reason():
    its = facts(mount(EXPORT, "tcp"))
    place = its.nfs_mounts[0].mountpoint
    mark = DegradedMark(
        place,
        EXPORT,
        "nas",
        "prefer-rdma",
        "tcp",
        "no listener",
        since="2026-11-20T08:00:00Z",
        mounted_s=its.uptime_s - its.nfs_mounts[0].age_s,
    )
    (found,) = made(told(facts=replace(its, degraded_marks=(mark,)))).hosts
    (fallen,) = found.fallen
    assert (fallen.export, fallen.transport, fallen.rule) == (EXPORT, "tcp", "nas")
    assert (fallen.reason, fallen.since) == ("no listener", "2026-11-20T08:00:00Z")


def test_an_engine_without_hosts_is_a_report():
    found = made()
    assert (found.hosts, found.domains[0].used) == ((), ())
    assert verdict_text(found) == "The engine has no host."


def test_the_verdict_in_one_sentence():
    bad = made(told("hv1"), told("hv2", "tcp"), report("hv3"), report("hv4"))
    worst = [host.worst for host in bad.hosts]
    text = verdict_text(bad)
    assert text.startswith("Of 4 hosts, ")
    assert f"{worst.count(FAIL)} ha" in text
    assert worst.count(UNKNOWN) == 0 or "not known to be well" in text
    well = replace(bad, hosts=tuple(replace(h, worst="ok") for h in bad.hosts[:1]))
    mounted = "All is well: 1 host, and each domain is mounted as requested."
    for used, text in (
        ((("rdma", 1), ("tcp", 2)), mounted),
        ((), "All is well: 1 host."),
        ((("not mounted", 1),), "All is well: 1 host."),
        ((("rdma", 1), ("unproven", 1)), "All is well: 1 host."),
    ):
        domains = (replace(well.domains[0], used=used),)
        assert verdict_text(replace(well, domains=domains)) == text
    assert verdict_text(replace(well, domains=())) == "All is well: 1 host."
