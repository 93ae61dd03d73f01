# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge the health of a mount from what was seen: state, cause, fix. Pure.

A server that does not answer, or answers no read:

================  ========  ========  ==================================================
port of the host  TCP port  RDMA CM   cause
================  ========  ========  ==================================================
not ACTIVE        any       any       path; fabric, if it lacks a subnet manager
ACTIVE            accepts   refuses   server: its RDMA listener is gone
ACTIVE            refuses   refuses   server: its NFS service is stopped
ACTIVE            accepts   any       server: its NFS threads answer nothing, a call by
                                      TCP neither
ACTIVE            accepts   accepts   server: this export hangs; path, if it is far or
                                      packets are lost
ACTIVE            answers   silent    server: its RDMA device is gone; fabric on IB
ACTIVE            silent    silent    server, or the path to it
================  ========  ========  ==================================================

One that answers late is compared with the time of a TCP connection, which its kernel
answers without NFS threads and disks, and with the time that calls wait on this host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.host.export import RDMA
from ovirt_rdma.host.facts import statistics
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import Load
from ovirt_rdma.host.policy.model import DEFAULT_PORT
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    PROBE_S,
    REFUSES,
    SILENT,
    UNREACHABLE,
    Answer,
    ServerSigns,
)
from ovirt_rdma.storage.health.state import (
    DEAD,
    FABRIC,
    HOST,
    OK,
    PATH,
    SERVER,
    SLOTS,
    SLOW,
    STALLED,
    UNKNOWN,
    MountHealth,
)
from ovirt_rdma.storage.probe import server_side_fix
from ovirt_rdma.storage.readiness import NOT_READY, READY, Step
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The port of a server acknowledges packets, whatever its NFS threads do.
WAITED = statistics.repeats(statistics.WAITED)
SENT_AGAIN = statistics.repeats(statistics.WAITED, statistics.AGAIN)
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
# Looks of half a minute in which this host waited for acknowledgements.
_OFTEN = 3
# After so many seconds without an answer a mount is dead: sanlock has fenced by then
# (8 * io_timeout of 10 s, sanlock(8)).
DEAD_S = 80.0
# The kernel gave up, or the connection is gone: nobody answered.
LOST = frozenset(
    {
        "EIO",
        "ETIMEDOUT",
        "ENOTCONN",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTUNREACH",
        "EHOSTDOWN",
        "ENETUNREACH",
        "ENETDOWN",
        "EPIPE",
        "EPROTO",
    }
)
DENIED = frozenset({"EACCES", "EPERM"})


@dataclass(frozen=True)
class Seen:
    """All that was seen of one mount.

    - ``transport``: ``rdma``, ``tcp`` or None; ``port``: of its RDMA listener
    - ``load``: since the sample before; None for the first
    - ``silent_s``: seconds since its last answer; 0.0 if unknown
    - ``signs``: of its server; None if nobody asked
    - ``errors``: on the wire of the ports to it, by name, in the last half minute;
      ``error_looks``: in how many looks of that time one of WAITED did
    - ``backlog``: calls that wait for a slot now; ``slots``: the connection's slots;
      None if the kernel does not show them
    - ``others_answer``: another server answers by the same netdev; None if none is
      mounted
    - ``connections``: how many the mount has; None if unknown
    - ``siblings_answer``: another export of the server answers by the same transport;
      None if there is none
    """

    mount: NfsMount
    transport: Optional[str]
    answer: Answer
    port: int = DEFAULT_PORT
    load: Optional[Load] = None
    silent_s: float = 0.0
    signs: Optional[ServerSigns] = None
    errors: Mapping[str, int] = field(default_factory=dict)
    error_looks: int = 0
    backlog: Optional[int] = None
    slots: Optional[int] = None
    others_answer: Optional[bool] = None
    siblings_answer: Optional[bool] = None
    connections: Optional[int] = None

    @property
    def server(self) -> str:
        """The server in sentences."""
        name = self.mount.source.rpartition(":/")[0]
        address = self.mount.address
        return f"{name} ({address})" if address and address not in name else name

    @property
    def tcp_port(self) -> int:
        """The server's port for NFS over TCP."""
        own = self.mount.port if self.transport != RDMA else None
        return own or NFS_TCP_PORT

    @property
    def is_answered(self) -> bool:
        """Whether the server answered in time, be it with an error of its own."""
        return not self.answer.late and self.answer.error not in LOST

    @property
    def lost(self) -> str:
        """The state without an answer: STALLED, as long as the server may come back
        without an error.
        """
        late_s = max(self.silent_s, self.answer.stuck_s or 0.0)
        return DEAD if self.answer.error in LOST or late_s >= DEAD_S else STALLED

    def health(
        self,
        state: str,
        cause: Optional[str],
        reason: str,
        sentence: str,
        fix: str,
        *,
        certain: bool = True,
    ) -> MountHealth:
        """Return the health of the mount with what was seen as its evidence."""
        return MountHealth(
            self.mount.source,
            self.mount.mountpoint,
            self.transport,
            self.mount.version,
            state,
            cause,
            certain,
            reason,
            sentence,
            fix,
            tuple(_evidence(self)),
            answered_s=self.answer.seconds if self.is_answered else None,
        )


