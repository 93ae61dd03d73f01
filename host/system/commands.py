# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the host's tools, such as ``ip`` and ``rdma``, with a timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    from subprocess import Popen

Runner = Callable[[Sequence[str]], str]
"""Runs an argument vector; returns its stdout or raises CommandFailed."""

TIMEOUT_S = 5.0
# Wait this long for a killed command. One that waits in the kernel, for example for the
# lock that all netdevs share, ends only after that wait.
_GONE_S = 0.5
# Never the caller's PATH: this also runs as root and inside vdsmd.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class CommandFailed(Exception):
    """The command failed; ``str()`` is the last line of its stderr, or why it did not
    start. ``returncode`` is None if it did not start or did not end. ``stdout`` and
    ``stderr`` are what it printed, if it ended.
    """

    def __init__(
        self,
        reason: str,
        returncode: Optional[int] = None,
        stdout: str = "",
        stderr: str = "",
    ) -> None:
        super().__init__(reason)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class CommandTimeout(CommandFailed):
    """The command did not end before the timeout and was killed."""


class NotInstalled(CommandFailed):
    """There is no such program on this host."""


def run_command(
    argv: Sequence[str], timeout_s: float = TIMEOUT_S, *, own_session: bool = False
) -> str:
    """Run ``argv`` with a fixed environment for at most ``timeout_s`` seconds. With
    ``own_session``, Ctrl-C and the hang-up of a terminal do not reach it.

    Returns stdout. Raises CommandFailed, or CommandTimeout after the timeout. The
    output may have any bytes and is decoded with surrogateescape.
    """
    import subprocess  # noqa: PLC0415  (code that only parses facts does not need it)

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
            raise CommandTimeout(f"no answer within {timeout_s:g} s") from None
        raise
    printed = out.decode("utf-8", "surrogateescape")
    if process.returncode:
        text = err.decode("utf-8", "surrogateescape").strip()
        last = text.splitlines()[-1] if text else f"exit status {process.returncode}"
        raise CommandFailed(last, process.returncode, printed, text)
    return printed


def _end(process: Popen[bytes]) -> None:
    """Kill a process and wait for it for _GONE_S at most (``subprocess.run`` would wait
    without limit).
    """
    import contextlib  # noqa: PLC0415  (subprocess imports it)
    import subprocess  # noqa: PLC0415

    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)
