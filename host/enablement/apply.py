# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable a mode, or disable everything: plan the steps, and carry them out.

enable writes the marker last, and disable removes it last, so that the next run detects
and completes an interrupted one. Before enable creates a folder it records that, so
that disable can tell it from one that existed before. At every point in between, vdsmd
starts either as stock or through a complete launcher. A foreign file in a place of
ours, or another enabled mode, is a reason to refuse.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.software import refused_programs
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.enablement.state import (
    ABSENT,
    BY_LAUNCHER,
    BY_STOCK,
    FOREIGN,
    MODE_HOST,
    MODE_VDSMD,
    MODES,
    NOTE,
    OURS,
    PRESENT,
    Advice,
    EnablementState,
    marker_text,
    modes_on,
    read_state,
    selinux_advice,
    vdsm_advice,
)
from ovirt_rdma.host.errors import Problem, Refused, UsageProblem
from ovirt_rdma.host.paths import (
    DAEMON_UNIT,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    HOOKS,
    LAUNCHER,
    under,
)
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.tree import FileTree


@dataclass(frozen=True)
class Step:
    """One change: its id, which is stable and in JSON, its target, and a sentence."""

    id: str
    target: str
    sentence: str


MAKE_LINK = Step("make-link", DROPIN_LINK, f"link {DROPIN_LINK} to {DROPIN_SOURCE}")
WRITE_NOTE = Step(
    "write-folder-note",
    FOLDER_NOTE,
    f"record in {FOLDER_NOTE} that {DROPIN_DIRECTORY} is new",
)
WRITE_MARKER = Step("write-marker", ENABLED, f"write {ENABLED}")
REMOVE_LINK = Step("remove-link", DROPIN_LINK, f"remove {DROPIN_LINK}")
REMOVE_DIRECTORY = Step(
    "remove-directory",
    DROPIN_DIRECTORY,
    f"remove {DROPIN_DIRECTORY}, which is empty now",
)
REMOVE_NOTE = Step("remove-folder-note", FOLDER_NOTE, f"remove {FOLDER_NOTE}")
REMOVE_MARKER = Step("remove-marker", ENABLED, f"remove {ENABLED}")
RELOAD_SYSTEMD = Step("reload-systemd", "systemd", "make systemd read its units again")
START_DAEMON = Step("start-daemon", DAEMON_UNIT, f"start {DAEMON_UNIT}")
STOP_DAEMON = Step("stop-daemon", DAEMON_UNIT, f"stop {DAEMON_UNIT}")
RESTART_VDSMD = Step("restart-vdsmd", "vdsmd.service", "restart vdsmd")

_COMMANDS = {
    RELOAD_SYSTEMD: ("systemctl", "daemon-reload"),
    START_DAEMON: ("systemctl", "start", "--no-block", DAEMON_UNIT),
    # Not waited for: a process of it may wait in the kernel for a dead server.
    STOP_DAEMON: ("systemctl", "stop", "--no-block", DAEMON_UNIT),
    # Not "restart": a stopped vdsmd stays stopped.
    RESTART_VDSMD: ("systemctl", "try-restart", "vdsmd.service"),
}
# vdsmd stops within 10 s and its start runs vdsmd_init_common.sh.
_COMMAND_TIMEOUT_S = 180
_run = partial(run_command, timeout_s=_COMMAND_TIMEOUT_S)


def refuse_foreign(state: EnablementState, *, vdsmd: bool) -> None:
    """Raise Refused if a foreign file or folder is in a place of all modes,
    or of mode ``vdsmd``.
    """
    places = [(state.marker, ENABLED), (state.note, FOLDER_NOTE)]
    if vdsmd:
        places.append((state.directory, DROPIN_DIRECTORY))
        places.append((state.link, DROPIN_LINK))
    for owner, path in places:
        if owner == FOREIGN:
            raise Refused(
                "file-not-ours",
                f"{path} exists already and was not written by ovirt-rdma-host",
                "find out what it is for, move it away, and run this command again",
            )


def refuse_untrusted(refused: Sequence[str]) -> None:
    """Raise Refused if fapolicyd would not let programs of ours run."""
    if refused:
        raise Refused(
            "fapolicyd-untrusted",
            f"fapolicyd is running on this host and does not trust "
            f"{', '.join(refused)}: VDSM could not start these files",
            "install ovirt-rdma-host from its RPM, or run (--file update for a file "
            "that was added before it changed): "
            + "; ".join(
                f"fapolicyd-cli --file add {path} --trust-file ovirt-rdma"
                for path in refused
            )
            + "; fapolicyd-cli --update",
        )


