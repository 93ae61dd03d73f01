# SPDX-License-Identifier: GPL-2.0-or-later
"""Two guests with two links, a mount whose rule has both as paths, our daemon, and
cables to pull.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import installed_host
from lab.guest import Guest
from lab.topology import Topology

ADDRESSES = ("10.99.0.1", "10.98.0.1")
PLACE = "/rhev/data-center/mnt/10.99.0.1:_srv_data"
STATE = "/run/ovirt-rdma/paths.json"
_WRITER = Path(__file__).with_name("fault_writer.py")
_LOG = "/run/paths.log"
# Seconds after boot before each line.
_TIMED = "while read -r l; do read -r t _ < /proc/uptime; echo $t $l; done"
POLICY = """\
version: 1
nfs:
  rules:
    - {server: 10.99.0.1, transport: require-rdma, paths: [10.99.0.1, 10.98.0.1],
       paths_return: 5}
"""


class TwoPaths:
    """``lab``, two guests with a spare wire, prepared; nothing is mounted."""

    def __init__(self, lab: Topology) -> None:
        self.lab, self.hypervisor = lab, lab.hypervisor
        for guest, address in (
            (lab.server, "10.98.0.1"),
            (lab.hypervisor, "10.98.0.2"),
        ):
            lab.fabric.bring_up(guest, "eth1", [f"{address}/24"])
        installed_host.install(self.hypervisor)
        self.said("cat > /etc/ovirt-rdma/policy.yaml", POLICY)
        self.said("ovirt-rdma-host policy load -y")
        self.said("ovirt-rdma-host enable --mode host")

    def said(self, line: str, input: str = "") -> str:
        """Run a shell line on the hypervisor and return its output."""
        done = self.hypervisor.run(line, input=input, timeout=600, check=True)
        return done.stdout.strip()

    def mount(self, version: str, more: str = "") -> None:
        """Mount the export with the options that our class gives VDSM."""
        shown = self.said(
            f"ovirt-rdma-host nfs mount-options {self.lab.export} --nfs-version "
            f"{version} -o json"
        )
        options = json.loads(shown)["options"] + more
        self.said(
            f"mkdir -p {PLACE}; mount -t nfs -o {options} {self.lab.export} {PLACE}"
        )

    def unmount(self) -> None:
        """Unmount the export."""
        self.said(f"umount -f -l {PLACE}")

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Let the daemon run."""
        process = self.hypervisor.start(
            f"ovirt-rdma-host unit daemon 2>&1 | {_TIMED} > {_LOG}"
        )
        try:
            yield
        finally:
            self.hypervisor.run("pkill -TERM -o -f 'unit daemon'")
            process.wait(60)

    def log(self) -> str:
        """Return what the daemon has said."""
        return self.said(f"cat {_LOG} 2> /dev/null || true")

    def state(self) -> dict[str, Any]:
        """Return the paths of the server as the daemon saw them last; empty without."""
        shown = self.hypervisor.run(f"cat {STATE}").stdout
        servers = json.loads(shown)["servers"] if shown else []
        found: dict[str, Any] = servers[0] if servers else {}
        return found

    def waits_for(self, what: Any, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until ``what`` is true of the state, and return that."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            if state and what(state):
                return state
            if time.monotonic() >= deadline:
                raise AssertionError(f"{state}\n{self.log()}")
            time.sleep(0.2)

    def connections(self) -> str:
        """Return the kernel's own connections, for people."""
        return self.said(
            "cd /sys/kernel/sunrpc/xprt-switches && grep -sH . */*-rdma/dstaddr "
            "*/*-rdma/xprt_state; grep -s 'xprt:' /proc/self/mountstats; "
            "rdma res show cm_id | grep rpcrdma; true"
        )

    @contextmanager
    def writers(self, threads: int = 4) -> Iterator[dict[str, Any]]:
        """Let ``threads`` write to the mount; afterwards the result is in the dict."""
        self.said("rm -f /run/w.*")
        line = f"/usr/bin/python3 -I -S - {PLACE}/disk /run/w {threads}"
        process = self.hypervisor.start(line, input=_WRITER.read_text())
        result: dict[str, Any] = {}
        self.said("until [ -e /run/w.started ]; do sleep 0.1; done")
        try:
            yield result
        finally:
            self.said("touch /run/w.stop")
            done = process.wait(300)
            result.update(json.loads(done.stdout or "{}"))
            result["stderr"] = done.stderr

    def now(self) -> float:
        """Return the seconds after boot of the hypervisor."""
        return float(self.said("cat /proc/uptime").split()[0])


def pull(guest: Guest, nic: int) -> None:
    """Pull a cable at one end: this guest loses the carrier, the other one does not."""
    guest.monitor.pull_cable(nic)


def plug(guest: Guest, nic: int) -> None:
    """Plug it in again."""
    guest.monitor.plug_cable(nic)
