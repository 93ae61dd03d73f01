# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the host's tools, such as ``ip`` and ``rdma``, with a timeout."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

Runner = Callable[[Sequence[str]], str]
"""Runs an argument vector; returns its stdout or raises CommandFailed."""

TIMEOUT_S = 5.0
# What tools print of a host with thousands of netdevs is a tenth of this.
MOST_BYTES = 64 << 20
_PART = 1 << 16
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


class TooMuchOutput(CommandFailed):
    """The command printed more than MOST_BYTES and was killed."""


class NotInstalled(CommandFailed):
    """There is no such program on this host."""


def run_command(
    argv: Sequence[str],
    timeout_s: float = TIMEOUT_S,
    *,
    own_session: bool = False,
    **how: Any,
) -> str:
    """Run ``argv`` with a fixed environment for at most ``timeout_s`` seconds. With
    ``own_session``, Ctrl-C and the hang-up of a terminal do not reach it. ``how`` goes
    to subprocess.Popen: another ``env``, a ``cwd``, a ``user``.

    Returns stdout. Raises CommandFailed, NotInstalled, TooMuchOutput or CommandTimeout.
    The output may have any bytes and is decoded with surrogateescape.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=own_session,
            **{"env": ENVIRONMENT, **how},
        )
    except FileNotFoundError as e:
        raise NotInstalled(e.strerror or str(e)) from None
    except OSError as e:
        raise CommandFailed(e.strerror or str(e)) from None
    try:
        out, err, failure = output_of(process, timeout_s, MOST_BYTES)
        if failure is not None:
            raise failure
    except BaseException:
        end_command(process)
        raise
    printed = out.decode("utf-8", "surrogateescape")
    if process.returncode:
        text = err.decode("utf-8", "surrogateescape").strip()
        last = text.splitlines()[-1] if text else f"exit status {process.returncode}"
        raise CommandFailed(last, process.returncode, printed, text)
    return printed


def output_of(
    process: subprocess.Popen[bytes], timeout_s: float, most: int
) -> tuple[bytes, bytes, Optional[CommandFailed]]:
    """Return what a process prints to stdout and stderr, which are pipes, until it has
    ended, and the failure if it does not end in time or prints more than ``most``
    bytes. It is not killed.
    """
    end, size = time.monotonic() + timeout_s, 0
    failure: Optional[CommandFailed] = None
    late = CommandTimeout(f"no answer within {timeout_s:g} s")
    pipes = (process.stdout, process.stderr)
    said: dict[object, list[bytes]] = {pipe: [] for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in filter(None, pipes):
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and not failure:
            ready = selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                part = os.read(key.fd, _PART)
                if not part:
                    selector.unregister(key.fileobj)
                said[key.fileobj].append(part)
                size += len(part)
            if not ready:
                failure = late
            elif size > most:
                failure = TooMuchOutput(f"it prints more than {most} bytes")
    if not failure:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            failure = late
    out, err = (b"".join(said[pipe]) for pipe in pipes)
    return out, err, failure


def end_command(process: subprocess.Popen[bytes], wait_s: float = _GONE_S) -> None:
    """Kill a process and wait for it for ``wait_s`` seconds at most (``subprocess.run``
    would wait without limit).
    """
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
