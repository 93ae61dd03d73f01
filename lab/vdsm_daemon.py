# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor guest with ovirt-rdma installed and a stand-in for vdsmd running.

    vdsmd = VdsmDaemon(guest)
    vdsmd.load_policy("version: 1 ...")
    vdsmd.start()
    outcome = vdsmd.connect({"connection": "10.99.0.1:/srv/data"})

The stand-in is the storage part of VDSM only: see lab/vdsm_daemon_main.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from lab.command import Process, Result
from lab.guest import Guest
from lab.problem import LabProblem

CHECKOUT = Path(__file__).resolve().parents[1]
# The stand-in's start, in seconds; some 5 on a quiet machine.
START_TIMEOUT = 120.0
_STOP_TIMEOUT = 30.0
# What engine waits for connectStorageServer.
CONNECT_TIMEOUT = 180.0
PORT = 54321  # vdsmd's own
MOUNTS = "/rhev/data-center/mnt"


@dataclass(frozen=True)
class Outcome:
    """What the engine gets (a status for each connection, 0 is good), after how
    many seconds, and what the call wrote into vdsm.log.
    """

    statuses: list[int]
    seconds: float
    log: list[str]


class VdsmDaemon:
    """ovirt-rdma on the hypervisor ``guest``, as its package installs it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._process: Optional[Process] = None
        guest.run(["make", "-s", "install-host-files"], cwd=str(CHECKOUT), check=True)

    def command(self, *words: str, timeout: float = 60.0) -> Result:
        """Run ``ovirt-rdma-host`` in the guest."""
        return self.guest.run(
            [sys.executable, "-m", "ovirt_rdma.cli.host_command", *words],
            timeout=timeout,
        )

    def write_policy(self, text: str) -> None:
        """Write the policy file; it is not in force yet."""
        write = "mkdir -p /etc/ovirt-rdma && cat > /etc/ovirt-rdma/policy.yaml"
        self.guest.run(write, input=text, check=True)

    def load_policy(self, text: str) -> None:
        """Put a policy into force and enable the launcher, as an admin does."""
        self.write_policy(text)
        for words in (("policy", "load"), ("enable",)):
            result = self.command(*words)
            if result.exit_code:
                raise LabProblem(f"{' '.join(words)} failed: {result.stderr}")

    def start(self) -> None:
        """Start the stand-in; returns when it answers.

        Raises LabProblem, with what it said, if it ends or does not answer within
        START_TIMEOUT.
        """
        environment = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"}
        if "VDSM_SOURCE" in os.environ:
            environment["VDSM_SOURCE"] = os.environ["VDSM_SOURCE"]
        process = self.guest.start(
            [sys.executable, "-m", "lab.vdsm_daemon_main"],
            cwd=str(CHECKOUT),
            environment=environment,
        )
        up = f"until (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>&-; do sleep 0.1; done"
        waiting = self.guest.start(up)
        deadline = time.monotonic() + START_TIMEOUT
        while not waiting.ended:
            if process.ended:
                waiting.signal(signal.SIGKILL)
                raise LabProblem(f"vdsmd ended: {process.wait()}")
            if time.monotonic() > deadline:
                for each in (waiting, process):
                    each.signal(signal.SIGKILL)
                raise LabProblem(
                    f"vdsmd does not listen on port {PORT} {START_TIMEOUT:.0f} s after"
                    f" its start; killed: {process.wait(_STOP_TIMEOUT)}"
                )
            time.sleep(0.1)
        waiting.wait(check=True)  # the guest may have died
        self._process = process

    def stop(self) -> None:
        """Stop the stand-in, if it runs; mounts stay, as with vdsmd."""
        if self._process is not None:
            self._process.signal(signal.SIGTERM)
            self._process.wait(_STOP_TIMEOUT)
            self._process = None

    def connect(self, *definitions: Mapping[str, str]) -> Outcome:
        """Let engine connect storage; keys as VDSM's, version 4.2 unless said."""
        return self._call("connect", definitions)

    def disconnect(self, *definitions: Mapping[str, str]) -> Outcome:
        """Let engine disconnect storage."""
        return self._call("disconnect", definitions)

    def _call(self, verb: str, definitions: tuple[Mapping[str, str], ...]) -> Outcome:
        whole = [
            {"id": str(number), "protocol_version": "4.2", **definition}
            for number, definition in enumerate(definitions)
        ]
        request = json.dumps({"verb": verb, "definitions": whole})
        result = self.guest.run(
            f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; cat >&3; cat <&3",
            input=request + "\n",
            timeout=CONNECT_TIMEOUT + 60,
            check=True,
        )
        return Outcome(**json.loads(result.stdout))


def local_path(export: str) -> str:
    """Return where VDSM mounts ``export``."""
    return f"{MOUNTS}/{export.replace('_', '__').replace('/', '_')}"
