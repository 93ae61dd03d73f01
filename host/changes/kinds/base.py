# SPDX-License-Identifier: GPL-2.0-or-later
"""What every kind of effect has in common: the host that it is done on, what a reading
gives, and the error that says what went wrong.
"""

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
"""Runs the tools that change the host, for at most COMMAND_TIMEOUT_S each. What Ctrl-C
ends is the run, and that only when the tool is done.
"""


class EffectFailed(Problem):
    """An effect could not be carried out, or not be taken back. ``untouched``: it has
    certainly changed nothing, so that what is there is not ours to take back.
    """

    untouched = False


@dataclass(frozen=True)
class Reading:
    """What the host says now: None where there is nothing; or ``problem``, a sentence
    without a full stop, where it cannot be told.
    """

    value: Optional[str] = None
    problem: str = ""


def write_kernel_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a file that is there, in one go. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Host:
    """The host below ``root``; tools go through ``run``, which is None where the root
    only looks like a host. ``write`` writes to a file of /sys, ``clock`` gives seconds
    since 1970, ``sleep`` waits.
    """

    root: Path
    run: Optional[Runner]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    write: Callable[[Path, bytes], None] = write_kernel_file

    def path(self, path: str) -> Path:
        """Return an absolute path of the host, below its root."""
        return under(self.root, path)

    def tool(self, *argv: str) -> str:
        """Run a tool and return its output.

        Raises CommandFailed as the runner does, and NotInstalled without a runner.
        """
        if self.run is None:
            raise NotInstalled(f"{self.root} is not this host's root")
        return self.run(argv)

    def must(self, what: str, argv: Sequence[str], fix: str = "") -> str:
        """Run a tool that has to work; ``what`` says what failed, as a clause.

        Raises EffectFailed.
        """
        try:
            return self.tool(*argv)
        except CommandFailed as e:
            raise EffectFailed(
                "command-failed", f"{what}: {' '.join(argv)}: {e}", fix
            ) from None

    def wait_for(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``is_so()``, at most ``seconds``; return whether it is."""
        for _ in range(round(seconds / _POLL_S)):
            if is_so():
                return True
            self.sleep(_POLL_S)
        return is_so()
