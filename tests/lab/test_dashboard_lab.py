# SPDX-License-Identifier: GPL-2.0-or-later
"""The queries of our dashboard for Grafana, answered by Debian 12's Prometheus from
what the exporter wrote on two hosts. No guest is booted.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
import yaml
from support.storage.metrics_host import FOLDER, MetricsHost

from lab import prometheus
from lab.prometheus import promtool
from ovirt_rdma.storage.health.state import HealthState, MountHealth, write_state
from ovirt_rdma.storage.metrics import exporter
from ovirt_rdma.storage.metrics.exporter import export
from tools import dashboard

# Both forms have the same queries (tests/storage/metrics/test_dashboard.py).
BOARD = dashboard.board(dashboard.FORMS["ovirt-rdma-grafana.json"])
PANELS = BOARD["panels"]
HOSTS = ("hv1:9100", "hv2:9100")
# The second is mounted over TCP although the policy says RDMA.
EXPORTS = ("nas:/vm", "nas:/iso(old)+1.0")
START, STEP_S, STEPS = 1_700_000_000, 15, 48


def expressions() -> Iterator[str]:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_prometheus_takes_every_expression(tmp_path):
    rules = [
        {"record": f"dashboard:{number}", "expr": with_values(expression)}
        for number, expression in enumerate(expressions())
    ]
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "d", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def with_values(expression: str, instance: str = ".*", export: str = ".*") -> str:
    """Put values in place of Grafana's variables, as it does for a step of 15 s."""
    # getRateIntervalScopedVariable: four times the scrape interval.
    text = expression.replace("$__rate_interval", f"{4 * STEP_S}s")
    text = text.replace("$instance", instance).replace("$export", export)
    assert "$" not in text, expression
    return text


def chosen(*values: str) -> str:
    """Return what Grafana puts in place of a variable with these values chosen.

    Source: Grafana, public/app/plugins/datasource/prometheus/datasource.ts,
    interpolateQueryExpr() and prometheusSpecialRegexEscape().
    """
    quoted = [
        re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))
        for value in values
    ]
    return quoted[0] if len(quoted) == 1 else f"({'|'.join(quoted)})"


# Two hosts with everything that a panel shows.


def at_work(folder: Path, instance: str, monkeypatch) -> Iterator[tuple[float, str]]:
    """Write what the exporter says of a host, with times, as Prometheus scrapes it."""
    host = MetricsHost(folder)
    host.load.connections = 2
    host.policy()
    source, other = EXPORTS
    mountpoints = host.mount(source), host.mount(other, "tcp")
    written = folder / FOLDER.strip("/") / exporter.FILE
    for step in range(STEPS):
        now = START + STEP_S * step
        own = SimpleNamespace(**vars(time) | {"time": lambda now=now: float(now)})
        monkeypatch.setattr(exporter, "time", own)
        host.uptime_s += STEP_S
        load = host.load
        load.reads, load.writes = load.reads + 1500, load.writes + 700
        load.repeated, load.queue_ms = load.repeated + 100, load.queue_ms + 30
        load.backlog_sum, load.backlog_now = load.backlog_sum + 80_000, 40
        load.connects += 1
        sent = {"port_rcv_data": 90 * step, "port_xmit_data": 80 * step}
        host.port("mlx5_0", symbol_error=step, np_cnp_sent=7 * step, **sent)
        host.write()
        healthy = (
            MountHealth(source, mountpoints[0], "rdma", "4.2", "ok", answered_s=0.002),
            MountHealth(other, mountpoints[1], "tcp", "4.2", "stalled", cause="path"),
        )
        uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        write_state(host.root, HealthState(float(now), uptime_s, 10.0, healthy))
        export(host.root)
        for line in written.read_text().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                bare, _, rest = name.partition("{")
                labels = f'instance="{instance}",job="node"{"," * bool(rest)}'
                yield now, f"{bare}{{{labels}{rest or '}'} {value} {now}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[prometheus.Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    with pytest.MonkeyPatch.context() as patch:
        samples = [
            sample
            for number, instance in enumerate(HOSTS)
            for sample in at_work(folder / f"host{number}", instance, patch)
        ]
    samples.sort(key=lambda sample: sample[0])
    text = "".join(line for _, line in samples)
    with prometheus.of_samples(folder, text) as running:
        yield running


