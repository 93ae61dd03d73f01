# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.problems import problem
from support.storage.benchmarks import (
    RDMA,
    TCP,
    benchmark,
    counted,
    rates,
)

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.storage.benchmark.model import (
    DOCUMENT,
    Setting,
    as_document,
    load,
)
from ovirt_rdma.storage.benchmark.verdict import verdict

READ, WRITE = "sequential-read", "sequential-write"
SMALL_READ, SMALL_WRITE = "random-read", "random-write"
RDMA3 = Setting("rdma", "3")


def test_rdma_is_kept_where_it_is_faster():
    found = verdict(benchmark())
    assert found.sentence == (
        "RDMA reads 2.0 times TCP here: keep it; no limit was found"
    )
    assert found.better == "rdma"
    loads = (READ, WRITE, SMALL_READ, SMALL_WRITE)
    assert [(r.load, r.value) for r in found.ratios] == [(one, 2.0) for one in loads]
    assert found.link_limit_mbps == 98037


def test_tcp_is_recommended_where_it_is_faster():
    slow = {READ: 1e8, WRITE: 1e8, SMALL_READ: 1e7, SMALL_WRITE: 1e7}
    fast = {name: 1.8 * rate for name, rate in slow.items()}
    made = benchmark(
        rates("rdma", slow),
        rates("tcp", fast),
        counted(None, busiest_cpu=1.0, cpu_s=96.0),
    )
    found = verdict(made)
    assert found.sentence == (
        "TCP reads 1.8 times RDMA here: use TCP; the limit of large reads: a processor "
        "of this host is fully used"
    )
    assert found.better == "tcp"


def test_what_holds_rdma_back_is_named_where_tcp_is_faster():
    """Else the advice is to use TCP, where a setting is wrong."""
    slow = {READ: 1e9, WRITE: 1e9, SMALL_READ: 1e7, SMALL_WRITE: 1e7}
    made = benchmark(rates("rdma", slow), counted("rdma", backlog=15.5), slots=2)
    found = verdict(made)
    assert (found.better, found.limits) == ("tcp", ())
    assert [one.kind for one in found.rdma_limits] == ["slots"]
    assert found.sentence == (
        "TCP reads 4.0 times RDMA here: use TCP; no limit was found; RDMA may be "
        "faster without its limit: requests wait for a slot of the connection"
    )
    both = verdict(benchmark(rates("rdma", slow), counted(None, busiest_cpu=1.0)))
    assert [one.kind for one in both.limits] == ["cpu"]
    assert both.rdma_limits == ()


def test_a_mixed_result_is_left_to_the_admin():
    found = verdict(benchmark(rates("rdma", {WRITE: 1e9})))
    assert found.better == "either"
    assert found.sentence.startswith(
        "RDMA reads 2.0 times TCP here, but TCP writes 2.5 times RDMA: choose by "
        "what your machines do"
    )


SAME = rates(None, {READ: 1e9, WRITE: 9e8, SMALL_READ: 1e8, SMALL_WRITE: 1e8})


@pytest.mark.parametrize(
    "rdma_cpu, tcp_cpu, better, words",
    [
        (3.0, 9.0, "rdma", "RDMA takes 33% of TCP's CPU: keep RDMA"),
        (9.0, 3.0, "tcp", "TCP takes 33% of RDMA's CPU: use TCP"),
        (3.0, 3.0, "either", "equally fast here: either is right"),
    ],
)
def test_equal_rates_are_decided_by_processor_time(rdma_cpu, tcp_cpu, better, words):
    made = benchmark(
        SAME, counted("rdma", cpu_s=rdma_cpu), counted("tcp", cpu_s=tcp_cpu)
    )
    found = verdict(made)
    assert found.better == better
    assert words in found.sentence


def test_a_difference_within_the_spread_is_none():
    def unsteady(job):
        factor = (0.4, 1.0, 2.2)[job.repeat - 1]
        return replace(job, bytes_per_s=job.bytes_per_s * factor)

    found = verdict(benchmark(unsteady, counted(None, cpu_s=4.0)))
    assert not any(ratio.certain for ratio in found.ratios)
    assert found.better in ("either", "rdma")
    assert "equally fast" in found.sentence


@pytest.mark.parametrize("factor, better", [(1.4, "either"), (1.6, "rdma")])
def test_a_single_run_of_each_must_differ_more(factor, better):
    """Seen in the lab: 4.7 and 6.5 MB/s of the same load, blamed on one connection."""
    fast = {READ: 1e9, WRITE: 1e9, SMALL_READ: 1e7, SMALL_WRITE: 1e7}
    slow = {name: rate / factor for name, rate in fast.items()}
    made = benchmark(
        rates("rdma", fast), rates("tcp", slow), counted(None, cpu_s=4.0), repeats=1
    )
    assert verdict(made).better == better


