# SPDX-License-Identifier: GPL-2.0-or-later
"""Our metrics and alerts against promtool, Prometheus and node_exporter of Debian 12.
No guest is booted.

A story is a host whose counters change, read by the exporter every 15 seconds, or by
Prometheus every 60; `promtool test rules` gets what was read, and says which alerts
fire.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import pytest
import yaml
from support.storage.metrics_host import FOLDER, MetricsHost, large
from support.storage.sample_paths import GONE, LEFT, WHOLE, keep

from lab import prometheus
from lab.prometheus import promtool
from ovirt_rdma.host.facts.statistics import ERRORS, LINK, of_kind
from ovirt_rdma.host.paths import METRICS_JSON
from ovirt_rdma.storage.health.state import HealthState, MountHealth, write_state
from ovirt_rdma.storage.metrics import exporter
from ovirt_rdma.storage.metrics.exporter import export, read_metrics, render
from tools.metrics_reference import RULES, alerts

STEP_S = 15
# The largest interval of scrapes, and how old a file may be that the timer wrote.
LONG_STEP_S, AGE_S = 60, 16
# Six minutes are longer than the longest range of a rule.
BEFORE = 24
MOUNT = "/rhev/data-center/mnt/nas:_vm"


def test_promtool_finds_nothing_to_correct(tmp_path):
    done = promtool(
        "check", "metrics", given=render(read_metrics(large(tmp_path).root).rows)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_takes_the_rules():
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


# Stories: what happens to the host in a step, from step BEFORE on. A story returns what
# is scraped in the step, if that is not what the exporter writes now:
OFF, FILE_OF_BEFORE = "nothing", "the file of before"


def healthy(host: MetricsHost, state: str, **more: object) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    mount = MountHealth("nas:/vm", MOUNT, "rdma", "4.2", state, **more)
    write_state(host.root, HealthState(0.0, now, 10.0, (mount,)))


def busy(host: MetricsHost, step: int) -> None:
    host.load.reads += 1500
    host.load.writes += 700


def damage_policy(host: MetricsHost, step: int) -> None:
    (host.root / "var/lib/ovirt-rdma/policy.json").write_text("{}")


def proto_differs(host: MetricsHost, step: int) -> None:
    path = host.root / "proc/self/mountinfo"
    path.write_text(path.read_text().replace("proto=rdma", "proto=tcp"))


def lossy(host: MetricsHost, step: int) -> None:
    busy(host, step)
    host.load.repeated += 100


def silent(host: MetricsHost, step: int) -> None:
    host.load.unanswered += 3


def queued(host: MetricsHost, step: int) -> None:
    busy(host, step)
    host.load.backlog_sum += 2200 * 40
    host.load.backlog_now = 40


def resets(host: MetricsHost, step: int) -> None:
    busy(host, step)
    host.load.connects += 1


def resent_once(host: MetricsHost, step: int) -> None:
    """Nothing happens for longer than the range of the rule before."""
    if step == BEFORE + 13:
        host.load.reads += 1
        host.load.repeated += 1


def just_sent(host: MetricsHost, step: int) -> None:
    """Nothing happens for a minute; then a scrape comes while a call is under way."""
    host.load.unanswered = int(step == BEFORE + 5)


def two_resets(host: MetricsHost, step: int) -> None:
    busy(host, step)
    host.load.connects += step < BEFORE + 2


def counts(**grow: int) -> Callable[[MetricsHost, int], None]:
    """Return a story in which counters of the port grow by so many in a step."""

    def story(host: MetricsHost, step: int) -> None:
        steps = step - BEFORE + 1
        host.port("mlx5_0", **{name: by * steps for name, by in grow.items()})

    return story


def set_state(host: MetricsHost, state: str) -> None:
    path = host.root / "sys/class/infiniband/mlx5_0/ports/1/state"
    path.write_text(state)


def cable_out(host: MetricsHost, step: int) -> None:
    set_state(host, "1: DOWN")


# Steps until a boot is over.
BOOT = 8


def boot(host: MetricsHost, step: int) -> Optional[str]:
    """The host boots, and its port waits for the subnet manager. The first scrape comes
    before the first run of the exporter.
    """
    if step < BEFORE + BOOT:
        set_state(host, "2: INIT")
        (host.root / METRICS_JSON.strip("/")).unlink(missing_ok=True)
        return OFF
    return FILE_OF_BEFORE if step == BEFORE + BOOT else None


def paths(moves: int = 0, **more: object) -> Callable[[MetricsHost, int], None]:
    """Return a story with so many moves between two paths in a step."""

    def story(host: MetricsHost, step: int) -> None:
        made = moves * (step - BEFORE + 1)
        keep(host.root, replace(WHOLE, moves=made, **more))

    return story


def one_move(host: MetricsHost, step: int) -> None:
    """To the other path, and back a minute later."""
    keep(host.root, replace(WHOLE, moves=min((step - BEFORE) // 4, 2)))


def idle_reconnect(host: MetricsHost, step: int) -> None:
    """An idle connection ends after five minutes, and the next request makes it."""
    if step % 20 == 0:
        host.load.connects += 1
        host.load.reads += 1


def unreadable(host: MetricsHost, step: int) -> None:
    (host.root / "run/ovirt-rdma/mounts/degraded.json").write_text("garbage")


# What happens, after how many steps the alert is looked for, which alerts fire then.
# Two scrapes, unless a rule waits longer by intention.
Story = Callable[[MetricsHost, int], Optional[str]]
STORIES: dict[str, tuple[Story, int, set[str]]] = {
    "sound and busy": (busy, 24, set()),
    "sound and idle": (lambda host, step: None, 24, set()),
    "an idle connection made again": (idle_reconnect, 40, set()),
    "one reset": (
        lambda host, step: resets(host, step) if step == BEFORE else busy(host, step),
        4,
        set(),
    ),
    "two resets": (two_resets, 4, set()),
    "a call that was sent again on an idle mount": (resent_once, 15, set()),
    "a call under way": (just_sent, 6, set()),
    # One wrong bit in 10^12 at 100 Gb/s: 30 in five minutes.
    "some symbol errors": (counts(symbol_error=1), 22, set()),
    "some other errors of a link": (counts(port_rcv_errors=2), 5, set()),
    # One packet in 15 million, and a few on an idle port.
    "packets lost now and then": (
        counts(out_of_sequence=10, port_rcv_packets=15_000_000),
        22,
        set(),
    ),
    "few packets lost of few": (
        counts(packet_seq_err=4, port_rcv_packets=100),
        22,
        set(),
    ),
    "connections moved and back": (one_move, 24, set()),
    "one scrape sees the cable out": (cable_out, 1, set()),
    "a boot without a link yet": (boot, BOOT + 6, set()),
    "a rule for TCP": (
        lambda host, step: host.policy("tcp"),
        2,
        {"OvirtRdmaMountDegraded"},
    ),
    "signals differ": (proto_differs, 2, {"OvirtRdmaMountUnproven"}),
    "dead by the health": (
        lambda host, step: healthy(host, "dead", cause="server"),
        2,
        {"OvirtRdmaMountStalled"},
    ),
    "stalled by the health": (
        lambda host, step: healthy(host, "stalled", cause="path"),
        2,
        {"OvirtRdmaMountStalled"},
    ),
    "no answers, and nobody watches": (silent, 6, {"OvirtRdmaMountStalled"}),
    "slow by the health": (
        lambda host, step: healthy(host, "slow", cause="server"),
        6,
        {"OvirtRdmaMountSlow"},
    ),
    "ok by the health": (lambda host, step: healthy(host, "ok"), 6, set()),
    "slots and a deep queue": (queued, 2, {"OvirtRdmaBacklog"}),
    "the server resets connections": (resets, 4, {"OvirtRdmaReconnects"}),
    # 4 % of the calls; the range of three minutes has sound ones too.
    "a lossy path": (lossy, 3, {"OvirtRdmaRetransmissions"}),
    "a bad cable": (counts(symbol_error=100), 2, {"OvirtRdmaPortErrors"}),
    "a bad connector": (counts(link_error_recovery=6), 2, {"OvirtRdmaPortErrors"}),
    "a path that loses packets": (
        counts(out_of_sequence=200, port_rcv_packets=100_000),
        2,
        {"OvirtRdmaPacketsLost"},
    ),
    "a full path": (
        counts(port_xmit_discards=200, port_rcv_packets=100_000),
        2,
        {"OvirtRdmaPacketsLost"},
    ),
    "the cable out": (cable_out, 2, {"OvirtRdmaPortDown"}),
    # Five minutes after the boot's first run.
    # Rules that wait two minutes and one.
    "a path is down": (
        paths(paths=(GONE, LEFT)),
        10,
        {"OvirtRdmaPathDown"},
    ),
    "a path comes and goes": (paths(1), 12, {"OvirtRdmaPathMoves"}),
    "connections that cannot be moved": (
        paths(problem="the kernel has no dstaddr"),
        6,
        {"OvirtRdmaPathMoves"},
    ),
    "a boot without a link": (boot, BOOT + 23, {"OvirtRdmaPortDown"}),
    "a damaged policy": (damage_policy, 2, {"OvirtRdmaPolicyUnusable"}),
    "something unreadable": (unreadable, 22, {"OvirtRdmaExporterIncomplete"}),
}


# Those with a rate or an age, at the largest interval.
AT_LONG_STEPS: dict[str, tuple[Story, int, set[str]]] = {
    "sound and busy": (busy, 6, set()),
    "no answers, and nobody watches": (silent, 4, {"OvirtRdmaMountStalled"}),
    "slots and a deep queue": (queued, 2, {"OvirtRdmaBacklog"}),
    "a lossy path": (lossy, 2, {"OvirtRdmaRetransmissions"}),
    "a call that was sent again on an idle mount": (resent_once, 15, set()),
    "two resets": (two_resets, 4, set()),
    "the server resets connections": (resets, 4, {"OvirtRdmaReconnects"}),
    "a bad cable": (counts(symbol_error=100), 2, {"OvirtRdmaPortErrors"}),
    "the cable out": (cable_out, 2, {"OvirtRdmaPortDown"}),
}


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time of the exporter, from 0 as promtool counts."""
    now = SimpleNamespace(s=0.0)
    own = SimpleNamespace(
        time=lambda: now.s,
        monotonic=time.monotonic,
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(exporter, "time", own)
    return now


def told(
    folder: Path, clock: SimpleNamespace, happens, steps: int, step_s: int = STEP_S
) -> dict:
    """Return the series of a story, as promtool reads them."""
    host = MetricsHost(folder)
    host.policy()
    host.port("mlx5_0")
    host.mount("nas:/vm")
    series: dict[str, list[str]] = {}
    written = folder / FOLDER.strip("/") / exporter.FILE
    for step in range(steps):
        clock.s = step * step_s - (AGE_S if step_s > STEP_S else 0)
        host.uptime_s += step_s
        seen = None
        if step >= BEFORE:
            seen = happens(host, step)
        elif happens is not idle_reconnect:
            busy(host, step)
        host.write()
        if seen is None:
            export(host.root)
        for line in [] if seen == OFF else written.read_text().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values = series.setdefault(name, ["_"] * step)
                values.append(value)
        for shown in series.values():
            shown.extend(["_"] * (step + 1 - len(shown)))
    return series


def with_labels(series: dict, **labels: str) -> list[dict[str, str]]:
    found = []
    for name, values in series.items():
        bare, _, rest = name.partition("{")
        pairs = [f'{key}="{value}"' for key, value in labels.items()]
        inside = ",".join([*pairs, *filter(None, [rest.removesuffix("}")])])
        found.append({"series": f"{bare}{{{inside}}}", "values": " ".join(values)})
    return found


def firing(expected: set[str], at_s: int) -> dict:
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{at_s}s",
        "exp_samples": [
            {"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected
        ],
    }


def check(tmp_path: Path, tests: list[dict]) -> None:
    path = tmp_path / "tests.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": f"{STEP_S}s",
                "tests": tests,
            }
        )
    )
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "stories, step_s", [(STORIES, STEP_S), (AT_LONG_STEPS, LONG_STEP_S)]
)
def test_exactly_the_alerts_of_each_story_fire(tmp_path, clock, stories, step_s):
    tests = []
    for number, (name, (happens, after, expected)) in enumerate(stories.items()):
        steps = BEFORE + after
        series = told(tmp_path / f"host{number}", clock, happens, steps, step_s)
        # Between two scrapes, if there are evaluations.
        at_s = (steps - 1) * step_s + (step_s - STEP_S) // 3
        tests.append(
            {
                "name": name,
                "interval": f"{step_s}s",
                "input_series": with_labels(series, instance="hv1", job="node"),
                "promql_expr_test": [firing(expected, at_s)],
            }
        )
        if expected:
            # Not before it happened.
            before_s = BEFORE * step_s - STEP_S
            tests[-1]["promql_expr_test"].append(firing(set(), before_s))
    check(tmp_path, tests)


