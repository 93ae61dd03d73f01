# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge from the engine's events whether a reinstalled host is prepared. Pure.

The engine reports a host as installed even if the role is missing, or was ended by an
error that it ignores (AnsibleRunnerClient.java:57-77). So only the event of the role's
last task counts. Codes are those of AuditLogType.java, ovirt-engine 4.5.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.role import (
    NO_HARDWARE,
    NOT_PREPARED,
    SENTINEL,
    Prepared,
    policy_proven,
    split_fix,
)

# VDS_INSTALL, VDS_INSTALL_FAILED
INSTALLED, INSTALL_FAILED = 504, 505
# VDS_ANSIBLE_INSTALL_STARTED
STARTED = 560
# ANSIBLE_RUNNER_EVENT_NOTIFICATION: normal, warning, error, alert
NOTES = (559, 554, 553, 557)
_LOG = "see the log on the engine, in /var/log/ovirt-engine/host-deploy"
# A task's name is what follows PlayAction: ANSIBLE_RUNNER_EVENT_NOTIFICATION in
# AuditLogMessages.properties:437-440, InstallVdsInternalCommand.java:340.
_TASK = re.compile(r"Installing Host \S+\. (.*?)\.?")


@dataclass(frozen=True)
class Installation:
    """What the events say of an installation: whether it ``started`` and ``ended``, and
    the result of the role.
    """

    started: bool
    ended: bool
    result: Prepared


def installation(host: str, events: Iterable[Any]) -> Installation:
    """Return what ``events``, of the SDK and about one host, the oldest first, say."""
    started = ended = no_hardware = False
    failure = refusal = sentinel = ""
    for event in events:
        text = " ".join(str(event.description or "").split())
        if event.code == STARTED:
            # A reinstallation by somebody else, or after a lost answer, counts alone.
            started, ended, no_hardware = True, False, False
            failure = refusal = sentinel = ""
        elif event.code == INSTALLED:
            ended = True
        elif event.code == INSTALL_FAILED:
            ended, failure = True, text
        elif event.code in NOTES:
            match = _TASK.fullmatch(text)
            task = match[1] if match else ""
            if policy_proven(task) is not None:
                sentinel = task
            elif task.startswith(NOT_PREPARED):
                refusal = task[len(NOT_PREPARED) :].strip()
            elif task.startswith(NO_HARDWARE):
                no_hardware = True
    result = Prepared(host, sentinel, no_hardware=no_hardware)
    if failure:
        result = Prepared(
            host,
            problem=f"the engine could not install it: {failure}",
            fix=_LOG,
        )
    elif refusal:
        problem, fix = split_fix(refusal.rstrip("."))
        result = Prepared(host, problem=problem, fix=fix or _LOG)
    elif not ended:
        result = Prepared(
            host,
            problem="its installation began, and the engine has not reported the end: "
            "it was probably restarted meanwhile",
            fix="run the same command again",
        )
    elif not sentinel and not no_hardware:
        result = Prepared(
            host,
            problem="the engine reports it as installed, but without the event "
            f"'{SENTINEL}': the role has not run to its end",
            fix="on the engine: ovirt-rdma deploy-hook status",
        )
    return Installation(started, ended, result)


def other_policy(sentinel: str, digest: Optional[str]) -> str:
    """Return a sentence if the ``sentinel`` does not name the policy ``digest``; None
    is any.
    """
    named = policy_proven(sentinel)
    if digest in (None, named):
        return ""
    return (
        f"it has {f'the policy {named}' if named else 'no known policy'}, not {digest}"
    )
