# SPDX-License-Identifier: GPL-2.0-or-later
"""Define faults of a mount on real kernels, and what health and alerts must say.

docs/metrics.md has the same table for readers. A server that is off, one NFS thread, a
slow disk, few slots, and a path that is slow or loses packets have no row: no run in
the lab has shown yet that their tests pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from watched_host import (
    INTERVAL_S,
    METRICS,
    OTHER_PATH,
    Load,
    Look,
    WatchedHost,
)

from lab.topology import NETDEV, SERVER_ADDRESSES

Act = Callable[[WatchedHost], Any]

STALLED = "OvirtRdmaMountStalled"
OVER_RDMA = "rdma,port=20049"
POLICY = f"""\
version: 1
nfs:
  health_interval: {INTERVAL_S}
  rules:
    - {{name: nas, server: 10.99.0.1, path: "*", transport: require-rdma}}
host: {{metrics_folder: {METRICS}}}
"""
# Two samples.
AFTER_S = 12.0


def nothing(host: WatchedHost) -> None:
    """Change nothing."""


def server(line: str) -> Act:
    """Return an act that runs a line on the server."""
    return lambda host: host.server(line)


@dataclass(frozen=True)
class MountFault:
    """A fault of a mount, while ``load`` runs.

    - ``begin``, ``end``: break it, and repair it
    - ``states``, ``cause``, ``reason``: what the health may say; ``cause`` None: it is
      ok, and ``remark`` is said
    - ``alerts``: exactly those that fire ``AFTER_S`` seconds after it is named
    """

    begin: Act
    end: Act
    states: tuple[str, ...]
    cause: Optional[str]
    reason: str
    alerts: frozenset[str]
    load: Optional[Load] = None
    remark: str = ""

    def first_named(self, looks: list[Look]) -> Optional[int]:
        """Return the number of the first look that names it; the first one is 0."""
        return next((n for n, look in enumerate(looks) if self._is_named(look)), None)

    def _is_named(self, look: Look) -> bool:
        if look.get("state") not in self.states or look["cause"] != self.cause:
            return False
        if self.remark:
            return self.remark in [one["id"] for one in look["remarks"]]
        return look["reason"] == self.reason


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


def share_tcp(host: WatchedHost) -> None:
    """Mount another export over TCP first: NFS 4.2 then shares its connection."""
    host.end_mounts()
    host.mount("tcp", "4.2", OTHER_PATH)
    host.mount(OVER_RDMA, "4.2")


def ignore_nconnect(host: WatchedHost) -> None:
    """Ask for four connections, of which Linux 6.1 makes one for NFS 4."""
    host.load_policy(POLICY.replace("rdma}", "rdma, options: nconnect=4}"))


# As little as shows a fault: guests are emulated, and the watcher needs its share.
_BUSY = Load(readers=1, writers=1, block=4 << 10, pause_s=0.3)

FAULTS = {
    "server frozen": MountFault(
        lambda host: host.lab.server.monitor.freeze(),
        lambda host: host.lab.server.monitor.thaw(),
        ("stalled",),
        "server",
        "server-silent",
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "listener gone": MountFault(
        lambda host: host.lab.nfs.restart(rdma_port=None),
        lambda host: host.lab.nfs.restart(),
        ("dead",),
        "server",
        "listener-gone",
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "address moved": MountFault(
        server(_MOVE),
        server(_RETURN),
        ("stalled", "dead"),
        "server",
        "rdma-lost",
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "cable out": MountFault(
        lambda host: host.lab.hypervisor.monitor.pull_cable(),
        lambda host: host.lab.hypervisor.monitor.plug_cable(),
        ("dead",),
        "path",
        "link-down",
        frozenset({STALLED, "OvirtRdmaPortDown"}),
        load=_BUSY,
    ),
    "nconnect ignored": MountFault(
        ignore_nconnect,
        lambda host: host.load_policy(POLICY),
        ("ok",),
        None,
        "",
        frozenset(),
        remark="nconnect-ignored",
    ),
    "mount shared over TCP": MountFault(
        share_tcp,
        nothing,
        ("ok",),
        None,
        "",
        frozenset({"OvirtRdmaMountDegraded"}),
        remark="transport-degraded",
    ),
}
