#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``dashboard.py FOLDER``: write our dashboard in two forms for Grafana into FOLDER.

``ovirt-rdma-grafana.json`` is for the Grafana that oVirt's data warehouse sets up (7.3
and later), ``ovirt-rdma-grafana-10.json`` for 10 and later. Packages are built with it,
so it needs the standard library of Python 3.9 only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union

TITLE = "RDMA storage of oVirt hosts"
DESCRIPTION = (
    "NFS mounts over RDMA on oVirt hypervisors: transport, operations, connections, "
    "health and ports. Made for the metrics of ovirt-rdma (GPL-2.0-or-later)."
)
# Short for what the variables choose, in the queries below.
_CHOSEN = {
    "MOUNT": 'instance=~"$instance",export=~"$export"',
    "HOST": 'instance=~"$instance"',
    "RATE": "$__rate_interval",
    "EACH": "instance, export, mountpoint",
}
VARIABLES = {
    "instance": ("Host", "ovirt_rdma_exporter_last_run_timestamp_seconds"),
    "export": ("Export", "ovirt_rdma_mount_info"),
}


class Number(NamedTuple):
    """One number of now, red from ``red`` on; six share a line."""

    title: str
    query: str
    description: str
    red: int = 1
    unit: str = "short"


class Table(NamedTuple):
    """The labels of what ``query`` yields now."""

    title: str
    query: str
    description: str
    width: int


class Graph(NamedTuple):
    """Lines: ``queries`` with the name of each line, which begins with ``name``."""

    title: str
    unit: str
    name: str
    queries: dict[str, str]
    description: str
    width: int = 8


Panel = Union[Number, Table, Graph]

_MOUNT = "{{instance}} {{export}}"
_CONNECTION = f"{_MOUNT} {{{{connection}}}}"
_TRANSPORT = "{{instance}} {{destination}} {{switch}}/{{transport}}"
_PORT = "{{instance}} {{device}}/{{port}}"


def _mean_times(operation: str) -> Graph:
    some = f'{{operation="{operation}",MOUNT}}[RATE]'
    requests = f"rate(ovirt_rdma_operation_requests_total{some})"
    kinds = {" round trip": "round_trip", " execution": "execution"}
    return Graph(
        f"{operation}: mean round trip and execution",
        "s",
        _MOUNT,
        {
            name: f"rate(ovirt_rdma_operation_{kind}_seconds_total{some}) / {requests}"
            for name, kind in kinds.items()
        },
        "Execution without round trip is waiting in this host: for a slot, or to be "
        "sent.",
    )


