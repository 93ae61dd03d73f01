# SPDX-License-Identifier: GPL-2.0-or-later
"""Running the few tools that know what no file tells: ``ip`` and ``rdma``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

Runner = Callable[[Sequence[str]], str]
"""Runs an argument vector, returns its stdout, or raises CommandFailed."""

TIMEOUT_S = 5.0
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


def run_command(argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """Run ``argv`` with a fixed environment for at most ``timeout_s`` seconds.

    Returns stdout; raises CommandFailed, or NoAnswer at the time limit. The output
    may hold any bytes, so they are decoded with surrogateescape.
    """
    import subprocess  # noqa: PLC0415  (what only parses facts need not pay for it)

    try:
        done = subprocess.run(
            list(argv),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {timeout_s:g} s") from None
    except OSError as e:
        raise CommandFailed(e.strerror or str(e)) from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "surrogateescape").strip()
        last = words.splitlines()[-1] if words else f"exit status {done.returncode}"
        raise CommandFailed(last, done.returncode)
    return done.stdout.decode("utf-8", "surrogateescape")
