# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of bench belong to hosts and domains; their charts have the right lengths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.storage.benchmarks import RDMA, TCP, benchmark, counted, rates

from ovirt_rdma.engine_sdk_tools.report.model import benchmarks_of
from ovirt_rdma.engine_sdk_tools.report.page import SCALE, bars_of, spread_text
from ovirt_rdma.storage.benchmark.model import Setting, Spread

pytestmark = pytest.mark.engine

HOSTS = (("rack1-hv1", "hv1.example.com"), ("hv2", "10.0.0.2"), ("hv3", "10.0.0.3"))
READ, WRITE, SMALL = "sequential-read", "sequential-write", "random-read"


def one(*changes, hosts=HOSTS, domains=None, **more):
    """Return the only benchmark of a report."""
    settings = more.pop("settings", (RDMA, TCP))
    repeats = more.pop("repeats", 3)
    made = replace(benchmark(*changes, settings=settings, repeats=repeats), **more)
    (found,) = benchmarks_of([made], hosts, domains or {})
    return found


# ------------------------------------------------------------------ what it belongs to


@pytest.mark.parametrize(
    ("hostname", "host"),
    [
        ("rack1-hv1", "rack1-hv1"),
        ("hv1.example.com", "rack1-hv1"),
        ("HV1", "rack1-hv1"),
        ("hv2.other.org", "hv2"),
        ("10.0.0.3", "hv3"),
        ("10.0.0.30", None),
        ("10", None),
        ("hv20", None),
        ("", None),
    ],
)
def test_a_result_belongs_to_the_host_with_its_name(hostname, host):
    assert one(hostname=hostname).host == host


def test_a_name_of_two_hosts_is_none_of_them():
    hosts = (("hv1", "hv1.a.org"), ("hv1b", "hv1.b.org"))
    assert one(hostname="hv1.c.org", hosts=hosts).host is None
    assert one(hostname="hv1.b.org", hosts=hosts).host == "hv1b"


def test_a_result_belongs_to_the_domain_with_its_export():
    domains = {"10.0.0.1:/x": "data1", "10.0.0.1:/y": "data2"}
    assert one(domains=domains).domain == "data1"
    assert one(domains=domains, export="10.0.0.1:/z").domain is None
    assert one(domains={"": "odd"}, export=None, jobs=()).domain is None


def test_results_are_in_order_and_each_once():
    made = [
        replace(benchmark(repeats=1), hostname=name, taken_at=at)
        for name, at in (
            ("hv2", "2026-01-02"),
            ("hv1", "2026-01-01"),
            ("hv2", "2026-01-03"),
        )
    ]
    found = benchmarks_of([*made, made[0]], (), {})
    assert [(b.hostname, b.taken_at[-2:]) for b in found] == [
        ("hv1", "01"),
        ("hv2", "03"),
        ("hv2", "02"),
    ]


def test_the_verdict_is_a_sentence_with_its_evidence():
    found = one(rates("rdma", {READ: 1e9}), counted("rdma", busiest_cpu=1.0))
    assert found.sentence.startswith(
        "RDMA writes 2.0 times TCP here, but TCP reads 4.0"
    )
    assert found.sentence.endswith(".")
    assert found.limits[0].kind == "cpu"
    assert "100% busy" in found.limits[0].evidence


def test_a_result_without_a_run_has_no_bars():
    found = one(jobs=())
    assert (found.rows, bars_of(found)) == ((), [])


# ------------------------------------------------------------------ the bars


def drawn(found, transport, load=READ):
    """Return the bars of a load over a transport."""
    return [
        bar
        for bar in bars_of(found)
        if (bar.row.setting.transport, bar.row.load.name) == (transport, load)
    ]


def test_bars_are_as_long_as_medians_on_one_scale():
    bars = bars_of(one())
    assert len(bars) == 10
    # RDMA is twice as fast in each load.
    for ours, theirs in zip(bars[::2], bars[1::2]):
        assert ours.row.load == theirs.row.load
        assert abs(ours.middle - 2 * theirs.middle) <= 2
    # 8 and 5 GB/s.
    (read,), (write,) = drawn(one(), "rdma"), drawn(one(), "rdma", WRITE)
    assert abs(read.middle / write.middle - 1.6) < 0.02
    assert max(bar.most for bar in bars if bar.limit is None) == SCALE


def test_whiskers_reach_from_the_smallest_to_the_largest():
    def uneven(job):
        factor = (0.5, 1.0, 1.5)[job.repeat - 1] if job.load.name == READ else 1.0
        return replace(job, bytes_per_s=8e9 * factor)

    bar = drawn(one(uneven), "rdma")[0]
    assert abs(bar.least - bar.middle / 2) <= 1
    assert abs(bar.most - 1.5 * bar.middle) <= 1
    assert bar.text == "8,000 (4,000 to 12,000) MB/s"
    assert bar.most <= SCALE


def test_rows_are_in_the_order_of_loads_whatever_was_measured_first():
    rdma4, rdma3 = Setting("rdma", "4.2", 4), Setting("rdma", "3")
    bars = bars_of(one(settings=(rdma4, TCP, rdma3, RDMA)))
    assert [str(bar.row.setting) for bar in bars[:4]] == [
        "NFS 3 over RDMA",
        "NFS 4.2 over RDMA",
        "NFS 4.2 over RDMA, nconnect=4",
        "NFS 4.2 over TCP",
    ]
    assert [bar.row.load.name for bar in bars[::4]][:2] == [READ, WRITE]


@pytest.mark.parametrize(("rate", "near"), [(100_000, True), (800_000, False)])
def test_the_limit_of_the_port_is_drawn_where_it_is_near(rate, near):
    found = one(path=replace(benchmark().path, data_rate_mbps=rate))
    bar = drawn(found, "rdma")[0]
    assert bool(bar.limit) == near
    assert {one.limit for one in drawn(found, "rdma", SMALL)} == {None}
    if near:
        assert abs(bar.limit / bar.middle - 12_254.7 / 8000) < 0.01


@given(
    st.lists(
        st.floats(0, 1e15) | st.sampled_from((0.0, 1e-300, 5e-324)),
        min_size=36,
        max_size=36,
    ),
    st.integers(1, 3),
)
@example([1e-300] + [0.0] * 35, 1)
def test_any_rates_stay_within_the_picture(values, repeats):
    numbers = iter(values)

    def odd(job):
        value = next(numbers)
        return replace(job, bytes_per_s=value, operations_per_s=value / 7)

    for bar in bars_of(one(odd, repeats=repeats)):
        assert 0 <= bar.least <= bar.middle <= bar.most <= SCALE
        assert (bar.limit or 0) <= SCALE


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ((1234.4, 1000, 2000), 1.0, "1,234 (1,000 to 2,000)"),
        ((5e6, 5e6, 5e6), 1e6, "5"),
        ((1.25e6, 1e6, 2e6), 1e6, "1.2 (1 to 2)"),
        ((0.0, 0.0, 0.4), 1.0, "0 (0 to 0.4)"),
    ],
)
def test_figures_are_short(values, unit, text):
    assert spread_text(Spread(*values), unit) == text