def shown_time(seconds: float) -> str:
    """Return a time for people: ``3.2 ms`` or ``1.52 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def needs_signs(seen: Seen) -> bool:
    """Whether the signs of the server are needed to judge."""
    if seen.answer.problem:
        return False
    hangs = not seen.is_answered or seen.answer.read_late
    return hangs or is_slow(seen) or may_be_far(seen)


def judge(seen: Seen) -> MountHealth:
    """Return the health of one mount; ``since`` and ``shared`` are left to the caller,
    who knows the others and the time before.
    """
    answer = seen.answer
    took = f"{shown_time(answer.seconds or 0.0)}{_error(answer.error)}"
    sound = seen.health(OK, None, "", f"{seen.server} answered in {took}", "")
    return _fault(seen) or sound


def _fault(seen: Seen) -> Optional[MountHealth]:
    answer = seen.answer
    if answer.problem:
        return seen.health(
            UNKNOWN,
            UNKNOWN,
            "not-asked",
            f"{seen.server} could not be asked: {answer.problem}",
            "run it again; if that does not help, report it",
        )
    if not seen.is_answered:
        return silence(seen)
    if answer.error == "ESTALE" or answer.read_error == "ESTALE":
        return seen.health(
            DEAD,
            SERVER,
            "export-gone",
            f"{seen.server} no longer knows the file system that was mounted: it was "
            "exported again, or replaced",
            "export it again as it was; otherwise deactivate and activate the storage "
            "domain, so that it is mounted again",
        )
    failed = answer.error or answer.read_error
    if failed is not None and failed not in DENIED:
        return seen.health(
            DEAD if failed == answer.read_error else UNKNOWN,
            SERVER if failed in ("EIO", "EREMOTEIO") else UNKNOWN,
            "answer-is-error",
            f"{seen.server} answers, but with an error: {failed}",
            "see the log of the server",
            certain=False,
        )
    if answer.read_late:
        return stuck_data(seen)
    return slowness(seen) if is_slow(seen) else None


def _evidence(seen: Seen) -> list[str]:
    load, signs = seen.load, seen.signs
    shown = _answers(seen.answer)
    if load is not None and load.count:
        every = load.all
        shown.append(
            f"{load.count} calls in {load.seconds:.0f} s: {every.queue_ms:.1f} ms in "
            f"the queue, {every.rtt_ms:.1f} ms to the server and back"
        )
    timeouts = load.total("timeouts") if load is not None else 0
    if load is not None and (load.connects or load.sent_again or timeouts):
        shown.append(
            f"connects +{load.connects}, sent again +{load.sent_again}, timeouts "
            f"+{timeouts}"
        )
    if seen.backlog:
        shown.append(f"{seen.backlog} calls wait for a slot")
    shown += [f"port error {name} +{n}" for name, n in sorted(seen.errors.items())]
    if signs is not None:
        knocked = signs.tcp.result
        if knocked in (ACCEPTS, REFUSES):
            knocked += f" in {shown_time(signs.tcp.seconds)}"
        elif knocked == SILENT:
            knocked = "no answer"
        if signs.tcp.replied is False:
            knocked += ", but a call was not answered"
        shown.append(f"TCP port {seen.tcp_port}: {knocked}")
        if signs.listener is not None:
            shown.append(f"RDMA: {signs.listener.detail}")
        shown += signs.ports_down
    return shown


def _answers(answer: Answer) -> list[str]:
    shown = []
    if answer.stuck_s is not None:
        asked = "read" if answer.read_late else "question"
        shown.append(f"a {asked} has waited in the kernel for {answer.stuck_s:.0f} s")
    elif answer.late:
        shown.append(f"lookup: no answer within {PROBE_S:g} s")
    if answer.seconds is not None:
        shown.append(f"lookup: {shown_time(answer.seconds)}{_error(answer.error)}")
    if answer.read_late and answer.stuck_s is None:
        shown.append(f"read: no answer within {PROBE_S:g} s")
    if answer.read_s is not None:
        shown.append(f"read: {shown_time(answer.read_s)}{_error(answer.read_error)}")
    return shown


def _error(error: Optional[str]) -> str:
    return f" ({error})" if error else ""


def silence(seen: Seen) -> MountHealth:
    """Return why nobody answered."""
    signs = seen.signs
    if signs is None:
        return seen.health(
            seen.lost,
            UNKNOWN,
            "no-answer",
            f"{no_answer(seen)}; nobody looked for the cause",
            "ovirt-rdma-host nfs health",
            certain=False,
        )
    return _local_fault(seen, signs) or _far_fault(seen, signs)


def _local_fault(seen: Seen, signs: ServerSigns) -> Optional[MountHealth]:
    """Return what is wrong with this host and its link; None if nothing is."""
    rdma = seen.transport == RDMA
    wrong = _first_wrong(signs.steps, rdma)
    # The address may have gone with the link, and the route with it. Any port may be
    # down for years, so its state alone proves nothing.
    gone = signs.carrier is None and wrong is not None
    no_link = signs.carrier is False or (gone and rdma and bool(signs.ports_down))
    if no_link and signs.waits_for_sm and (signs.infiniband or not signs.devices):
        return seen.health(
            DEAD,
            FABRIC,
            "port-without-sm",
            f"the link of this host is up, but no subnet manager has set it up: "
            f"{', '.join(signs.ports_down)}",
            "start the subnet manager; ovirt-rdma-host fabric sm status shows which "
            "there are",
            certain=not gone,
        )
    if no_link:
        what = ", ".join(signs.ports_down if rdma else ())
        what = what or f"{signs.netdev} has no carrier"
        return seen.health(
            DEAD,
            PATH,
            "link-down",
            f"the link of this host to {seen.server} is down: {what}",
            "check the cable and the switch port",
            certain=not gone,
        )
    if wrong is None:
        return None
    if not signs.devices and wrong.name == "port":
        reason = "device-gone"
    else:
        reason = "no-route" if wrong.name == "route" else "host-not-ready"
    certain = not (rdma and signs.ports_down)
    return seen.health(DEAD, HOST, reason, wrong.detail, wrong.fix, certain=certain)


def _first_wrong(steps: tuple[Step, ...], rdma: bool) -> Optional[Step]:
    names = ("route", "port") if rdma else ("route",)
    return next((s for s in steps if s.name in names and s.verdict == NOT_READY), None)


def _far_fault(seen: Seen, signs: ServerSigns) -> MountHealth:
    """Return what is wrong beyond this host's port."""
    listener, tcp = signs.listener, signs.tcp.result
    refused = listener is not None and listener.refused
    listening = listener is not None and listener.verdict == READY
    # A TCP mount, or no program here that could ask.
    unasked = listener is None or listener.verdict not in (READY, NOT_READY)
    if _loses_packets(seen, signs, listening or unasked):
        return replace(loss(seen), state=seen.lost)
    if refused and tcp == ACCEPTS:
        return seen.health(
            DEAD,
            SERVER,
            "listener-gone",
            f"{seen.server} accepts TCP, but refuses RDMA on port {seen.port}: its "
            "RDMA listener is gone, as after its address moved (a failover), or a "
            "restart without RDMA",
            server_side_fix(seen.port),
        )
    if refused or (tcp == REFUSES and not listening):
        return _service_down(seen, tcp)
    stuck = unasked or signs.tcp.replied is False
    if listening or (stuck and tcp == ACCEPTS):
        return _stuck_server(seen, signs.tcp.replied)
    if tcp in (ACCEPTS, REFUSES):
        return _rdma_lost(seen, signs)
    return _nobody(seen, signs)


