# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what the engine's tools make of the health that a host reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    health_cell,
    health_of,
    with_health,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.storage.health.state import HealthState, MountHealth

pytestmark = pytest.mark.engine


def mount(state, name="a", **more):
    return MountHealth(f"nas:/{name}", f"/mnt/{name}", "rdma", "4.2", state, **more)


def told(*mounts):
    return HostReport("hv1", status={"health": plain(HealthState(0, 0, 10, mounts))})


SILENT = HostReport("hv1", problem="no answer", fix="look")
HUNG = mount(
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
        (told(), OK, "ok", "NFS mounts that answer: 0", ""),
        (
            told(mount("ok"), mount("ok", "b")),
            OK,
            "ok",
            "NFS mounts that answer: 2",
            "",
        ),
        (
            told(mount("ok"), HUNG),
            FAIL,
            "1 stalled",
            "nas:/a is stalled (probably server): silent",
            "start it",
        ),
        (
            told(mount("slow", cause="path", sentence="late"), mount("dead", "b")),
            FAIL,
            "1 dead",
            "nas:/b is dead: ",
            "on the host: ovirt-rdma-host nfs health",
        ),
        (
            told(mount("slow", cause="path", sentence="late"), mount("unknown", "b")),
            WARN,
            "1 slow",
            "nas:/a is slow (path): late",
            "on the host: ovirt-rdma-host nfs health",
        ),
        (
            told(mount("unknown")),
            UNKNOWN,
            "1 unknown",
            "nas:/a is unknown",
            "on the host",
        ),
        (told(*[HUNG] * 5), FAIL, "5 stalled", "silent and 2 more", "start it"),
        (
            HostReport("hv1", status={"health": {"mounts": [{"state": "ok"}]}}),
            UNKNOWN,
            "1 unknown",
            "the host reports its health in a form that is unknown here",
            "on the host",
        ),
    ],
)
def test_the_cell_of_a_host(report, verdict, text, sentence, fix):
    cell = health_cell(report)
    assert (cell.verdict, cell.text) == (verdict, text)
    assert sentence in cell.sentence
    assert cell.fix.startswith(fix)


WHERE = ("nas:/a", "/mnt/a")
GOOD = Cell(OK, "rdma", "data1 runs over rdma")
BAD = Cell(FAIL, "tcp", "data1 runs over tcp", "heal")


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
def test_the_cell_of_a_domain(cell, state, verdict, text, fix):
    what = ("server", True, "id", "why", "start it")
    health = MountHealth(*WHERE, "rdma", "4.2", state, *what)
    found = with_health(cell, health)
    assert (found.verdict, found.text, found.fix) == (verdict, text, fix)
    assert found.sentence.startswith(cell.sentence)
    assert ("why" in found.sentence) is (state != "ok")


def test_without_health_a_cell_is_unchanged():
    assert with_health(GOOD, None) is GOOD


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("dead"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mounts", "state", "export", "cause", "fix"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_any_report_has_a_cell(data):
    report = HostReport("hv1", status={"health": data})
    assert health_cell(report).verdict in (OK, WARN, FAIL, UNKNOWN, NONE)
    for one in health_of(report) or ():
        assert with_health(GOOD, one).text
