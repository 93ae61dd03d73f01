# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``enable`` and ``disable``."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.enablement import apply
from ovirt_rdma.host.enablement.apply import EnablementResult
from ovirt_rdma.host.enablement.state import MODE_HOST

_SCHEMA_VERSION = 2  # 1 had "notes", of mode nfsmount


def enable(args: Namespace, output: Output) -> int:
    """Turn a mode on; a second run changes nothing."""
    result = apply.enable(args.root, args.mode, restart_vdsmd=args.restart_vdsmd)
    code = _report("enable", "enabled", result, output)
    if output.for_people and args.mode == MODE_HOST:
        output.line("VDSM runs the hooks from now on; NFS is mounted as before.")
    return code


def disable(args: Namespace, output: Output) -> int:
    """Undo enable; a second run changes nothing."""
    result = apply.disable(args.root, restart_vdsmd=args.restart_vdsmd)
    return _report("disable", "disabled", result, output)


def _report(verb: str, state: str, result: EnablementResult, output: Output) -> int:
    if not output.for_people:
        output.raw_document(
            {
                "schema_version": _SCHEMA_VERSION,
                "kind": verb,
                "changed": result.changed,
                "restart_needed": result.restart_needed,
                "advice": [dataclasses.asdict(advice) for advice in result.advice],
                "steps": [dataclasses.asdict(step) for step in result.steps],
            },
        )
        return 0
    for step in result.steps:
        output.line(f"done: {step.sentence}")
    if result.changed:
        output.line(f"Now {state}.")
    else:
        output.line(f"Nothing to do: already {state}.")
    if result.restart_needed:
        output.line("The running vdsmd has not been restarted yet.")
        output.fix("systemctl restart vdsmd (running VMs and mounts stay)")
    for advice in result.advice:
        output.text(f"{advice.sentence}.")
        output.fix(advice.fix)
    return 0
