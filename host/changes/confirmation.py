# SPDX-License-Identifier: GPL-2.0-or-later
"""The timer that takes a run back unless it is confirmed: a transient systemd timer,
which needs neither the terminal nor the process that set it.

Not a NetworkManager checkpoint: VDSM's own would fail while ours is open.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import SYSTEMD_BOOTED, under
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NotInstalled,
    Runner,
    run_command,
)

PROGRAM = "/usr/bin/ovirt-rdma-host"

AGAIN_S = 30

# systemd answers at once, or is busy starting units.
_TIMEOUT_S = 30.0


class NoTimer(Problem):
    """The timer cannot be set: nothing may be done that relies on it."""


class ConfirmationTimer:
    """The timer of one run. ``run`` runs systemd-run and systemctl; without it they
    are run for real where ``root`` is ``/``, and below another root not at all.
    """

    def __init__(
        self, number: int, root: Union[str, Path] = "/", run: Optional[Runner] = None
    ) -> None:
        self.unit = f"ovirt-rdma-rollback-{number}"
        self._number = number
        self._root = Path(root)
        self._run = run

    def check(self) -> None:
        """Raise NoTimer where there is no systemd to set a timer."""
        self._checked()

    def set(self, seconds: int, program: str = "") -> None:
        """Let systemd run ``unit unconfirmed`` in ``seconds``.

        Raises NoTimer where there is no systemd, or it does not take the timer.
        """
        run = self._checked()
        # One that a killed run has left would run for this one.
        self.cancel()
        try:
            run(self._command(seconds, program or own_program()))
        except CommandFailed as error:
            raise NoTimer(
                "timer-not-set",
                f"the timer that would take this run back cannot be set: {error}",
                "see systemctl status; or leave out --confirm-timeout",
            ) from None

    def cancel(self) -> str:
        """Stop the timer; returns a sentence where that did not work, which matters
        little: what it runs finds the run confirmed, or ended.
        """
        run = self._runner()
        if run is None:
            return ""
        try:
            # The service too: it may be waiting for the lock that the caller holds.
            run(("systemctl", "stop", f"{self.unit}.timer", f"{self.unit}.service"))
        except NotInstalled:
            return ""
        except CommandFailed as error:
            # It has elapsed and was forgotten, or the host was booted since.
            if "not loaded" in str(error):
                return ""
            return f"the timer {self.unit}.timer cannot be stopped: {error}"
        return ""

    def _checked(self) -> Runner:
        run = self._runner()
        if run is None:
            raise NoTimer(
                "systemd-not-running",
                "--confirm-timeout needs systemd, which does not run here",
                "leave out --confirm-timeout",
            )
        return run

    def _runner(self) -> Optional[Runner]:
        if not under(self._root, SYSTEMD_BOOTED).is_dir():
            return None
        if self._run is not None:
            return self._run
        return _run if self._root == Path("/") else None

    def _command(self, seconds: int, program: str) -> tuple[str, ...]:
        return (
            "systemd-run",
            f"--on-active={seconds}s",
            # The default, a minute, is longer than some operators want to wait.
            "--timer-property=AccuracySec=1s",
            f"--unit={self.unit}",
            f"--description=Take back run {self._number} of ovirt-rdma-host",
            # Forgotten once it ran, also where it failed.
            "--collect",
            # Not sandboxed: who holds the lock is told with CAP_SYS_PTRACE only.
            # Where the lock was not to be had, the journal not to be read, or we were
            # killed: again, for as long as it takes.
            "--property=Restart=on-failure",
            f"--property=RestartSec={AGAIN_S}",
            "--quiet",
            "--",
            program,
            "unit",
            "unconfirmed",
            str(self._number),
        )


def own_program(argv: Optional[Sequence[str]] = None) -> str:
    """Return the absolute path of the running command, for the timer to run; the
    installed one where this process is none.
    """
    first = (sys.argv if argv is None else argv)[:1]
    found = Path(first[0]).resolve() if first and first[0] else Path(PROGRAM)
    if found.name == Path(PROGRAM).name and found.is_file():
        return str(found)
    return PROGRAM


def _run(argv: Sequence[str]) -> str:
    return run_command(argv, _TIMEOUT_S)
