# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the engine's tools make of the network paths and the health that a host
reports.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.told_hosts import (
    SERVER,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
)
from support.engine.told_hosts import status as told_status
from support.storage.sample_paths import FIRST, GONE, HALF, LEFT, SECOND, WHOLE

from ovirt_rdma.engine_sdk_tools.domains.transport import transports_in_use
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    health_cell,
    health_of,
    paths_cell,
    paths_of,
    with_health,
    with_paths,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.storage.health.state import HealthState, MountHealth
from ovirt_rdma.storage.paths.state import DOWN, UNPROVEN, PathsState

pytestmark = pytest.mark.engine

OWN = "on the host: ovirt-rdma-host nfs paths"
ODD = "the host reports its paths in a form that is unknown here"
DEAD = replace(WHOLE, paths=(GONE, replace(SECOND, state=DOWN)))
NEVER_TRIED = replace(WHOLE, paths=(FIRST, replace(SECOND, state=UNPROVEN)))
BLOCKED = replace(WHOLE, problem="no dstaddr", fix="update")


def part(*servers):
    return plain(PathsState(0, 0, servers))


def told(*servers):
    return HostReport("hv1", status={"paths": part(*servers)})


@pytest.mark.parametrize(
    ("report", "verdict", "text", "sentence", "fix"),
    [
        (HostReport("h", problem="silent", fix="x"), UNKNOWN, "unknown", "silent", "x"),
        (HostReport("h", status={}), NONE, "-", "keeps no state", ""),
        (HostReport("h", status={"paths": None}), NONE, "-", "keeps no state", ""),
        (told(), NONE, "-", "keeps no state", ""),
        (told(WHOLE), OK, "2 of 2", "all paths are up", ""),
        (
            told(WHOLE, HALF),
            WARN,
            "3 of 4",
            "nas1: 10.98.0.1 is down: ib0 has no carrier; connections on another",
            "check its cable",
        ),
        (told(NEVER_TRIED), WARN, "1 of 2", "nas2: 10.97.0.1 is unproven", OWN),
        (
            told(BLOCKED),
            WARN,
            "2 of 2",
            "connections cannot be moved: no dstaddr",
            "update",
        ),
        (told(replace(WHOLE, away=1)), WARN, "2 of 2", "their own: 1 of 4", OWN),
        (told(HALF, DEAD), FAIL, "1 of 4", "nas2: 10.98.0.1 is down", "check its"),
    ],
)
def test_the_paths_of_a_host(report, verdict, text, sentence, fix):
    cell = paths_cell(report)
    assert (cell.verdict, cell.text) == (verdict, text)
    assert sentence in cell.sentence
    assert cell.fix == fix if not fix else cell.fix.startswith(fix)


GOOD = Cell(OK, "rdma", "data1 runs over rdma")
SLOW = Cell(WARN, "rdma, slow", "slow", "look")
BAD = Cell(FAIL, "tcp", "data1 runs over tcp", "heal")


@pytest.mark.parametrize(
    ("cell", "server", "verdict", "text", "fix"),
    [
        (GOOD, HALF, WARN, "rdma, 1 of 2 paths", "check its cable"),
        (GOOD, NEVER_TRIED, WARN, "rdma, 1 of 2 paths", OWN),
        (GOOD, DEAD, FAIL, "rdma, 0 of 2 paths", "check its cable"),
        (SLOW, HALF, WARN, "rdma, slow, 1 of 2 paths", "look"),
        # The wrong transport is worse.
        (BAD, HALF, FAIL, "tcp", "heal"),
    ],
)
def test_the_paths_of_a_domain(cell, server, verdict, text, fix):
    found = with_paths(cell, server)
    assert (found.verdict, found.text, found.fix) == (verdict, text, fix)
    assert found.sentence.startswith(f"{cell.sentence}; nas")


@pytest.mark.parametrize("server", [None, WHOLE])
def test_with_all_paths_a_cell_is_unchanged(server):
    assert with_paths(GOOD, server) is GOOD


