# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable a mode, or disable everything: plan the steps, and carry them out.

enable writes the marker last, and disable removes it last, so that the next run detects
and completes an interrupted one. Before enable creates a folder it records that, so
that disable can tell it from one that existed before. At every point in between, vdsmd
starts either as stock or through a complete launcher. A foreign file in a place of
ours, or another enabled mode, is a reason to refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.exit_code import ExitCode
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
    make_in_folder,
    remove_folder_of_files,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.tree import FileTree

# Step ids; stable, they appear in JSON.
MAKE_LINK = "make-link"
WRITE_NOTE = "write-folder-note"
WRITE_MARKER = "write-marker"
REMOVE_LINK = "remove-link"
REMOVE_DIRECTORY = "remove-directory"
REMOVE_NOTE = "remove-folder-note"
REMOVE_MARKER = "remove-marker"
REMOVE_LEFT_OVER = "remove-left-over"
RELOAD_SYSTEMD = "reload-systemd"
START_DAEMON = "start-daemon"
STOP_DAEMON = "stop-daemon"
RESTART_VDSMD = "restart-vdsmd"


@dataclass(frozen=True)
class Step:
    """One change: its stable id, its target, and a sentence about it."""

    id: str
    target: str
    sentence: str


class EnablementRefused(Problem):
    """The request would be unsafe; nothing was changed."""

    exit_code = ExitCode.REFUSED


def refuse_foreign(state: EnablementState, *, vdsmd: bool) -> None:
    """Raise EnablementRefused if a foreign file or folder is in a place of all modes,
    or of mode ``vdsmd``.
    """
    places = [(state.marker, ENABLED), (state.note, FOLDER_NOTE)]
    if vdsmd:
        places.append((state.directory.state, DROPIN_DIRECTORY))
        places.append((state.link, DROPIN_LINK))
    for owner, path in places:
        if owner == FOREIGN:
            raise EnablementRefused(
                "file-not-ours",
                f"{path} exists already and was not written by ovirt-rdma-host",
                "find out what it is for, move it away, and run this command again",
            )


def refuse_untrusted(refused: Sequence[str]) -> None:
    """Raise EnablementRefused if fapolicyd would not let programs of ours run."""
    if refused:
        raise EnablementRefused(
            "fapolicyd-untrusted",
            f"fapolicyd is running on this host and does not trust "
            f"{', '.join(refused)}: VDSM could not start these files",
            "install ovirt-rdma-host from its RPM, or run: "
            + "; ".join(
                f"fapolicyd-cli --file add {path} --trust-file ovirt-rdma"
                for path in refused
            )
            + "; fapolicyd-cli --update",
        )


def refuse_other_mode(state: EnablementState, wanted: str) -> None:
    """Raise EnablementRefused if another mode than ``wanted`` is enabled."""
    for mode in modes_on(state):
        if mode != wanted:
            raise EnablementRefused(
                "other-mode-enabled",
                f"mode {mode} is enabled, and only one mode can be",
                f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {wanted}",
            )


# The program of a vdsmd that needs a restart, by the mode that is enabled.
_OUTDATED = {MODE_VDSMD: BY_STOCK, MODE_HOST: BY_LAUNCHER}


