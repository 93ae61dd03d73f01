# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-SLOTS-01: requests that wait for a slot of their connection over RDMA. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from ovirt_rdma.host.facts.activity import MountActivity, Requests
from ovirt_rdma.host.rules.base import HOST, PASS, WARN, Finding, Rule
from ovirt_rdma.host.rules.nfs.mounts import no_mount, not_read, rdma_mounts
from ovirt_rdma.host.rules.view import View

ID = "NFS-SLOTS-01"
# net/sunrpc/xprtrdma: RPCRDMA_DEF_SLOT_TABLE.
DEFAULT_SLOTS = 128
# Waiting requests, as an average over all requests, up to which waiting is rare.
_RARE = 0.01
# Where requests wait for a slot only, they wait less than this many times the reply
# takes, beyond what the backlog explains: at most 1.04 on Debian's 6.1.192 and at least
# 1.5 on its 6.1.170, in bursts and with constant queues (docs/health.md).
_SLEEPS = 1.3
# One sleep.
_SLEEP_MS = 250
# Requests whose mean wait says something.
_MANY = 20
# The share of the slots that may wait in the mean. Those that sleep are few, and those
# of a long backlog wait so long that how evenly they come decides.
_SHORT = 0.25
# Requests over the connections of a mount, for each of its own. More are of other
# mounts of the server, whose waits are in other statistics.
_OWN = 1.2
# The requests that a server takes at once over a connection: 64 on newer Linux servers,
# 32 on older ones (include/linux/sunrpc/svc_rdma.h, RPCRDMA_MAX_REQUESTS).
_CREDITS = 32
_RAISE = (
    "set sunrpc.rdma_slot_table_entries=512 by sysctl and mount again; or ask for "
    "several connections (nconnect); more in explain NFS-SLOTS-01"
)


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount, and one for a setting that is too small."""
    tuning = view.facts.tuning
    slots = tuning.rdma_slots if tuning else None
    if slots is not None and slots < DEFAULT_SLOTS:
        yield Finding(
            ID,
            HOST,
            WARN,
            f"connections to come have {slots} slots (sunrpc.rdma_slot_table_entries), "
            f"fewer than the kernel's {DEFAULT_SLOTS}",
            "remove the setting from sysctl.d, or raise it",
        )
    elif not rdma_mounts(view):
        yield no_mount(ID)
    for one in rdma_mounts(view):
        if one.activity is None:
            yield not_read(ID, one.export)
        else:
            yield _judged(one.export, one.activity, _slots_now(view, one.mount.address))


def _judged(export: str, done: MountActivity, slots: Optional[int]) -> Finding:
    of = f"{slots} slots" if slots is not None else "slots"
    if not done.backlog:
        sentence = f"no request had to wait for one of its {of}"
        return Finding(ID, export, PASS, sentence)
    average = done.backlog / max(1, done.sends)
    waited = f"on average {average:.2f} requests waited for one of its {of}"
    # Requests that wait until a lost connection is made again are not in the backlog.
    broke = done.new_connects or done.new_retransmissions
    if not broke and sleep_without_slot(
        (done.new_reads, done.new_writes),
        calls=done.new_operations,
        sends=done.new_sends,
        backlog=done.new_backlog / max(1, done.new_sends),
        slots=slots,
    ):
        count = done.new_reads.count + done.new_writes.count
        queue_ms = (done.new_reads.queue_ms + done.new_writes.queue_ms) / count
        rtt_ms = (done.new_reads.rtt_ms + done.new_writes.rtt_ms) / count
        sentence = (
            f"{waited}, and a read or write now waits {queue_ms:.1f} ms before it is "
            f"sent, while its reply takes {rtt_ms:.1f} ms: as in kernels where the "
            "first request without a free slot waits 250 ms"
        )
        return Finding(ID, export, WARN, sentence, _RAISE)
    if average < _RARE:
        sentence = f"requests rarely had to wait for one of its {of}"
        return Finding(ID, export, PASS, sentence)
    return Finding(ID, export, WARN, waited, _RAISE)


def sleep_without_slot(
    data: Iterable[Requests],
    *,
    calls: int,
    sends: int,
    backlog: float,
    slots: Optional[int],
) -> bool:
    """Whether requests over RDMA seem to sleep when all slots are in use, longer than
    until one is free again. All values are of the same seconds, with no connection
    lost.

    - ``data``: the reads, and the writes; those of a kind are alike
    - ``calls``: all requests of the mount; ``sends``: of all mounts on its connections
    - ``backlog``: the mean number of requests that wait for a slot
    - ``slots``: of the connection; None: unknown, so no sleep is seen

    With n requests in the backlog and m more with slots than the server takes at once,
    (n + m) / (taken at once) replies come before a request is sent. The defect: commit
    a721035477fb of Linux.
    """
    if slots is None or sends > _OWN * calls or not 0 < backlog < _SHORT * slots:
        return False
    at_once = min(slots, _CREDITS)
    replies = (backlog + slots - at_once) / at_once
    many = [one for one in data if one.count >= _MANY]
    slept_ms = sum(one.queue_ms - replies * one.rtt_ms for one in many)
    # Slow writes keep quick reads waiting too, but then the writes wait as explained.
    return slept_ms >= _SLEEP_MS and all(
        one.queue_ms > (replies + _SLEEPS) * one.rtt_ms for one in many
    )


def _slots_now(view: View, address: Optional[str]) -> Optional[int]:
    activity = view.facts.activity
    known = {
        one.slots_max
        for one in (activity.connections if activity else None) or ()
        if one.destination == address and one.slots_max is not None
    }
    return max(known) if known else None


RULE = Rule(ID, decide)

RULES = (RULE,)
