# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps put the launcher before vdsmd, and which take it away. Pure.

The marker is the last thing that enable writes and the last that disable
removes, so a run that was interrupted is seen and completed by the next one. At
every point between, vdsmd starts either as stock or through a whole launcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ovirt_rdma.host.enablement_state import (
    ABSENT,
    BY_LAUNCHER,
    BY_STOCK,
    FOREIGN,
    OURS,
    PRESENT,
    EnablementState,
)
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
)
from ovirt_rdma.host.problem import Problem

# Step ids; stable, they appear in JSON.
MAKE_DIRECTORY = "make-directory"
MAKE_LINK = "make-link"
WRITE_MARKER = "write-marker"
REMOVE_LINK = "remove-link"
REMOVE_DIRECTORY = "remove-directory"
REMOVE_MARKER = "remove-marker"
RELOAD_SYSTEMD = "reload-systemd"
RESTART_VDSMD = "restart-vdsmd"


class EnablementRefused(Problem):
    """Going on would be unsafe; nothing was changed."""

    exit_code = 4


@dataclass(frozen=True)
class Step:
    """One change: its stable id, what it acts on, and a sentence about it."""

    id: str
    target: str
    sentence: str


def plan_enable(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps that put the launcher before vdsmd.

    Raises EnablementRefused where a package is not whole, something of another
    stands in our place, or another drop-in replaces vdsmd's ExecStart.
    """
    _refuse_foreign(state)
    for present, path in ((state.launcher, LAUNCHER), (state.dropin, DROPIN_SOURCE)):
        if not present:
            raise EnablementRefused(
                f"{path} is missing", "install the package ovirt-rdma-host again"
            )
    if state.overrides:
        raise EnablementRefused(
            f"{', '.join(state.overrides)} replaces vdsmd's ExecStart too, and systemd "
            "lets only one drop-in do that",
            "remove ExecStart from that drop-in, or do without this mode",
        )
    steps = []
    if state.directory == ABSENT:
        steps.append(Step(MAKE_DIRECTORY, DROPIN_DIRECTORY, f"make {DROPIN_DIRECTORY}"))
    if state.link == ABSENT:
        sentence = f"link {DROPIN_LINK} to {DROPIN_SOURCE}"
        steps.append(Step(MAKE_LINK, DROPIN_LINK, sentence))
    if steps or state.marker == ABSENT:
        steps += _reload(state)
    if state.marker == ABSENT:
        steps.append(Step(WRITE_MARKER, ENABLED, f"write {ENABLED}"))
    return (*steps, *_restart(state, restart_vdsmd, BY_STOCK))


def plan_disable(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps that leave vdsmd as VDSM ships it.

    A package that is gone does not matter. Raises EnablementRefused where
    something of another stands in our place.
    """
    _refuse_foreign(state)
    steps = []
    if state.link == OURS:
        steps.append(Step(REMOVE_LINK, DROPIN_LINK, f"remove {DROPIN_LINK}"))
    if OURS in {state.link, state.marker}:
        link_name = Path(DROPIN_LINK).name
        if state.directory == PRESENT and set(state.directory_entries) <= {link_name}:
            sentence = f"remove {DROPIN_DIRECTORY}, which is empty now"
            steps.append(Step(REMOVE_DIRECTORY, DROPIN_DIRECTORY, sentence))
        steps += _reload(state)
    if state.marker == OURS:
        steps.append(Step(REMOVE_MARKER, ENABLED, f"remove {ENABLED}"))
    return (*steps, *_restart(state, restart_vdsmd, BY_LAUNCHER))


def _refuse_foreign(state: EnablementState) -> None:
    for found, path in (
        (state.marker, ENABLED),
        (state.directory, DROPIN_DIRECTORY),
        (state.link, DROPIN_LINK),
    ):
        if found == FOREIGN:
            raise EnablementRefused(
                f"{path} is there already and is not ours",
                "look what it is for, move it away, and run this command again",
            )


def _reload(state: EnablementState) -> list[Step]:
    if not state.systemd:
        return []
    return [Step(RELOAD_SYSTEMD, "systemd", "make systemd read its units again")]


def _restart(state: EnablementState, wanted: bool, outdated: str) -> tuple[Step, ...]:
    running = state.process is not None and state.process.program == outdated
    if not (wanted and running and state.systemd):
        return ()
    return (Step(RESTART_VDSMD, "vdsmd.service", "restart vdsmd"),)
