# SPDX-License-Identifier: GPL-2.0-or-later
"""Run commands in the guest for lab.agent_link: the command agent.

It reads and writes one JSON object per line over a virtio-serial port. Requests:
``{"id", "run": ARGV, "input": BASE64, "uid", "cwd", "environment": {}}`` and
``{"id", "signal": NUMBER}`` (to the command's whole process group). Answers:
``{"id": 0}`` once, when ready, then per command ``{"id", "exit_code", "stdout",
"stderr" (BASE64), "seconds"}``, or ``{"id", "error"}`` if it could not start.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

PORTS = Path("/sys/class/virtio-ports")
PORT_NAME = "lab"


class Agent:
    """Serves one port until the other end closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writing = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Read requests and start a thread for each command."""
        self._answer({"id": 0})
        with open(self._port, "rb", closefd=False) as lines:
            for line in lines:
                self._take(json.loads(line))

    def _take(self, request: dict[str, Any]) -> None:
        number = request["id"]
        if "signal" in request:
            self._signal(number, request["signal"])
            return
        try:
            self._start(number, request)
        except (OSError, subprocess.SubprocessError) as error:
            self._answer({"id": number, "error": str(error)})

    def _start(self, number: int, request: dict[str, Any]) -> None:
        # Files instead of pipes: a daemon that a command leaves behind keeps its output
        # open, and the answer must not wait for it.
        files = {name: os.memfd_create(name) for name in ("input", "stdout", "stderr")}
        for name in ("stdout", "stderr"):
            # The kernel does not lock the position of a memfd: without this, processes
            # of the command that write at the same time overwrite each other.
            fcntl.fcntl(files[name], fcntl.F_SETFL, os.O_APPEND)
        started = time.monotonic()
        try:
            process = _popen(request, files)
        except BaseException:
            _close(files)
            raise
        self._running[number] = process
        threading.Thread(
            target=self._finish, args=(number, process, files, started), daemon=True
        ).start()

    def _finish(
        self,
        number: int,
        process: subprocess.Popen[bytes],
        files: dict[str, int],
        started: float,
    ) -> None:
        exit_code = process.wait()
        seconds = time.monotonic() - started
        del self._running[number]
        answer: dict[str, Any] = {
            "id": number,
            "exit_code": exit_code,
            "seconds": seconds,
        }
        for name in ("stdout", "stderr"):
            size = os.fstat(files[name]).st_size
            answer[name] = base64.b64encode(os.pread(files[name], size, 0)).decode()
        _close(files)
        self._answer(answer)

    def _signal(self, number: int, wanted: int) -> None:
        process = self._running.get(number)
        if process is not None:
            # If it has ended meanwhile, its answer follows.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.Signals(wanted))

    def _answer(self, answer: dict[str, Any]) -> None:
        rest = memoryview(json.dumps(answer).encode() + b"\n")
        with self._writing:
            while rest:
                rest = rest[os.write(self._port, rest) :]


def _popen(request: dict[str, Any], files: dict[str, int]) -> subprocess.Popen[bytes]:
    os.write(files["input"], base64.b64decode(request["input"]))
    os.lseek(files["input"], 0, os.SEEK_SET)
    uid = request["uid"]
    other: dict[str, Any] = (
        {"user": uid, "group": uid, "extra_groups": []} if uid else {}
    )
    return subprocess.Popen(
        request["run"],
        stdin=files["input"],
        stdout=files["stdout"],
        stderr=files["stderr"],
        cwd=request["cwd"],
        env={**os.environ, **request["environment"]},
        start_new_session=True,
        **other,
    )


def _close(files: dict[str, int]) -> None:
    for file in files.values():
        os.close(file)


def open_port() -> int:
    """Open our port by its name in sysfs; the guest may have no udev to link it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for port in PORTS.glob("*"):
            if (port / "name").read_text().strip() == PORT_NAME:
                return os.open(f"/dev/{port.name}", os.O_RDWR)
        time.sleep(0.02)
    raise SystemExit(f"lab: no virtio-serial port named {PORT_NAME}")


if __name__ == "__main__":
    Agent(open_port()).serve()
