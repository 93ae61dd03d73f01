# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the results of ``fabric``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ovirt_rdma.cli.host.shown.runs import RunReport
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.changes.kinds.model import DONE, RunResult
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.grammar import INVALID_FIX
from ovirt_rdma.host.fabric.model import Definition
from ovirt_rdma.host.opensm.partitions import text_of
from ovirt_rdma.host.opensm.processes import OpensmProcess
from ovirt_rdma.host.opensm.read import FabricFacts, Subnet
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, Finding
from ovirt_rdma.host.services.opensm_partitions import Proof


def show_rendered(
    definitions: Sequence[Definition], source: str, output: Output
) -> None:
    """Show the result of ``fabric partitions render``, for the policy of ``source``."""
    text = text_of(definitions)
    if output.for_people:
        for line in text.splitlines():
            output.line(line)
        return
    partitions = [asdict(one) for one in definitions]
    content = {"policy": source, "text": text, "partitions": partitions}
    output.document("fabric-partitions", content)


def show_diff(
    lines: Sequence[str], name: str, source: str, words: Sequence[str], output: Output
) -> None:
    """Show how the file ``name`` differs from the policy of ``source``; ``words`` are
    the verb that ends it.
    """
    if not output.for_people:
        content = {
            "file": name,
            "policy": source,
            "same": not lines,
            "diff": list(lines),
        }
        output.document("fabric-diff", content)
        return
    for line in lines:
        output.line(line, {"-": "bad", "+": "good"}.get(line[:1]))
    if lines:
        output.next(shlex.join(["ovirt-rdma-host", "fabric", "partitions", *words]))
    else:
        output.line(f"{name} has the partitions of the policy ({source}).")


def show_validated(
    name: str,
    definitions: Sequence[Definition],
    errors: Sequence[Sentence],
    warnings: Sequence[Sentence],
    output: Output,
) -> None:
    """Show what ``fabric partitions validate`` has found in the file ``name``."""
    if not output.for_people:
        output.document(
            "fabric-validate",
            {
                "file": name,
                "valid": not errors,
                "errors": sentences(errors),
                "warnings": sentences(warnings),
                "partitions": [asdict(one) for one in definitions],
            },
        )
        return
    for sentence in errors:
        output.text(sentence)
    for sentence in warnings:
        output.text(f"{name}: {sentence} (warning)")
    if errors:
        output.line(f"{name} is invalid: {count(len(errors), 'mistake')}.")
        output.fix(INVALID_FIX)
    else:
        partitions = {one.pkey for one in definitions}
        output.line(f"{name} is valid: {count(len(partitions), 'partition')}.")


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
    if proof.proven is False:
        output.fix("send SIGHUP to opensm, so that it reads the file, and see its log")
    elif proof.unlike:
        output.fix("restart opensm, when no host needs the fabric")


_VERDICT_TONES = {PASS: "good", WARN: "doubtful", FAIL: "bad"}


def show_status(fabric: FabricFacts, output: Output) -> None:
    """Show the result of ``fabric sm status``."""
    if not output.for_people:
        content: dict[str, Any] = {
            "host": fabric.hostname,
            "ports": list(map(_subnet_document, fabric.subnets)),
            "opensm": [
                {**asdict(one), "ours": one.is_ours} for one in fabric.processes
            ],
        }
        output.document("fabric-sm-status", content)
        return
    for problem in _problems(fabric):
        output.message(f"note: {problem}")
    if not fabric.subnets:
        output.line("This host has no InfiniBand port.")
    else:
        output.table(
            ("PORT", "GUID", "STATE", "LID", "SUBNET MANAGER", "LID", "PRIORITY", "IS"),
            [row for one in fabric.subnets for row in _rows(one, fabric)],
        )
    for process in fabric.processes:
        output.line(f"opensm is running on this host: {_process(process)}.")
    if not fabric.processes:
        output.line("opensm is not running on this host.")


def _rows(subnet: Subnet, fabric: FabricFacts) -> list[tuple[str, ...]]:
    port = subnet.port
    own = (port.title, port.guid, port.port.state, str(port.port.lid or "-"))
    managers = subnet.managers or ((subnet.master,) if subnet.master else ())
    if not managers:
        return [(*own, "-", "-", "-", "no answer" if port.port.is_active else "-")]
    rows = []
    for number, one in enumerate(managers):
        where = f"{one.guid} (this host)" if one.guid in fabric.guids else one.guid
        first = own if number == 0 else ("",) * len(own)
        rows.append((*first, where, str(one.lid), str(one.priority), one.state))
    return rows


def _process(process: OpensmProcess) -> str:
    parts = [f"process {process.pid}"]
    if process.guid:
        parts.append(f"port {process.guid}")
    if process.priority is not None:
        parts.append(f"priority {process.priority}")
    if process.partitions:
        parts.append(f"partitions of {process.partitions}")
    if process.is_ours:
        parts.append("started by ovirt-rdma")
    return ", ".join(parts)


def _subnet_document(subnet: Subnet) -> dict[str, Any]:
    port = subnet.port
    return {
        "device": port.device,
        "port": port.number,
        "guid": port.guid,
        "state": port.port.state,
        "lid": port.port.lid,
        "master": subnet.master and asdict(subnet.master),
        "managers": subnet.managers and [asdict(one) for one in subnet.managers],
        "groups": subnet.groups and [asdict(one) for one in subnet.groups],
        "problems": sentences(subnet.problems),
    }


def show_findings(
    found: tuple[Finding, ...], fabric: FabricFacts, source: str, output: Output
) -> None:
    """Show the result of ``fabric check``, for the policy of ``source``."""
    if not output.for_people:
        content: dict[str, Any] = {
            "host": fabric.hostname,
            "policy": source,
            "findings": [
                {"id": getattr(one.sentence, "id", ""), **asdict(one)} for one in found
            ],
        }
        output.document("fabric-check", content)
        return
    for problem in _problems(fabric):
        output.message(f"note: {problem}")
    widest = max((len(one.subject) for one in found), default=0)
    for one in found:
        output.row(
            (one.verdict, one.subject, one.sentence),
            (len(PASS), widest),
            _VERDICT_TONES.get(one.verdict, ""),
        )
        if one.fix:
            output.fix(one.fix)
    verdicts = {one.verdict for one in found}
    if FAIL in verdicts:
        verdict = "is not as it should be"
    elif verdicts <= {SKIP}:
        verdict = "was not checked"
    else:
        verdict = "is as it should be"
    output.line(f"The fabric of {fabric.hostname} {verdict} ({source}).")


def _problems(fabric: FabricFacts) -> list[Sentence]:
    return list(dict.fromkeys(p for one in fabric.subnets for p in one.problems))


def sentences(found: Sequence[Sentence]) -> list[dict[str, Any]]:
    """Return sentences with their ids, for a document."""
    return [{"id": one.id, "sentence": one} for one in found]
