# SPDX-License-Identifier: GPL-2.0-or-later
"""``enable`` and ``disable``."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host import enablement
from ovirt_rdma.host.enablement import EnablementResult


def enable(words: Namespace, screen: Screen) -> int:
    """Put the launcher before vdsmd; a second run changes nothing."""
    result = enablement.enable(
        words.root, words.mode, restart_vdsmd=words.restart_vdsmd
    )
    return _report("enable", "enabled", result, screen)


def disable(words: Namespace, screen: Screen) -> int:
    """Take back what enable did; a second run changes nothing."""
    result = enablement.disable(words.root, restart_vdsmd=words.restart_vdsmd)
    return _report("disable", "disabled", result, screen)


def _report(verb: str, state: str, result: EnablementResult, screen: Screen) -> int:
    if not screen.for_people:
        screen.document(
            verb,
            {
                "changed": result.changed,
                "restart_needed": result.restart_needed,
                "steps": [dataclasses.asdict(step) for step in result.steps],
            },
        )
        return 0
    for step in result.steps:
        screen.line(f"done: {step.sentence}")
    if result.changed:
        screen.line(f"Now {state}.")
    else:
        screen.line(f"Nothing to do: {state} already.")
    if result.restart_needed:
        screen.line("The running vdsmd is still the one from before.")
        screen.fix("systemctl restart vdsmd (running VMs and mounts stay)")
    return 0
