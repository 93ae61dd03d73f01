# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what planning makes of all reports."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from support.engine.told_hosts import (
    domain,
    facts,
    host,
    mount,
    report,
    rules,
)
from support.engine.told_hosts import status as status_of

from ovirt_rdma.engine_sdk_tools.conversion.fleet import domain_record, observe, of_each
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


def started(hosts, reports, *names, request=ROLLING, checked=None):
    records = [domain_record(domain(name), "rdma") for name in names or ("data1",)]
    checked = [one for one in records if one.name in checked] if checked else None
    return of_each(hosts, reports, lambda h: h.started(records, request, checked))


def objections(*words, **more):
    return [why for one in started(*words, **more).values() for why in one.objections]


def test_reports_come_in_any_order_and_hosts_stay_in_theirs():
    hosts = [host("hv2"), host("hv1"), host("hv3")]
    told = [reported("hv1"), reported("strange"), reported("hv2")]
    found = of_each(hosts, iter(told), lambda seen: bool(seen.problem))
    assert list(found.items()) == [("hv2", False), ("hv1", False), ("hv3", True)]


def test_of_a_report_little_is_kept():
    """There may be hundreds of hosts, each with thousands of mounts."""
    there = {"address": "192.0.2.99"}
    many = [mount(f"nfs2.example.com:/e/{n}", "tcp", **there) for n in range(2000)]
    its = reported("hv1", mount(EXPORT, "tcp"), *many)
    kept = started([host()], [its])
    assert len(pickle.dumps(kept)) < 5_000 < len(pickle.dumps(its)) / 20
    assert kept["hv1"].observed.transports == {EXPORT: "tcp"}
    records = [domain_record(domain(), "rdma")]
    assert observe([host()], [its], records) == {"hv1": kept["hv1"].observed}


def test_a_host_that_is_left_out_is_not_judged_by_its_report():
    bad = report("hv1", problem="it cannot be reached")
    request = replace(ROLLING, without=("hv1",))
    one = started([host()], [bad], request=request)["hv1"]
    assert (list(one.objections), one.record.left_out) == ([], True)
    (objection,) = objections([host()], [bad])
    assert objection.id == "host-readiness-unknown"
    assert "it cannot be reached" in objection


def test_equal_objections_of_hosts_are_one_sentence():
    without = replace(facts(mount(EXPORT, "tcp")), rdma_devices=())
    hosts = [host(name) for name in ("hv1", "hv2")]
    told = [
        replace(reported(one.name, policy=TCP_RULES), facts=without) for one in hosts
    ]
    (objection,) = merged(objections(hosts, told))
    assert objection.id == "host-not-ready"
    assert objection.startswith("hv1, hv2: ")
    silent = [report(one.name, problem="no route") for one in hosts]
    # The fix names the host, so these stay apart.
    found = merged(objections(hosts, silent))
    assert [one.partition(" ")[0] for one in found] == ["hv1", "hv2"]


def test_only_what_is_converted_counts_as_remounted():
    """data2 keeps its mount over TCP, and with it the connection that data1 would
    use; together they are converted.
    """
    other = EXPORT.replace("data1", "data2")
    its = reported("hv1", mount(EXPORT, "tcp"), mount(other, "tcp"), policy=TCP_RULES)
    both = objections([host()], [its], "data1", "data2")
    assert "server-connection-shared" not in {one.id for one in both}
    alone = objections([host()], [its], "data1", "data2", checked=("data1",))
    (sentence,) = (o for o in alone if o.id == "server-connection-shared")
    assert other in sentence


TCP_RULES = rules("tcp")


def test_a_bug_of_ours_is_that_hosts_and_a_problem_is_everybodys():
    hosts, reports = [host("hv1"), host("hv2")], [reported("hv1"), reported("hv2")]

    def fails(seen):
        if seen.host.name == "hv1" and not seen.problem:
            raise LookupError("no such thing")
        return seen.problem

    found = of_each(hosts, reports, fails)
    assert "a bug of ovirt-rdma: LookupError: no such thing" in found["hv1"]
    assert found["hv2"] == ""
    with pytest.raises(Problem):
        of_each(
            hosts, reports, lambda _: (_ for _ in ()).throw(Problem("some-id", "no"))
        )