def test_a_fallback_to_tcp_is_no_result_for_rdma():
    found = verdict(benchmark(counted("rdma", transport="tcp")))
    assert found.better == "unknown"
    assert found.sentence.startswith("RDMA was not measured: its mount went over")
    assert found.ratios == ()


def test_a_mount_over_the_rdma_of_another_is_no_result_for_tcp():
    # Without RDMA's processor time TCP would be as good: either.
    found = verdict(benchmark(counted("tcp", READ, transport="rdma")))
    assert found.better == "unknown"
    assert found.sentence == (
        "TCP was not measured: its mount went over another transport, and "
        "ovirt-rdma-host nfs check 10.0.0.1:/x says why; no limit was found"
    )
    # One load went astray, the others are compared.
    assert READ not in {ratio.load for ratio in found.ratios}
    alone = verdict(benchmark(counted("tcp", transport="mixed"), settings=(TCP,)))
    assert alone.sentence.startswith("TCP was not measured")


def test_data_that_does_not_leave_the_host_is_no_result():
    found = verdict(benchmark(counted("rdma", transport="local")))
    assert found.better == "unknown"
    assert found.sentence == (
        "RDMA was not measured: the data did not leave this host (LOCALIO): measure "
        "from another one; no limit was found"
    )
    assert found.limits == ()
    assert found.ratios == ()


def test_one_transport_alone_gives_no_verdict():
    found = verdict(benchmark(settings=(TCP,)))
    assert (found.better, found.ratios) == ("unknown", ())
    assert found.sentence.startswith("only TCP was measured (4000 MB/s)")


def test_without_a_run_there_is_no_verdict():
    assert verdict(benchmark(settings=())).sentence == "nothing was measured"


def test_a_result_is_read_again_as_it_was(tmp_path):
    made = benchmark(settings=(RDMA, TCP, RDMA3))
    file = tmp_path / "old.json"
    file.write_text(json.dumps(as_document(made, verdict(made))))
    assert load(file) == made
    document = json.loads(file.read_text())
    assert (document["kind"], document["schema_version"]) == ("benchmark", 1)
    assert document["verdict"]["better"] == "rdma"
    assert document["jobs"][0]["p99_9_us"] == 900.0


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "not JSON"),
        ("[]", "an array, not an object"),
        ('{"kind": "facts", "schema_version": 1}', "kind is 'facts'"),
        ('{"kind": "benchmark", "schema_version": 2}', "newer version"),
        ('{"kind": "benchmark", "schema_version": 1}', "is missing"),
    ],
)
def test_another_file_is_refused_in_one_sentence(tmp_path, text, words):
    file = tmp_path / "old.json"
    file.write_text(text)
    with problem("bench-file-unreadable") as caught:
        load(file)
    assert words in str(caught.value)
    assert caught.value.fix


def _numbers(value, path=()):
    """Yield the paths of all numbers in a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        inner = value[key]
        if isinstance(inner, (dict, list)):
            yield from _numbers(inner, (*path, key))
        elif isinstance(inner, (int, float)):
            yield (*path, key)


RESULT = json.loads(
    json.dumps(plain(benchmark(settings=(RDMA, TCP, RDMA3), repeats=1)))
)
NUMBERS = tuple(_numbers(RESULT))


@given(
    st.dictionaries(
        st.sampled_from(NUMBERS),
        st.sampled_from((0, -1, 1e-320, 1, 1e15, 1e308, 10**19)),
        max_size=4,
    )
)
@example({("jobs", 0, "sample", "cpus"): 0})
@example({("jobs", n, "bytes_per_s"): 0 for n in range(5)})
@example({("jobs", n, "bytes_per_s"): 0 for n in range(5, 10)})
def test_a_file_with_any_number_is_refused_or_judged(tmp_path_factory, changed):
    made = copy.deepcopy(RESULT)
    for path, value in changed.items():
        place = made
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    file = tmp_path_factory.mktemp("results") / "one.json"
    file.write_text(json.dumps(DOCUMENT.around(made)))
    try:
        read = load(file)
    except Problem as problem:
        assert problem.id == "bench-file-unreadable"
        assert problem.fix
    else:
        json.dumps(as_document(read, verdict(read)), allow_nan=False)


def test_a_transport_that_moves_nothing_is_not_recommended():
    silent = {READ: 0.0, WRITE: 0.0, SMALL_READ: 0.0, SMALL_WRITE: 0.0}
    found = verdict(benchmark(rates("rdma", silent), counted(None, cpu_s=4.0)))
    assert (found.better, found.ratios[0].value) == ("tcp", 0.001)
