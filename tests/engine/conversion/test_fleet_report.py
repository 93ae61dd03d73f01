# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the one value that planning makes of all reports."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from support.engine.told_hosts import (
    connection,
    domain,
    facts,
    host,
    mount,
    report,
    rules,
)
from support.engine.told_hosts import status as status_of

from ovirt_rdma.engine_sdk_tools.conversion.fleet import FleetReport, domain_record
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest
from ovirt_rdma.engine_sdk_tools.model import merged
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine

EXPORT = "nfs1.example.com:/exports/data1"
ROLLING = ConversionRequest("rdma", rolling=True)


def reported(name="hv1", *mounts, policy=""):
    its = facts(*(mounts or (mount(EXPORT, "tcp"),)))
    status = status_of(policy) if policy else status_of()
    return report(name, facts=its, status=status, policy_text=policy or None)


def fleet_of(hosts, reports, *names, to="rdma", without=()):
    records = [domain_record(domain(name), to) for name in names or ("data1",)]
    return records, FleetReport.of(hosts, reports, records, to=to, without=without)


def test_reports_come_in_any_order_and_hosts_stay_in_theirs():
    hosts = [host("hv2"), host("hv1"), host("hv3")]
    told = [reported("hv1"), reported("strange"), reported("hv2")]
    _, fleet = fleet_of(hosts, iter(told))
    assert list(fleet.observations) == ["hv2", "hv1"]
    assert [name for name, mute in fleet.each(lambda h: h.mute).items() if mute] == [
        "hv3"
    ]
    assert list(fleet.only([hosts[1]]).observations) == ["hv1"]


def test_of_a_report_little_is_kept():
    """There may be hundreds of hosts, each with thousands of mounts."""
    there = {"address": "192.0.2.99"}
    many = [mount(f"nfs2.example.com:/e/{n}", "tcp", **there) for n in range(2000)]
    its = reported("hv1", mount(EXPORT, "tcp"), *many)
    _, fleet = fleet_of([host()], [its])
    kept = fleet.each(lambda seen: (seen.observed, seen.domains, seen.force))
    assert len(pickle.dumps(kept)) < 5_000 < len(pickle.dumps(its)) / 20
    assert fleet.observations["hv1"].transports == {EXPORT: "tcp"}


def test_a_host_that_is_left_out_is_not_judged_by_its_report():
    request = replace(ROLLING, without=("hv1",))
    bad = report("hv1", problem="it cannot be reached")
    records, fleet = fleet_of([host()], [bad], without=request.without)
    started, objections = fleet.start(records, request)
    assert (objections, [record.left_out for record in started]) == ([], [True])
    records, fleet = fleet_of([host()], [bad])
    started, objections = fleet.start(records, ROLLING)
    assert [sentence.id for sentence in objections] == ["host-readiness-unknown"]
    assert "it cannot be reached" in objections[0]


def test_equal_objections_of_hosts_are_one_sentence():
    without = replace(facts(mount(EXPORT, "tcp")), rdma_devices=())
    hosts = [host(name) for name in ("hv1", "hv2")]
    told = [
        replace(reported(one.name, policy=TCP_RULES), facts=without) for one in hosts
    ]
    records, fleet = fleet_of(hosts, told)
    _, every = fleet.start(records, ROLLING)
    objections = merged(every)
    assert [one.id for one in objections] == ["host-not-ready"]
    assert objections[0].startswith("hv1, hv2: ")
    silent = [report(one.name, problem="no route") for one in hosts]
    records, fleet = fleet_of(hosts, silent)
    _, objections = fleet.start(records, ROLLING)
    # The fix names the host, so these stay apart.
    assert [one.partition(" ")[0] for one in objections] == ["hv1", "hv2"]


def test_only_what_is_converted_counts_as_remounted():
    """data2 keeps its mount over TCP, and with it the connection that data1 would
    use; together they are converted.
    """
    other = EXPORT.replace("data1", "data2")
    its = reported("hv1", mount(EXPORT, "tcp"), mount(other, "tcp"), policy=TCP_RULES)
    records, fleet = fleet_of([host()], [its], "data1", "data2")
    _, objections = fleet.start(records, ROLLING)
    assert "server-connection-shared" not in {one.id for one in objections}
    alone = fleet.for_domains([records[0].id])
    _, objections = alone.start(records, ROLLING)
    (sentence,) = (o for o in objections if o.id == "server-connection-shared")
    assert other in sentence


TCP_RULES = rules("tcp")


def test_a_bug_of_ours_is_that_hosts_and_a_problem_is_everybodys():
    _, fleet = fleet_of([host("hv1"), host("hv2")], [reported("hv1"), reported("hv2")])

    def fails(seen):
        if seen.host.name == "hv1" and not seen.mute:
            raise LookupError("no such thing")
        return seen.observed.problem

    found = fleet.each(fails)
    assert "a bug of ovirt-rdma: LookupError: no such thing" in found["hv1"]
    assert found["hv2"] == ""
    with pytest.raises(Problem):
        fleet.each(lambda _: (_ for _ in ()).throw(Problem("some-id", "a sentence")))


def test_without_a_transport_hosts_are_only_observed():
    _, fleet = fleet_of([host()], [reported()], to="rdma")
    _, seen = fleet_of([host()], [reported()])
    assert connection().export == EXPORT
    assert seen.observations == fleet.observations
    observed = FleetReport.of([host()], [reported()], [domain_record(domain(), "rdma")])
    assert observed.observations == fleet.observations
    assert observed.each(lambda one: one.domains) == {"hv1": ()}
