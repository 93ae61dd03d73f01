# SPDX-License-Identifier: GPL-2.0-or-later
"""Define faults of a mount on real kernels, and what health and alerts must say.

docs/alerts.md has the same table for readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from watched_host import (
    INTERVAL_S,
    METRICS,
    OTHER_PATH,
    SCRAPE_S,
    Load,
    Look,
    WatchedHost,
)

from lab.topology import NETDEV, SERVER_ADDRESSES

Act = Callable[[WatchedHost], Any]

STALLED = "OvirtRdmaMountStalled"
SLOW = "OvirtRdmaMountSlow"
OVER_RDMA = "rdma,port=20049"
POLICY = f"""\
version: 1
nfs:
  health_interval: {INTERVAL_S}
  rules:
    - {{name: nas, server: 10.99.0.1, path: "*", transport: require-rdma}}
host: {{metrics_folder: {METRICS}}}
"""
_SLOTS = "/proc/sys/sunrpc/rdma_slot_table_entries"
# The look that was under way, one whose samples are of before and after the fault, one
# that finds a single late answer, and one that finds the second.
_SLOW_LOOKS = 4


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
    """A fault of a mount of ``version``, while ``load`` runs.

    - ``before``: what the host needs before the mount; ``begin``, ``end``: break it,
      and repair it
    - ``states``, ``cause``, ``reason``: what the health may say; ``cause`` None: it is
      ok
    - ``certain``: the health must say that it leaves no other cause
    - ``looks``: at most so many looks until it is named
    - ``alerts``: those that fire ``after_s`` seconds after it is named (SLOW waits for
      a minute); no others but ``at_times``, which depend on chance
    """

    begin: Act
    end: Act
    states: tuple[str, ...]
    cause: Optional[str]
    reason: str
    alerts: frozenset[str]
    at_times: frozenset[str] = frozenset()
    load: Optional[Load] = None
    looks: int = 2
    # Two scrapes, and the evaluation of the rules.
    after_s: float = 3.0 * SCRAPE_S
    before: Act = nothing
    version: str = "4.2"
    certain: bool = False

    def first_named(self, looks: list[Look]) -> Optional[int]:
        """Return the number of the first look that names it; the first one is 0."""
        return next((n for n, look in enumerate(looks) if self._is_named(look)), None)

    def _is_named(self, look: Look) -> bool:
        if look.get("state") not in self.states or look["cause"] != self.cause:
            return False
        return look["reason"] == self.reason and look["certain"] >= self.certain


# To a netdev without an RDMA device, which answers for it by the old one too.
_MOVE = f"""
ip address del {SERVER_ADDRESSES[0]} dev {NETDEV}
ip address add {SERVER_ADDRESSES[0]} dev eth1
ip link set eth1 up
ip route replace 10.99.0.2/32 dev {NETDEV}
"""


def boot_server(host: WatchedHost) -> None:
    """Boot the server again, with its exports."""
    host.lab.start_server()
    host.export_all()


def restart_server(host: WatchedHost) -> None:
    """Cut the server's power, and boot it again.

    Soft-RoCE's queue pair for management datagrams fails for ever with one from a GID
    that is gone (rxe_init_packet, and the end of rxe_requester), and no connection is
    made any more when the address returns. Seen on Linux 6.12.
    """
    host.lab.server.kill()
    boot_server(host)


def more_threads(host: WatchedHost) -> None:
    """Undo what the fault with one NFS thread needs."""
    host.threads(4)
    host.delay_disk(0)


def resume(host: WatchedHost) -> None:
    """Let the disk answer again, and all NFS threads work."""
    host.server("dmsetup resume slow")
    host.threads(4)


def few_slots(host: WatchedHost) -> None:
    """Give the next RDMA connection the fewest slots (RPCRDMA_MIN_SLOT_TABLE), and let
    calls take long enough to wait for one.
    """
    host.shell(f"echo 4 > {_SLOTS}")
    host.delay_disk(40)


def more_slots(host: WatchedHost) -> None:
    """Revert that."""
    host.shell(f"echo 128 > {_SLOTS}")
    host.delay_disk(0)


def share_tcp(host: WatchedHost) -> None:
    """Mount another export over TCP first: NFS 4.2 then shares its connection."""
    host.end_mounts()
    host.mount("tcp", "4.2", OTHER_PATH)
    host.mount(OVER_RDMA, "4.2")


# More packets than any load here has under way; the default of 1000 would drop some.
_NETEM = f"tc qdisc add dev {NETDEV} root netem limit 100000"
_SOUND = f"tc qdisc del dev {NETDEV} root"
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
        restart_server,
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
        # The alert on the port waits for 15 s.
        after_s=4.0 * SCRAPE_S,
    ),
    "server off": MountFault(
        lambda host: host.lab.server.kill(),
        boot_server,
        ("stalled",),
        "server",
        "server-silent",
        frozenset({STALLED}),
        load=_BUSY,
    ),
    "one NFS thread": MountFault(
        lambda host: host.threads(1),
        more_threads,
        ("slow",),
        "server",
        "server-slow",
        frozenset({SLOW}),
        load=Load(readers=0, writers=6, block=4 << 10),
        before=lambda host: host.delay_disk(60),
        looks=_SLOW_LOOKS,
        # By the calls that wait at the server together.
        certain=True,
    ),
    "all NFS threads hang": MountFault(
        server("dmsetup suspend --noflush --nolockfs slow"),
        resume,
        ("stalled",),
        "server",
        "nfs-stuck",
        frozenset({STALLED}),
        load=Load(readers=0, writers=6, block=4 << 10),
        before=lambda host: host.threads(2),
    ),
    "server's disk slow": MountFault(
        lambda host: host.delay_disk(800),
        lambda host: host.delay_disk(0),
        ("slow",),
        "server",
        "disk-slow",
        frozenset({SLOW}),
        load=Load(readers=0, writers=2, block=4 << 10),
        looks=_SLOW_LOOKS,
    ),
    "few slots and a deep queue": MountFault(
        lambda host: host.begin_load(Load(readers=0, writers=24, block=4 << 10)),
        more_slots,
        ("slow",),
        "slots",
        "slots-used-up",
        frozenset({SLOW, "OvirtRdmaBacklog"}),
        before=few_slots,
        looks=_SLOW_LOOKS,
        # NFS 4 has a limit of its own, the slots of its session.
        version="3",
    ),
    "path slow": MountFault(
        hypervisor(f"{_NETEM} delay 200ms"),
        hypervisor(_SOUND),
        ("slow",),
        "path",
        "path-slow",
        frozenset({SLOW}),
        load=_BUSY,
        looks=_SLOW_LOOKS,
    ),
    "path loses packets": MountFault(
        hypervisor(f"{_NETEM} loss 5%"),
        hypervisor(_SOUND),
        ("slow", "stalled"),
        "path",
        "path-lossy",
        frozenset({"OvirtRdmaRetransmissions"}),
        # As chance has it; Soft-RoCE gives a connection up after some lost packets.
        at_times=frozenset({SLOW, STALLED, "OvirtRdmaReconnects"}),
        load=_BUSY,
        looks=_SLOW_LOOKS,
        after_s=60.0,
    ),
    "mount shared over TCP": MountFault(
        share_tcp,
        nothing,
        ("ok",),
        None,
        "",
        frozenset({"OvirtRdmaMountDegraded"}),
    ),
}
