# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out why a server answers late. Pure.

A server is compared with the time of a TCP connection, which its kernel answers without
NFS threads and disks, and with the time that calls wait on this host.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.storage.health.samples import WAITED, Load
from ovirt_rdma.storage.health.seen import Found, Seen, shown_time
from ovirt_rdma.storage.health.signs import ACCEPTS, REFUSES
from ovirt_rdma.storage.health.state import FABRIC, PATH, SERVER, SLOTS, SLOW

# A lookup takes less than a millisecond; a disk of a server that sleeps takes seconds.
SLOW_S = 0.5
# A TCP connection takes one round trip: below a millisecond in a storage network, some
# 30 ms between cities. Late lookups are compared with it.
FAR_S = 0.15
# Mean milliseconds of a call with data. VDSM warns of a domain at 5 s, and a server
# under full load with deep queues has some 100 ms.
SLOW_DATA_MS = 500.0
# Waiting on this host for so long, and longer than the server takes: the queue counts.
SLOW_QUEUE_MS = 100.0
# The share of the time that a path takes, from which on it is the cause.
_PATH_SHARE = 0.3
# Fewer calls are no load.
_FEW = 4
# A sound cable has an error now and then (InfiniBand allows a bit in 10^12).
_FEW_ERRORS = 3


def is_slow(seen: Seen) -> bool:
    """Whether the server, or the way to it, is slower than it should be."""
    load = seen.load
    seconds = max(seen.answer.seconds or 0.0, seen.answer.read_s or 0.0)
    if seconds >= SLOW_S or _waits_for_slots(seen) or _is_far(seen):
        return True
    if load is None:
        return False
    slow_data = load.data.count >= _FEW and load.data.rtt_ms >= SLOW_DATA_MS
    return slow_data or _was_reset(load)


def may_be_far(seen: Seen) -> bool:
    """Whether the answer took so long that the path must be measured."""
    return (seen.answer.seconds or 0.0) >= FAR_S


def _is_far(seen: Seen) -> bool:
    """Whether a late answer is that late because the path is slow, although not slow
    enough to be noticed by the answer alone.
    """
    return may_be_far(seen) and _knock_s(seen) >= FAR_S


def _knock_s(seen: Seen) -> float:
    """Return the seconds of a TCP connection; 0.0 if there is none."""
    signs = seen.signs
    answered = signs is not None and signs.tcp.result in (ACCEPTS, REFUSES)
    return signs.tcp.seconds if signs and answered else 0.0


def _waits_for_slots(seen: Seen) -> bool:
    load = seen.load
    if load is None or load.count < _FEW:
        return False
    # With free slots, calls also wait until a lost connection is made again. That may
    # have been just before; then they are sent again now.
    if (load.connects or load.sent_again) and not _is_full(seen, load):
        return False
    every = load.all
    return every.queue_ms >= SLOW_QUEUE_MS and every.queue_ms > every.rtt_ms


def _is_full(seen: Seen, load: Load) -> bool:
    """Whether calls waited for a slot."""
    return load.backlog >= 1.0 or bool(seen.backlog)


def _was_reset(load: Load) -> bool:
    """Whether the connection broke under load: an idle one ends by itself, and is made
    again for the next call (xprtrdma, RPCRDMA_IDLE_DISC_TO). Calls that waited for it
    may be done only after the next sample.
    """
    if load.sent_again == 0:
        return False
    return load.connects > 0 or load.all.queue_ms >= SLOW_QUEUE_MS


def slowness(seen: Seen) -> Found:
    """Return why the server answers late."""
    load = seen.load
    if load is not None and _waits_for_slots(seen):
        return _slots(seen, load)
    lost = lossy(seen)
    if lost is not None:
        return lost
    far = far_path(seen)
    if far is not None:
        return far
    if load is not None and _was_reset(load):
        # A server that ends a connection acknowledges packets until then.
        if seen.transport == RDMA and not WAITED.isdisjoint(seen.errors):
            return loss(seen)
        return Found(
            SLOW,
            SERVER,
            "connection-reset",
            f"the connection to {seen.server} broke under load, and was made again: "
            f"{load.sent_again} calls were sent twice",
            "see the log of the server; on Linux servers, see ovirt-rdma-host explain "
            "NFS-RESET-01",
            certain=False,
        )
    return _slow_server(seen)