def refuse_other_mode(state: EnablementState, wanted: str) -> None:
    """Raise Refused if another mode than ``wanted`` is enabled."""
    for mode in modes_on(state):
        if mode != wanted:
            raise Refused(
                "other-mode-enabled",
                f"mode {mode} is enabled, and only one mode can be",
                f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {wanted}",
            )


def refuse_launcher(state: EnablementState) -> None:
    """Raise Refused if the package is incomplete, or another drop-in replaces
    vdsmd's ExecStart.
    """
    for present, path in ((state.launcher, LAUNCHER), (state.dropin, DROPIN_SOURCE)):
        if not present:
            raise Refused(
                "own-file-missing",
                f"{path} is missing",
                "install the package ovirt-rdma-host again",
            )
    if state.overrides:
        raise Refused(
            "drop-in-conflict",
            f"{', '.join(state.overrides)} replaces vdsmd's ExecStart too, and systemd "
            "allows that in one drop-in only",
            "remove ExecStart from that drop-in, or do not use this mode",
        )


# The program of a vdsmd that needs a restart, by the mode that is enabled.
_OUTDATED = {MODE_VDSMD: BY_STOCK, MODE_HOST: BY_LAUNCHER}


def plan_enable(state: EnablementState, mode: str) -> list[Step]:
    """Return the steps that enable ``mode``: MODE_VDSMD makes the launcher start vdsmd,
    MODE_HOST enables hooks and units without changing NFS mounts. Raises
    Refused.
    """
    refuse_other_mode(state, mode)
    refuse_foreign(state, vdsmd=mode == MODE_VDSMD)
    steps = []
    if mode == MODE_VDSMD:
        refuse_launcher(state)
        if state.link == state.directory == state.note == ABSENT:
            steps.append(WRITE_NOTE)
        if state.link == ABSENT:
            steps.append(MAKE_LINK)
        if ABSENT in {state.link, state.marker}:
            steps.append(RELOAD_SYSTEMD)
    if state.marker == ABSENT:
        steps += (WRITE_MARKER, START_DAEMON)
    return steps


def plan_disable(state: EnablementState) -> list[Step]:
    """Return the steps after which vdsmd is as it is shipped.

    The package may be missing. Raises Refused if a foreign file is in a place
    of the enabled mode.
    """
    on = modes_on(state)
    refuse_foreign(state, vdsmd=MODE_VDSMD in on)
    steps, removed = [], set()
    if state.link == OURS:
        steps.append(REMOVE_LINK)
        removed.add(Path(DROPIN_LINK).name)
    # Only a folder that enable has made, and that is empty then.
    made = state.note == OURS and state.directory == PRESENT
    if made and removed.issuperset(state.entries):
        steps.append(REMOVE_DIRECTORY)
    if MODE_VDSMD in on:
        steps.append(RELOAD_SYSTEMD)
    if state.note == OURS:
        steps.append(REMOVE_NOTE)
    if state.marker == OURS:
        steps += (REMOVE_MARKER, STOP_DAEMON)
    return steps


# One file represents all that the launcher loads.
PACKAGE = str(Path(__file__).parents[2])
LOADED = f"{PACKAGE}/storage/vdsm/launch.py"


@dataclass(frozen=True)
class EnablementResult:
    """The steps carried out; none if nothing had to change.

    ``restart_needed``: the running vdsmd was started before the change. ``advice`` is
    about the running vdsmd.
    """

    steps: tuple[Step, ...]
    restart_needed: bool
    advice: tuple[Advice, ...] = ()


