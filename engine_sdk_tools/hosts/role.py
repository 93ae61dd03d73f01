# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the role ``ovirt_rdma.host.prepare`` on hosts, and judge the result. Pure.

A host counts as prepared only if the role's last task has run on it, the sentinel:
Ansible may end without a failure where nothing was done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

# The name of the role's last task begins so; version and policy digest follow
# (ovirt_rdma_proof of the role).
SENTINEL = "ovirt-rdma: host is prepared"
_PROOF = re.compile(re.escape(SENTINEL) + r" \(ovirt-rdma \S*, policy (\S*)\)")
# In place of the sentinel: nothing was loaded, and that is no failure.
WITHOUT_HARDWARE = "ovirt-rdma: host has no RDMA hardware"
# In place of the sentinel, in the engine's events; the reason follows.
NOT_PREPARED = "ovirt-rdma: host is not prepared:"
# Before it, a warning.
ATTENTION = "ovirt-rdma: attention:"
# Variables of the role over SSH. The host is in use, so no link may go down.
SSH_VARIABLES = {
    "ovirt_rdma_on_failure": "fail",
    "ovirt_rdma_live_only": True,
    "ovirt_rdma_allow_link_down": False,
    "ovirt_rdma_restart_vdsmd": False,
}

_OK, _FAILED, _UNREACHABLE = (
    "runner_on_ok",
    "runner_on_failed",
    "runner_on_unreachable",
)
_MOST_WARNINGS = 200
_LONGEST = 600


@dataclass(frozen=True)
class Prepared:
    """The result of the role on one host.

    ``sentinel`` is the name of the role's last task, "" if it has not run, ``task``
    that of the last one that has. ``problem`` is "" if the host is prepared, and if it
    has no RDMA hardware (``no_hardware``). ``unreachable``: nothing was done on it.
    ``warnings`` are those of the tasks' results, each once.
    """

    host: str
    sentinel: str = ""
    task: str = ""
    problem: str = ""
    fix: str = ""
    unreachable: bool = False
    no_hardware: bool = False
    warnings: tuple[str, ...] = ()


def with_event(before: Prepared, event: Mapping[str, Any]) -> Prepared:
    """Return ``before`` after one more event of ansible-runner on its host.

    In a run on several hosts Ansible puts the variables of one of them into a task's
    name. So the name says only which task it is; what it says is in its result.
    """
    data = event["event_data"]
    name = one_line(str(data.get("task") or ""))
    result: Mapping[str, Any] = data["res"]
    kind = event["event"]
    if kind == _OK:
        if str(data.get("task_action", "")).endswith("include_role"):
            return before  # our own task, which takes in the role
        message = result.get("msg")
        said = one_line(message) if isinstance(message, str) else ""
        if name.startswith(SENTINEL):
            proven = policy_proven(said) is not None
            return replace(before, sentinel=said if proven else "")
        if name.startswith(WITHOUT_HARDWARE):
            return replace(before, no_hardware=True)
        texts = result.get("warnings")
        texts = texts if isinstance(texts, list) else []
        if name.startswith(ATTENTION):
            texts = [*texts, said]
        every = (*before.warnings, *(one_line(str(text)) for text in texts))
        warnings = tuple(dict.fromkeys(every))[:_MOST_WARNINGS]
        # A later task shows that the failed one was ignored, or rescued.
        return replace(before, task=name, warnings=warnings)
    if kind == _FAILED and data.get("ignore_errors") is True:
        return before
    message = result.get("msg")
    sentence, fix = split_fix(message if isinstance(message, str) else "")
    sentence = sentence or "no message"
    lost = kind == _UNREACHABLE
    return replace(
        before,
        problem=f"{name}: {sentence}" if name and not lost else sentence,
        fix=fix,
        unreachable=lost and not before.task,
    )


def policy_proven(text: str) -> Optional[str]:
    """Return the digest in the name of the role's last task, "" if it names none; None
    if ``text`` is not that name.
    """
    match = _PROOF.fullmatch(text)
    return match[1] if match else None


def judged(result: Prepared) -> Prepared:
    """Return the result of a role that has ended: without the sentinel, the host is not
    prepared, even if no task has failed; with it, an earlier failure was handled.
    """
    if result.sentinel or (result.no_hardware and not result.problem):
        return replace(result, problem="", fix="")
    if result.problem:
        return result
    after = f" after '{result.task}'" if result.task else ""
    return replace(
        result,
        problem=f"the role ended{after} without its last task, '{SENTINEL}'",
        fix="run 'ovirt-rdma deploy-hook status': is the whole collection installed?",
    )


def one_line(text: str) -> str:
    """Return ``text`` on one line, of bounded length."""
    return re.sub(r"\s+", " ", text).strip()[:_LONGEST]


def split_fix(text: str) -> tuple[str, str]:
    """Return the sentence and the fix of a message of the role: ``X; fix: Y``."""
    sentence, _, fix = one_line(text).partition("; fix: ")
    return sentence, fix
