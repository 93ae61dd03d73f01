# SPDX-License-Identifier: GPL-2.0-or-later
"""Run one command as long as its starter lives, then clean up.

``python keeper.py JSON`` with ``{"command": ARGV, "folder": PATH, "fds": [NUMBER...],
"sockets": [PATH...]}``: the command runs in the folder with the file descriptors, and
creates the sockets. This program's standard input is a pipe from the starter: when it
closes, on purpose, by Ctrl-C or by kill -9, the command is killed. The folders of the
sockets are made before, may be shared with other commands, and are removed afterwards
by the last one. So the starter needs no cleanup at exit.
"""

# Imports only modules that load quickly, so no pathlib:
# ruff: noqa: PTH103, PTH106, PTH108, PTH120

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys


def main(text: str) -> int:
    """Run the task in ``text``; return the command's exit status."""
    task = json.loads(text)
    status = 127
    try:
        for path in task["sockets"]:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        status = _run_while_wanted(task["command"], task["folder"], task["fds"])
    except OSError as error:
        print(f"lab: cannot start {task['command'][0]}: {error}", file=sys.stderr)
    for path in task["sockets"]:
        with contextlib.suppress(OSError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
    return status


def _run_while_wanted(command: list[str], folder: str, fds: list[int]) -> int:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, cwd=folder, pass_fds=fds
    ) as process:
        ended = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(sys.stdin.fileno(), select.POLLIN)
        poll.poll()
        process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
