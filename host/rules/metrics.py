# SPDX-License-Identifier: GPL-2.0-or-later
"""METRICS-01: the timer that writes the metrics. Pure.

It is off until the policy has ``metrics_folder``, and apply has enabled it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.paths import METRICS_UNIT
from ovirt_rdma.host.rules.base import Outcome, Rule
from ovirt_rdma.host.rules.own_unit import OwnUnit, decide_unit
from ovirt_rdma.host.rules.view import View

ID = "METRICS-01"
SOURCE = "node_exporter, collector/textfile.go"
_UNIT = OwnUnit(
    ID,
    METRICS_UNIT,
    key="metrics_folder",
    running="writes the metrics",
    kept="the file that was written last stays, with old values",
    failed="so no metrics are written",
    reason="node_exporter knows nothing of RDMA mounts, and reads them from a file",
    source=SOURCE,
    undo="; remove ovirt_rdma.prom from the folder",
)


def decide(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host, and a step if the timer must be enabled."""
    folder = view.policy.host.metrics_folder
    wanted = f"the metrics should be written into {folder}" if folder else ""
    yield from decide_unit(view, _UNIT, wanted)


RULES = (Rule(ID, decide),)