def _service_down(seen: Seen, tcp: str) -> MountHealth:
    if tcp == REFUSES:
        return seen.health(
            DEAD,
            SERVER,
            "service-down",
            f"{seen.server} is up, but its NFS service is stopped: it refuses "
            "connections",
            "start the NFS service of the server: systemctl start nfs-server",
        )
    return seen.health(
        DEAD,
        SERVER,
        "service-down",
        f"{seen.server} is up, but refuses RDMA on port {seen.port}, and answers no "
        "TCP: its NFS service is stopped, or its RDMA listener is gone and a firewall "
        "holds back TCP",
        server_side_fix(seen.port),
        certain=False,
    )


def _loses_packets(seen: Seen, signs: ServerSigns, listening: bool) -> bool:
    """Whether the path loses packets, which a TCP connection survived: each call may
    wait for packets that are sent again, longer than the question.
    """
    # Other exports of the server use the same path.
    if signs.tcp.result != ACCEPTS or seen.siblings_answer:
        return False
    # A connection that ends loses packets in one look, or in two. When packets of RDMA
    # CM are lost, a server also refuses connections that it takes for stale ones
    # (drivers/infiniband/core/cm.c, cm_match_req).
    over_rdma = seen.transport == RDMA
    if over_rdma and seen.error_looks >= _OFTEN:
        return True
    if signs.tcp.replied is False:
        return False
    waited = over_rdma and not WAITED.isdisjoint(seen.errors)
    if listening:
        return waited or lossy(seen) is not None
    # Packets of a server that has lost its RDMA device do not come a second time.
    again = not (SENT_AGAIN - WAITED).isdisjoint(seen.errors)
    return waited and again and not (signs.listener and signs.listener.refused)


