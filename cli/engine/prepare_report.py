# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the plan and the result of ``hosts prepare``; decide its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.api.request import wire_form
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.engine_sdk_tools.preparation.model import (
    AUTO,
    DONE,
    FAILED,
    LEFT_OUT,
    NO_HARDWARE,
    NOTHING,
    OVER,
    REINSTALL,
    HostRecord,
    PreparationState,
)
from ovirt_rdma.engine_sdk_tools.preparation.next_step import (
    PreparationStep,
    imagined,
)
from ovirt_rdma.host.exit_code import ExitCode

KIND = "hosts-prepare"
_TONES = {"prepared": "good", "failed": "bad", "left out": "bad", "not started": "bad"}
_GOOD = (DONE, NO_HARDWARE)


def anything_to_do(state: PreparationState) -> bool:
    """Whether a host has still to be prepared."""
    return any(record.stage not in OVER for record in state.hosts)


def plan_lines(state: PreparationState) -> list[str]:
    """Return the plan in short, for the question."""
    lines = []
    mine = [record for record in state.hosts if record.stage not in OVER]
    for way in dict.fromkeys(record.way for record in mine):
        names = [record.name for record in mine if record.way == way]
        lines.append(f"by {way}: {listed(names)}")
    if mine:
        batches = 1 + max(record.batch for record in mine)
        lines.insert(0, f"{count(len(mine), 'host')}, first {mine[0].name} alone")
        if batches > 1:
            word = "batch" if batches == 2 else "batches"
            lines[0] += f", then the others in {batches - 1} {word}"
    restart = [record.name for record in mine if record.reboot]
    if restart:
        lines.append(f"restarted at the end: {listed(restart)}")
    return lines


def plan_document(
    state: PreparationState, statuses: Mapping[str, Optional[str]]
) -> dict[str, Any]:
    """Return each host's way and all steps with their requests."""
    steps = [_step_document(step) for step in imagined(state, statuses)]
    return {"dry_run": True, **_head(state), "steps": steps}


def show_plan(
    state: PreparationState, statuses: Mapping[str, Optional[str]], output: Output
) -> None:
    """Show the same for people."""
    steps = list(imagined(state, statuses))
    output.table(
        ("HOST", "BATCH", "HOW", "RESTART", "REASON"),
        [
            (
                record.name,
                "-" if record.stage in OVER else str(record.batch),
                record.way if record.stage != LEFT_OUT else LEFT_OUT,
                "yes" if record.reboot else "no",
                record.problem or record.reason or "-",
            )
            for record in state.hosts
        ],
    )
    for number, step in enumerate(steps, 1):
        output.text(step.doing, hang=f"{number}. ")
        if step.call is not None:
            form = wire_form(step.call)
            output.line(f"   {form.method} {form.path}")
            for line in form.body.splitlines():
                output.line(f"   {line}")
    if state.by == AUTO:
        output.text(
            "A host by SSH is reinstalled, too, if its report then shows that a link "
            "has to go down, or that it has to restart."
        )


def result_document(state: PreparationState) -> dict[str, Any]:
    """Return the result."""
    return {"dry_run": False, **_head(state)}


def show_result(state: PreparationState, output: Output) -> None:
    """Show the result for people."""
    if state.hosts:
        output.table(
            ("HOST", "HOW", "RESULT", "PROOF"),
            [
                (
                    record.name,
                    record.way,
                    _result(record),
                    record.problem or record.sentinel or record.reason or "-",
                )
                for record in state.hosts
            ],
            _TONES,
        )
    for fix in dict.fromkeys(r.fix for r in state.hosts if r.problem and r.fix):
        output.fix(fix)
    waiting = [record.name for record in state.hosts if record.left]
    if waiting:
        output.text(
            f"On {listed(waiting)}, steps of the plan need a maintenance: "
            f"ovirt-rdma hosts prepare {shlex.join(waiting)} --by reinstall"
        )
    output.text(f"{sentence(state)[:1].upper()}{sentence(state)[1:]}.")


def sentence(state: PreparationState) -> str:
    """Return the result as one sentence, without a full stop."""
    good = sum(record.stage in _GOOD for record in state.hosts)
    bad = [record.name for record in state.hosts if record.stage == FAILED]
    text = f"{good} of {count(len(state.hosts), 'host')} prepared"
    if bad:
        text += f"; failed: {listed(bad)}"
    waiting = [record for record in state.hosts if record.stage not in OVER]
    if waiting:
        text += f"; {count(len(waiting), 'host')} not started because of that"
    return text


def exit_code(state: PreparationState) -> ExitCode:
    """Return DONE if all hosts are prepared, SOME if some are, FAILED if none is."""
    good = sum(record.stage in _GOOD for record in state.hosts)
    if good == len(state.hosts):
        return ExitCode.DONE
    return ExitCode.SOME if good else ExitCode.FAILED


def command_of(state: PreparationState) -> str:
    """Return the command that continues the run."""
    names = " ".join(shlex.quote(record.name) for record in state.hosts)
    by = "" if state.by == AUTO else f" --by {state.by}"
    return f"ovirt-rdma hosts prepare {names}{by}"


def interrupted_lines(state: PreparationState) -> list[str]:
    """Return what is known of a run that did not end, and how to continue."""
    now = [
        record.name
        for record in state.hosts
        if record.stage not in OVER and record.stage != "todo"
    ]
    lines = [f"the preparation was interrupted: {sentence(state)}"]
    if state.doing:
        lines.append(f"the last step was: {state.doing}")
    moved = [n for n in now if state.host(n).way == REINSTALL]
    if moved:
        lines.append(f"{listed(moved)} may be in maintenance")
    lines.append(f"continue with '{command_of(state)}'")
    return lines


def _result(record: HostRecord) -> str:
    if record.way == NOTHING:
        return "unchanged"
    words = {DONE: "prepared", FAILED: "failed", LEFT_OUT: LEFT_OUT}
    return words.get(
        record.stage, NO_HARDWARE if record.stage == NO_HARDWARE else "not started"
    )


def _head(state: PreparationState) -> dict[str, Any]:
    return {
        "data_center": state.name,
        "by": state.by,
        "policy": state.digest,
        "stage": state.stage,
        "hosts": [
            {
                key: value
                for key, value in asdict(record).items()
                if key not in ("id", "event")
            }
            for record in state.hosts
        ],
    }


def _step_document(step: PreparationStep) -> dict[str, Any]:
    document: dict[str, Any] = {"doing": step.doing, "hosts": list(step.hosts)}
    if step.call is not None:
        form = wire_form(step.call)
        document.update(method=form.method, path=form.path, body=form.body)
    return document
