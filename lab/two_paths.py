# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount whose rule names two paths, our daemon, writers, and cables to pull."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Protocol

from lab import installed_host
from lab.guest import Guest
from lab.ib_pair import IbPair
from lab.infiniband import set_up
from lab.soft_roce import SoftRoce
from lab.topology import EXPORT_PATH, Topology

PLACE = "/rhev/data-center/mnt/nas:_srv_data"
STATE = "/run/ovirt-rdma/paths.json"
# Whose cable is pulled: its end loses the carrier, the other one does not.
CLIENT, SERVER = ENDS = ("client", "server")
_WRITER = Path(__file__).with_name("fault_writer.py")
_LOG = "/run/paths.log"
# Seconds after boot before each line.
_TIMED = "while read -r l; do read -r t _ < /proc/uptime; echo $t $l; done"
_POLICY = """\
version: 1
nfs:
  rules:
    - {{server: {server}, transport: require-rdma,
       paths: [{paths}], paths_return: 3, readiness_timeout: 30{more}}}
"""
_LEFT = (
    "ip route show table all type unreachable proto 186; "
    "ip neigh show nud permanent | grep 02:00:00; "
    "ls /run/ovirt-rdma/paths.lever 2> /dev/null; true"
)


class Cables(Protocol):
    """The cables of both ends."""

    addresses: tuple[str, str]

    def pull(self, end: str, path: int) -> None:
        """Pull one."""

    def plug(self, end: str, path: int) -> None:
        """Plug it in again."""


class RoceCables:
    """Two wires between two guests, with Soft-RoCE; the second one is set up here."""

    addresses = ("10.99.0.1", "10.98.0.1")

    def __init__(self, lab: Topology) -> None:
        fabric = SoftRoce()
        self._guests = {CLIENT: lab.hypervisor, SERVER: lab.server}
        for guest, address in (
            (lab.server, "10.98.0.1"),
            (lab.hypervisor, "10.98.0.2"),
        ):
            fabric.bring_up(guest, "eth1", [f"{address}/24"])

    def pull(self, end: str, path: int) -> None:
        """Pull one."""
        self._guests[end].monitor.pull_cable(path)

    def plug(self, end: str, path: int) -> None:
        """Plug it in again."""
        self._guests[end].monitor.plug_cable(path)


class InfiniBandCables:
    """The fabric of two HCAs with two ports each; the second ports are set up here."""

    addresses = ("10.97.0.1", "10.96.0.1")

    def __init__(self, pair: IbPair) -> None:
        self._pair, names = pair, pair.fabric.netdevs
        self._netdevs = {CLIENT: names[:2], SERVER: names[2:]}
        pair.server.take(names[3])
        # In one network a port answers for the addresses of the others without this.
        for host in (pair.hypervisor, pair.server):
            host.run(
                "sysctl -q -w net.ipv4.conf.all.arp_ignore=1 "
                "net.ipv4.conf.all.arp_announce=2",
                check=True,
            )
        set_up(pair.server, names[3], ["10.96.0.1/24"])
        set_up(pair.hypervisor, names[1], ["10.96.0.2/24"])
        pair.fabric.wait_for_carrier(pair.hypervisor, names[1])
        pair.fabric.wait_for_carrier(pair.server, names[3])

    def pull(self, end: str, path: int) -> None:
        """Pull one."""
        place = self._pair.fabric.port_of(self._netdevs[end][path])
        self._pair.fabric.port_down(self._pair.hypervisor, *place)

    def plug(self, end: str, path: int) -> None:
        """Plug it in again."""
        place = self._pair.fabric.port_of(self._netdevs[end][path])
        self._pair.fabric.port_up(self._pair.hypervisor, *place)