def _stuck_server(seen: Seen, replied: Optional[bool]) -> MountHealth:
    """Return what hangs on a server that accepts connections."""
    far = far_path(seen)
    if far is not None:
        return replace(far, state=seen.lost, certain=False)
    if replied is not False and is_slow(seen):
        return replace(slowness(seen), state=seen.lost, certain=False)
    if replied is not False and seen.siblings_answer:
        return seen.health(
            seen.lost,
            SERVER,
            "export-stuck",
            f"{seen.server} answers for other exports, but not for this one: its file "
            "system or disk hangs",
            "check the disks and the file system of this export on the server",
            certain=not seen.errors,
        )
    if replied:
        return seen.health(
            seen.lost,
            SERVER,
            "export-stuck",
            f"{seen.server} answers calls, but not for this export: its file system "
            "or disk hangs, or this host's connection to it does",
            "check the disks and the file system of this export on the server; if "
            "other hosts have no trouble with it, see the kernel's log of this host",
            certain=False,
        )
    return seen.health(
        seen.lost,
        SERVER,
        "nfs-stuck",
        f"{seen.server} accepts connections, but its NFS service answers nothing: its "
        "threads wait, mostly for a disk",
        "on the server: check its disks and its log for hung tasks, and that it has "
        "enough NFS threads (nfs.conf, [nfsd] threads)",
        certain=replied is False and not seen.errors and not is_slow(seen),
    )


def stuck_data(seen: Seen) -> MountHealth:
    """Return why a read of 4 KiB hangs on a server that answers a lookup at once."""
    answer, load = seen.answer, seen.load
    looked_up = answer.seconds or 0.0
    if is_slow(seen):
        found = slowness(seen)
        moves = looked_up >= SLOW_S or (load is not None and load.data.count > 0)
        if answer.stuck_s is None and moves:
            return found
        return replace(found, state=seen.lost, certain=False)
    waited = seen.transport == RDMA and not WAITED.isdisjoint(seen.errors)
    if not seen.siblings_answer and (waited or lossy(seen) is not None):
        return replace(loss(seen), state=seen.lost)
    many = (seen.connections or 1) > 1
    return seen.health(
        seen.lost,
        SERVER,
        "data-stuck",
        f"{seen.server} answers a lookup in {shown_time(looked_up)}, but a read of "
        "4 KiB hangs: its disk does, or the network drops large packets"
        + (f", or one of its {seen.connections} connections hangs" if many else ""),
        "on the server check its disks, and its log for hung tasks; on the path, that "
        "all netdevs and switches have the same MTU",
        certain=False,
    )


def _rdma_lost(seen: Seen, signs: ServerSigns) -> MountHealth:
    said = signs.listener.detail if signs.listener else ""
    if signs.infiniband:
        return seen.health(
            seen.lost,
            FABRIC,
            "fabric-lost",
            f"{seen.server} answers over IP, but not over RDMA: {said}",
            "check the server's HCA, and the path: ovirt-rdma-host fabric check",
            certain=False,
        )
    # A path that passes TCP loses RDMA only by a filter.
    return seen.health(
        seen.lost,
        SERVER,
        "rdma-lost",
        f"{seen.server} answers over IP, but not over RDMA: its RDMA device is gone, "
        "its address has moved to a port without one, or RDMA does not pass (RoCE: "
        f"UDP port 4791): {said}",
        "on the server: rdma link, and which netdev has the address; on the switches: "
        "filters for RoCE",
        certain=False,
    )


