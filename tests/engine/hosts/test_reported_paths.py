# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the engine's tools make of the network paths that a host reports."""

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
    paths_cell,
    paths_of,
    with_paths,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.host.system.json_codec import plain
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
        (told(BLOCKED), WARN, "2 of 2", "can be moved: no dstaddr", "update"),
        (told(replace(WHOLE, away=1)), WARN, "2 of 2", "their own: 1 of 4", OWN),
        (told(HALF, DEAD), FAIL, "1 of 4", "nas2: 10.98.0.1 is down", "check its"),
    ],
)
def test_the_cell_of_a_host(report, verdict, text, sentence, fix):
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
def test_the_cell_of_a_domain(cell, server, verdict, text, fix):
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
def test_another_form_is_not_taken_for_good(change, odd):
    data = {**plain(WHOLE), **change}
    its = HostReport("hv1", status={"paths": {"servers": [data]}})
    cell = paths_cell(its)
    assert (cell.verdict, ODD in cell.sentence) == (
        (WARN, True) if odd else (OK, False)
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("down"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["servers", "paths", "exports", "state", "last"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_any_report_has_a_cell(data):
    its = HostReport("hv1", status={"paths": data})
    assert paths_cell(its).verdict in (NONE, WARN)
    for one in paths_of(its):
        assert with_paths(GOOD, one).verdict == WARN