# Rows of panels, by the title of each.
ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        Number(
            "Degraded mounts",
            'sum(ovirt_rdma_mount_verdict{verdict="degraded",HOST})',
            "They have another transport than the policy says.",
        ),
        Number(
            "Unproven mounts",
            'sum(ovirt_rdma_mount_verdict{verdict="unproven",HOST})',
            "The kernel's signals on their transport do not agree.",
        ),
        Number(
            "Stalled or dead",
            'sum(ovirt_rdma_mount_health{state=~"stalled|dead",HOST})',
            "No data if nobody watches the health of the mounts.",
        ),
        Number(
            "Ports not active",
            "sum(1 - ovirt_rdma_port_active{HOST})",
            "RDMA ports without a link, those without a cable too.",
        ),
        Number(
            "Policies",
            "count(count by (digest) (ovirt_rdma_policy_info{HOST}))",
            "How many different policies the hosts have.",
            red=2,
        ),
        Number(
            "Oldest metrics",
            "max(time() - ovirt_rdma_exporter_last_run_timestamp_seconds{HOST})",
            "How long ago the exporter of a host last ran: the longest time.",
            red=60,
            unit="s",
        ),
        Table(
            "Mounts",
            "ovirt_rdma_mount_info{MOUNT} * on (instance, job, export, mountpoint) "
            "group_left (verdict) (ovirt_rdma_mount_verdict == 1)",
            "Each mount with its transport, and the verdict on it.",
            24,
        ),
    ),
    "Operations": (
        Graph(
            "Read throughput",
            "Bps",
            _MOUNT,
            {
                "": "sum by (EACH) (rate(ovirt_rdma_operation_received_bytes_total"
                '{operation="READ",MOUNT}[RATE]))'
            },
            "Bytes of replies to READ.",
        ),
        Graph(
            "Write throughput",
            "Bps",
            _MOUNT,
            {
                "": "sum by (EACH) (rate(ovirt_rdma_operation_sent_bytes_total"
                '{operation="WRITE",MOUNT}[RATE]))'
            },
            "Bytes of WRITE requests.",
        ),
        Graph(
            "Requests",
            "ops",
            _MOUNT,
            {
                "": "sum by (EACH) (rate(ovirt_rdma_operation_requests_total{MOUNT}"
                "[RATE]))"
            },
            "Requests that were completed, of all operations.",
        ),
        _mean_times("READ"),
        _mean_times("WRITE"),
        Graph(
            "Sent again",
            "ops",
            _MOUNT,
            {
                "": "sum by (EACH) (rate(ovirt_rdma_operation_transmissions_total"
                "{MOUNT}[RATE]) - rate(ovirt_rdma_operation_requests_total{MOUNT}"
                "[RATE]))"
            },
            "Transmissions beyond the first of a request.",
        ),
    ),
    "Connections": (
        Graph(
            "Mean backlog: requests that wait for a slot",
            "short",
            _CONNECTION,
            {
                "": "rate(ovirt_rdma_connection_backlog_total{MOUNT}[RATE]) / "
                "rate(ovirt_rdma_connection_sends_total{MOUNT}[RATE])"
            },
            "At each send.",
        ),
        Graph(
            "Mean requests without reply",
            "short",
            _MOUNT,
            {
                "": "sum by (EACH) (rate(ovirt_rdma_operation_round_trip_seconds_total"
                "{MOUNT}[RATE]))"
            },
            "Seconds of round trips for each second. A request counts when its reply "
            "is there.",
        ),
        Graph(
            "Connections made",
            "short",
            _CONNECTION,
            {"": "increase(ovirt_rdma_connection_connects_total{MOUNT}[5m])"},
            "In five minutes. An idle connection is made again with its next request.",
        ),
        Graph(
            "Slots: most, existing, waiting",
            "short",
            _TRANSPORT,
            {
                " most": "ovirt_rdma_transport_slots{HOST}",
                " existing": "ovirt_rdma_transport_requests{HOST}",
                " waiting": "ovirt_rdma_transport_backlog{HOST}",
            },
            "Requests that wait have no slot.",
        ),
        Graph(
            "Bytes copied instead of moved by RDMA",
            "Bps",
            _CONNECTION,
            {
                f" {what}": f"rate(ovirt_rdma_connection_{kind}_bytes_total{{MOUNT}}"
                "[RATE])"
                for what, kind in (("requests", "pullup"), ("replies", "fixup"))
            },
            "By the processors of the host.",
        ),
        Graph(
            "Memory regions and invalidations",
            "ops",
            _CONNECTION,
            {
                f" {what}": f"rate(ovirt_rdma_connection_{kind}_total{{MOUNT}}[RATE])"
                for what, kind in (
                    ("allocated", "regions_allocated"),
                    ("recycled", "regions_recycled"),
                    ("invalidated here", "local_invalidations"),
                )
            },
            "Recycled regions follow errors.",
        ),
    ),
    "Health": (
        Graph(
            "Time to answer a probe",
            "s",
            _MOUNT,
            {"": "ovirt_rdma_mount_health_answer_seconds{MOUNT}"},
            "No data without an answer, or if nobody watches the mounts.",
            width=12,
        ),
        Table(
            "Not healthy",
            "ovirt_rdma_mount_health_cause{MOUNT}",
            "Empty if all mounts are healthy, or nobody watches them.",
            12,
        ),
    ),
    "Ports": (
        Graph(
            "Traffic of ports",
            "Bps",
            _PORT,
            {
                f" {what}": f"rate(ovirt_rdma_port_{what}_bytes_total{{HOST}}[RATE])"
                for what in ("received", "sent")
            },
            "All traffic over RDMA, not that of storage alone.",
        ),
        *(
            Graph(
                title,
                "short",
                f"{_PORT} {{{{counter}}}}",
                {"": f"increase(ovirt_rdma_port_{kind}_total{{HOST}}[5m]) > 0"},
                "What a counter rose by in five minutes. Empty if none rose.",
            )
            for title, kind in (
                ("Errors of ports", "errors"),
                ("Congestion", "congestion"),
            )
        ),
    ),
    "Exporter": (
        Graph(
            "Run time",
            "s",
            "{{instance}}",
            {"": "ovirt_rdma_exporter_run_seconds{HOST}"},
            "Without the start of the program.",
            width=12,
        ),
        Graph(
            "Problems and mounts left out",
            "short",
            "{{instance}}",
            {
                " problems": "ovirt_rdma_exporter_problems{HOST}",
                " left out": "ovirt_rdma_exporter_mounts_left_out{HOST}",
            },
            "What could not be read; ovirt-rdma-host daemon status names it.",
            width=12,
        ),
    ),
}


class Form(NamedTuple):
    """What differs between versions of Grafana, beside the panels of the type graph."""

    since: str
    schema: int
    source: object
    grafana: object


FORMS = {
    "ovirt-rdma-grafana.json": Form("7.3.0", 26, "$datasource", "-- Grafana --"),
    "ovirt-rdma-grafana-10.json": Form(
        "10.0.0",
        38,
        {"type": "prometheus", "uid": "${datasource}"},
        {"type": "grafana", "uid": "-- Grafana --"},
    ),
}


