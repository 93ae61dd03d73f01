# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import contextlib
import json
import stat
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host.collect.storage import marks_from_json, marks_to_json
from ovirt_rdma.host.facts.model import DegradedMark, from_json_dict, to_json_dict
from ovirt_rdma.host.paths import DEGRADED_JSON, RUN_MOUNTS

# Surrogates are what bytes that are not UTF-8 become.
texts = st.text(max_size=4) | st.just("\udcff")
times = st.datetimes(datetime(1970, 1, 1)).map(lambda one: f"{one:%Y-%m-%dT%H:%M:%S}Z")
marks = st.builds(
    DegradedMark,
    *[texts] * 7,
    since=st.none() | times,
    mounted_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
MARK = DegradedMark("/m", "s:/e", "r", "prefer-rdma", "tcp", "why", mounted_s=1.5)


@given(st.lists(marks, max_size=3).map(tuple))
def test_round_trip(found):
    data = marks_to_json(found)
    assert data.isascii()
    assert marks_from_json(data) == found


def changed(**keys):
    whole = json.loads(marks_to_json([MARK]))
    whole["mounts"][0].update(keys)
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "it is not JSON: column 1"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "kind is missing, not 'degraded-mounts'"),
        (b"[]", "it is an array, not an object"),
        (
            marks_to_json([]).replace(b": 1", b": 2"),
            r"a newer version of ovirt-rdma \(schema version 2; ",
        ),
        (marks_to_json([]).replace(b"[]", b"{}"), "mounts is an object, not an array"),
        (changed(colour=1), "colour is not a key of a mark"),
        (
            marks_to_json([MARK]).replace(b'"export"', b'"what"'),
            "what is not a key of a mark",
        ),
        (changed(reason=None), "reason is null, not a string"),
        (changed(mounted_s="1"), "mounted_s is a string, not a number"),
        (changed(mounted_s=True), "mounted_s is true or false, not a number"),
        (changed(mounted_s=float("nan")), "it is not JSON: it has NaN"),
        (changed(mounted_s=10**400), "it has a number with too many digits"),
    ],
)
def test_what_is_no_such_file(data, words):
    with pytest.raises(ValueError, match=words):
        marks_from_json(data)


@given(st.binary(max_size=60))
def test_any_bytes(data):
    with contextlib.suppress(ValueError):
        marks_from_json(data)


def test_the_host_is_read_with_its_marks(tmp_path):
    root = FakeRoot(tmp_path)
    assert root.reader().facts().problems == ()
    root.write(DEGRADED_JSON, marks_to_json([MARK]))
    facts = root.reader().facts()
    assert (facts.degraded_marks, facts.problems) == ((MARK,), ())
    assert from_json_dict(to_json_dict(facts), "here") == facts
    root.write(DEGRADED_JSON, "{")
    facts = root.reader().facts()
    assert facts.degraded_marks == ()
    assert facts.problems[0].startswith(f"{DEGRADED_JSON} is invalid and is ignored: ")
    root.unreadable(DEGRADED_JSON)
    assert "cannot be read" in root.reader().facts().problems[0]


def test_the_time_of_boot(tmp_path, problems):
    root = FakeRoot(tmp_path)
    root.booted_at(1_800_000_000)
    assert root.reader().booted_at() == 1_800_000_000
    root.write("/proc/stat", "cpu 1\nbtime soon")
    assert root.reader().booted_at(problems) is None
    assert problems == ["/proc/stat has no btime"]


def test_the_package_makes_the_folder_for_vdsmd():
    conf = Path(__file__).parents[3] / "storage/tmpfiles.d/ovirt-rdma.conf"
    lines = [line.split() for line in conf.read_text().splitlines()]
    (made,) = [line for line in lines if line[1:2] == [RUN_MOUNTS]]
    assert made[:1] + made[2:5] == ["d", "0755", "vdsm", "kvm"]
    assert stat.S_IMODE(conf.stat().st_mode) == 0o644