def answer(server: prometheus.Server, target: dict, **variables: str) -> list[dict]:
    """Ask as Grafana does: a table once, all else for the range that is shown."""
    end = START + STEP_S * (STEPS - 1)
    query = {"query": with_values(target["expr"], **variables)}
    if target.get("instant"):
        path = f"/api/v1/query?{urlencode(query | {'time': end})}"
    else:
        range = {"start": START, "end": end, "step": STEP_S}
        path = f"/api/v1/query_range?{urlencode(query | range)}"
    return list(json.loads(server.get(path))["data"]["result"])


def last(series: dict) -> float:
    return float((series.get("values") or [series["value"]])[-1][1])


TARGETS = {
    f"{panel['title']} {target['refId']}": target
    for panel in PANELS
    for target in panel.get("targets", ())
}
# What is zero on the two hosts; all else is not.
SOUND = [
    TARGETS[title]
    for title in (
        "Unproven mounts A",
        "Ports not active A",
        "Oldest metrics A",
        "Bytes copied instead of moved by RDMA A",
        "Bytes copied instead of moved by RDMA B",
        "Memory regions and invalidations A",
        "Memory regions and invalidations B",
        "Problems and mounts left out A",
        "Problems and mounts left out B",
    )
]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_query_yields_data_for_each_host(server, target):
    series = answer(server, target)
    hosts = {one["metric"].get("instance") for one in series}
    assert hosts in (set(HOSTS), {None}), target["expr"]
    values = [last(one) for one in series]
    assert all(map(math.isfinite, values)), target["expr"]
    assert any(values) != (target in SOUND), target["expr"]


def name_of(labels: dict[str, str], form: str) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: labels[label[1]], form)


@pytest.mark.parametrize(
    "panel",
    [panel for panel in PANELS if panel["type"] == "graph"],
    ids=lambda panel: panel["title"],
)
def test_no_two_lines_have_the_same_name(server, panel):
    names = [
        name_of(one["metric"], target["legendFormat"])
        for target in panel["targets"]
        for one in answer(server, target)
    ]
    assert sorted(set(names)) == sorted(names)
    assert names


@pytest.mark.parametrize(
    "title, now",
    [
        ("Degraded mounts", 2),
        ("Unproven mounts", 0),
        ("Stalled or dead", 2),
        ("Ports not active", 0),
        ("Policies", 1),
        ("Oldest metrics", 0),
    ],
)
def test_the_numbers_of_now(server, title, now):
    (one,) = answer(server, TARGETS[f"{title} A"])
    assert last(one) == now


@pytest.mark.parametrize("title", [p["title"] for p in PANELS if p["type"] == "stat"])
def test_a_number_is_absent_if_no_host_is_known(server, title):
    """A green zero would say that nothing is wrong."""
    assert answer(server, TARGETS[f"{title} A"], instance="none") == []


def test_the_table_of_mounts(server):
    shown = {
        (one["instance"], one["export"], one["transport"], one["verdict"])
        for one in (row["metric"] for row in answer(server, TARGETS["Mounts A"]))
    }
    assert shown == {
        (host, export, transport, verdict)
        for host in HOSTS
        for export, transport, verdict in zip(
            EXPORTS, ("rdma", "tcp"), ("ok", "degraded")
        )
    }


def test_requests_that_were_sent_again_are_not_without_reply_for_ever(server):
    """In each step 1500 READs of 1.5 ms and 700 WRITEs of 5 ms are done."""
    series = answer(server, TARGETS["Mean requests without reply A"])
    expected = (1500 * 0.0015 + 700 * 0.005) / STEP_S
    assert [last(one) for one in series] == pytest.approx([expected] * 4, rel=0.01)


@pytest.mark.parametrize("exports", [EXPORTS[1:], EXPORTS])
def test_what_is_chosen_is_shown_and_nothing_else(server, exports):
    target = TARGETS["Requests A"]
    series = answer(
        server, target, instance=chosen("hv2:9100"), export=chosen(*exports)
    )
    assert {(one["metric"]["instance"], one["metric"]["export"]) for one in series} == {
        ("hv2:9100", export) for export in exports
    }


def test_the_variables_offer_the_hosts_and_exports(server):
    offered = {}
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            form = r"label_values\((\w+), (\w+)\)"
            name, label = re.fullmatch(form, variable["query"]).groups()
            window = {"match[]": name, "start": START, "end": START + STEP_S * STEPS}
            path = f"/api/v1/label/{label}/values?{urlencode(window)}"
            offered[variable["name"]] = json.loads(server.get(path))["data"]
    assert offered == {"instance": sorted(HOSTS), "export": sorted(EXPORTS)}