def _nobody(seen: Seen, signs: ServerSigns) -> MountHealth:
    nothing = f"{seen.server} answers nothing: neither NFS nor TCP"
    mute = signs.listener is not None and signs.listener.verdict == NOT_READY
    nothing += " nor RDMA connections" if mute else " connections"
    if seen.others_answer is False:
        return seen.health(
            seen.lost,
            PATH,
            "all-servers-silent",
            f"{nothing}; nor does any other server by {signs.netdev}",
            "check the switches between this host and its servers",
            # They may be one machine.
            certain=False,
        )
    if signs.tcp.result == UNREACHABLE:
        return seen.health(
            DEAD,
            PATH,
            "unreachable",
            f"{seen.server} cannot be reached: the network knows no way to it",
            "check the routers between this host and the server",
            certain=False,
        )
    other = (
        f"; other servers answer by {signs.netdev}"
        if seen.others_answer
        else ", or the path beyond this host's port is cut"
    )
    return seen.health(
        seen.lost,
        SERVER,
        "server-silent",
        f"{nothing}: it is off, frozen, or has lost its address{other}",
        "check that the server runs and has the address, its link, and its firewall",
        # A firewall that rejects looks like an address that nobody has.
        certain=bool(seen.others_answer) and signs.tcp.result == SILENT,
    )


def no_answer(seen: Seen) -> str:
    """Return a clause about what happened."""
    if seen.answer.error is not None:
        return f"{seen.server} did not answer: {seen.answer.error}"
    return f"{seen.server} did not answer within {PROBE_S:g} s"


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


def slowness(seen: Seen) -> MountHealth:
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
        return seen.health(
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


def _slots(seen: Seen, load: Load) -> MountHealth:
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
        return seen.health(
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
        return seen.health(
            SLOW,
            PATH,
            "link-full",
            f"{waits}, although slots are free: the connection takes no more data, so "
            "the link to the server is slow or full",
            "check the load and the rate of the link on this host, the server and the "
            "switches",
            certain=False,
        )
    return seen.health(
        SLOW,
        SLOTS,
        "credits-used-up",
        f"{waits}: the connection has free slots, so it is the server that allows no "
        "more calls at once (credits, NFS 4 session)",
        "on the server raise the number of NFS threads, which sets the slots of a "
        "session",
        certain=False,
    )


def lossy(seen: Seen) -> Optional[MountHealth]:
    """Return the finding for a path that loses packets; None if it does not."""
    return loss(seen) if sum(seen.errors.values()) >= _FEW_ERRORS else None


def loss(seen: Seen) -> MountHealth:
    """Return the finding for the errors that were counted."""
    counted = ", ".join(f"{name} +{n}" for name, n in sorted(seen.errors.items()))
    fabric = seen.signs is not None and seen.signs.infiniband
    return seen.health(
        SLOW,
        FABRIC if fabric else PATH,
        "path-lossy",
        f"packets between this host and {seen.server} are lost: {counted}",
        "check cables, transceivers and switch ports on the path; RoCE: flow control",
        # The port counts what it sent to any server.
        certain=False,
    )


def far_path(seen: Seen) -> Optional[MountHealth]:
    """Return the finding for a path whose round trip is long; None if it is not."""
    slowest = max(seen.answer.seconds or 0.0, seen.answer.read_s or 0.0)
    took = _knock_s(seen)
    if took < SLOW_S / 2:
        late = _is_far(seen) or (slowest >= SLOW_S and took >= SLOW_S / 10)
        if not late or took < _PATH_SHARE * slowest:
            return None
    return seen.health(
        SLOW,
        PATH,
        "path-slow",
        f"the path to {seen.server} is slow: a TCP connection, which needs no NFS "
        f"thread, takes {shown_time(took)}",
        "check the switches and links on the path for load and pauses",
    )


def _slow_server(seen: Seen) -> MountHealth:
    load = seen.load
    looked_up = seen.answer.seconds or 0.0
    if looked_up < SLOW_S / 2:
        took = read_s = seen.answer.read_s or 0.0
        if load is not None and load.data.count >= _FEW:
            took = max(took, load.data.rtt_ms / 1000.0)
        return seen.health(
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
    return seen.health(
        SLOW,
        SERVER,
        "threads-busy" if busy else "server-slow",
        f"{seen.server} takes {shown_time(looked_up)} for a lookup{waiting}, although "
        "the path is fast: its NFS threads are busy",
        "on the server raise the number of NFS threads (nfs.conf, [nfsd] threads), and "
        "check its load and disks",
        certain=busy,
    )
