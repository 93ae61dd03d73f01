# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable and disable the launcher: carry out the steps of enablement_plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.atomic_file import sync_directory, write_atomically
from ovirt_rdma.host.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.enablement_plan import (
    MAKE_DIRECTORY,
    MAKE_LINK,
    RELOAD_SYSTEMD,
    REMOVE_DIRECTORY,
    RESTART_VDSMD,
    WRITE_MARKER,
    Step,
    plan_disable,
    plan_enable,
)
from ovirt_rdma.host.enablement_state import (
    BY_LAUNCHER,
    BY_STOCK,
    MARKER_TEXT,
    MODE_VDSMD,
    EnablementState,
    read_state,
)
from ovirt_rdma.host.paths import DROPIN_SOURCE, under
from ovirt_rdma.host.problem import Problem, UsageProblem

MODES = (MODE_VDSMD,)

_COMMANDS = {
    RELOAD_SYSTEMD: ("systemctl", "daemon-reload"),
    # Not "restart": a vdsmd that is stopped stays so.
    RESTART_VDSMD: ("systemctl", "try-restart", "vdsmd.service"),
}
# vdsmd stops within 10 s and its start runs vdsmd_init_common.sh.
_COMMAND_TIMEOUT_S = 180


class EnablementFailed(Problem):
    """A step failed; running the same command again completes the work."""


@dataclass(frozen=True)
class EnablementResult:
    """The steps carried out; none, if everything was as wanted.

    ``restart_needed`` says that the running vdsmd is still the one of before.
    """

    steps: tuple[Step, ...]
    restart_needed: bool

    @property
    def changed(self) -> bool:
        """Whether anything had to be done."""
        return bool(self.steps)


def enable(
    root: Union[str, Path] = "/",
    mode: str = MODE_VDSMD,
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out :func:`plan_enable` below ``root``.

    Commands are run with ``run``; without it, only where ``root`` is ``/`` and
    systemd is the init. Raises UsageProblem for an unknown mode,
    EnablementRefused, and EnablementFailed where a step fails.
    """
    if mode not in MODES:
        raise UsageProblem(
            f"there is no mode {mode!r} in this version; allowed: {', '.join(MODES)}"
        )
    return _carry_out(plan_enable, BY_STOCK, Path(root), run, restart_vdsmd)


def disable(
    root: Union[str, Path] = "/",
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out :func:`plan_disable` below ``root``; otherwise as :func:`enable`."""
    return _carry_out(plan_disable, BY_LAUNCHER, Path(root), run, restart_vdsmd)


def _carry_out(
    plan: Callable[[EnablementState, bool], tuple[Step, ...]],
    outdated: str,
    root: Path,
    run: Optional[Runner],
    restart_vdsmd: bool,
) -> EnablementResult:
    try:
        state = read_state(root)
    except OSError as error:
        raise EnablementFailed(f"{error.filename}: {error.strerror}") from error
    reachable = run is not None or (root == Path("/") and state.systemd)
    state = dataclasses.replace(state, systemd=reachable)
    steps = plan(state, restart_vdsmd)
    for step in steps:
        _carry_out_step(step, root, run or _run)
    outdated_runs = state.process is not None and state.process.program == outdated
    restarted = any(step.id == RESTART_VDSMD for step in steps)
    return EnablementResult(steps, restart_needed=outdated_runs and not restarted)


def _carry_out_step(step: Step, root: Path, run: Runner) -> None:
    try:
        if step.id in _COMMANDS:
            run(_COMMANDS[step.id])
        else:
            _change_file(step.id, under(root, step.target))
    except (OSError, CommandFailed) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise EnablementFailed(
            f"cannot {step.sentence}: {words}",
            "mend that (as root?), then run the same command again to complete it",
        ) from error


def _change_file(step_id: str, path: Path) -> None:
    if step_id == MAKE_DIRECTORY:
        path.mkdir(parents=True)
        path.chmod(0o755)
    elif step_id == MAKE_LINK:
        path.symlink_to(DROPIN_SOURCE)
    elif step_id == WRITE_MARKER:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, MARKER_TEXT.encode("ascii"), 0o644)
    elif step_id == REMOVE_DIRECTORY:
        path.rmdir()
    else:
        path.unlink()
    sync_directory(path.parent)


def _run(argv: Sequence[str]) -> str:
    return run_command(argv, _COMMAND_TIMEOUT_S)