def test_a_queue_over_tcp_is_no_lack_of_rdma_slots(tmp_path, clock):
    """TCP makes slots as it needs them; the sysctl of the alert is of RDMA."""
    series = told(tmp_path / "host", clock, queued, BEFORE + 4)
    at_s = (BEFORE + 3) * STEP_S
    tests = []
    for protocol, expected in (("rdma", {"OvirtRdmaBacklog"}), ("tcp", set())):
        shown = {
            name.replace('protocol="rdma"', f'protocol="{protocol}"'): values
            for name, values in series.items()
        }
        tests.append(
            {
                "interval": f"{STEP_S}s",
                "input_series": with_labels(shown, instance="hv1", job="node"),
                "promql_expr_test": [firing(expected, at_s)],
            }
        )
    check(tmp_path, tests)


def test_hosts_with_different_policies(tmp_path, clock):
    one = told(tmp_path / "one", clock, busy, BEFORE + 1)
    host = MetricsHost(tmp_path / "two")
    host.policy("prefer-rdma")
    other = {
        line.rpartition(" ")[0]: [line.rpartition(" ")[2]]
        for line in render(read_metrics(host.root).rows).splitlines()
        if line.startswith("ovirt_rdma_policy_info")
    }
    hour = 3600 // STEP_S + 2

    def test(
        name: str, first: dict, second: dict, expected: set[str], at_s: int
    ) -> dict:
        series = [
            *with_labels(first, instance="hv1", job="node"),
            *with_labels(second, instance="hv2", job="node"),
        ]
        for one in series:
            one["values"] = f"{one['values'].split()[-1]}+0x{hour}"
        return {
            "name": name,
            "interval": f"{STEP_S}s",
            "input_series": [one for one in series if "policy_info" in one["series"]],
            "promql_expr_test": [firing(expected, at_s)],
        }

    check(
        tmp_path,
        [
            test("the same", one, one, set(), 3660),
            test("different", one, other, {"OvirtRdmaPolicyDiffers"}, 3660),
            test("a conversion", one, other, set(), 3000),
        ],
    )


