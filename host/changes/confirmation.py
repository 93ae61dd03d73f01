# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the timer that rolls back a run unless it is confirmed.

It is a transient systemd timer, which depends neither on the terminal nor on the
process that set it. A NetworkManager checkpoint cannot be used: while ours is open,
VDSM's own would fail.
"""

from __future__ import annotations

import sys
from functools import partial
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

_TIMEOUT_S = 30.0


class ConfirmationTimer:
    """The timer of one run. ``run`` runs systemd-run and systemctl; without it they
    are run on this machine if ``root`` is ``/``, and not at all below another root.
    """

    def __init__(
        self, number: int, root: Union[str, Path] = "/", run: Optional[Runner] = None
    ) -> None:
        self.unit = f"ovirt-rdma-rollback-{number}"
        self._number = number
        self._root = Path(root)
        self._run = run

    def check(self) -> Runner:
        """Return what runs systemctl. Raises Problem where systemd is not running."""
        run = self._runner()
        if run is None:
            raise Problem(
                "systemd-not-running",
                "--confirm-timeout needs systemd, which is not running here",
                "leave out --confirm-timeout",
            )
        return run

    def set(self, seconds: int) -> None:
        """Let systemd run ``unit unconfirmed`` in ``seconds``.

        Raises Problem where systemd is not running, or does not accept the timer.
        """
        run = self.check()
        # A timer that a killed run left has the same name.
        self.cancel()
        try:
            run(self._command(seconds, own_program()))
        except CommandFailed as error:
            raise Problem(
                "timer-not-set",
                f"the timer that would roll this run back cannot be set: {error}",
                "see systemctl status; or leave out --confirm-timeout",
            ) from None

    def cancel(self) -> str:
        """Stop the timer; return a sentence if that failed, else "". A failure does no
        harm: the unit finds that the run was confirmed or has ended.
        """
        run = self._runner()
        if run is None:
            return ""
        try:
            # The service too: it may be waiting for the lock that the caller has.
            run(("systemctl", "stop", f"{self.unit}.timer", f"{self.unit}.service"))
        except NotInstalled:
            return ""
        except CommandFailed as error:
            # It has elapsed and systemd has dropped it, or the host was booted since.
            if "not loaded" in str(error):
                return ""
            return f"the timer {self.unit}.timer cannot be stopped: {error}"
        return ""

    def _runner(self) -> Optional[Runner]:
        if not under(self._root, SYSTEMD_BOOTED).is_dir():
            return None
        if self._run is not None:
            return self._run
        # systemd answers at once, or is busy starting units.
        run = partial(run_command, timeout_s=_TIMEOUT_S)
        return run if self._root == Path("/") else None

    def _command(self, seconds: int, program: str) -> tuple[str, ...]:
        return (
            "systemd-run",
            f"--on-active={seconds}s",
            # The default, a minute, is longer than some operators want to wait.
            "--timer-property=AccuracySec=1s",
            f"--unit={self.unit}",
            f"--description=Roll back run {self._number} of ovirt-rdma-host",
            # systemd drops the unit once it ran, also if it failed.
            "--collect",
            # Not sandboxed: finding the process that has the lock needs CAP_SYS_PTRACE.
            # If the lock could not be taken, the journal not be read, or the service
            # was killed, it is started again, without a limit.
            "--property=Restart=on-failure",
            f"--property=RestartSec={AGAIN_S}",
            "--quiet",
            "--",
            program,
            "unit",
            "unconfirmed",
            str(self._number),
        )


def own_program() -> str:
    """Return the absolute path of the running ovirt-rdma-host, for the timer to run;
    that of the installed one if this process is another program.
    """
    path = Path(sys.argv[0] if sys.argv else "").resolve()
    if path.name == Path(PROGRAM).name and path.is_file():
        return str(path)
    return PROGRAM