def plan_enable(
    state: EnablementState, mode: str, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps that enable ``mode``: MODE_VDSMD makes the launcher start vdsmd,
    MODE_HOST enables hooks and units without changing NFS mounts.

    Raises EnablementRefused if another mode is enabled, the package is incomplete, a
    foreign file is in a place of ours, or another drop-in replaces vdsmd's ExecStart.
    """
    refuse_other_mode(state, mode)
    refuse_foreign(state, vdsmd=mode == MODE_VDSMD)
    steps = _remove_left_over(state)
    if mode == MODE_VDSMD:
        steps += _link_launcher(state)
    return (*steps, *_mark(state), *_restart(state, restart_vdsmd, _OUTDATED[mode]))


def _link_launcher(state: EnablementState) -> list[Step]:
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
    steps = []
    if state.link == ABSENT:
        if state.directory.state == ABSENT and state.note == ABSENT:
            sentence = f"record in {FOLDER_NOTE} that {DROPIN_DIRECTORY} is new"
            steps.append(Step(WRITE_NOTE, FOLDER_NOTE, sentence))
        sentence = f"link {DROPIN_LINK} to {DROPIN_SOURCE}"
        steps.append(Step(MAKE_LINK, DROPIN_LINK, sentence))
    if ABSENT in {state.link, state.marker}:
        steps += _reload(state)
    return steps


def plan_disable(
    state: EnablementState, restart_vdsmd: bool = False
) -> tuple[Step, ...]:
    """Return the steps after which vdsmd is as it is shipped.

    The package may be missing. Raises EnablementRefused if a foreign file is in a place
    of the enabled mode.
    """
    on = modes_on(state)
    refuse_foreign(state, vdsmd=MODE_VDSMD in on)
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
        steps += _daemon(state, STOP_DAEMON, "stop")
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
    return [
        Step(WRITE_MARKER, ENABLED, f"write {ENABLED}"),
        *_daemon(state, START_DAEMON, "start"),
    ]


def _daemon(state: EnablementState, step: str, sentence: str) -> list[Step]:
    if not (state.systemd and state.daemon_unit):
        return []
    return [Step(step, DAEMON_UNIT, f"{sentence} {DAEMON_UNIT}")]


def _reload(state: EnablementState) -> list[Step]:
    if not state.systemd:
        return []
    return [Step(RELOAD_SYSTEMD, "systemd", "make systemd read its units again")]


def _restart(state: EnablementState, wanted: bool, outdated: str) -> tuple[Step, ...]:
    running = state.process is not None and state.process.program == outdated
    if not (wanted and running and state.systemd):
        return ()
    return (Step(RESTART_VDSMD, "vdsmd.service", "restart vdsmd"),)


# One file represents all that the launcher loads.
PACKAGE = str(Path(__file__).parents[1])
LOADED = f"{PACKAGE}/storage/vdsm/launch.py"

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


class EnablementFailed(Problem):
    """A step failed; running the same command again completes the work."""


@dataclass(frozen=True)
class EnablementResult:
    """The steps carried out; none if nothing had to change.

    ``restart_needed``: the running vdsmd was started before the change. ``advice`` is
    about the running vdsmd.
    """

    steps: tuple[Step, ...]
    restart_needed: bool
    advice: tuple[Advice, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a step was carried out."""
        return bool(self.steps)


def enable(
    root: Union[str, Path] = "/",
    mode: str = MODE_VDSMD,
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out the plan for ``mode`` below ``root``.

    Commands are run with ``run``; without it only if ``root`` is ``/``, and systemctl
    only if systemd is the init. Raises UsageProblem for an unknown mode,
    EnablementRefused, LockHeld during another run, and EnablementFailed if a step
    fails.
    """
    if mode not in MODES:
        raise UsageProblem(
            "mode-unknown",
            f"there is no mode {mode!r}; allowed: {', '.join(MODES)}",
        )
    host = _Host(Path(root), run)
    with one_run(host.root, by="enable"):
        state = host.state()
        refuse_untrusted(host.refused_programs(mode))
        steps = plan_enable(state, mode, restart_vdsmd)
        return host.carry_out(steps, state, _OUTDATED[mode], mode)


def disable(
    root: Union[str, Path] = "/",
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out :func:`plan_disable` below ``root``; otherwise as :func:`enable`."""
    host = _Host(Path(root), run)
    with one_run(host.root, by="disable"):
        state = host.state()
        return host.carry_out(plan_disable(state, restart_vdsmd), state, BY_LAUNCHER)


@dataclass(frozen=True)
class _Host:
    root: Path
    run: Optional[Runner]

    def state(self) -> EnablementState:
        try:
            state = read_state(self.root)
        except OSError as error:
            raise EnablementFailed(
                "enablement-unreadable", f"{error.filename}: {error.strerror}"
            ) from error
        own_systemd = self.root == Path("/") and state.systemd
        return dataclasses.replace(state, systemd=own_systemd or self.run is not None)

    def refused_programs(self, mode: str) -> tuple[str, ...]:
        # The launcher opens the package as the user vdsm, who may open only trusted
        # Python files (70-trusted-lang.rules); hooks run as root.
        programs = HOOKS if mode != MODE_VDSMD else (LAUNCHER, *HOOKS)
        paths = [path for path in programs if under(self.root, path).is_file()]
        if mode == MODE_VDSMD:
            paths.append(LOADED)
        run = self.run or (_run if self.root == Path("/") else None)
        refused = refused_programs(FileTree(self.root), Tools(run), paths)
        return tuple(PACKAGE if path == LOADED else path for path in refused)

    def carry_out(
        self,
        steps: tuple[Step, ...],
        state: EnablementState,
        outdated: str,
        mode: str = MODE_VDSMD,
    ) -> EnablementResult:
        """Carry out ``steps``; a vdsmd of the program ``outdated`` needs a restart."""
        texts = {ENABLED: marker_text(mode), FOLDER_NOTE: NOTE}
        for step in steps:
            _carry_out_step(step, self.root, self.run or _run, texts)
        outdated_runs = state.process is not None and state.process.program == outdated
        restarted = any(step.id == RESTART_VDSMD for step in steps)
        return EnablementResult(
            steps,
            restart_needed=outdated_runs and not restarted,
            advice=(
                *(vdsm_advice(state) if outdated == BY_STOCK else ()),
                *(
                    selinux_advice(state)
                    if outdated == BY_STOCK and not restarted
                    else ()
                ),
            ),
        )


def _carry_out_step(
    step: Step, root: Path, run: Runner, texts: Mapping[str, str]
) -> None:
    try:
        if step.id in _COMMANDS:
            run(_COMMANDS[step.id])
        else:
            _change_file(step, root, texts)
    except (OSError, CommandFailed) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EnablementFailed(
            "enablement-step-failed",
            f"cannot {step.sentence}: {reason}",
            "fix the cause (run as root?), then run the same command again to complete "
            "it",
        ) from error


def _change_file(step: Step, root: Path, texts: Mapping[str, str]) -> None:
    path = under(root, step.target)
    if step.id == MAKE_LINK:
        make_in_folder(path, lambda place: place.symlink_to(DROPIN_SOURCE))
    elif step.id in {WRITE_MARKER, WRITE_NOTE}:
        text = texts[step.target].encode()
        make_in_folder(path, lambda place: write_atomically(place, text, 0o644))
    elif step.id == REMOVE_DIRECTORY:
        path.rmdir()
    elif step.id == REMOVE_LEFT_OVER and path.is_dir():
        remove_folder_of_files(path)
    else:
        path.unlink()
    sync_directory(path.parent)


def _run(argv: Sequence[str]) -> str:
    return run_command(argv, _COMMAND_TIMEOUT_S)