def test_an_exporter_that_has_stopped(tmp_path, clock):
    """node_exporter continues to show the last file."""
    series = told(tmp_path / "host", clock, busy, BEFORE)
    shown = with_labels(series, instance="hv1", job="node")
    for one in shown:
        one["values"] = f"{one['values'].split()[-1]}+0x60"
    at_s = (BEFORE - 1) * STEP_S
    check(
        tmp_path,
        [
            {
                "interval": f"{STEP_S}s",
                "input_series": shown,
                "promql_expr_test": [
                    firing(set(), at_s + 120),
                    firing({"OvirtRdmaExporterStale"}, at_s + 135),
                ],
            }
        ],
    )


def test_the_alerts_take_those_counters_for_errors_of_a_link_that_the_rule_does():
    by_name = {rule["alert"]: rule["expr"] for rule in alerts()}
    (link,) = re.findall(r'counter=~"([^"]*)"', by_name["OvirtRdmaPortErrors"])
    (path,) = re.findall(r'counter!~"([^"]*)"', by_name["OvirtRdmaPacketsLost"])
    assert path == f"symbol_error|{link}"
    assert {name for name in ERRORS if re.fullmatch(path, name)} == {*of_kind(LINK)}


def test_every_alert_has_a_story():
    named = {name for _, _, names in STORIES.values() for name in names}
    named |= {"OvirtRdmaPolicyDiffers", "OvirtRdmaExporterStale"}
    assert named == {rule["alert"] for rule in alerts()}