def test_a_domain_has_the_paths_of_its_export():
    export, policy = f"{SERVER}:/exports/data1", rules("require-rdma")
    its = report(facts=facts(mount(export, "rdma")), policy_text=policy)

    def text(server):
        status = {**told_status(policy), "paths": part(server)}
        used = transports_in_use(host(), replace(its, status=status), [domain()])
        return used[0].cell.text

    assert text(HALF) == "rdma"
    assert text(replace(HALF, exports=(export,))) == "rdma, 1 of 2 paths"


def matrix(*parts):
    hosts = [host(f"hv{number}") for number, _ in enumerate(parts)]
    reports = [
        report(one.name, status={**told_status(), "paths": its})
        for one, its in zip(hosts, parts)
    ]
    rows = [check.row_of(h, its, None) for h, its in zip(hosts, reports)]
    return check.check(engine(*hosts), rows, None)


def test_hosts_have_the_column_if_one_has_paths():
    without = matrix(None, None)
    assert [column.name for column in without.columns] == list(check.COLUMNS[:-1])
    assert {len(cells) for cells in without.cells} == {len(check.COLUMNS) - 1}
    found = matrix(None, part(HALF), part(WHOLE))
    assert [column.name for column in found.columns] == list(check.COLUMNS)
    cells = [row[-1] for row in found.cells]
    assert [cell.verdict for cell in cells] == [NONE, WARN, OK]


def failures(*parts):
    found = check.failures(matrix(*parts))
    return {one.name: one for one in found if check.PATHS in one.checks}


def test_a_path_that_is_down_is_a_failure_that_warns():
    found = failures(part(HALF), part(WHOLE), part(DEAD))
    assert list(found) == ["hv0", "hv2"]
    assert "10.98.0.1 is down: ib0 has no carrier" in found["hv0"].text
    assert "(fix: check its cable)" in found["hv0"].text


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        ({"in a later version": 1}, False),
        ({"exports": 1}, True),
        ({"paths": 1}, True),
        ({"paths": [1]}, True),
        ({"paths": [{**plain(LEFT), "state": "odd"}]}, True),
        ({"paths": [{**plain(LEFT), "sentence": "x" * 501}]}, True),
        ({"last": 1}, True),
        ({"moves": True}, True),
    ],
)
def test_another_form_of_paths_is_not_taken_for_good(change, odd):
    data = {**plain(WHOLE), **change}
    its = HostReport("hv1", status={"paths": {"servers": [data]}})
    cell = paths_cell(its)
    assert (cell.verdict, ODD in cell.sentence) == (
        (WARN, True) if odd else (OK, False)
    )


def anything(*keys):
    """Return what JSON can be, with these keys."""
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.sampled_from(["down", "dead"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(keys), inner, max_size=4)
        ),
        max_leaves=12,
    )


@given(anything("servers", "paths", "exports", "state", "last"))
def test_any_paths_have_a_cell(data):
    its = HostReport("hv1", status={"paths": data})
    assert paths_cell(its).verdict in (NONE, WARN)
    for one in paths_of(its):
        assert with_paths(GOOD, one).verdict == WARN


# -- health


def health_of_mount(state, name="a", **more):
    return MountHealth(f"nas:/{name}", f"/mnt/{name}", "rdma", "4.2", state, **more)


def watched(*mounts):
    return HostReport("hv1", status={"health": plain(HealthState(0, 0, 10, mounts))})


HUNG = health_of_mount(
    "stalled", cause="server", certain=False, sentence="silent", fix="start it"
)


