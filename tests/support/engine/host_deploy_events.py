# SPDX-License-Identifier: GPL-2.0-or-later
"""A double of the engine's parser of the events of Ansible, for host-deploy.

Follows ovirt-engine 4.5.7 (0111fc6), org.ovirt.engine.core.common.utils.ansible:
AnsibleRunnerClient.processEvents (98-172), AnsibleExecutor.runCommand (101-146) and
RunnerJsonNode (249-281); and InstallVdsInternalCommand (349-367), which fails the
installation after any return code but OK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NORMAL, WARNING, ERROR, ALERT = "NORMAL", "WARNING", "ERROR", "ALERT"

# Java's "." stops at these.
_ANY = "[^\n\r\u0085\u2028\u2029]"
_SEVERITY = "NORMAL|WARNING|ERROR|ALERT"
# AnsibleExecutor.java:35-36
_TASK = re.compile(
    rf"(?P<title>{_ANY}*) \[(?P<severity>{_SEVERITY})\] (?P<message>{_ANY}*)"
)
# AnsibleRunnerClient.java:128-129
_LOOKED_AT = ("playbook_on_task_start", "runner_on_ok", "runner_on_failed")


@dataclass
class Deployed:
    """The events of the engine, as (severity, text), and how the playbook ended.

    ``failure`` is the reason why the installation fails; empty if it succeeds.
    """

    events: list[tuple[str, str]] = field(default_factory=list)
    failure: str = ""

    @property
    def installed(self) -> bool:
        return not self.failure

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.events]


class JavaException(Exception):
    """What the engine's code throws; it fails the installation."""


def job_events(artifacts: Path) -> list[dict[str, Any]]:
    """Return the events that ansible-runner wrote below ``artifacts``, in order."""
    (folder,) = artifacts.glob("*/job_events")
    files = [
        path
        for path in folder.iterdir()
        # AnsibleRunnerClient.java:87-88
        if "partial" not in path.name and not path.name.endswith(".tmp")
    ]
    files.sort(key=lambda path: int(path.name.partition("-")[0]))
    return [json.loads(path.read_text("utf-8")) for path in files]


def of_host(events: Iterable[Mapping[str, Any]], host: str) -> list[Mapping[str, Any]]:
    """Return the events of one host, as of a run for that host alone."""
    return [
        event for event in events if event["event_data"].get("host") in (None, host)
    ]


def deployed(events: Iterable[Mapping[str, Any]]) -> Deployed:
    """Return what the engine makes of the events of one playbook run."""
    result = Deployed()
    try:
        for event in events:
            _process(event, result)
    except JavaException as thrown:
        result.failure = str(thrown)
    return result


def _process(event: Mapping[str, Any], result: Deployed) -> None:
    kind, stdout = event["event"], event.get("stdout", "")
    if kind == "runner_on_unreachable":
        raise JavaException("UNREACHABLE")
    if kind not in _LOOKED_AT:
        return  # also "error": AnsibleRunnerClient.java:128
    data = event["event_data"]
    task = data.get("task") or ""
    if kind == "runner_on_ok":
        # Only "debug", not "ansible.builtin.debug".
        is_debug = data.get("task_action") == "debug"
        text = format_debug_message(task, stdout) if is_debug else task
        _log(text, result)
    elif kind == "runner_on_failed":
        if "ignore_errors" not in data:
            raise JavaException("NullPointerException")
        if data["ignore_errors"] is not True:
            raise JavaException(f"Task {task} failed to execute.")


def format_debug_message(name: str, output: str) -> str:
    """Return the text of a debug task, as RunnerJsonNode.formatDebugMessage does."""
    if '"' not in output:
        raise JavaException("StringIndexOutOfBoundsException")
    output = output[: output.rindex('"')]
    pattern = rf'"msg": "(?P<message>{_ANY}*)'
    if has_severity := re.search(_SEVERITY, output) is not None:
        pattern = rf"(?P<severity>\[({_SEVERITY})\]) (?P<message>{_ANY}*)"
    match = re.search(pattern, output)
    if match is None:
        raise JavaException("IllegalStateException: No match found")
    if has_severity:
        return f"{name}: {match['severity']} {match['message']}"
    return f"{name}: debug msg: {match['message']}"


def _log(task: str, result: Deployed) -> None:
    severity, message = NORMAL, task
    match = _TASK.search(task)
    if match is not None:
        severity = match["severity"]
        message = f"{match['title']} {match['message']}"
    if "debug msg:" not in message:
        result.events.append((severity, message))
