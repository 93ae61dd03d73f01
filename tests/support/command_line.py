# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ovirt-rdma-host: in this process, in a separate one, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
import sys
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

from ovirt_rdma.cli.host.main import main
from ovirt_rdma.host.errors import NOTHING_CHANGED

COMMAND = (sys.executable, "-m", "ovirt_rdma.cli.host.main")
FACTS = Path(__file__).parents[1] / "data" / "facts"
RXE = str(FACTS / "rxe-one-mount.json")
NO_RDMA = str(FACTS / "no-rdma-tcp-mount.json")


@dataclass(frozen=True)
class Result:
    """The result of a run: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return stdout as JSON; stderr must be empty."""
        assert self.err == ""
        return json.loads(self.out)

    def error(self, id: str, code: int) -> Any:
        """Return the error document of a run with ``-o json``; it must have this id."""
        document = json.loads(self.out)
        assert (document["kind"], document["id"]) == ("error", id)
        assert self.code == document["exit_code"] == code
        assert self.err.count("\n") == len(document["sentences"]) + bool(
            document["fix"]
        )
        return document

    def refused(self, code: int, *words: str) -> None:
        """Check that this is an error in sentences, with nothing on stdout."""
        assert (self.code, self.out) == (code, "")
        assert "Traceback" not in self.err
        for part in words:
            assert part in self.err
        *lines, last = self.err.splitlines()
        if last.startswith("fix: "):
            last = lines.pop()
        assert (last == NOTHING_CHANGED) == (code in (3, 4, 75))
        for line in lines:
            assert line.startswith(("ovirt-rdma-host: ", "fix: ")), line


def run(capsys, *words: str) -> Result:
    """Run main() in this process."""
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    return Result(code, out, err)


def run_process(*words: str, **more: Any) -> Result:
    """Run the command as a process; ``more`` goes to subprocess.run."""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    done = subprocess.run([*COMMAND, *words], check=False, timeout=120, **more)
    out, err = ((text or b"").decode() for text in (done.stdout, done.stderr))
    return Result(done.returncode, out, err)


def run_on_terminal(
    *words: str, columns: int = 80, typed: str = "", **environment: str
) -> str:
    """Run the command on a terminal; return its output. ``typed`` answers its first
    question, which ends in a blank.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # pytest-xdist, among others, sets COLUMNS.
    unset = {"NO_COLOR", "COLUMNS", "LINES"}
    plain = {k: v for k, v in os.environ.items() if k not in unset}
    try:
        child = subprocess.Popen(
            [*COMMAND, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**plain, "TERM": "xterm", **environment},
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 4096)
            except OSError:  # EIO: the child has closed its end
                break
            if not block:
                break
            shown += block
            if typed and shown.endswith(b" "):
                os.write(ours, typed.encode())
                typed = ""
        child.wait(timeout=120)
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")
