# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the file by which others learn of the mounts' health."""

from __future__ import annotations

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import HEALTH_JSON, under
from ovirt_rdma.storage.health.state import (
    DEAD,
    OK,
    SERVER,
    SLOW,
    STALLED,
    UNKNOWN,
    HealthState,
    MountHealth,
    read_state,
    remove_state,
    write_state,
)

MOUNT = MountHealth(
    "nas1:/export/vm",
    "/rhev/data-center/mnt/nas1:_export_vm",
    "rdma",
    "4.2",
    STALLED,
    SERVER,
    False,
    "server-silent",
    "nas1 does not answer",
    "start it",
    ("no answer within 2 s",),
    1700000000.5,
    None,
)
STATE = HealthState(1700000030.0, 500.0, 10.0, (MOUNT,), ("/proc/x cannot be read",))


def test_what_was_written_is_read_back(tmp_path):
    write_state(tmp_path, STATE)
    path = under(tmp_path, HEALTH_JSON)
    assert read_state(tmp_path, now_s=505.0) == STATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [child.name for child in path.parent.iterdir()] == ["health.json"]
    document = json.loads(path.read_text())
    assert (document["schema_version"], document["kind"]) == (1, "health")


@pytest.mark.parametrize(
    ("now_s", "said"),
    [
        (500.0, ""),
        # Two intervals of 10 s, and a look that takes 15 s.
        (535.0, ""),
        (536.0, f"{HEALTH_JSON} is stale, so the health is unknown"),
        # The host has booted since: its clock since boot is behind.
        (20.0, f"{HEALTH_JSON} is stale, so the health is unknown"),
    ],
)
def test_an_old_file_says_nothing(tmp_path, now_s, said):
    write_state(tmp_path, STATE)
    problems = []
    state = read_state(tmp_path, problems, now_s)
    assert (state is None, problems) == (bool(said), [said] if said else [])


def test_without_the_unit_there_is_no_state(tmp_path):
    problems = []
    assert read_state(tmp_path, problems) is None
    write_state(tmp_path, STATE)
    remove_state(tmp_path)
    remove_state(tmp_path)
    assert read_state(tmp_path, problems) is None
    assert problems == []


def test_a_file_that_cannot_be_written_is_a_problem(tmp_path):
    (tmp_path / "run").write_text("no folder")
    with pytest.raises(Problem, match=r"health\.json"):
        write_state(tmp_path, STATE)


@given(st.binary(max_size=200))
def test_any_bytes_are_one_sentence(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("root")
    path = under(root, HEALTH_JSON)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    problems = []
    assert read_state(root, problems) is None
    assert len(problems) == 1
    assert problems[0].startswith(f"{HEALTH_JSON} is invalid and is ignored: ")


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ([], OK),
        ([OK, OK], OK),
        ([OK, UNKNOWN], UNKNOWN),
        ([UNKNOWN, SLOW], SLOW),
        ([SLOW, STALLED, OK], STALLED),
        ([DEAD, STALLED], DEAD),
    ],
)
def test_the_worst_mount_counts(states, worst):
    mounts = tuple(MountHealth(f"s:/{s}", f"/{s}", "rdma", "3", s) for s in states)
    assert HealthState(0.0, 0.0, 0.0, mounts).worst == worst