# Real servers.


@contextmanager
def collected(host: MetricsHost, folder: Path) -> Iterator[prometheus.Server]:
    """Run node_exporter on a copy of the host's /proc, whose self is a link."""
    proc = folder / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "self").symlink_to("1")
    for name in ("mountstats", "mountinfo"):
        shutil.copy(host.root / "proc/self" / name, proc / "1")
    textfiles = host.root / FOLDER.strip("/")
    collectors = ("mountstats", "textfile")
    with prometheus.node_exporter(folder, proc, collectors, textfiles) as server:
        yield server


def test_node_exporter_shows_our_metrics_where_its_own_collector_fails(tmp_path):
    host = large(tmp_path / "host", mounts=5, ports=2)
    export(host.root)
    with collected(host, tmp_path) as server:
        shown = server.get("/metrics").splitlines()
        log = server.log.read_text()
    text = (host.root / FOLDER.strip("/") / exporter.FILE).read_text()
    ours = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines()}
    assert {line.partition("{")[0].partition(" ")[0] for line in shown} >= ours - {"#"}
    assert 'node_scrape_collector_success{collector="textfile"} 1' in shown
    assert "node_textfile_scrape_error 0" in shown
    # As docs/metrics.md says.
    assert 'node_scrape_collector_success{collector="mountstats"} 0' in shown
    assert r"invalid NFS protocol \"rdma\" in stats 1.1 statement" in log
    assert not any(line.startswith("node_mountstats_") for line in shown)


