# SPDX-License-Identifier: GPL-2.0-or-later
"""Metrics of a host: what is read, how it is labelled, and what is left out."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from support.fakes.fake_processes import VDSM, run_process
from support.storage.metrics_host import MetricsHost
from support.storage.sample_paths import (
    FIRST,
    HALF,
    LEFT,
    MOVE,
    SECOND,
    WHOLE,
    keep,
)

from ovirt_rdma.host import __version__
from ovirt_rdma.host.collect.statistics import SWITCHES
from ovirt_rdma.host.collect.storage import marks_to_json
from ovirt_rdma.host.facts.model import DegradedMark
from ovirt_rdma.host.facts.statistics import COLUMNS, COUNTERS, ERRORS
from ovirt_rdma.host.paths import (
    DEGRADED_JSON,
    ENABLED,
    HEALTH_JSON,
    LAUNCHER,
    STARTED,
    under,
)
from ovirt_rdma.host.services.enablement import marker_text
from ovirt_rdma.storage.health.state import (
    DEAD,
    SERVER,
    STATES,
    HealthState,
    MountHealth,
    write_state,
)
from ovirt_rdma.storage.metrics import exporter
from ovirt_rdma.storage.metrics.exporter import read_metrics, render
from ovirt_rdma.storage.paths.state import UNPROVEN, PathsState, write_paths

_LINE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@pytest.fixture
def host(tmp_path):
    made = MetricsHost(tmp_path)
    made.policy()
    return made


def values(host):
    """Return ``{name: [(labels, value)]}`` of the text."""
    found = {}
    for line in render(read_metrics(host.root).rows).splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(line)
            labels = dict(_LABEL.findall(match["labels"] or ""))
            found.setdefault(match["name"], []).append((labels, float(match["value"])))
    return found


def value(found, name, **labels):
    """Return the only value of a metric with these labels; None without one."""
    matching = [
        number
        for having, number in found.get(f"ovirt_rdma_{name}", ())
        if labels.items() <= having.items()
    ]
    assert len(matching) <= 1, (name, matching)
    return matching[0] if matching else None


def test_what_a_mount_read_and_wrote(host):
    host.mount("nas:/vm")
    found = values(host)
    assert value(found, "mount_read_bytes_total", export="nas:/vm") == 4096000
    assert value(found, "mount_written_bytes_total", export="nas:/vm") == 2048000


@pytest.mark.parametrize(
    ("protocol", "columns"), [(name, COLUMNS[name]) for name in ("rdma", "tcp")]
)
def test_every_column_of_the_kernel_is_a_metric_of_the_connection(
    host, protocol, columns
):
    host.mount("nas:/vm", protocol)
    found = values(host)
    of_column = {
        one.value: one.name
        for name, one in exporter.NAMED.items()
        if name.startswith("connection_")
    }
    assert set(columns) <= set(of_column)
    for column in columns:
        ((labels, _),) = found[of_column[column]]
        assert labels == {
            "export": "nas:/vm",
            "mountpoint": "/rhev/data-center/mnt/nas:_vm",
            "connection": "0",
            "protocol": protocol,
        }
    assert value(found, "connection_connects_total") == 1
    assert value(found, "connection_sends_total") == 1500


def test_operations_are_in_seconds_and_bytes_and_few(host):
    host.mount("nas:/vm")
    found = values(host)
    requests = found["ovirt_rdma_operation_requests_total"]
    named = {labels["operation"] for labels, _ in requests}
    assert named == {*exporter.NAMED_OPERATIONS, "other"}
    for name, expected in (
        ("requests_total", 1000),
        ("received_bytes_total", 4096000),
        ("queue_seconds_total", 0.01),
        ("round_trip_seconds_total", 1.5),
        ("execution_seconds_total", 1.51),
    ):
        assert value(found, f"operation_{name}", operation="READ") == expected
    # A first request is an increase: what was not used yet is 0.
    assert value(found, "operation_requests_total", operation="COMMIT") == 0


def test_other_operations_are_added_up(host):
    host.mount("nas:/vm")
    path = host.root / "proc/self/mountstats"
    text = path.read_text()
    for name in ("ACCESS", "STATFS"):
        zeros = f"{name:>12}: 0 0 0 0 0 0 0 0 0"
        assert zeros in text
        text = text.replace(zeros, f"{name:>12}: 5 6 0 10 20 1 2 3 0")
    path.write_text(text)
    found = values(host)
    assert value(found, "operation_requests_total", operation="other") == 10
    assert value(found, "operation_transmissions_total", operation="other") == 12
    assert value(found, "operation_execution_seconds_total", operation="other") == 0.006


@pytest.mark.parametrize(
    ("transport", "protocol", "verdict"),
    [
        ("require-rdma", "rdma", "ok"),
        ("prefer-rdma", "tcp", "degraded"),
        ("tcp", "tcp", "ok"),
    ],
)
def test_the_verdict_on_a_mount(host, transport, protocol, verdict):
    host.policy(transport)
    host.mount("nas:/vm", protocol)
    found = values(host)
    verdicts = found["ovirt_rdma_mount_verdict"]
    assert {labels["verdict"] for labels, _ in verdicts} == {
        "ok",
        "degraded",
        "unproven",
        "not_covered",
        "not_named",
    }
    assert [labels["verdict"] for labels, is_it in verdicts if is_it] == [verdict]
    ((about, _),) = found["ovirt_rdma_mount_info"]
    assert (about["transport"], about["wanted"]) == (protocol, transport)
    since = value(found, "mount_degraded_since_timestamp_seconds")
    if verdict == "degraded":
        made = time.time() - host.uptime_s + 3600
        assert abs(since - made) < 60
    else:
        assert since is None


def test_a_mount_that_no_rule_names_and_one_that_is_unproven(host):
    host.mount("nas:/vm")
    host.mount("other:/iso", "tcp")
    path = host.root / "proc/self/mountinfo"
    path.write_text(path.read_text().replace("proto=rdma", "proto=tcp"))
    found = values(host)
    true = {
        labels["export"]: labels["verdict"]
        for labels, is_it in found["ovirt_rdma_mount_verdict"]
        if is_it
    }
    assert true == {"nas:/vm": "unproven", "other:/iso": "not_named"}
    about = {labels["export"]: labels for labels, _ in found["ovirt_rdma_mount_info"]}
    assert about["nas:/vm"]["transport"] == "unproven"
    assert (about["other:/iso"]["wanted"], about["other:/iso"]["rule"]) == ("", "")


def test_slots_and_backlog_of_a_transport(host):
    host.load.backlog_now = 40
    host.mount("nas:/vm")
    found = values(host)
    for name, expected in (
        ("slots", 128),
        ("requests", 64),
        ("backlog", 40),
        ("connected", 1),
    ):
        assert value(found, f"transport_{name}", destination="10.0.0.1") == expected


def test_a_transport_that_is_closed_has_no_queues(host):
    host.mount("nas:/vm")
    folder = host.root / SWITCHES.strip("/") / "switch-0/xprt-0-rdma"
    (folder / "xprt_state").write_text("state= BOUND")
    (folder / "xprt_info").write_text("<closed>\n")
    found = values(host)
    assert value(found, "transport_connected") == 0
    assert value(found, "transport_backlog") is None
    assert value(found, "exporter_problems") == 0


def test_ports_have_bytes_errors_and_congestion(host):
    host.port("mlx5_0", port_xmit_data=1000, symbol_error=3, np_cnp_sent=7)
    found = values(host)
    labels = {"device": "mlx5_0", "port": "1"}
    assert value(found, "port_sent_bytes_total", **labels) == 4000
    assert value(found, "port_errors_total", counter="symbol_error", **labels) == 3
    assert value(found, "port_congestion_total", counter="np_cnp_sent", **labels) == 7
    assert value(found, "port_active", **labels) == 1
    assert value(found, "port_was_active", **labels) == 1
    counters = {one["counter"] for one, _ in found["ovirt_rdma_port_errors_total"]}
    assert counters <= set(ERRORS)


def test_every_counter_of_the_table_is_a_metric(host):
    host.port("mlx5_0")
    folder = host.root / "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    for number, name in enumerate(COUNTERS):
        (folder / name).write_text(f"{number}\n")
    found = values(host)
    for number, name in enumerate(COUNTERS):
        kind = "errors" if name in ERRORS else "congestion"
        assert value(found, f"port_{kind}_total", counter=name) == number


def test_a_counter_that_is_no_metric_is_not_read(host):
    """The firmware is asked for each that is."""
    host.port("mlx5_0")
    folder = host.root / "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    for name in ("rx_read_requests", "local_ack_timeout_err"):
        (folder / name).write_text("garbage")
    (problem,) = read_metrics(host.root).problems
    assert "local_ack_timeout_err" in problem
    assert "it is left out" in problem


def test_a_counter_that_cannot_be_read_is_left_out_and_said(host):
    host.port("mlx5_0")
    path = host.root / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence"
    path.write_text("garbage")
    found = values(host)
    assert value(found, "port_errors_total", counter="out_of_sequence") is None
    assert value(found, "port_errors_total", counter="symbol_error") == 0
    assert value(found, "exporter_problems") == 1
    assert any("out_of_sequence" in one for one in read_metrics(host.root).problems)


def test_the_policy_and_a_damaged_one(host):
    found = values(host)
    ((labels, _),) = found["ovirt_rdma_policy_info"]
    assert labels["digest"].startswith("sha256:")
    assert value(found, "policy_usable") == 1
    assert abs(value(found, "policy_loaded_timestamp_seconds") - time.time()) < 60
    path = host.root / "var/lib/ovirt-rdma/policy.json"
    path.write_text("{}")
    found = values(host)
    assert value(found, "policy_usable") == 0
    # Its copy is in force.
    assert found["ovirt_rdma_policy_info"] == [(labels, 1)]
    path.unlink()
    found = values(host)
    assert "ovirt_rdma_policy_info" not in found
    assert value(found, "policy_usable") is None


def run_vdsmd(host, version):
    run_process(host.root, 700, "/usr/bin/python3", LAUNCHER, user=VDSM)
    for path, text in (
        (STARTED, f"700 launcher {version}\n"),
        (ENABLED, marker_text("vdsmd")),
    ):
        under(host.root, path).parent.mkdir(parents=True, exist_ok=True)
        under(host.root, path).write_text(text)


def test_what_is_installed_and_what_runs(host):
    found = values(host)
    assert value(found, "info", version=__version__) == 1
    assert "ovirt_rdma_loaded_info" not in found
    assert "ovirt_rdma_restart_needed" not in found
    run_vdsmd(host, __version__)
    found = values(host)
    assert value(found, "loaded_info", unit="vdsmd.service", version=__version__) == 1
    assert value(found, "restart_needed", unit="vdsmd.service") == 0
    run_vdsmd(host, "0.1.9")
    found = values(host)
    assert value(found, "loaded_info", unit="vdsmd.service", version="0.1.9") == 1
    assert value(found, "restart_needed", unit="vdsmd.service") == 1


def test_a_version_that_is_unknown_needs_no_restart_and_is_not_current(host):
    run_vdsmd(host, "")
    found = values(host)
    assert value(found, "loaded_info", unit="vdsmd.service", version="unknown") == 1
    assert "ovirt_rdma_restart_needed" not in found


def health(host, state, taken_s=None, **more):
    mount = MountHealth(
        "nas:/vm",
        "/rhev/data-center/mnt/nas:_vm",
        "rdma",
        "4.2",
        state,
        answered_s=0.25,
        **more,
    )
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    taken_s = now if taken_s is None else taken_s
    write_state(host.root, HealthState(1000.0, taken_s, 10.0, (mount,)))


def test_the_health_that_the_unit_wrote(host):
    host.mount("nas:/vm")
    assert "ovirt_rdma_mount_health" not in values(host)
    health(host, DEAD, cause=SERVER, since=900.0)
    found = values(host)
    states = found["ovirt_rdma_mount_health"]
    assert {labels["state"] for labels, _ in states} == set(STATES)
    assert [labels["state"] for labels, is_it in states if is_it] == ["dead"]
    assert value(found, "mount_health_cause", cause="server") == 1
    assert value(found, "mount_health_since_timestamp_seconds") == 900
    assert value(found, "mount_health_answer_seconds") == 0.25
    assert value(found, "health_last_look_timestamp_seconds") == 1000


def test_a_stale_health_counts_no_more(host):
    host.mount("nas:/vm")
    health(host, "ok", taken_s=time.clock_gettime(time.CLOCK_BOOTTIME) - 36)
    metrics = read_metrics(host.root)
    assert metrics.problems == [f"{HEALTH_JSON} is stale, so the health is unknown"]
    assert "ovirt_rdma_mount_health" not in values(host)


def test_the_health_of_a_mount_that_is_gone_is_none(host):
    host.mount("nas:/other")
    health(host, DEAD, cause=SERVER, since=900.0)
    found = values(host)
    assert "ovirt_rdma_mount_health" not in found
    assert value(found, "health_last_look_timestamp_seconds") == 1000


@pytest.mark.parametrize(
    "change",
    [
        # The whole text.
        "",
        "[]",
        "{}",
        '{"kind": "health"}',
        '{"kind": "health", "schema_version": 2, "mounts": []}',
        '{"kind": "health", "schema_version": 1, "mounts": [{}], "interval_s": 1}',
        '{"kind": "health", "schema_version": 1, "mounts": [], "interval_s": "x"}',
        # Whether it is of the mount, the key, its value.
        (False, "kind", "policy"),
        (False, "schema_version", 2),
        (True, "export", 7),
        (True, "mountpoint", ["/mnt/a"]),
        (True, "state", "odd"),
        (True, "cause", 7),
        (True, "since", "now"),
        (True, "answered_s", True),
    ],
    ids=str,
)
def test_a_health_of_another_form_is_a_sentence_and_the_rest_is_there(host, change):
    host.mount("nas:/vm")
    health(host, "ok")
    path = host.root / HEALTH_JSON.strip("/")
    if not isinstance(change, str):
        of_mount, key, wrong = change
        document = json.loads(path.read_text())
        changed = document["mounts"][0] if of_mount else document
        assert key in changed
        changed[key] = wrong
        change = json.dumps(document)
    path.write_text(change)
    metrics = read_metrics(host.root)
    (problem,) = metrics.problems
    assert problem.startswith(f"{HEALTH_JSON} is invalid and is ignored: ")
    found = values(host)
    assert "ovirt_rdma_mount_health" not in found
    assert "ovirt_rdma_connection_sends_total" in found


def test_more_mounts_than_the_limit_are_left_out_and_said(host, monkeypatch):
    monkeypatch.setattr(exporter, "MOST_MOUNTS", 2)
    for number in range(3):
        host.mount(f"nas:/vm{number}")
    found = values(host)
    exports = {labels["export"] for labels, _ in found["ovirt_rdma_mount_age_seconds"]}
    assert exports == {"nas:/vm0", "nas:/vm1"}
    assert {labels["export"] for labels, _ in found["ovirt_rdma_mount_verdict"]} == (
        exports
    )
    assert value(found, "exporter_mounts_left_out") == 1
    assert read_metrics(host.root).problems == [
        "this host has 3 mounts, and the metrics have the first 2"
    ]


def test_a_host_with_nothing_at_all(tmp_path):
    metrics = read_metrics(tmp_path)
    assert "ovirt_rdma_exporter_last_run_timestamp_seconds" in render(metrics.rows)


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (r"nas:/a\134b", r"nas:/a\\b"),
        (r"nas:/a\012b", r"nas:/a\nb"),
        ('nas:/a"b', r"nas:/a\"b"),
        ("nas:/ü", "nas:/ü"),
    ],
)
def test_labels_are_escaped(host, source, written):
    host.mount("nas:/vm")
    for name in ("mountinfo", "mountstats"):
        path = host.root / "proc/self" / name
        path.write_text(path.read_text().replace("nas:/vm ", f"{source} "))
    text = render(read_metrics(host.root).rows)
    assert f'ovirt_rdma_mount_connections{{export="{written}",' in text


def test_a_name_that_is_no_utf_8_is_shown_as_its_bytes(host):
    host.mount("nas:/vm")
    for name in ("mountinfo", "mountstats"):
        path = host.root / "proc/self" / name
        path.write_bytes(path.read_bytes().replace(b"nas:/vm ", b"nas:/\xff "))
    text = render(read_metrics(host.root).rows)
    assert r'export="nas:/\\xff"' in text
    text.encode("utf-8")


@pytest.mark.parametrize("since", [None, "x", "2026-13-01T00:00:00Z"])
def test_the_marks_of_vdsmd_that_cannot_be_read_are_a_problem(host, since):
    host.policy("prefer-rdma")
    place = host.mount("nas:/vm", "tcp")
    about = place, "nas:/vm", "r", "prefer-rdma", "tcp", "why"
    mark = DegradedMark(*about, since=since)
    data = b"no json" if since is None else marks_to_json([mark])
    (host.root / DEGRADED_JSON.strip("/")).write_bytes(data)
    assert len(read_metrics(host.root).problems) == 1
    assert value(values(host), "mount_connections", export="nas:/vm") == 1


def test_every_family_is_named_once_and_as_prometheus_wants():
    names = [family.name for family in exporter.FAMILIES]
    assert len(set(names)) == len(names)
    for family in exporter.FAMILIES:
        assert re.fullmatch(r"ovirt_rdma_[a-z_]+[a-z]", family.name)
        assert family.help.endswith(".")
        assert "\\" not in family.help
        assert "\n" not in family.help


def paths_of(host, name):
    found = values(host).get(f"ovirt_rdma_{name}", ())
    return {tuple(labels.values()): number for labels, number in found}


def test_the_network_paths_that_the_daemon_wrote(host):
    assert "ovirt_rdma_path_up" not in values(host)
    unproven = replace(WHOLE, paths=(FIRST, replace(SECOND, state=UNPROVEN)))
    keep(host.root, HALF, replace(unproven, problem="the kernel has no dstaddr"))
    first, second = (
        ("nas1", "10.99.0.1,10.98.0.1"),
        ("nas2", "10.96.0.1,10.97.0.1"),
    )
    assert paths_of(host, "path_up") == {
        (*first, "10.99.0.1"): 1,
        (*first, "10.98.0.1"): 0,
        (*second, "10.96.0.1"): 1,
        (*second, "10.97.0.1"): 0,
    }
    assert paths_of(host, "path_connections")[(*first, "10.99.0.1")] == 2
    assert paths_of(host, "paths_movable") == {first: 1, second: 0}
    assert paths_of(host, "paths_moves_total") == {first: 3, second: 0}
    assert paths_of(host, "paths_last_move_seconds") == {first: 0.83}


def test_a_move_that_has_not_ended_has_no_time(host):
    keep(host.root, replace(HALF, last=replace(MOVE, seconds=None)))
    assert paths_of(host, "paths_last_move_seconds") == {}


def test_servers_with_a_common_path_have_no_sample_twice(host):
    other = replace(HALF, paths=(LEFT, SECOND))
    keep(host.root, HALF, other)
    text = render(read_metrics(host.root).rows)
    names = [line.rpartition(" ")[0] for line in text.splitlines()]
    assert len(set(names)) == len(names)


def test_a_stale_state_of_paths_counts_no_more(host):
    write_paths(host.root, PathsState(1.0, 1.0, (WHOLE,)))
    assert len(read_metrics(host.root).problems) == 1
    assert "ovirt_rdma_path_up" not in values(host)
