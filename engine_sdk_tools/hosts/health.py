# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the health of a host's mounts from its report, and make cells of it. Pure.

The host's ovirt-rdma-health.service has seen it; ``status`` reports it while it is
fresh. A report may be from another version, or damaged: what has another form counts as
unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.policy import status_part
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.matrix import FAIL, NONE, OK, UNKNOWN, WARN, Cell
from ovirt_rdma.storage.health.state import BROKEN, SLOW, STATES, MountHealth
from ovirt_rdma.storage.health.state import OK as HEALTHY

_MOST_SHOWN = 3
_LONGEST = 500
_NOT_WATCHED = (
    "nobody watches its mounts: its policy has no health_interval, or "
    "ovirt-rdma-health.service is not running"
)


def health_of(report: HostReport) -> Optional[tuple[MountHealth, ...]]:
    """Return the health of the host's mounts; None if nobody watches them."""
    mounts = status_part(report.status, "health").get("mounts")
    if not isinstance(mounts, list):
        return None
    return tuple(one for one in map(_reported, mounts) if one is not None)


def _reported(data: Any) -> Optional[MountHealth]:
    if not isinstance(data, dict) or data.get("state") not in STATES:
        return None
    texts = ("export", "mountpoint", "cause", "reason", "sentence", "fix")
    values = {name: data.get(name) or "" for name in texts}
    if not all(isinstance(value, str) for value in values.values()):
        return None
    shortened: dict[str, Any] = {
        name: value[:_LONGEST] for name, value in values.items()
    }
    certain = data.get("certain") is not False
    return MountHealth(
        transport=None,
        version=None,
        state=data["state"],
        certain=certain,
        **shortened,
    )


def health_cell(report: HostReport) -> Cell:
    """Return the cell of ``hosts check`` for the health of all mounts of a host."""
    if report.status is None:
        sentence = report.problem or "the host did not report its status"
        return Cell(UNKNOWN, "unknown", sentence, report.fix)
    found = health_of(report)
    if found is None:
        return Cell(NONE, "-", _NOT_WATCHED)
    for states, verdict in ((BROKEN, FAIL), ((SLOW,), WARN), (("unknown",), UNKNOWN)):
        bad = [one for one in found if one.state in states]
        if bad:
            sentences = [one.shown for one in bad[:_MOST_SHOWN]]
            more = len(bad) - len(sentences)
            sentences += [f"{more} more"] if more else []
            see = "on the host: ovirt-rdma-host nfs health"
            text = f"{len(bad)} {bad[0].state}"
            return Cell(verdict, text, "; ".join(sentences), bad[0].fix or see)
    mounts = "1 mount answers" if len(found) == 1 else f"{len(found)} mounts answer"
    return Cell(OK, "ok", mounts if found else "it has no NFS mount")


def with_health(cell: Cell, health: Optional[MountHealth]) -> Cell:
    """Return a domain's cell on a host, changed if its mount is not healthy there."""
    if health is None or health.state == HEALTHY:
        return cell
    sentence = f"{cell.sentence}; {health.shown}" if cell.sentence else health.shown
    if health.state in BROKEN:
        text = f"{cell.text}, {health.state}"
        fix = health.fix or cell.fix
        return replace(cell, verdict=FAIL, text=text, sentence=sentence, fix=fix)
    if cell.verdict != OK:
        return replace(cell, sentence=sentence)
    text = f"{cell.text}, {health.state}"
    verdict = WARN if health.state == SLOW else UNKNOWN
    return replace(cell, verdict=verdict, text=text, sentence=sentence, fix=health.fix)
