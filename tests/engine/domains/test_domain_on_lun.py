# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain create --type fcp``: a domain on one LUN that SRP has logged in to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double.faults import AnswerLost, Conflict
from engine_double.luns import SimLun, luns_of
from support.engine.refusals import refused_for

from ovirt_rdma.engine_sdk_tools.api.progress import NoProgress
from ovirt_rdma.engine_sdk_tools.domains.create import create_on_lun
from ovirt_rdma.engine_sdk_tools.domains.lun_plan import (
    LunRequest,
    plan_lun_domain,
    read_luns,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.undo import RolledBack

pytestmark = pytest.mark.engine

WWID = "36001405aaaaaaaaaaaaaaaaaaaaaaa00"
REQUEST = LunRequest("new", WWID, "dc1")


@pytest.fixture
def lun(double):
    found = SimLun(WWID)
    luns_of(double.world).update({WWID: found, "3600other": SimLun("3600other")})
    return found


def planned(session, **changes):
    engine = read_engine(session)
    up = [host for host in engine.hosts if host.status == "up"]
    luns = read_luns(session, up, next((h for h in up if h.spm == "spm"), None))
    return plan_lun_domain(engine, luns, replace(REQUEST, **changes))


def made(session):
    return create_on_lun(session, planned(session), NoProgress())


def names(double):
    return [domain.name for domain in double.world.domains.values()]


def test_it_is_active_on_its_lun(session, double, lun):
    result = made(session)
    domain = double.world.domain("new")
    assert (domain.id, domain.status, domain.storage_type) == (
        result.id,
        "active",
        "fcp",
    )
    assert (lun.domain, result.made, result.exit_code) == (domain.id, True, 0)
    assert luns_of(double.world)["3600other"].domain is None


def test_a_second_run_has_nothing_to_do(session, double, lun):
    first = made(session)
    before = len(double.changes())
    second = made(session)
    assert (second.id, second.made) == (first.id, False)
    assert len(double.changes()) == before


def test_a_run_that_was_killed_is_continued(session, double, lun):
    session.perform(planned(session).adding(""))
    made(session)
    assert double.world.domain("new").status == "active"
    assert names(double).count("new") == 1


def test_an_answer_that_is_lost_is_looked_up(session, double, lun):
    double.fail_next("POST", "^/storagedomains$", AnswerLost())
    made(session)
    assert double.world.domain("new").status == "active"


def test_what_was_made_is_rolled_back(session, double, lun):
    double.fail_next("POST", "^/datacenters/.*/storagedomains$", Conflict("no"))
    with pytest.raises(RolledBack):
        made(session)
    assert "new" not in names(double)
    assert (lun.domain, lun.status) == (None, "free")


def test_a_lun_of_another_domain_is_refused_with_its_name(session, double, lun):
    lun.domain = next(iter(double.world.domains))
    lun.status = "used"
    name = double.world.domains[lun.domain].name
    with refused_for("lun-in-domain", WWID, name) as caught:
        planned(session)
    assert len(caught.value.reasons) == 1
    assert double.changes() == []


@pytest.mark.parametrize(
    ("changes", "id", "arguments"),
    [
        ({"disk": "d1", "status": "used"}, "lun-in-disk", ("d1",)),
        ({"type": "iscsi"}, "lun-type", ("iscsi", "iSER", "over TCP")),
        ({"status": "used"}, "lun-not-empty", ("wipefs",)),
        ({"status": "unusable"}, "lun-not-empty", ("unusable",)),
        ({"without": ("host02",)}, "lun-not-on-host", ("host02",)),
        ({"without": ("host01", "host02", "host03")}, "lun-unknown", (WWID,)),
    ],
)
def test_a_lun_that_cannot_be_used_is_refused(
    session, double, lun, changes, id, arguments
):
    for name, value in changes.items():
        setattr(lun, name, value)
    with refused_for(id, *arguments) as caught:
        planned(session)
    assert [one.id for one in caught.value.reasons] == [id]


def test_the_name_of_another_domain_is_refused(session, double, lun):
    with refused_for("domain-exists", "data1"):
        planned(session, name="data1")


@pytest.mark.parametrize(("paths", "said"), [(1, "has 1 active"), (0, "has no active")])
def test_few_paths_and_a_host_that_was_not_asked_are_warnings(
    session, double, lun, paths, said
):
    lun.paths = paths
    double.world.host("host03").status = "maintenance"
    warnings = planned(session).warnings
    assert said in warnings[0]
    assert "host03" in warnings[1]


@pytest.mark.parametrize(("number", "said"), [(1, "by 1 host"), (3, "by 3 hosts")])
def test_the_plan_counts_the_hosts(session, double, lun, number, said):
    plan = planned(session)
    shown = replace(plan, hosts=plan.hosts[:number]).lines
    assert shown[-1].endswith(f"used {said}")


def test_only_the_host_that_creates_tries_each_lun(session, double):
    """Elsewhere it is enough that the LUN is offered."""
    luns_of(double.world)["lun1"] = SimLun("lun1")
    hosts = read_engine(session).hosts
    luns = read_luns(session, hosts, hosts[1])
    asked = [r for r in double.requests if r.path.endswith("/storage")]
    tried = [r.path for r in asked if r.query["report_status"] == "true"]
    assert tried == [f"/hosts/{hosts[1].id}/storage"]
    assert len(asked) == len(luns) == len(hosts)
    assert [luns[host.id][0].status for host in hosts[:2]] == [None, "free"]
