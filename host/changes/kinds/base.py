# SPDX-License-Identifier: GPL-2.0-or-later
"""Base of all kinds of change: access to the host, a value that was read, the error."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import under
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NotInstalled,
    Runner,
    run_command,
)

# NetworkManager's activation of a profile may take a while; nmcli gets less.
COMMAND_TIMEOUT_S = 60.0
_POLL_S = 0.1

run_effect: Runner = partial(run_command, timeout_s=COMMAND_TIMEOUT_S, own_session=True)
"""Runs the tools that change the host, for at most COMMAND_TIMEOUT_S each. They have a
session of their own: Ctrl-C ends the run, but only after the tool has ended.
"""


class EffectFailed(Problem):
    """A change could not be made or undone. ``untouched``: it has certainly changed
    nothing, so there is nothing of ours to undo.
    """

    untouched = False


@dataclass(frozen=True)
class Reading:
    """The present value; None if there is none. If it is unknown, ``problem`` is a
    sentence without a full stop.
    """

    value: Optional[str] = None
    problem: str = ""


def write_kernel_file(path: Path, data: bytes) -> None:
    """Write ``data`` to an existing file with one write(2). Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Host:
    """The host below ``root``. ``run`` runs tools; it is None if ``root`` is not the
    root of a running host. ``write`` writes to a file of /sys, ``clock`` returns
    seconds since 1970, ``sleep`` waits. ``activates``: changed profiles are activated.
    """

    root: Path
    run: Optional[Runner]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    write: Callable[[Path, bytes], None] = write_kernel_file
    activates: bool = True

    def path(self, path: str) -> Path:
        """Return where the absolute path ``path`` of the host is, below its root."""
        return under(self.root, path)

    def tool(self, *argv: str) -> str:
        """Run a tool and return its output.

        Raises CommandFailed as the runner does; NotInstalled if there is no runner.
        """
        if self.run is None:
            raise NotInstalled(f"{self.root} is not this host's root")
        return self.run(argv)

    def run_or_fail(self, failure: str, argv: Sequence[str], fix: str = "") -> str:
        """Run a tool and return its output.

        Raises EffectFailed if that fails; its sentence begins with ``failure``.
        """
        try:
            return self.tool(*argv)
        except CommandFailed as e:
            raise EffectFailed(
                "command-failed", f"{failure}: {' '.join(argv)}: {e}", fix
            ) from None

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``condition()`` is True, at most ``seconds``; return it."""
        for _ in range(round(seconds / _POLL_S)):
            if condition():
                return True
            self.sleep(_POLL_S)
        return condition()
