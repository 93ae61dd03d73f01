# SPDX-License-Identifier: GPL-2.0-or-later
"""``enable`` and ``disable``."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from ovirt_rdma.cli.output import Screen
from ovirt_rdma.host.enablement import apply
from ovirt_rdma.host.enablement.apply import EnablementResult
from ovirt_rdma.host.enablement.state import MODE_HOST

_SCHEMA_VERSION = 2  # 1 had "notes", of mode nfsmount


def enable(words: Namespace, screen: Screen) -> int:
    """Turn a mode on; a second run changes nothing."""
    result = apply.enable(words.root, words.mode, restart_vdsmd=words.restart_vdsmd)
    code = _report("enable", "enabled", result, screen)
    if screen.for_people and words.mode == MODE_HOST:
        screen.line("VDSM runs the hooks from now on; NFS is mounted as before.")
    return code


def disable(words: Namespace, screen: Screen) -> int:
    """Take back what enable did; a second run changes nothing."""
    result = apply.disable(words.root, restart_vdsmd=words.restart_vdsmd)
    return _report("disable", "disabled", result, screen)


def _report(verb: str, state: str, result: EnablementResult, screen: Screen) -> int:
    if not screen.for_people:
        screen.raw_document(
            {
                "schema_version": _SCHEMA_VERSION,
                "kind": verb,
                "changed": result.changed,
                "restart_needed": result.restart_needed,
                "advice": [dataclasses.asdict(one) for one in result.advice],
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
    for one in result.advice:
        screen.text(f"{one.sentence}.")
        screen.fix(one.fix)
    return 0
