# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the results of ``fabric``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ovirt_rdma.cli.host.shown.runs import RunReport
from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.changes.kinds.model import DONE, RunResult
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.services.opensm_partitions import Proof


def show_applied(
    result: RunResult, proof: Proof, path: str, report: RunReport, output: Output
) -> None:
    """Show a run of ``fabric partitions apply``."""
    if not output.for_people:
        output.document(
            "fabric-apply",
            {
                "file": path,
                "run": result.run,
                "outcome": result.outcome,
                "sentence": result.sentence,
                "steps": [asdict(line) for line in report.lines],
                "left": [left.document() for left in result.left],
                "proven": proof.proven,
                "unlike": sentences(proof.unlike),
                "notes": [*report.notes, *proof.notes],
            },
        )
        return
    for note in proof.notes:
        output.message(f"note: {note}")
    output.text(f"{result.sentence}.")
    for left in result.left:
        output.text(f"{left.step} {left.what}: {left.why}".strip())
        output.fix(left.fix)
    if result.outcome != DONE:
        return
    if proof.proven:
        output.line("The subnet manager has these partitions.")
    for sentence in proof.unlike:
        output.text(f"{sentence}.")
    if proof.unlike:
        output.fix("restart opensm, when no host needs the fabric")


def sentences(found: tuple[Sentence, ...]) -> list[dict[str, Any]]:
    """Return sentences with their ids, for a document."""
    return [{"id": one.id, "sentence": one} for one in found]
