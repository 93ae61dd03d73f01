# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the marks themselves; test_degraded_connect tests what sets and drops them."""

from __future__ import annotations

import threading

import pytest

from ovirt_rdma.host.collect.storage import marks_from_json
from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.storage.mounts import DegradedMarks, utc_time

UPTIME_S = 1000.0


def mount(name, age_s=10):
    return NfsMount(f"s:/{name}", f"/mnt/{name}", "rw", age_s=age_s)


def mark(name, mounted_s=UPTIME_S - 10):
    return DegradedMark(
        f"/mnt/{name}", f"s:/{name}", "r", "prefer-rdma", "tcp", "why",
        mounted_s=mounted_s,
    )  # fmt: skip


def test_a_mark_that_is_set_meanwhile_is_kept(tmp_path):
    path = tmp_path / "degraded.json"
    marks = DegradedMarks(path)
    other = threading.Thread(
        target=marks.put, args=(mark("b"), lambda: [mount("a"), mount("b")], UPTIME_S)
    )

    def before_b_was_mounted():
        other.start()
        other.join(0.2)
        return [mount("a")]

    marks.put(mark("a"), before_b_was_mounted, UPTIME_S)
    other.join(10)
    assert {m.export for m in marks_from_json(path.read_bytes())} == {"s:/a", "s:/b"}


def test_many_at_once_lose_nothing(tmp_path):
    path = tmp_path / "degraded.json"
    marks = DegradedMarks(path)
    names = [str(number) for number in range(20)]
    mounts = [mount(name) for name in names]
    threads = [
        threading.Thread(target=marks.put, args=(mark(n), lambda: mounts, UPTIME_S))
        for n in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(marks_from_json(path.read_bytes())) == 20
    assert [child.name for child in tmp_path.iterdir()] == ["degraded.json"]


def test_nothing_is_written_where_there_is_nothing_to_drop(tmp_path):
    DegradedMarks(tmp_path / "degraded.json").drop("/mnt/a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "age_s, uptime_s, mine",
    [
        (10, UPTIME_S, True),
        (9, UPTIME_S, True),  # ages are whole seconds
        (3610, UPTIME_S + 3600, True),
        (0, UPTIME_S, False),  # remounted in the same place
        (20, UPTIME_S, False),
        (None, UPTIME_S, True),  # a kernel that shows no age
        (10, 0.0, True),  # an uptime that cannot be read
    ],
)
def test_a_mount_is_told_from_its_predecessor_by_its_time(age_s, uptime_s, mine):
    marks = DegradedMarks()
    marks.put(mark("a"), list, UPTIME_S)
    assert (marks.of(mount("a", age_s), uptime_s) is not None) is mine
    assert marks.of(mount("b", age_s), uptime_s) is None


def test_times_for_people():
    assert utc_time(1_700_000_000, 60.9) == "2023-11-14T22:14:20Z"
    assert utc_time(None, 1.0) is None
    assert utc_time(0, None) is None
    assert utc_time(10**30, 1.0) is None


def test_marks_are_written_when_their_folder_comes(tmp_path):
    path = tmp_path / "mounts" / "degraded.json"
    marks = DegradedMarks(path)
    marks.put(mark("a"), lambda: [mount("a")], UPTIME_S)
    path.parent.mkdir()
    assert marks.of(mount("a"), UPTIME_S) == mark("a")
    assert marks_from_json(path.read_bytes()) == (mark("a"),)
