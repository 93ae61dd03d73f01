# SPDX-License-Identifier: GPL-2.0-or-later
"""Say in sentences how a conversion or a heal has ended, or where it was interrupted.

Pure. The same sentences are for people, programs and the engine's events.
"""

from __future__ import annotations

from ovirt_rdma.engine_sdk_tools.conversion.lock import command_of, revert_command_of
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERTED,
    DONE,
    ENTERING,
    HEAL,
    REVERTED,
    REVERTING,
    ROLLED_BACK,
    ConversionState,
)
from ovirt_rdma.host.exit_code import ExitCode


def exit_code(state: ConversionState) -> ExitCode:
    """Return the exit code; REFUSED if the engine refused the first change."""
    if state.stage in (CONVERTED, REVERTED):
        return ExitCode.DONE
    if state.stage == ROLLED_BACK:
        changed = any(h.touched for h in state.hosts)
        changed = changed or any(d.touched for d in state.domains)
        return ExitCode.ROLLED_BACK if changed else ExitCode.REFUSED
    done = any(h.stage == DONE for h in state.hosts)
    return ExitCode.SOME if done else ExitCode.FAILED


def sentence(state: ConversionState) -> str:
    """Return the result in one sentence; also the text of the engine's event."""
    several = len(state.domains) > 1
    what = "Heal of" if state.kind == HEAL else "Domains" if several else "Domain"
    title, verb = f"{what} {state.title}", "are" if several else "is"
    if state.stage == CONVERTED:
        if state.kind == HEAL:
            return f"{title}: the mounts are over RDMA again"
        proven = "" if _proven(state) else ", but not proven on every host"
        without = left_out(state)
        if without:
            proven += f", without {', '.join(without)}"
        return f"{title} {verb} converted to {state.to.upper()}{proven}"
    if state.stage == REVERTED:
        return f"{title} {verb} mounted as before"
    why = f": {state.why.rstrip('.')}" if state.why else ""
    if state.stage == ROLLED_BACK and state.kind == HEAL:
        return f"{title} failed and was rolled back{why}"
    if state.stage == ROLLED_BACK:
        return f"{title} {verb} as before{why}"
    return f"{title} stopped and is incomplete{why}"


def left_out(state: ConversionState) -> list[str]:
    """Return the names of the hosts that were left out."""
    return [host.name for host in state.hosts if host.left_out]


def _proven(state: ConversionState) -> bool:
    return not state.blind and all(
        h.stage == DONE and not h.why
        for h in state.hosts
        if h.found == "up" and not h.left_out
    )


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
