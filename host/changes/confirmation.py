# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the timer that rolls back a run unless it is confirmed.

It is a transient systemd timer, which depends neither on the terminal nor on the
process that set it. A NetworkManager checkpoint cannot be used: while ours is open,
VDSM's own would fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ovirt_rdma.host.changes.kinds.kind import Host
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled

PROGRAM = "/usr/bin/ovirt-rdma-host"

AGAIN_S = 30


class ConfirmationTimer:
    """The timer of the run with this number on ``host``."""

    def __init__(self, number: int, host: Host) -> None:
        self.unit = f"ovirt-rdma-rollback-{number}"
        self._number, self._host = number, host

    def check(self) -> None:
        """Raise Problem where systemd is not running."""
        if not self._host.has_systemd or self._host.run is None:
            raise Problem(
                "systemd-not-running",
                "--confirm-timeout needs systemd, which is not running here",
                "leave out --confirm-timeout",
            )

    def set(self, seconds: int) -> None:
        """Let systemd run ``unit unconfirmed`` in ``seconds``.

        Raises Problem where systemd is not running, or does not accept the timer.
        """
        self.check()
        # A timer that a killed run left has the same name.
        self.cancel()
        try:
            self._host.tool(*self._command(seconds, own_program()))
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
        timer = f"{self.unit}.timer"
        try:
            if self._host.has_systemd:
                # The service too: it may be waiting for the lock that the caller has.
                self._host.tool("systemctl", "stop", timer, f"{self.unit}.service")
        except NotInstalled:
            pass
        except CommandFailed as error:
            # It has elapsed and systemd has dropped it, or the host was booted since.
            if "not loaded" not in str(error):
                return f"the timer {timer} cannot be stopped: {error}"
        return ""

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