def board(form: Form) -> dict[str, Any]:
    """Return the dashboard in a form, as Grafana imports it."""
    source = {"name": "Prometheus", "type": "datasource", "id": "prometheus"}
    program = {"name": "Grafana", "type": "grafana", "id": "grafana"}
    return {
        "__inputs": [],
        "__requires": [
            {**program, "version": form.since},
            {**source, "version": "1.0.0"},
        ],
        "annotations": {
            "list": [
                {
                    "builtIn": 1,
                    "datasource": form.grafana,
                    "enable": True,
                    "hide": True,
                    "iconColor": "rgba(0, 211, 255, 1)",
                    "name": "Annotations & Alerts",
                    "type": "dashboard",
                }
            ]
        },
        "description": DESCRIPTION,
        "editable": True,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": list(_panels(form)),
        "refresh": "30s",
        "schemaVersion": form.schema,
        "tags": ["oVirt", "RDMA", "NFS"],
        "templating": {"list": list(_variables(form))},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": TITLE,
        "uid": "ovirt-rdma",
        "version": 1,
    }


def _variables(form: Form) -> Iterator[dict[str, Any]]:
    always = {
        "current": {},
        "hide": 0,
        "options": [],
        "regex": "",
        "skipUrlSync": False,
    }
    yield {
        **always,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }
    for name, (label, metric) in VARIABLES.items():
        values = f"label_values({metric}, {name})"
        yield {
            **always,
            "allValue": ".*",
            "datasource": form.source,
            "definition": values,
            "includeAll": True,
            "label": label,
            "multi": True,
            "name": name,
            "query": values if form.schema < 30 else {"query": values, "refId": name},
            "refresh": 2,
            "sort": 1,
            "type": "query",
        }


def _panels(form: Form) -> Iterator[dict[str, Any]]:
    number = y = 0
    for title, panels in ROWS.items():
        number += 1
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        row = {"collapsed": False, "gridPos": place, "panels": [], "type": "row"}
        yield {**row, "id": number, "title": title}
        y += 1
        x = height = 0
        for panel in panels:
            number += 1
            size = (4, 4) if isinstance(panel, Number) else (panel.width, 8)
            if x + size[0] > 24:
                x, y = 0, y + height
            width, height = size
            yield {
                "datasource": form.source,
                "description": panel.description,
                "gridPos": {"h": height, "w": width, "x": x, "y": y},
                "id": number,
                "pluginVersion": form.since,
                "title": panel.title,
                **_content(panel, form),
            }
            x += width
        y += height


def _content(panel: Panel, form: Form) -> dict[str, Any]:
    if isinstance(panel, Graph):
        lines = {panel.name + end: query for end, query in panel.queries.items()}
        return {
            "targets": [
                _target(form, query, ref, legendFormat=name, range=True)
                for ref, (name, query) in zip("ABC", lines.items())
            ],
            **(_flot(panel.unit) if form.schema < 30 else _timeseries(panel.unit)),
        }
    if isinstance(panel, Table):
        once = {"format": "table", "instant": True}
        hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
        return {
            "type": "table",
            "fieldConfig": {
                "defaults": {"custom": {"filterable": True}},
                "overrides": [],
            },
            "options": {"showHeader": True},
            "targets": [_target(form, panel.query, "A", legendFormat="", **once)],
            "transformations": [
                {
                    "id": "organize",
                    "options": {
                        "excludeByName": hidden,
                        "indexByName": {},
                        "renameByName": {},
                    },
                }
            ],
        }
    steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.red}]
    return {
        "type": "stat",
        "fieldConfig": {
            "defaults": {
                "mappings": [],
                "thresholds": {"mode": "absolute", "steps": steps},
                "unit": panel.unit,
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
        "targets": [_target(form, panel.query, "A", legendFormat="", range=True)],
    }


def _target(form: Form, query: str, ref: str, **more: object) -> dict[str, Any]:
    for short, text in _CHOSEN.items():
        query = query.replace(short, text)
    target = {"expr": query, "interval": "", "refId": ref, **more}
    return target if form.schema < 30 else {**target, "datasource": form.source}


def _flot(unit: str) -> dict[str, Any]:
    """Return lines as the panel graph draws them; timeseries came with 7.4."""
    axis = {"label": None, "logBase": 1, "max": None}
    return {
        "type": "graph",
        "fill": 1,
        "legend": {"show": True},
        "lines": True,
        "linewidth": 1,
        "nullPointMode": "null",
        "renderer": "flot",
        "tooltip": {"shared": True, "sort": 2, "value_type": "individual"},
        "xaxis": {"mode": "time", "show": True},
        "yaxes": [
            {**axis, "format": unit, "min": "0", "show": True},
            {**axis, "format": "short", "min": None, "show": False},
        ],
    }


def _timeseries(unit: str) -> dict[str, Any]:
    """Return the same lines for Grafana of today, which has no graph any more."""
    drawn = {"drawStyle": "line", "fillOpacity": 10, "lineWidth": 1}
    return {
        "type": "timeseries",
        "fieldConfig": {
            "defaults": {
                "color": {"mode": "palette-classic"},
                "custom": {**drawn, "showPoints": "never", "spanNulls": False},
                "min": 0,
                "unit": unit,
            },
            "overrides": [],
        },
        "options": {
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def main(arguments: list[str]) -> int:
    """Run the program; see the module."""
    (folder,) = map(Path, arguments)
    for name, form in FORMS.items():
        (folder / name).write_text(json.dumps(board(form), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
