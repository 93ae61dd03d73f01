# SPDX-License-Identifier: GPL-2.0-or-later
"""``status``: what is enabled, installed, running and loaded, apart."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.host.enablement_state import BY_LAUNCHER
from ovirt_rdma.host.enablement_status import Status, read_status


def status(words: Namespace, screen: Screen) -> int:
    """Show what is enabled, installed, running and loaded, apart."""
    found = read_status(words.root)
    if not screen.for_people:
        content = dataclasses.asdict(found)
        del content["schema_version"]  # document() puts it first
        screen.document("status", content)
        return 0
    screen.fields(_status_lines(found))
    for advice in found.advice:
        screen.line(f"{advice.sentence}.")
        screen.fix(advice.fix)
    return 0


def _status_lines(found: Status) -> list[tuple[str, str]]:
    files = dataclasses.asdict(found.package)
    missing = [name for name, present in files.items() if not present]
    if not missing:
        package = "complete"
    elif len(missing) == len(files):
        package = "not installed"
    else:
        package = f"incomplete, missing: {', '.join(missing)}"
    running = "vdsmd does not run"
    if found.running:
        by = "the launcher" if found.running.program == BY_LAUNCHER else "stock vdsmd"
        running = f"{by} (process {found.running.pid})"
    policy = found.policy.problem or "none loaded"
    if found.policy.loaded:
        policy = (
            f"{count(found.policy.rules, 'NFS rule')} from {found.policy.source}, "
            f"loaded {found.policy.loaded_at}"
        )
    return [
        ("enabled", f"yes, mode {found.enabled.mode}" if found.enabled.mode else "no"),
        ("package", package),
        ("running", running),
        ("policy", policy),
    ]
