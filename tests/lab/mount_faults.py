# SPDX-License-Identifier: GPL-2.0-or-later
"""Define faults of a mount on real kernels, and what health and alerts must say.

docs/metrics.md has the same table for readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from watched_host import INTERVAL_S, METRICS, OTHER_PATH, Load, WatchedHost

from lab.topology import NETDEV, SERVER_ADDRESSES

Act = Callable[[WatchedHost], Any]

STALLED = "OvirtRdmaMountStalled"
SLOW = "OvirtRdmaMountSlow"
POLICY = f"""\
version: 1
nfs:
  health_interval: {INTERVAL_S}
  rules:
    - {{name: nas, server: 10.99.0.1, path: "*", transport: require-rdma}}
host: {{metrics_folder: {METRICS}}}
"""
# `OvirtRdmaMountSlow` waits for a minute.
_SLOW_AFTER_S = 100.0


def nothing(host: WatchedHost) -> None:
    """Change nothing."""


def server(line: str) -> Act:
    """Return an act that runs a line on the server."""
    return lambda host: host.server(line)


def hypervisor(line: str) -> Act:
    """Return an act that runs a line on the hypervisor."""
    return lambda host: host.shell(line)


@dataclass(frozen=True)
class MountFault:
    """A fault of a mount, while ``load`` runs.

    - ``before``: what the host needs before the mount
    - ``begin``, ``end``: break it, and repair it
    - ``states``, ``cause``, ``reasons``: what the health may say, the most exact first;
      ``cause`` None: it is ok, and ``remark`` is said
    - ``alerts``: exactly those that fire ``after_s`` seconds after the fault
    """

    begin: Act
    end: Act
    states: tuple[str, ...]
    cause: Optional[str]
    reasons: tuple[str, ...]
    alerts: frozenset[str]
    load: Optional[Load] = None
    remark: str = ""
    after_s: float = 30.0
    before: Act = nothing
    options: str = "rdma,port=20049"
    version: str = "4.2"

    def verdicts(self) -> list[tuple[str, Optional[str], str]]:
        """Return what a look may say: state, cause, reason."""
        return [(s, self.cause, r) for s in self.states for r in self.reasons]


def boot_server(host: WatchedHost) -> None:
    """Boot the server again, with its exports."""
    host.lab.start_server()
    host.export_all()


# To a netdev without an RDMA device, which answers for it by the old one too.
_MOVE = f"""
ip address del {SERVER_ADDRESSES[0]} dev {NETDEV}
ip address add {SERVER_ADDRESSES[0]} dev eth1
ip link set eth1 up
ip route replace 10.99.0.2/32 dev {NETDEV}
"""
_RETURN = f"""
ip route del 10.99.0.2/32 dev {NETDEV}
ip address del {SERVER_ADDRESSES[0]} dev eth1
ip address add {SERVER_ADDRESSES[0]} dev {NETDEV}
"""


def set_slots(number: int) -> Act:
    """Return an act that gives the next RDMA connection so many slots."""
    return hypervisor(f"echo {number} > /proc/sys/sunrpc/rdma_slot_table_entries")


def share_tcp(host: WatchedHost) -> None:
    """Mount another export over TCP first: NFS 4.2 then shares its connection."""
    host.end_mounts()
    host.mount("tcp", "4.2", OTHER_PATH)
    host.mount("rdma,port=20049", "4.2")


def ignore_nconnect(host: WatchedHost) -> None:
    """Ask for four connections, of which Linux 6.1 makes one for NFS 4."""
    host.load_policy(POLICY.replace("rdma}", "rdma, options: nconnect=4}"))


# More packets than any load here has under way; the default of 1000 would drop some.
_NETEM = f"tc qdisc add dev {NETDEV} root netem limit 100000"
_SOUND = f"tc qdisc del dev {NETDEV} root"
_BUSY = Load(readers=2, writers=2, pause_s=0.05)

FAULTS = {
    "server frozen": MountFault(
        lambda host: host.lab.server.monitor.freeze(),
        lambda host: host.lab.server.monitor.thaw(),
        ("stalled",),
        "server",
        ("server-silent",),
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "server killed": MountFault(
        lambda host: host.lab.server.kill(),
        boot_server,
        ("stalled",),
        "server",
        ("server-silent",),
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "listener gone": MountFault(
        lambda host: host.lab.nfs.restart(rdma_port=None),
        lambda host: host.lab.nfs.restart(),
        ("dead",),
        "server",
        ("listener-gone",),
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "address moved": MountFault(
        server(_MOVE),
        server(_RETURN),
        ("stalled", "dead"),
        "server",
        ("rdma-lost",),
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "one NFS thread": MountFault(
        lambda host: host.threads(1),
        lambda host: host.threads(4),
        ("slow",),
        "server",
        ("threads-busy",),
        frozenset({SLOW}),
        load=Load(readers=0, writers=12),
        before=lambda host: host.delay_disk(30),
        after_s=_SLOW_AFTER_S,
    ),
    "server's disk slow": MountFault(
        lambda host: host.delay_disk(800),
        lambda host: host.delay_disk(0),
        ("slow",),
        "server",
        ("disk-slow",),
        frozenset({SLOW}),
        load=Load(readers=0, writers=2),
        after_s=_SLOW_AFTER_S,
    ),
    "few slots, deep queue": MountFault(
        lambda host: host.begin_load(Load(readers=0, writers=24)),
        set_slots(128),
        ("slow",),
        "slots",
        ("slots-used-up",),
        frozenset({SLOW, "OvirtRdmaBacklog"}),
        # The least that the kernel takes (RPCRDMA_MIN_SLOT_TABLE).
        before=set_slots(4),
        after_s=_SLOW_AFTER_S,
        # NFS 4 has a limit of its own, the slots of its session.
        version="3",
    ),
    "path slow": MountFault(
        hypervisor(f"{_NETEM} delay 200ms"),
        hypervisor(_SOUND),
        ("slow",),
        "path",
        ("path-slow",),
        frozenset({SLOW}),
        load=_BUSY,
        after_s=_SLOW_AFTER_S,
    ),
    "path lossy": MountFault(
        hypervisor(f"{_NETEM} loss 5%"),
        hypervisor(_SOUND),
        ("slow", "stalled"),
        "path",
        ("path-lossy",),
        frozenset({SLOW}),
        load=_BUSY,
        after_s=_SLOW_AFTER_S,
    ),
    "cable out": MountFault(
        lambda host: host.lab.hypervisor.monitor.pull_cable(),
        lambda host: host.lab.hypervisor.monitor.plug_cable(),
        ("dead",),
        "path",
        ("link-down",),
        frozenset({STALLED, "OvirtRdmaPortDown"}),
        load=_BUSY,
    ),
    "nconnect ignored": MountFault(
        ignore_nconnect,
        lambda host: host.load_policy(POLICY),
        ("ok",),
        None,
        ("",),
        frozenset(),
        remark="nconnect-ignored",
    ),
    "mount shared over TCP": MountFault(
        share_tcp,
        nothing,
        ("ok",),
        None,
        ("",),
        frozenset({"OvirtRdmaMountDegraded"}),
        remark="transport-degraded",
    ),
}