@pytest.mark.parametrize(
    ("report", "verdict", "text", "sentence", "fix"),
    [
        (
            HostReport("hv1", problem="no answer", fix="look"),
            UNKNOWN,
            "unknown",
            "no answer",
            "look",
        ),
        (HostReport("hv1", status={}), NONE, "-", "nobody watches its mounts", ""),
        (HostReport("hv1", status={"health": None}), NONE, "-", "nobody watches", ""),
        (watched(), OK, "ok", "NFS mounts that answer: 0", ""),
        (
            watched(health_of_mount("ok"), health_of_mount("ok", "b")),
            OK,
            "ok",
            "NFS mounts that answer: 2",
            "",
        ),
        (
            watched(health_of_mount("ok"), HUNG),
            FAIL,
            "1 stalled",
            "nas:/a is stalled (probably server): silent",
            "start it",
        ),
        (
            watched(
                health_of_mount("slow", cause="path", sentence="late"),
                health_of_mount("dead", "b"),
            ),
            FAIL,
            "1 dead",
            "nas:/b is dead: ",
            "on the host: ovirt-rdma-host nfs health",
        ),
        (
            watched(
                health_of_mount("slow", cause="path", sentence="late"),
                health_of_mount("unknown", "b"),
            ),
            WARN,
            "1 slow",
            "nas:/a is slow (path): late",
            "on the host: ovirt-rdma-host nfs health",
        ),
        (
            watched(health_of_mount("unknown")),
            UNKNOWN,
            "1 unknown",
            "nas:/a is unknown",
            "on the host",
        ),
        (watched(*[HUNG] * 5), FAIL, "5 stalled", "silent and 2 more", "start it"),
    ],
)
def test_the_health_of_a_host(report, verdict, text, sentence, fix):
    cell = health_cell(report)
    assert (cell.verdict, cell.text) == (verdict, text)
    assert sentence in cell.sentence
    assert cell.fix.startswith(fix)


WHERE = ("nas:/a", "/mnt/a")


@pytest.mark.parametrize(
    ("cell", "state", "verdict", "text", "fix"),
    [
        (GOOD, "ok", OK, "rdma", ""),
        (GOOD, "stalled", FAIL, "rdma, stalled", "start it"),
        (GOOD, "dead", FAIL, "rdma, dead", "start it"),
        (GOOD, "slow", WARN, "rdma, slow", "start it"),
        (GOOD, "unknown", UNKNOWN, "rdma, unknown", "start it"),
        (BAD, "dead", FAIL, "tcp, dead", "start it"),
        # The wrong transport is worse, and its fix stays.
        (BAD, "slow", FAIL, "tcp", "heal"),
    ],
)
def test_the_health_of_a_domain(cell, state, verdict, text, fix):
    what = ("server", True, "id", "why", "start it")
    health = MountHealth(*WHERE, "rdma", "4.2", state, *what)
    found = with_health(cell, health)
    assert (found.verdict, found.text, found.fix) == (verdict, text, fix)
    assert found.sentence.startswith(cell.sentence)
    assert ("why" in found.sentence) is (state != "ok")


def test_without_health_a_cell_is_unchanged():
    assert with_health(GOOD, None) is GOOD


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        ({"in a later version": 1}, False),
        ({"state": "of a later version"}, True),
        ({"state": None}, True),
        ({"sentence": 1}, True),
        ({"sentence": "x" * 501}, False),
        ({"certain": "yes"}, True),
    ],
)
def test_another_form_of_health_is_unknown_and_not_left_out(change, odd):
    report = watched(health_of_mount("ok", "b"))
    its = {**plain(health_of_mount("ok")), **change}
    report.status["health"]["mounts"].append(its)
    assert health_cell(report).verdict == (UNKNOWN if odd else OK)
    _, health = health_of(report)
    assert health.mountpoint == "/mnt/a"
    assert len(health.sentence) <= 500
    assert with_health(GOOD, health).verdict == (UNKNOWN if odd else OK)


@given(anything("mounts", "state", "export", "cause", "fix"))
def test_any_health_has_a_cell(data):
    report = HostReport("hv1", status={"health": data})
    assert health_cell(report).verdict in (OK, WARN, FAIL, UNKNOWN, NONE)
    for one in health_of(report) or ():
        assert with_health(GOOD, one).text
