# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable or disable a mode: carry out the steps of :mod:`.plan`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.software import refused_programs
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.enablement.plan import plan_disable, plan_enable, plan_enable_host
from ovirt_rdma.host.enablement.state import (
    BY_LAUNCHER,
    BY_STOCK,
    MAKE_LINK,
    MODE_HOST,
    MODE_VDSMD,
    MODES,
    NOTE,
    RELOAD_SYSTEMD,
    REMOVE_DIRECTORY,
    REMOVE_LEFT_OVER,
    RESTART_VDSMD,
    START_CAPS,
    WRITE_MARKER,
    WRITE_NOTE,
    EnablementState,
    Step,
    marker_text,
    read_state,
    refuse_untrusted,
)
from ovirt_rdma.host.enablement.status import Advice, selinux_advice, vdsm_advice
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.paths import (
    CAPS_UNIT,
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

# One file represents all that the launcher loads.
PACKAGE = str(Path(__file__).parents[1])
LOADED = f"{PACKAGE}/storage/vdsm/launch.py"

_COMMANDS = {
    RELOAD_SYSTEMD: ("systemctl", "daemon-reload"),
    START_CAPS: ("systemctl", "start", "--no-block", Path(CAPS_UNIT).name),
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
        if mode == MODE_VDSMD:
            return host.carry_out(plan_enable(state, restart_vdsmd), state, BY_STOCK)
        steps = plan_enable_host(state, restart_vdsmd)
        return host.carry_out(steps, state, BY_LAUNCHER, MODE_HOST)


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