def test_node_exporter_takes_names_with_all_kinds_of_characters(tmp_path):
    host = MetricsHost(tmp_path / "host")
    host.policy()
    host.mount("nas:/vm")
    for name in ("mountinfo", "mountstats"):
        path = host.root / "proc/self" / name
        odd = rb"nas:/a\134b\012c\040\"d\xff\xc3\xbc{},= "
        path.write_bytes(path.read_bytes().replace(b"nas:/vm ", odd))
    export(host.root)
    with collected(host, tmp_path) as server:
        shown = server.get("/metrics")
    assert "node_textfile_scrape_error 0" in shown
    assert 'ovirt_rdma_mount_connections{export="nas:/a' in shown


@pytest.mark.faults
def test_a_real_prometheus_fires_the_alerts_within_two_scrapes(tmp_path):
    interval_s = 2
    host = MetricsHost(tmp_path / "host")
    host.policy()
    host.port("mlx5_0")
    host.mount("nas:/vm")

    def run(seconds: float, happens) -> set[str]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            happens()
            host.write()
            export(host.root)
            time.sleep(interval_s / 2)
        return prometheus_server.firing()

    def sound() -> None:
        busy(host, 0)

    def faulty() -> None:
        queued(host, 0)
        cable_out(host, 0)
        damage_policy(host, 0)

    export(host.root)
    with (
        collected(host, tmp_path) as target,
        prometheus.prometheus(tmp_path, target, RULES, interval_s) as prometheus_server,
    ):
        assert run(20 * interval_s, sound) == set()
        # A file, two scrapes, an evaluation.
        found = {"OvirtRdmaBacklog", "OvirtRdmaPolicyUnusable"}
        assert run(4 * interval_s, faulty) == found
        # It waits for 15 s.
        assert run(15, faulty) == {*found, "OvirtRdmaPortDown"}