class TwoPaths:
    """A hypervisor with our daemon's policy for the server at both ``cables``."""

    def __init__(self, hypervisor: Guest, cables: Cables) -> None:
        self.hypervisor, self.cables = hypervisor, cables
        self.addresses = cables.addresses
        self.export = f"{self.addresses[0]}:{EXPORT_PATH}"
        installed_host.install(hypervisor)
        self.load_policy()
        self.said("ovirt-rdma-host enable --mode host")

    def load_policy(self, *, paths: bool = True, more: str = "") -> None:
        """Load the policy with, or without, the paths."""
        text = _POLICY.format(
            server=self.addresses[0], paths=", ".join(self.addresses), more=more
        )
        if not paths:
            text = text.replace(f"paths: [{', '.join(self.addresses)}], ", "")
        self.said("cat > /etc/ovirt-rdma/policy.yaml", text)
        self.said("ovirt-rdma-host policy load -y")

    def said(self, line: str, input: str = "") -> str:
        """Run a shell line on the hypervisor and return its output."""
        done = self.hypervisor.run(line, input=input, timeout=600, check=True)
        return done.stdout.strip()

    def mount(self, version: str) -> None:
        """Mount the export with the options that our class gives VDSM."""
        shown = self.said(
            f"ovirt-rdma-host nfs mount-options {self.export} --nfs-version {version} "
            "-o json"
        )
        options = json.loads(shown)["options"]
        self.said(f"mkdir -p {PLACE}")
        self.said(f"mount -t nfs -o {options} {self.export} {PLACE}")

    def unmount(self) -> None:
        """Unmount the export, if it is mounted."""
        self.hypervisor.run(f"umount -f -l {PLACE}")

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Let the daemon run."""
        process = self.hypervisor.start(
            f"ovirt-rdma-host unit daemon 2>&1 | {_TIMED} > {_LOG}"
        )
        try:
            yield
        finally:
            self.hypervisor.run("pkill -TERM -o -f 'host unit daemon$'")
            process.wait(60)

    @contextmanager
    def mounted(self, version: str = "4.2") -> Iterator[None]:
        """Have the export mounted, and the daemon running with both paths UP and a
        connection on each. Afterwards all cables are in, and nothing is left.
        """
        self.mount(version)
        try:
            with self.daemon():
                self.waits_for(whole)
                yield
        finally:
            for end in ENDS:
                for path in (0, 1):
                    self.cables.plug(end, path)
            self.unmount()
        assert self.left_over() == ""

    def left_over(self) -> str:
        """Return what a move has left in the way of an address."""
        return self.said(_LEFT)

    def log(self) -> str:
        """Return what the daemon has said."""
        return self.said(f"cat {_LOG} 2> /dev/null || true")

    def state(self) -> dict[str, Any]:
        """Return the paths of the server as the daemon saw them last; empty without."""
        shown = self.hypervisor.run(f"cat {STATE}").stdout
        servers = json.loads(shown)["servers"] if shown else []
        found: dict[str, Any] = servers[0] if servers else {}
        return found

    def waits_for(
        self, what: Callable[[dict[str, Any]], bool], seconds: float = 240.0
    ) -> dict[str, Any]:
        """Wait until ``what`` is true of the state, and return that."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            if state and what(state):
                return state
            if time.monotonic() >= deadline:
                raise AssertionError(f"{state}\n{self.connections()}\n{self.log()}")
            time.sleep(0.2)

    def connections(self) -> str:
        """Return the kernel's own connections, for people."""
        return self.said(
            "cd /sys/kernel/sunrpc/xprt-switches && grep -sH . */*-rdma/dstaddr "
            "*/*-rdma/xprt_state; grep -s 'xprt:' /proc/self/mountstats; "
            "rdma res show cm_id | grep rpcrdma; true"
        )

    def places(self) -> list[str]:
        """Return where the kernel has connections; one that was cut off ends late."""
        line = "rdma res show cm_id | grep 'state CONNECT.*rpcrdma'; true"
        rows = [row.split() for row in self.said(line).splitlines()]
        found = (row[row.index("dst-addr") + 1].rpartition(":")[0] for row in rows)
        return sorted(found)

    @contextmanager
    def writers(self, threads: int = 4) -> Iterator[dict[str, Any]]:
        """Let ``threads`` write to the mount; afterwards the result is in the dict."""
        self.said("rm -f /run/w.started /run/w.stop")
        line = f"/usr/bin/python3 -I -S - {PLACE}/disk /run/w {threads}"
        process = self.hypervisor.start(line, input=_WRITER.read_text())
        result: dict[str, Any] = {}
        self.said("until [ -e /run/w.started ]; do sleep 0.1; done")
        try:
            yield result
        finally:
            self.said("touch /run/w.stop")
            done = process.wait(300)
            result.update(json.loads(done.stdout or "{}"), stderr=done.stderr)


def whole(state: dict[str, Any]) -> bool:
    """Whether both paths are UP, with a connection each."""
    found = [(path["state"], path["connections"]) for path in state["paths"]]
    return found == [("up", 1), ("up", 1)] and not state["problem"]


def moved(state: dict[str, Any]) -> bool:
    """Whether one path is DOWN, and all connections are on the other one."""
    found = sorted((path["state"], path["connections"]) for path in state["paths"])
    return found == [("down", 0), ("up", 2)]
