# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the results of ``fabric sm enable`` and ``disable``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ovirt_rdma.cli.host.shown.fabric import sentences
from ovirt_rdma.cli.host.shown.runs import RunReport
from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.changes.kinds.model import DONE, RunResult
from ovirt_rdma.host.opensm.manager import ManagerPlan
from ovirt_rdma.host.opensm.read import LocalPort
from ovirt_rdma.host.paths import OPENSM_UNIT
from ovirt_rdma.host.services.opensm_partitions import Proof


def show_enabled(
    plan: ManagerPlan,
    result: RunResult,
    proof: Proof,
    report: RunReport,
    output: Output,
) -> None:
    """Show a run of ``fabric sm enable``."""
    if not output.for_people:
        ports = [
            {
                "device": one.port.device,
                "port": one.port.number,
                "guid": one.port.guid,
                "priority": one.priority,
                "state": one.state,
                "reason": one.reason,
            }
            for one in plan.ports
        ]
        more = {
            "ports": ports,
            "proven": proof.proven,
            "unlike": sentences(proof.unlike),
        }
        notes = [*report.notes, *proof.notes]
        output.document("fabric-sm-enable", {**_run(result, report, notes), **more})
        return
    for note in proof.notes:
        output.message(f"note: {note}")
    _show_run(result, output)
    if result.outcome != DONE:
        return
    for one in plan.ports:
        if proof.proven:
            why = f"{one.state} at {one.port.title} with priority {one.priority}"
            output.text(f"opensm is {why} ({one.reason}).")
    for sentence in proof.unlike:
        output.text(f"{sentence}.")
    if not proof.proven:
        units = " ".join(OPENSM_UNIT.format(one.port.guid) for one in plan.ports)
        output.fix(f"see systemctl status {units}; then: systemctl restart {units}")


def show_disabled(
    result: RunResult,
    lonely: Sequence[LocalPort],
    report: RunReport,
    output: Output,
) -> None:
    """Show a run of ``fabric sm disable``; ``lonely`` are the ports whose subnet has no
    other subnet manager.
    """
    left = lonely if result.run is not None else ()
    if not output.for_people:
        ports = [{"port": one.title, "guid": one.guid} for one in left]
        document = {**_run(result, report, report.notes), "without_manager": ports}
        output.document("fabric-sm-disable", document)
        return
    _show_run(result, output)
    for port in left:
        output.text(
            f"No other subnet manager is known at {port.title}: links stay, and ports "
            "that come up later stay INIT."
        )


def _run(
    result: RunResult, report: RunReport, notes: Sequence[str]
) -> dict[str, object]:
    return {
        "run": result.run,
        "outcome": result.outcome,
        "sentence": result.sentence,
        "steps": [asdict(line) for line in report.lines],
        "left": [left.document() for left in result.left],
        "notes": list(notes),
    }


def _show_run(result: RunResult, output: Output) -> None:
    output.text(f"{result.sentence}.")
    for left in result.left:
        output.text(f"{left.step} {left.what}: {left.why}".strip())
        output.fix(left.fix)
