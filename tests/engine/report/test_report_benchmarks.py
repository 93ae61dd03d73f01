# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of bench belong to hosts and domains; their charts have the right lengths."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.storage.benchmarks import RDMA, TCP, benchmark, counted, only, rates

from ovirt_rdma.engine_sdk_tools.report.model import benchmarks_of
from ovirt_rdma.engine_sdk_tools.report.picture import chart_of, spread_text
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


def test_a_result_without_a_run_has_no_chart():
    found = one(jobs=())
    assert (found.rows, chart_of(found)) == ((), None)


# ------------------------------------------------------------------ the chart


def _bars(chart):
    """Return the widths of RDMA's and TCP's bars."""
    return tuple(
        [bar.width for bar in chart.bars if bar.style == style]
        for style in ("rdma", "tcp")
    )


def _whiskers(chart):
    """Return the left and right end of each whisker."""
    return [
        tuple(map(int, re.match(r"M(\d+) \d+H(\d+)M", stroke.path).groups()))
        for stroke in chart.strokes
        if stroke.style == "whisker"
    ]


def _texts(chart):
    return [text.text for text in chart.texts]


def test_bars_are_as_long_as_medians_on_one_scale():
    chart = chart_of(one())
    rdma, tcp = _bars(chart)
    # 2 loads of large blocks and 3 of small ones; RDMA is twice as fast in each.
    assert len(rdma) == len(tcp) == 5
    for ours, theirs in zip(rdma, tcp):
        assert abs(ours - 2 * theirs) <= 2
    # 8 and 5 GB/s.
    assert abs(rdma[0] / rdma[1] - 1.6) < 0.02
    assert rdma[3] == max(rdma[2:])


def test_whiskers_reach_from_the_smallest_to_the_largest():
    def uneven(job):
        factor = (0.5, 1.0, 1.5)[job.repeat - 1] if job.load.name == READ else 1.0
        return replace(job, bytes_per_s=8e9 * factor)

    chart = chart_of(one(uneven))
    bar = chart.bars[0]
    low, high = _whiskers(chart)[0]
    assert abs(low - bar.x - bar.width / 2) <= 1
    assert abs(high - bar.x - 1.5 * bar.width) <= 1
    assert "8,000 (4,000 to 12,000)" in _texts(chart)
    assert high <= 820


def test_a_single_repeat_has_no_whisker():
    chart = chart_of(one(repeats=1))
    assert _whiskers(chart) == []
    assert "7,920" in _texts(chart)


def test_the_words_say_who_is_faster_and_by_how_much():
    slower = rates("rdma", {WRITE: 5e8})
    same = rates(None, {SMALL: 1e8})
    texts = _texts(chart_of(one(slower, same)))
    for text in (
        "RDMA 2.0 times TCP",
        "TCP 5.0 times RDMA",
        "no difference beyond spread",
    ):
        assert text in texts


def test_the_chart_agrees_with_the_verdict_about_repeats():
    """A fifth is a difference between three repeats, and none between single runs."""
    slower = rates("tcp", {READ: 8e9 / 1.2})
    three, alone = one(slower), one(slower, repeats=1)
    assert (three.ratios[0].certain, alone.ratios[0].certain) == (True, False)
    assert "RDMA 1.2 times TCP" in _texts(chart_of(three))
    assert "RDMA 1.2 times TCP" not in _texts(chart_of(alone))


def test_the_chart_is_of_the_fastest_version_with_the_fewest_connections():
    rdma4, rdma3 = Setting("rdma", "4.2", 4), Setting("rdma", "3")
    slow = only(rdma3, rates(None, {READ: 1e8, WRITE: 1e8}))
    quick = only(rdma4, rates(None, {READ: 9.9e9}))
    found = one(slow, quick, settings=(rdma4, RDMA, rdma3, TCP))
    chart = chart_of(found)
    assert chart.title == "NFS 4.2: RDMA beside TCP"
    assert "8,000 (7,920 to 8,080)" in _texts(chart)
    assert len(chart.bars) == 10
    # Only four of the 20 are drawn; all are in the table.
    assert len(found.rows) == 20


def test_one_transport_alone_is_drawn_alone():
    chart = chart_of(one(settings=(TCP,)))
    assert {bar.style for bar in chart.bars} == {"tcp"}
    assert "measured with one transport" in _texts(chart)
    assert "not measured" in _texts(chart)


@pytest.mark.parametrize(("rate", "drawn"), [(100_000, True), (800_000, False)])
def test_the_limit_of_the_port_is_drawn_where_it_is_near(rate, drawn):
    path = replace(benchmark().path, data_rate_mbps=rate)
    chart = chart_of(one(path=path))
    limits = [stroke for stroke in chart.strokes if stroke.style == "limit"]
    assert bool(limits) == drawn
    assert "The port can carry" in chart.description
    if drawn:
        bar = chart.bars[0]
        x = int(re.match(r"M(\d+)", limits[0].path)[1])
        assert abs((x - bar.x) / bar.width - 12_254.7 / 8000) < 0.01


def test_the_description_has_all_figures():
    description = chart_of(one()).description
    for words in (
        "sequential-read 1 MiB, depth 32, MB/s: RDMA 8,000 (7,920 to 8,080), TCP 4,000",
        "random-read 4 KiB, depth 32, per second: RDMA 390,625",
        "The port can carry 12,255 MB/s",
    ):
        assert words in description


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

    chart = chart_of(one(odd, repeats=repeats))
    for bar in chart.bars:
        assert bar.x + bar.width <= 821
        assert 0 < bar.y < chart.height
    for stroke in chart.strokes:
        assert all(0 <= int(x) <= 821 for x in re.findall(r"[MH](\d+)", stroke.path))
    ticks = [text for text in chart.texts if text.style == "tick"]
    assert 4 <= len(ticks) <= 2 * 8


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
