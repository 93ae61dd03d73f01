# SPDX-License-Identifier: GPL-2.0-or-later
"""A strict double of the oVirt engine's REST API, for tests: docs/engine-double.md.

    world = sample_world(hosts=12, domains=("data1", "data2"))
    with EngineDouble(world) as double:
        connection = ovirtsdk4.Connection(url=double.url, ...)

It speaks HTTP over loopback, reads and writes with ovirtsdk4's own readers and
writers, and holds what a client sends against a table of what there is.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from engine_double.double import EngineDouble, SeenRequest
from engine_double.faults import (
    AnswerLost,
    Conflict,
    DropConnection,
    Fault,
    Locked,
    NoContentType,
    ServiceUnavailableHtml,
    Status,
    Timeout,
)
from engine_double.sample import sample_world
from engine_double.world import (
    SimAssignment,
    SimAttachment,
    SimCluster,
    SimClusterNetwork,
    SimConnection,
    SimDataCenter,
    SimDomain,
    SimExport,
    SimHook,
    SimHost,
    SimNetwork,
    SimNic,
    World,
    new_id,
)

# Every module here registers its routes when it is imported; serve is a program.
for _module in sorted(Path(__file__).parent.glob("*.py")):
    if _module.stem not in ("__init__", "__main__", "serve"):
        importlib.import_module(f"engine_double.{_module.stem}")

__all__ = [
    "AnswerLost",
    "Conflict",
    "DropConnection",
    "EngineDouble",
    "Fault",
    "Locked",
    "NoContentType",
    "SeenRequest",
    "ServiceUnavailableHtml",
    "SimAssignment",
    "SimAttachment",
    "SimCluster",
    "SimClusterNetwork",
    "SimConnection",
    "SimDataCenter",
    "SimDomain",
    "SimExport",
    "SimHook",
    "SimHost",
    "SimNetwork",
    "SimNic",
    "Status",
    "Timeout",
    "World",
    "new_id",
    "sample_world",
]
