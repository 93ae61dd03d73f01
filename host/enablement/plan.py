# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the steps that enable a mode, and those that disable everything. Pure.

enable writes the marker last, and disable removes it last, so that the next run detects
and completes an interrupted one. Before enable creates a folder it records that, so
that disable can tell it from one that existed before. At every point in between, vdsmd
starts either as stock or through a complete launcher.
"""

from __future__ import annotations

from pathlib import Path

from ovirt_rdma.host.enablement.state import (
    ABSENT,
    BY_LAUNCHER,
    BY_STOCK,
    MAKE_LINK,
    MODE_HOST,
    MODE_VDSMD,
    OURS,
    PRESENT,
    RELOAD_SYSTEMD,
    REMOVE_DIRECTORY,
    REMOVE_LEFT_OVER,
    REMOVE_LINK,
    REMOVE_MARKER,
    REMOVE_NOTE,
    RESTART_VDSMD,
    START_CAPS,
    WRITE_MARKER,
    WRITE_NOTE,
    EnablementRefused,
    EnablementState,
    Step,
    modes_on,
    own_places,
    refuse_foreign,
    refuse_other_mode,
    vdsmd_places,
)
from ovirt_rdma.host.paths import (
    CAPS_UNIT,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    LAUNCHER,
)


def plan_enable(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps that make the launcher start vdsmd.

    Raises EnablementRefused if another mode is enabled, the package is incomplete, a
    foreign file is in a place of ours, or another drop-in replaces vdsmd's ExecStart.
    """
    refuse_other_mode(state, MODE_VDSMD)
    refuse_foreign(*own_places(state), *vdsmd_places(state))
    for present, path in ((state.launcher, LAUNCHER), (state.dropin, DROPIN_SOURCE)):
        if not present:
            raise EnablementRefused(
                "own-file-missing",
                f"{path} is missing",
                "install the package ovirt-rdma-host again",
            )
    if state.overrides:
        raise EnablementRefused(
            "drop-in-conflict",
            f"{', '.join(state.overrides)} replaces vdsmd's ExecStart too, and systemd "
            "allows that in one drop-in only",
            "remove ExecStart from that drop-in, or do not use this mode",
        )
    steps = _remove_left_over(state)
    if state.link == ABSENT:
        if state.directory.state == ABSENT and state.note == ABSENT:
            sentence = f"record in {FOLDER_NOTE} that {DROPIN_DIRECTORY} is new"
            steps.append(Step(WRITE_NOTE, FOLDER_NOTE, sentence))
        sentence = f"link {DROPIN_LINK} to {DROPIN_SOURCE}"
        steps.append(Step(MAKE_LINK, DROPIN_LINK, sentence))
    if ABSENT in {state.link, state.marker}:
        steps += _reload(state)
    return (*steps, *_mark(state), *_restart(state, restart_vdsmd, BY_STOCK))


def plan_enable_host(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps that enable hooks and units without changing NFS mounts.

    Raises EnablementRefused if another mode, which includes the hooks, is enabled, or
    if a foreign file is in the marker's place.
    """
    refuse_other_mode(state, MODE_HOST)
    refuse_foreign(*own_places(state))
    steps = _remove_left_over(state)
    return (*steps, *_mark(state), *_restart(state, restart_vdsmd, BY_LAUNCHER))


def plan_disable(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps after which vdsmd is as it is shipped.

    The package may be missing. Raises EnablementRefused if a foreign file is in a place
    of the enabled mode.
    """
    on = modes_on(state)
    refuse_foreign(*own_places(state))
    if MODE_VDSMD in on:
        refuse_foreign(*vdsmd_places(state))
    steps = _remove_left_over(state)
    if state.link == OURS:
        steps.append(Step(REMOVE_LINK, DROPIN_LINK, f"remove {DROPIN_LINK}"))
    steps += _remove_folder(state)
    if MODE_VDSMD in on:
        steps += _reload(state)
    if state.note == OURS:
        steps.append(Step(REMOVE_NOTE, FOLDER_NOTE, f"remove {FOLDER_NOTE}"))
    if state.marker == OURS:
        steps.append(Step(REMOVE_MARKER, ENABLED, f"remove {ENABLED}"))
        steps += _tell_caps(state)
    return (*steps, *_restart(state, restart_vdsmd, BY_LAUNCHER))


def _remove_left_over(state: EnablementState) -> list[Step]:
    """Remove unfinished files of runs that were killed."""
    return [
        Step(REMOVE_LEFT_OVER, path, f"remove {path}, left by a run that was killed")
        for path in state.left_over
    ]


def _remove_folder(state: EnablementState) -> list[Step]:
    """Remove the folder of the link if enable created it and it will be empty."""
    removed = {Path(DROPIN_LINK).name} if state.link == OURS else set()
    if state.note != OURS or state.directory.state != PRESENT:
        return []
    if not set(state.directory.entries) <= removed:
        return []
    sentence = f"remove {DROPIN_DIRECTORY}, which is empty now"
    return [Step(REMOVE_DIRECTORY, DROPIN_DIRECTORY, sentence)]


def _mark(state: EnablementState) -> list[Step]:
    if state.marker != ABSENT:
        return []
    return [Step(WRITE_MARKER, ENABLED, f"write {ENABLED}"), *_tell_caps(state)]


def _tell_caps(state: EnablementState) -> list[Step]:
    """Start the unit that updates the capabilities, and with it its timer, which does
    not start at boot on a host without the marker.
    """
    if not (state.systemd and state.caps_unit):
        return []
    unit = Path(CAPS_UNIT).name
    return [Step(START_CAPS, unit, f"start {unit}, which updates the engine")]


def _reload(state: EnablementState) -> list[Step]:
    if not state.systemd:
        return []
    return [Step(RELOAD_SYSTEMD, "systemd", "make systemd read its units again")]


def _restart(state: EnablementState, wanted: bool, outdated: str) -> tuple[Step, ...]:
    running = state.process is not None and state.process.program == outdated
    if not (wanted and running and state.systemd):
        return ()
    return (Step(RESTART_VDSMD, "vdsmd.service", "restart vdsmd"),)
