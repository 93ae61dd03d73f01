# SPDX-License-Identifier: GPL-2.0-or-later
"""Print what ``domain convert``, ``revert`` and ``heal`` plan and have done.

The plan lists the steps; the result has the outcome of each host.
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
    FAILED,
    GONE,
    HEAL,
    LEFT,
    REVERTED,
    ROLLED_BACK,
    TCP,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.outcome import left_out, sentence
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    END_UPGRADE,
    ENTER,
    LEAVE,
    PUSH,
    ConversionStep,
)
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


def plan_lines(plan: ConversionPlan) -> list[str]:
    """Return a summary of the plan for the confirmation, without its warnings.

    Hosts with the same steps share one line, in the order in which they are processed.
    """
    state = plan.state
    lines: list[str] = []
    actions_of: dict[str, list[str]] = {}
    for step in plan.steps:
        # Not together with the other mark of the cluster: the hosts come between.
        subject = step.doing if step.kind == END_UPGRADE else step.subject
        actions_of.setdefault(subject, []).append(_SHORT.get(step.kind, step.doing))
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


def plan_document(plan: ConversionPlan) -> dict[str, Any]:
    """Return the steps of a dry run: requests to the engine, and policies for hosts."""
    calls = [_call_document(step) for step in plan.steps]
    content = {"dry_run": True, "warnings": list(plan.warnings), "calls": calls}
    return {**_head(plan.state), **content}


def show_plan(plan: ConversionPlan, output: Output) -> None:
    """Print the steps of a dry run."""
    for warning in plan.warnings:
        output.text(f"warning: {warning}")
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


def result_document(state: ConversionState, *, done: bool) -> dict[str, Any]:
    """Return the result: the outcome of each host. Not ``done``: there was nothing to
    do.
    """
    hosts = [
        {"host": h.name, "outcome": _outcome(state, h), "sentence": h.why}
        for h in state.hosts
        if done
    ]
    stage = state.stage if done else "nothing to do"
    content = {"dry_run": False, "stage": stage, "why": state.why, "hosts": hosts}
    return {**_head(state), **content}


def show_result(state: ConversionState, output: Output, *, done: bool) -> None:
    """Print the result, and the command to run next."""
    if not done:
        output.text(f"Nothing to do: {_as_it_is(state)}.")
        return
    output.text(f"{sentence(state)}.")
    rows = [[h.name, _outcome(state, h), h.why] for h in state.hosts]
    if rows:
        output.table(["HOST", "OUTCOME", ""], rows, _TONES)
    for line in _next(state):
        output.next(line)


def _as_it_is(state: ConversionState) -> str:
    if state.kind == HEAL:
        if state.to == TCP:
            return "no domain has to go to TCP"
        return "no mount is known to be degraded"
    verb = "are" if len(state.domains) > 1 else "is"
    where = f"on {state.to.upper()}" if state.stage == CONVERTED else "as before"
    return f"{state.title} {verb} {where}"


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
    names = [shlex.quote(d.name) for d in state.domains if d.stage != GONE]
    verify = f"ovirt-rdma domain verify {' '.join(names)}"
    if not names:
        verify = "ovirt-rdma hosts check"
    if state.stage == CONVERTED and left_out(state):
        # When these hosts are up again, the same command converts them.
        return [verify, command_of(state)]
    if state.stage in (CONVERTED, REVERTED):
        return [verify]
    if state.stage == ROLLED_BACK or state.kind == HEAL:
        return ["ovirt-rdma hosts check"]
    if any(domain.stage == GONE for domain in state.domains):
        return [revert_command_of(state)]
    return [command_of(replace(state, stage=CONVERTING)), revert_command_of(state)]


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
