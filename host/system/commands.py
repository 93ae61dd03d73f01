# SPDX-License-Identifier: GPL-2.0-or-later
"""Running the tools that know what no file tells, such as ``ip`` and ``rdma``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    from subprocess import Popen

Runner = Callable[[Sequence[str]], str]
"""Runs an argument vector, returns its stdout, or raises CommandFailed."""

TIMEOUT_S = 5.0
# For a killed command to go; one that waits in the kernel, as for the lock that all
# netdevs share, goes only when that comes back.
_GONE_S = 0.5
# Never the caller's PATH: the reader also runs as root, inside vdsmd.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class CommandFailed(Exception):
    """The command gave no result; ``str()`` is its own last words, or why it did
    not run. ``returncode`` is None where it did not run or did not end.
    """

    def __init__(self, words: str, returncode: Optional[int] = None) -> None:
        super().__init__(words)
        self.returncode = returncode


class NoAnswer(CommandFailed):
    """The command did not end in time and was killed."""


class NotInstalled(CommandFailed):
    """There is no such program on this host."""


def run_command(
    argv: Sequence[str], timeout_s: float = TIMEOUT_S, *, own_session: bool = False
) -> str:
    """Run ``argv`` with a fixed environment for at most ``timeout_s`` seconds. With
    ``own_session`` a terminal's Ctrl-C and hang-up do not reach it.

    Returns stdout; raises CommandFailed, or NoAnswer at the time limit. The output
    may hold any bytes, so they are decoded with surrogateescape.
    """
    import subprocess  # noqa: PLC0415  (what only parses facts need not pay for it)

    try:
        process = subprocess.Popen(
            list(argv),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=own_session,
        )
    except FileNotFoundError as e:
        raise NotInstalled(e.strerror or str(e)) from None
    except OSError as e:
        raise CommandFailed(e.strerror or str(e)) from None
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException as e:
        _end(process)
        if isinstance(e, subprocess.TimeoutExpired):
            raise NoAnswer(f"no answer within {timeout_s:g} s") from None
        raise
    if process.returncode:
        words = err.decode("utf-8", "surrogateescape").strip()
        last = words.splitlines()[-1] if words else f"exit status {process.returncode}"
        raise CommandFailed(last, process.returncode)
    return out.decode("utf-8", "surrogateescape")


def _end(process: Popen[bytes]) -> None:
    """Kill a process, and wait for it no longer than _GONE_S (``subprocess.run`` would
    wait for ever).
    """
    import contextlib  # noqa: PLC0415  (subprocess has it)
    import subprocess  # noqa: PLC0415

    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)
