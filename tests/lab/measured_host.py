# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor in the lab on which ``bench`` runs, and what it leaves behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Union

from lab.command import Process, Result
from lab.ib_pair import IbPair
from lab.topology import Topology

Lab = Union[Topology, IbPair]

EXPORT_PATH = "/srv/bench"
PATIENT_S = 600.0
MOUNT = "/run/ovirt-rdma-bench/mount"
SHORT = "--repeats 1 --seconds 2 --size-mib 8"
# The guests see the machine's files.
_BENCH = f"{Path(sys.executable).parent}/ovirt-rdma-host bench"
# A host as slow as the lab's guests needs more than 2 s to answer.
_POLICY_FILE = "/run/bench-policy.yaml"
_POLICY = """\
version: 1
nfs:
  rules:
    - {name: all, server: "*", path: "*", transport: prefer-rdma, readiness_timeout: 20}
"""
_WRITING = "until pgrep -x fio > /dev/null && mountpoint -q $0; do sleep 0.1; done"
# The child that removes everything, and fio.
_GONE = "while pgrep -x 'ovirt-rdma-host|fio'; do sleep 0.2; done"


class MeasuredHost:
    """The hypervisor of ``lab``; the server exports EXPORT_PATH."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        lab.nfs.add_export(EXPORT_PATH)
        lab.hypervisor.run(f"cat > {_POLICY_FILE}", input=_POLICY, check=True)

    def bench(self, words: str) -> Result:
        """Run ``bench`` and return its result."""
        line = f"{_BENCH} {words} -o json"
        return self.lab.hypervisor.run(line, timeout=PATIENT_S)

    def measured(
        self, words: str = "", path: str = EXPORT_PATH, server: str = ""
    ) -> Any:
        """Measure an export in full; nothing is left, and the result is returned."""
        done = self.bench(self._words(path, f"{SHORT} {words}", server))
        # Shown if the test fails.
        print(done)
        assert done.exit_code == 0
        left = self.left(path)
        assert not left, left
        return json.loads(done.stdout)

    def refused(self, words: str = "", path: str = EXPORT_PATH) -> tuple[int, Any]:
        """Measure an export that cannot be; return the exit code and the error."""
        done = self.bench(self._words(path, f"{SHORT} {words}"))
        return done.exit_code, json.loads(done.stdout)

    def started(self, words: str = SHORT) -> Process:
        """Start a benchmark, and wait until fio is writing into the export."""
        process = self.lab.hypervisor.start(
            f"exec {_BENCH} {self._words(EXPORT_PATH, words)} -o json"
        )
        wait = ["bash", "-c", _WRITING, MOUNT]
        self.lab.hypervisor.run(wait, check=True, timeout=PATIENT_S)
        return process

    def wait_until_gone(self) -> None:
        """Wait until no process of a benchmark is left."""
        self.lab.hypervisor.run(_GONE, check=True, timeout=PATIENT_S)

    def left_here(self) -> list[str]:
        """Return what a benchmark left on this host: processes, a mount, a record."""
        found = self.lab.hypervisor.run(
            f"pgrep -x 'ovirt-rdma-host|fio'; grep -o {MOUNT} /proc/mounts; "
            "ls -A /run/ovirt-rdma-bench | grep -vx lock"
        )
        return found.stdout.split()

    def left(self, path: str = EXPORT_PATH) -> list[str]:
        """Return what it left here and in the export."""
        there = self.lab.server.run(f"ls -A /nfsroot{path}", check=True)
        return [
            *self.left_here(),
            *(one for one in there.stdout.split() if one != "lost+found"),
        ]

    def _words(self, path: str, words: str, server: str = "") -> str:
        address = server or self.lab.address
        return f"{address}:{path} {words} --policy {_POLICY_FILE}"
