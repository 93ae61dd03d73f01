# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse what fio 3.33 and the kernel print, whole, cut off, and odd."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import problem

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.statistics import Statistics
from ovirt_rdma.storage.benchmark import measure
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
)
from ovirt_rdma.storage.benchmark.verdict import Moment

READ = Load(RANDOM_READ, 4096, 32)
WRITE = Load(SEQUENTIAL_WRITE, 1 << 20, 32)


def _side(rate, percentiles=True):
    found = {
        "50.000000": 987136,
        "90.000000": 4079616,
        "99.000000": 11075584,
        "99.900000": 13041664,
    }
    return {
        "bw_bytes": rate,
        "iops": 15174.603175,
        "clat_ns": {"min": 1, "percentile": found} if percentiles else {"min": 1},
    }


def _fio(read=62155174, write=0, error=0, **more):
    job = {"jobname": "x", "error": error, "read": _side(read), "write": _side(write)}
    return json.dumps({"fio version": "fio-3.33", "jobs": [{**job, **more}]})


NO_NUMBERS = "its JSON has no job with all numbers"
FIO = "fio: this platform has no fallocate\nnote: both iodepth >= 1\n" + _fio()


def test_fio_gives_rate_and_percentiles():
    found = measure.parse(FIO, READ)
    assert (found.bytes_per_s, found.operations_per_s) == (62155174.0, 15174.603175)
    assert found.p99_9_us == 13041.7
    assert measure.parse(_fio(read=0, write=7e8), WRITE).bytes_per_s == 7e8


@pytest.mark.parametrize(
    "text, id, words",
    [
        (_fio(error=28), "bench-fio-failed", "No space left on device"),
        (_fio(error=5), "bench-fio-failed", "Input/output error"),
        (_fio(error=999), "bench-fio-failed", "999"),
        (_fio()[:200], "bench-fio-incomplete", "not JSON"),
        ("", "bench-fio-incomplete", "it printed nothing"),
        ("fio: terminated on signal 9\n", "bench-fio-incomplete", "signal 9"),
        ('{"jobs": []}', "bench-fio-incomplete", NO_NUMBERS),
        (_fio(read=0), "bench-fio-incomplete", "nothing was read"),
        (_fio(read=None), "bench-fio-incomplete", NO_NUMBERS),
        (_fio(read=-1), "bench-fio-incomplete", NO_NUMBERS),
        (_fio(read=_side(1, percentiles=False)), "bench-fio-incomplete", NO_NUMBERS),
    ],
)
def test_a_fio_that_failed_is_one_sentence(text, id, words):
    with problem(id) as caught:
        measure.parse(text, READ)
    assert words in str(caught.value)
    assert caught.value.fix


def _printing(version, engines):
    printed = {"--version": version, "--enghelp": engines}
    return lambda argv, timeout_s: printed[argv[1]]


@pytest.mark.parametrize(
    "version, engines, wanted",
    [
        ("fio-3.33\n", "Available IO engines:\n\tpsync\n\tlibaio\n", "libaio"),
        ("fio-3.35-dirty\n", "\tpsync\n\tposixaio\n", "psync"),
        ("fio-3.2", "", "psync"),
    ],
)
def test_the_best_engine_is_used(version, engines, wanted):
    assert measure.engine(_printing(version, engines)).name == wanted


@pytest.mark.parametrize("version", ["", "3.33", "\x1b[2J"])
def test_a_version_that_is_none_is_unknown(version):
    assert measure.engine(_printing(version, "")).version == "unknown"


def test_a_depth_without_asynchronous_engine_is_threads():
    words = measure.arguments(READ, "/m/f", 1 << 20, 3, measure.Engine("3.35", "psync"))
    assert "--numjobs=32" in words
    assert "--thread" in words
    assert not [word for word in words if word.startswith("--iodepth")]


@pytest.mark.parametrize(
    "word", [RANDOM_READ, RANDOM_WRITE, SEQUENTIAL_READ, SEQUENTIAL_WRITE]
)
@pytest.mark.parametrize("name", ["libaio", "psync"])
def test_fio_bypasses_the_page_cache_and_makes_no_file(word, name):
    """What this host has in memory is not the server's; a file that fio makes in place
    of ours may be anywhere (fio(1): direct, allow_file_create).
    """
    used = measure.Engine("3.33", name)
    for command in (
        measure.arguments(Load(word, 1 << 20, 4), "/proc/1/fd/3", 1 << 20, 9, used),
        measure.layout_arguments("/proc/1/fd/3", 1 << 20),
    ):
        set_ = dict(one.lstrip("-").split("=", 1) for one in command if "=" in one)
        assert (set_["direct"], set_["allow_file_create"]) == ("1", "0")
        # A file that is only reserved is read without the server's disks.
        assert set_["fallocate"] == "none"
        assert set_["filename"] == "/proc/1/fd/3"
        turned = {"overwrite", "create_on_open", "buffered", "invalidate", "directory"}
        assert not turned & set(set_)


STAT = """\
cpu  100 0 50 800 10 0 5 35 0 0
cpu0 50 0 25 400 5 0 5 15 0 0
cpu1 50 0 25 400 5 0 0 20 0 0
intr 12345
"""


def _moment(stat="", snmp="", netstat=""):
    return Moment.of(Statistics(1.0), stat, snmp, netstat)


def test_processor_times_are_busy_and_total():
    # 50 user, 25 system, 5 softirq; 15 were stolen by the hypervisor below.
    assert _moment(STAT).cpus == {"cpu0": (80, 485), "cpu1": (75, 480)}


NETSTAT = (
    "TcpExt: SyncookiesSent TCPOFOQueue TCPDSACKRecv\nTcpExt: 0 31 7\n"
    "IpExt: InOctets\nIpExt: 9\n"
)
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 77 0\n"


def test_segments_sent_again_are_counted():
    # 7 of them were late, not lost.
    assert _moment("", SNMP, NETSTAT).tcp_resent == 70
    assert _moment("", "Tcp: RetransSegs\n", NETSTAT).tcp_resent is None
    assert _moment("", SNMP, "").tcp_resent is None


def test_segments_behind_a_gap_are_counted():
    assert _moment("", "", NETSTAT).tcp_out_of_order == 31
    assert _moment("", NETSTAT, SNMP).tcp_out_of_order is None


# Pieces of real outputs in any order, and any text.
PIECES = [FIO, STAT, SNMP, NETSTAT]
odd = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES).flatmap(lambda t: st.sampled_from(t.split()))).map(
        " ".join
    ),
    st.tuples(st.sampled_from(PIECES), st.integers(0, 900)).map(lambda p: p[0][: p[1]]),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["jobs", "error", "read", "end", "clat_ns", "percentile"]
                ),
                inner,
            )
        ),
    ).map(json.dumps),
)


@given(odd)
def test_any_output_is_a_result_or_one_sentence(text):
    try:
        assert measure.parse(text, READ).bytes_per_s > 0
    except Problem as problem:
        assert problem.id in ("bench-fio-incomplete", "bench-fio-failed")
        assert len(str(problem).splitlines()) == 1
    for busy, total in _moment(text, text, text).cpus.values():
        assert 0 <= busy <= total