def enable(
    root: Union[str, Path] = "/",
    mode: str = MODE_VDSMD,
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out the plan for ``mode`` below ``root``.

    Commands are run with ``run``; without it only if ``root`` is ``/``, and systemctl
    only if systemd is the init. Raises UsageProblem for an unknown mode,
    Refused, LockHeld during another run, and Problem if a step fails; running the
    same command again completes the work.
    """
    if mode not in MODES:
        raise UsageProblem(
            "mode-unknown", f"there is no mode {mode!r}; allowed: {', '.join(MODES)}"
        )
    root = Path(root)
    with one_run(root, by="enable"):
        state = _state(root, run)
        refuse_untrusted(_refused_programs(root, run, mode))
        steps = plan_enable(state, mode)
        done = _completed(steps, state, _OUTDATED[mode], restart_vdsmd)
        _carry_out(done.steps, root, run or _run, mode)
    if mode != MODE_VDSMD:
        return done
    restarted = RESTART_VDSMD in done.steps
    advice = (*vdsm_advice(state), *(() if restarted else selinux_advice(state)))
    return replace(done, advice=advice)


def disable(
    root: Union[str, Path] = "/",
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out :func:`plan_disable` below ``root``; otherwise as :func:`enable`."""
    root = Path(root)
    with one_run(root, by="disable"):
        state = _state(root, run)
        done = _completed(plan_disable(state), state, BY_LAUNCHER, restart_vdsmd)
        _carry_out(done.steps, root, run or _run)
    return done


def _state(root: Path, run: Optional[Runner]) -> EnablementState:
    state = read_state(root)
    own_systemd = root == Path("/") and state.systemd
    return replace(state, systemd=own_systemd or run is not None)


def _refused_programs(root: Path, run: Optional[Runner], mode: str) -> tuple[str, ...]:
    # The launcher opens the package as the user vdsm, who may open only trusted Python
    # files (70-trusted-lang.rules). The hooks that open it run as root, who may open
    # any (20-dracut.rules); that of after_get_caps, which vdsm runs, opens none.
    programs = HOOKS if mode != MODE_VDSMD else (LAUNCHER, *HOOKS)
    paths = [path for path in programs if under(root, path).is_file()]
    if mode == MODE_VDSMD:
        paths.append(LOADED)
    run = run or (_run if root == Path("/") else None)
    refused = refused_programs(FileTree(root), Tools(run), paths)
    return tuple(PACKAGE if path == LOADED else path for path in refused)


def _completed(
    steps: list[Step], state: EnablementState, outdated: str, restart_vdsmd: bool
) -> EnablementResult:
    """Return ``steps``, as far as the host has what they are for. A vdsmd of the
    program ``outdated`` needs a restart.
    """
    needed = state.process is not None and state.process.program == outdated
    if restart_vdsmd and needed:
        steps.append(RESTART_VDSMD)
    without: set[Step] = set()
    if not state.systemd:
        without = set(_COMMANDS)
    elif not state.daemon_unit:
        without = {START_DAEMON, STOP_DAEMON}
    done = tuple(step for step in steps if step not in without)
    return EnablementResult(done, needed and RESTART_VDSMD not in done)


def _carry_out(
    steps: Iterable[Step], root: Path, run: Runner, mode: str = MODE_VDSMD
) -> None:
    for path in (ENABLED, FOLDER_NOTE):
        remove_unfinished(under(root, path).parent)
    texts = {WRITE_MARKER: marker_text(mode), WRITE_NOTE: NOTE}
    for step in steps:
        _carry_out_step(step, root, run, texts)


def _carry_out_step(
    step: Step, root: Path, run: Runner, texts: Mapping[Step, str]
) -> None:
    try:
        if step in _COMMANDS:
            run(_COMMANDS[step])
        else:
            _change_file(step, under(root, step.target), texts)
    except (OSError, CommandFailed) as error:
        raise Problem(
            "enablement-step-failed",
            f"cannot {step.sentence}: {getattr(error, 'strerror', None) or error}",
            "fix the cause (run as root?), then run the same command again to complete "
            "it",
        ) from error


def _change_file(step: Step, path: Path, texts: Mapping[Step, str]) -> None:
    folder = path.parent
    if step in (MAKE_LINK, WRITE_MARKER, WRITE_NOTE) and not folder.is_dir():
        # Not a mode of its own afterwards: a kill in between would leave it closed.
        umask = os.umask(0o022)
        try:
            folder.mkdir()
        finally:
            os.umask(umask)
        sync_directory(folder.parent)
    if step == MAKE_LINK:
        path.symlink_to(DROPIN_SOURCE)
    elif step in texts:
        write_atomically(path, texts[step].encode(), 0o644)
    elif step == REMOVE_DIRECTORY:
        path.rmdir()
    else:
        path.unlink()
    sync_directory(path.parent)
