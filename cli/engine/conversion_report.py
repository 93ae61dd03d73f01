# SPDX-License-Identifier: GPL-2.0-or-later
"""Print what ``domain convert``, ``revert`` and ``heal`` plan and have done.

The plan lists the steps; the result has the outcome of each host. This module also
decides the exit code.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.api.request import wire_form
from ovirt_rdma.engine_sdk_tools.conversion.lock import command_of, revert_command_of
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERTED,
    CONVERTING,
    DONE,
    ENTERING,
    FAILED,
    FORWARD,
    GONE,
    HEAL,
    LEFT,
    REVERTED,
    REVERTING,
    ROLLED_BACK,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    ENTER,
    LEAVE,
    PUSH,
    ConversionStep,
)
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.policy.drop_ins import PolicyFiles

_TONES = {
    "converted": "good",
    "healed": "good",
    "as before": "doubtful",
    "failed": "bad",
    "left": "doubtful",
    "left out": "doubtful",
}

# Short names of what is done with a host.
ENTERED = "maintenance"
_SHORT = {PUSH: "policy", ENTER: ENTERED, LEAVE: "activation"}


def exit_code(state: ConversionState) -> ExitCode:
    """Return the exit code; REFUSED if the engine refused the first change."""
    if state.stage in (CONVERTED, REVERTED):
        return ExitCode.DONE
    some = any(h.goal == FORWARD and h.stage == DONE for h in state.hosts)
    if state.kind == HEAL:
        return ExitCode.SOME if some else ExitCode.FAILED
    if state.stage == ROLLED_BACK:
        changed = any(h.touched for h in state.hosts)
        changed = changed or any(d.touched for d in state.domains)
        return ExitCode.ROLLED_BACK if changed else ExitCode.REFUSED
    done = some or any(h.goal == BACK and h.stage == DONE for h in state.hosts)
    return ExitCode.SOME if done else ExitCode.FAILED


def plan_lines(plan: ConversionPlan) -> list[str]:
    """Return a summary of the plan for the confirmation, without its warnings.

    Hosts with the same steps share one line, in the order in which they are processed.
    """
    state = plan.state
    lines: list[str] = []
    actions_of: dict[str, list[str]] = {}
    for step in plan.steps:
        actions_of.setdefault(step.subject, []).append(
            _SHORT.get(step.kind, step.doing)
        )
    subjects_by_actions: dict[tuple[str, ...], list[str]] = {}
    for subject, actions in actions_of.items():
        subjects_by_actions.setdefault(tuple(actions), []).append(subject)
    pace = "one by one" if state.batch == 1 else f"{state.batch} at a time"
    for shared, subjects in subjects_by_actions.items():
        if set(shared) <= set(_SHORT.values()):
            paced = f", {pace}" if len(subjects) > 1 and ENTERED in shared else ""
            lines.append(f"{', '.join(subjects)}{paced}: {', '.join(shared)}")
        else:
            lines += shared
    return [*lines, f"{count(len(plan.steps), 'step')} for {state.title}"]


def show_plan(plan: ConversionPlan, kind: str, output: Output) -> None:
    """Print the steps of a dry run: requests to the engine, and policies for hosts."""
    if not output.for_people:
        calls = [_call_document(step) for step in plan.steps]
        content = {"dry_run": True, "warnings": list(plan.warnings), "calls": calls}
        output.document(kind, {**_head(plan.state), **content})
        return
    for sentence in plan.warnings:
        output.text(f"warning: {sentence}")
    if not plan.steps:
        output.line("Nothing to do.")
    policies: dict[PolicyFiles, int] = {}
    for number, step in enumerate(plan.steps, 1):
        output.text(step.doing, hang=f"{number}. ")
        lines = _call_lines(step)
        if step.kind == PUSH and policies.setdefault(step.policy, number) != number:
            lines = [f"(the policy of step {policies[step.policy]})"]
        for line in lines:
            output.line(f"   {line}")


def show_result(state: ConversionState, kind: str, output: Output) -> None:
    """Print the result: the outcome of each host, and the command to run next."""
    if not output.for_people:
        hosts = [
            {"host": h.name, "outcome": _outcome(state, h), "sentence": h.why}
            for h in state.hosts
        ]
        content = {
            "dry_run": False,
            "stage": state.stage,
            "why": state.why,
            "hosts": hosts,
        }
        output.document(kind, {**_head(state), **content})
        return
    output.text(f"{sentence(state)}.")
    rows = [[h.name, _outcome(state, h), h.why] for h in state.hosts]
    if rows:
        output.table(["HOST", "OUTCOME", ""], rows, _TONES)
    for line in _next(state):
        output.next(line)


def sentence(state: ConversionState) -> str:
    """Return the result in one sentence; also the text of the engine's event."""
    several = len(state.domains) > 1
    what = "Heal of" if state.kind == HEAL else "Domains" if several else "Domain"
    title, verb = f"{what} {state.title}", "are" if several else "is"
    if state.stage == CONVERTED:
        if state.kind == HEAL:
            return f"{title}: the mounts are over RDMA again"
        proven = "" if _proven(state) else ", but not proven on every host"
        without = _left_out(state)
        if without:
            proven += f", without {', '.join(without)}"
        return f"{title} {verb} converted to {state.to.upper()}{proven}"
    if state.stage == REVERTED:
        return f"{title} {verb} mounted as before"
    why = f": {state.why.rstrip('.')}" if state.why else ""
    if state.stage == ROLLED_BACK:
        return f"{title} {verb} as before{why}"
    return f"{title} stopped and is incomplete{why}"