def _slots(seen: Seen, load: Load) -> Found:
    every = load.all
    waits = (
        f"calls to {seen.server} wait {every.queue_ms:.0f} ms on this host, and take "
        f"{every.rtt_ms:.0f} ms at the server"
    )
    if _is_full(seen, load):
        of = f" of {seen.slots}" if seen.slots else ""
        # Over TCP the other one is how many there are at first (xprt_alloc in
        # net/sunrpc/xprt.c).
        key = "rdma" if seen.transport == RDMA else "tcp_max"
        return Found(
            SLOW,
            SLOTS,
            "slots-used-up",
            f"{waits}: all slots{of} of the connection are in use, and on the average "
            f"{load.backlog:.0f} calls wait for one",
            f"raise sunrpc.{key}_slot_table_entries (sysctl; for mounts made from then "
            "on), or use nconnect",
            # A server that is late fills any number of slots.
            certain=every.rtt_ms < SLOW_QUEUE_MS,
        )
    if seen.transport != RDMA:
        # The time in the queue ends when a request is given to the socket
        # (xs_tcp_send_request in net/sunrpc/xprtsock.c).
        return Found(
            SLOW,
            PATH,
            "link-full",
            f"{waits}, although slots are free: the connection takes no more data, so "
            "the link to the server is slow or full",
            "check the load and the rate of the link on this host, the server and the "
            "switches",
            certain=False,
        )
    return Found(
        SLOW,
        SLOTS,
        "credits-used-up",
        f"{waits}: the connection has free slots, so it is the server that allows no "
        "more calls at once (credits, NFS 4 session)",
        "on the server raise the number of NFS threads, which sets the slots of a "
        "session",
        certain=False,
    )


def lossy(seen: Seen) -> Optional[Found]:
    """Return the finding for a path that loses packets; None if it does not."""
    return loss(seen) if sum(seen.errors.values()) >= _FEW_ERRORS else None


def loss(seen: Seen) -> Found:
    """Return the finding for the errors that were counted."""
    counted = ", ".join(f"{name} +{n}" for name, n in sorted(seen.errors.items()))
    fabric = seen.signs is not None and seen.signs.infiniband
    return Found(
        SLOW,
        FABRIC if fabric else PATH,
        "path-lossy",
        f"packets between this host and {seen.server} are lost: {counted}",
        "check cables, transceivers and switch ports on the path; RoCE: flow control",
        # The port counts what it sent to any server.
        certain=False,
    )


def far_path(seen: Seen) -> Optional[Found]:
    """Return the finding for a path whose round trip is long; None if it is not."""
    slowest = max(seen.answer.seconds or 0.0, seen.answer.read_s or 0.0)
    took = _knock_s(seen)
    if took < SLOW_S / 2:
        late = _is_far(seen) or (slowest >= SLOW_S and took >= SLOW_S / 10)
        if not late or took < _PATH_SHARE * slowest:
            return None
    return Found(
        SLOW,
        PATH,
        "path-slow",
        f"the path to {seen.server} is slow: a TCP connection, which needs no NFS "
        f"thread, takes {shown_time(took)}",
        "check the switches and links on the path for load and pauses",
    )


def _slow_server(seen: Seen) -> Found:
    load = seen.load
    looked_up = seen.answer.seconds or 0.0
    if looked_up < SLOW_S / 2:
        took = read_s = seen.answer.read_s or 0.0
        if load is not None and load.data.count >= _FEW:
            took = max(took, load.data.rtt_ms / 1000.0)
        return Found(
            SLOW,
            SERVER,
            "disk-slow",
            f"{seen.server} takes {shown_time(took)} to read or write, but answers a "
            f"lookup in {shown_time(looked_up)}: its disks are slow",
            "check the disks of the server",
            # Many large requests may wait for its link, but one small read does not.
            certain=read_s >= SLOW_S,
        )
    busy = load is not None and load.on_wire >= 2.0
    waiting = f", with {load.on_wire:.0f} calls at once" if busy and load else ""
    return Found(
        SLOW,
        SERVER,
        "threads-busy" if busy else "server-slow",
        f"{seen.server} takes {shown_time(looked_up)} for a lookup{waiting}, although "
        "the path is fast: its NFS threads are busy",
        "on the server raise the number of NFS threads (nfs.conf, [nfsd] threads), and "
        "check its load and disks",
        certain=busy,
    )
