# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepare a pair of guests for faults: exports, server names, rules, and VDSM.

Each case (a rule's transport and an NFS version) has its own export, so that all can
be mounted at once. The name of the server selects the rule, so one server serves for
another port and for short timeouts too.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from lab.command import Process
from lab.topology import Topology
from lab.vdsm_daemon import Outcome, VdsmDaemon, local_path
from ovirt_rdma.host.collect.storage import nfs_mounts
from ovirt_rdma.storage.mounts import prove

RULES = ("require-rdma", "prefer-rdma")
VERSIONS = ("4.2", "3")
SERVER_ADDRESS = "10.99.0.1"
# What the engine sends in every case: VDSM makes timeo and retrans of them.
TIMEO, RETRANS = 30, 2
# How long one call to a dead server lasts: timeo is in tenths of a second.
RPC_SECONDS = TIMEO / 10 * (RETRANS + 1)

# Name -> address, and the settings of its rules beside the transport. An emulated guest
# may need more than 2 s to answer; if no answer can come, 2 s are enough.
_SERVERS = {
    "nas": (SERVER_ADDRESS, "readiness_timeout: 30"),
    "quick": (SERVER_ADDRESS, "readiness_timeout: 2"),
    "odd-port": (SERVER_ADDRESS, "readiness_timeout: 30, port: 20050"),
    "booting": (SERVER_ADDRESS, "readiness_timeout: 30, settle_timeout: 60"),
    "remembering": (SERVER_ADDRESS, "readiness_timeout: 30, failure_cache: 300"),
    "forgetting": (SERVER_ADDRESS, "readiness_timeout: 30, failure_cache: 1"),
    "absent": ("10.99.0.77", "readiness_timeout: 2"),
    "silent": ("10.99.0.77", "readiness_timeout: 30"),
    "unreachable": ("10.98.0.1", "readiness_timeout: 2"),
    "unrouted": ("192.0.2.1", "readiness_timeout: 2"),
}
# How long a refusal without a route takes on an idle machine (docs/faults.md).
_UNROUTED_SECONDS = 0.7
FOLDER = "/srv"
# Exported, but to other clients.
PRIVATE_FOLDER = "/srv/private"
_HOSTS = "/etc/hosts"
# Ends each line that is added there, to find it again.
_OWN = "# a fault's server"
_WRITER = Path(__file__).with_name("fault_writer.py")


@dataclass(frozen=True)
class Case:
    """A rule's transport and the NFS version that the engine asks for."""

    rule: str
    version: str

    def __str__(self) -> str:
        return f"{self.rule}-{self.version}"

    def export(self, server: str, folder: str = FOLDER) -> str:
        """Return the case's export as the engine writes it."""
        return f"{server}:{folder}/{self}"


CASES = tuple(Case(rule, version) for rule in RULES for version in VERSIONS)


def policy() -> str:
    """Return the policy: two rules for each name, which differ in the path."""
    # A port that is down is a fault of its own in all cases but one.
    lines = ["version: 1", "nfs:", "  defaults: {settle_timeout: 0}", "  rules:"]
    for server, (_, settings) in _SERVERS.items():
        for rule in RULES:
            lines.append(
                f"    - {{name: {server}-{rule}, server: {server},"
                f' path: "*/{rule}-*", transport: {rule}, {settings}}}'
            )
    return "\n".join(lines) + "\n"


class FaultSite:
    """The ``lab``, prepared for faults; nothing is mounted when a fault begins."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        self.vdsmd = VdsmDaemon(lab.hypervisor)
        self._forget_names()
        names = "".join(f"{a} {name} {_OWN}\n" for name, (a, _) in _SERVERS.items())
        lab.hypervisor.run(f"cat >> {_HOSTS}", input=names, check=True)
        self.add_exports()
        self.vdsmd.load_policy(policy())
        self.vdsmd.start()

    def close(self) -> None:
        """Stop vdsmd and remove the servers' names."""
        self.vdsmd.stop()
        self._forget_names()

    def _forget_names(self) -> None:
        self.shell(f'sed -i "/ {_OWN}$/d" {_HOSTS}')

    def add_exports(self) -> None:
        """Export the paths of the cases; also after the server was off."""
        for case in CASES:
            self.lab.nfs.add_export(f"{FOLDER}/{case}")
            self.lab.nfs.add_export(f"{PRIVATE_FOLDER}/{case}", clients="192.0.2.9")

    def shell(self, line: str, timeout: float = 60.0) -> str:
        """Run a line on the hypervisor; return its output. Raises CommandFailed."""
        return self.lab.hypervisor.run(line, check=True, timeout=timeout).stdout

    def slowness(self) -> float:
        """Return how many times slower than on an idle machine the hypervisor is now.

        Measured with a call that waits for no answer, as its server has no route; 1 or
        more.
        """
        call = definition(CASES[0], CASES[0].export("unrouted"))
        return max(1.0, self.vdsmd.connect(call).seconds / _UNROUTED_SECONDS)

    def connect(self, case: Case, export: str) -> Outcome:
        """Let the engine connect ``export``."""
        return self.vdsmd.connect(definition(case, export))

    def disconnect(self, case: Case, export: str) -> Outcome:
        """Let the engine disconnect ``export``."""
        return self.vdsmd.disconnect(definition(case, export))

    def transport(self, export: str) -> Optional[str]:
        """Return the transport of VDSM's mount of ``export``; None without a mount."""
        read = self.shell("cat /proc/self/mountinfo; echo =; cat /proc/self/mountstats")
        mountinfo, _, mountstats = read.partition("\n=\n")
        place = local_path(export)
        for mount in nfs_mounts(mountinfo.encode(), mountstats.encode(), []):
            if mount.mountpoint == place:
                return prove(mount).transport
        return None

    def unmount_all(self) -> None:
        """Unmount all NFS mounts, even if their servers do not answer."""
        # Not rm: what is still mounted would be emptied.
        self.shell(
            "umount -a -t nfs,nfs4 -f -l;"
            " rmdir /rhev/data-center/mnt/* 2>/dev/null; true"
        )


def definition(case: Case, export: str) -> dict[str, str]:
    """Return the connection as the engine sends it."""
    return {
        "connection": export,
        "protocol_version": case.version,
        "timeout": str(TIMEO),
        "retrans": str(RETRANS),
    }


@dataclass(frozen=True)
class Written:
    """What a writer got: an errno's name or None, its longest write in seconds, and
    without an error how many of its blocks are not as it wrote them.
    """

    error: Optional[str]
    longest: float
    writes: int
    differences: Optional[int] = None


class Writers:
    """One writer on each of ``exports``; all are writing when this is constructed."""

    def __init__(self, site: FaultSite, exports: Sequence[str]) -> None:
        self._site = site
        self._state = f"/run/writer-{time.monotonic_ns()}"
        self._processes: list[Process] = []
        for number, export in enumerate(exports):
            file = shlex.quote(f"{local_path(export)}/disk")
            line = f"/usr/bin/python3 -I -S {_WRITER} {file} {self._state}-{number}"
            self._processes.append(site.lab.hypervisor.start(line))
        for number, _ in enumerate(self._processes):
            started = f"{self._state}-{number}.started"
            site.shell(f"until [ -e {started} ]; do sleep 0.1; done")

    def stop(self) -> None:
        """Let them end after the current write."""
        for number, _ in enumerate(self._processes):
            self._site.shell(f"touch {self._state}-{number}.stop")

    def wait(self, timeout: float) -> list[Written]:
        """Return what each got; raises CommandTimeout if one takes too long."""
        deadline = time.monotonic() + timeout
        results = []
        for process in self._processes:
            left = max(1.0, deadline - time.monotonic())
            results.append(Written(**json.loads(process.wait(left, check=True).stdout)))
        return results