def _left_out(state: ConversionState) -> list[str]:
    return [host.name for host in state.hosts if host.left_out]


def _proven(state: ConversionState) -> bool:
    return not state.blind and all(
        h.stage == DONE and not h.why
        for h in state.hosts
        if h.found == "up" and not h.left_out
    )


def _outcome(state: ConversionState, host: HostRecord) -> str:
    if host.stage == FAILED:
        return "failed"
    if host.left_out:
        return "left out"
    if host.stage == LEFT:
        return "left"
    if host.stage != DONE:
        return "not yet"
    if host.goal == BACK:
        return "as before"
    return "healed" if state.kind == HEAL else "converted"


def _next(state: ConversionState) -> list[str]:
    names = " ".join(shlex.quote(domain.name) for domain in state.domains)
    verify = f"ovirt-rdma domain verify {names}"
    if state.stage == CONVERTED and _left_out(state):
        # When these hosts are up again, the same command converts them.
        return [verify, command_of(state)]
    if state.stage in (CONVERTED, REVERTED):
        return [verify]
    if state.stage == ROLLED_BACK or state.kind == HEAL:
        return ["ovirt-rdma hosts check"]
    if any(domain.stage == GONE for domain in state.domains):
        return [revert_command_of(state)]
    return [command_of(replace(state, stage=CONVERTING)), revert_command_of(state)]


def interrupted_lines(state: ConversionState) -> list[str]:
    """Return sentences about an interrupted run: where it is, and how to resume it."""
    lines = []
    ours = [host.name for host in state.hosts if host.ours]
    if ours:
        verb = "is" if len(ours) == 1 else "are"
        lines.append(
            f"{', '.join(ours)} {verb} in maintenance for this run, or on the way there"
        )
    down = [d.name for d in state.domains if d.stage == ENTERING]
    if down:
        verb = "is" if len(down) == 1 else "are"
        lines.append(
            f"{', '.join(down)} {verb} in maintenance for this run, or on the way there"
        )
    how = f"the run is paused; resume it with '{command_of(state)}'"
    if state.kind != HEAL and state.stage != REVERTING:
        how += f", or revert it with '{revert_command_of(state)}'"
    return [*lines, how]


def _head(state: ConversionState) -> dict[str, Any]:
    return {
        "domains": [domain.name for domain in state.domains],
        "to": state.to,
        "mode": state.mode,
    }


def _call_lines(step: ConversionStep) -> Sequence[str]:
    if step.call is None:
        return step.policy.lines()
    form = wire_form(step.call)
    query = "&".join(f"{name}={value}" for name, value in form.query.items())
    first = f"{form.method} {form.path}{'?' if query else ''}{query}"
    return [first, *form.body.splitlines()]


def _call_document(step: ConversionStep) -> dict[str, Any]:
    if step.call is None:
        return {
            "doing": step.doing,
            "about": step.subject,
            "policy": step.policy.contents,
        }
    form = wire_form(step.call)
    return {
        "doing": step.doing,
        "about": step.subject,
        "method": form.method,
        "path": form.path,
        "query": dict(form.query),
        "body": form.body,
    }
