# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge the health of a mount from what was seen: state, cause, fix. Pure.

docs/health.md has the tables by which the causes of a server that does not answer, or
answers no read, are distinguished.

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
from ovirt_rdma.host.facts.statistics import DATA, Load
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
from ovirt_rdma.storage.readiness import NOT_READY, READY, server_side_fix
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The port of a server acknowledges packets, whatever its NFS threads do.
WAITED, SENT_AGAIN = statistics.WAITED, statistics.SENT_AGAIN
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
# What errors begin with if the kernel gave up, or the connection is gone.
LOST = ("ECONN", "EHOST", "EIO", "ENET", "ENOTCONN", "EPIPE", "EPROTO", "ETIMEDOUT")
DENIED = frozenset({"EACCES", "EPERM"})


# What is said of each reason: the cause, why, and what to do.
_FINDINGS = {
    "not-asked": (
        UNKNOWN,
        "{server} could not be asked: {detail}",
        "run it again; if that does not help, report it",
    ),
    "no-answer": (
        UNKNOWN,
        "{server} did not answer: {detail}; nobody looked for the cause",
        "ovirt-rdma-host nfs health",
    ),
    "export-gone": (
        SERVER,
        "{server} no longer knows the file system that was mounted: it was exported "
        "again, or replaced",
        "export it again as it was; otherwise deactivate and activate the storage "
        "domain, so that it is mounted again",
    ),
    "answer-is-error": (
        UNKNOWN,
        "{server} answers, but with an error: {detail}",
        "see the log of the server",
    ),
    "port-without-sm": (
        FABRIC,
        "the link of this host is up, but no subnet manager has set it up: {detail}",
        "start the subnet manager; ovirt-rdma-host fabric check shows which there are",
    ),
    "link-down": (
        PATH,
        "the link of this host to {server} is down: {detail}",
        "check the cable and the switch port",
    ),
    "host-not-ready": (HOST, "{detail}", "{fix}"),
    "listener-gone": (
        SERVER,
        "{server} accepts TCP, but refuses RDMA on port {port}: its RDMA listener is "
        "gone, as after its address moved (a failover), or a restart without RDMA",
        "{fix}",
    ),
    "service-down": (SERVER, "{server} is up, but {detail}", "{fix}"),
    "export-stuck": (
        SERVER,
        "{server} answers calls, but not for this export: its file system or disk "
        "hangs, or this host's connection to it does",
        "check the disks and the file system of this export on the server",
    ),
    "nfs-stuck": (
        SERVER,
        "{server} accepts connections, but its NFS service answers nothing: its "
        "threads wait, mostly for a disk",
        "on the server: check its disks and its log for hung tasks, and that it has "
        "enough NFS threads (nfs.conf, [nfsd] threads)",
    ),
    "data-stuck": (
        SERVER,
        "{server} answers a lookup, but a read of 4 KiB hangs: its disk does, or the "
        "network drops large packets",
        "on the server check its disks, and its log for hung tasks; on the path, that "
        "all netdevs and switches have the same MTU",
    ),
    "fabric-lost": (
        FABRIC,
        "{server} answers over IP, but not over RDMA: {detail}",
        "check the server's HCA, and the path: ovirt-rdma-host fabric check",
    ),
    # A path that passes TCP loses RDMA only by a filter.
    "rdma-lost": (
        SERVER,
        "{server} answers over IP, but not over RDMA: its RDMA device is gone, its "
        "address has moved to a port without one, or RDMA does not pass (RoCE: UDP "
        "port 4791): {detail}",
        "on the server: rdma link, and which netdev has the address; on the switches: "
        "filters for RoCE",
    ),
    "all-servers-silent": (
        PATH,
        "{server} answers nothing; nor does any other server by {netdev}",
        "check the switches between this host and its servers",
    ),
    "unreachable": (
        PATH,
        "{server} cannot be reached: the network knows no way to it",
        "check the routers between this host and the server",
    ),
    "server-silent": (
        SERVER,
        "{server} answers nothing, neither NFS nor connections: it is off, frozen, or "
        "has lost its address{detail}",
        "check that the server runs and has the address, its link, and its firewall",
    ),
    "connection-reset": (
        SERVER,
        "the connection to {server} broke under load, and was made again: {detail} "
        "calls were sent twice",
        "see the log of the server; on Linux servers, see ovirt-rdma-host explain "
        "NFS-RESET-01",
    ),
    "slots-used-up": (
        SLOTS,
        "calls to {server} wait on this host for {detail}: all slots of the connection "
        "are in use",
        "raise sunrpc.{key}_slot_table_entries (sysctl; for mounts made from then on), "
        "or use nconnect",
    ),
    # The time in the queue ends when a request is given to the socket
    # (xs_tcp_send_request in net/sunrpc/xprtsock.c).
    "link-full": (
        PATH,
        "calls to {server} wait on this host for {detail}, although slots are free: "
        "the connection takes no more data, so the link is slow or full",
        "check the load and the rate of the link on this host, the server and the "
        "switches",
    ),
    "credits-used-up": (
        SLOTS,
        "calls to {server} wait on this host for {detail}, although slots are free: "
        "the server allows no more at once (credits, NFS 4 session)",
        "on the server raise the number of NFS threads, which sets the slots of a "
        "session",
    ),
    "path-lossy": (
        PATH,
        "packets between this host and {server} are lost: {detail}",
        "check cables, transceivers and switch ports on the path; RoCE: flow control",
    ),
    "path-slow": (
        PATH,
        "the path to {server} is slow: a TCP connection, which needs no NFS thread, "
        "takes {detail}",
        "check the switches and links on the path for load and pauses",
    ),
    "disk-slow": (
        SERVER,
        "{server} takes {detail} to read or write, but answers a lookup at once: its "
        "disks are slow",
        "check the disks of the server",
    ),
    "server-slow": (
        SERVER,
        "{server} takes {detail} for a lookup, although the path is fast: its NFS "
        "threads are busy",
        "on the server raise the number of NFS threads (nfs.conf, [nfsd] threads), and "
        "check its load and disks",
    ),
}


@dataclass(frozen=True)
class Seen:
    """All that was seen of one mount.

    - ``transport``: ``rdma``, ``tcp`` or None; ``port``: of its RDMA listener
    - ``load``: since the sample before; None for the first
    - ``silent_s``: seconds since its last answer; 0.0 if unknown
    - ``signs``: of its server; None if nobody asked
    - ``errors``: on the wire of the ports to it, by name, in the last half minute;
      ``error_looks``: in how many looks of that time one of WAITED did
    - ``backlog``: calls that wait for a slot now
    - ``others_answer``: another server answers by the same netdev; None if none is
      mounted
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
    backlog: int = 0
    others_answer: Optional[bool] = None
    siblings_answer: Optional[bool] = None

    @property
    def tcp_port(self) -> int:
        """The server's port for NFS over TCP."""
        own = self.mount.port if self.transport != RDMA else None
        return own or NFS_TCP_PORT

    @property
    def is_answered(self) -> bool:
        """Whether the server answered in time, be it with an error of its own."""
        return not self.answer.late and not self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether the kernel gave up."""
        return (self.answer.error or "").startswith(LOST)

    @property
    def looked_up_s(self) -> float:
        """The seconds until the answer to the lookup; 0.0 without one."""
        return self.answer.seconds or 0.0

    @property
    def slowest_s(self) -> float:
        """The seconds of the slower one of lookup and read."""
        return max(self.looked_up_s, self.answer.read_s or 0.0)

    @property
    def lost(self) -> str:
        """The state without an answer: STALLED, as long as the server may come back
        without an error.
        """
        late_s = max(self.silent_s, self.answer.stuck_s or 0.0)
        return DEAD if self.is_lost or late_s >= DEAD_S else STALLED

    @property
    def has_waited(self) -> bool:
        """Whether the port of an RDMA mount waited in vain for an acknowledgement."""
        return self.transport == RDMA and not WAITED.isdisjoint(self.errors)

    @property
    def loses(self) -> bool:
        """Whether the port counted more errors than a sound one."""
        return sum(self.errors.values()) >= _FEW_ERRORS

    @property
    def server(self) -> str:
        """The server in sentences."""
        name = self.mount.source.rpartition(":/")[0]
        address = self.mount.address
        return f"{name} ({address})" if address and address not in name else name

    def found(
        self,
        reason: str,
        state: str,
        detail: str = "",
        *,
        certain: bool = True,
        cause: str = "",
        fix: str = "",
    ) -> MountHealth:
        """Return the health for a reason of _FINDINGS, with the evidence."""
        usual, sentence, remedy = _FINDINGS[reason]
        # Over TCP the other one is how many there are at first (xprt_alloc in
        # net/sunrpc/xprt.c).
        words = {
            "server": self.server,
            "detail": detail,
            "fix": fix,
            "port": self.port,
            "netdev": self.signs.netdev if self.signs else None,
            "key": "rdma" if self.transport == RDMA else "tcp_max",
        }
        return replace(
            self.sound(),
            state=state,
            cause=cause or usual,
            certain=certain,
            reason=reason,
            sentence=sentence.format(**words),
            fix=remedy.format(**words),
        )

    def sound(self) -> MountHealth:
        """Return that the mount is ok, with the evidence."""
        answer = self.answer
        took = f"{shown_time(self.looked_up_s)}{_error(answer.error)}"
        return MountHealth(
            self.mount.source,
            self.mount.mountpoint,
            self.transport,
            self.mount.version,
            OK,
            sentence=f"{self.server} answered in {took}",
            evidence=tuple(_evidence(self)),
            answered_s=answer.seconds if self.is_answered else None,
        )


def shown_time(seconds: float) -> str:
    """Return a time for people: ``3.2 ms`` or ``1.52 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def needs_signs(seen: Seen) -> bool:
    """Whether the signs of the server are needed to judge."""
    if seen.answer.problem:
        return False
    hangs = not seen.is_answered or seen.answer.read_late
    return hangs or seen.looked_up_s >= FAR_S or slowness(seen) is not None


def judge(seen: Seen) -> MountHealth:
    """Return the health of one mount; ``since`` is left to the caller, who knows the
    time before.
    """
    answer = seen.answer
    failed = answer.error or answer.read_error
    if answer.problem:
        return seen.found("not-asked", UNKNOWN, answer.problem)
    if not seen.is_answered:
        return silence(seen)
    if "ESTALE" in (answer.error, answer.read_error):
        return seen.found("export-gone", DEAD)
    if failed is not None and failed not in DENIED:
        state = DEAD if failed == answer.read_error else UNKNOWN
        cause = SERVER if failed in ("EIO", "EREMOTEIO") else UNKNOWN
        return seen.found("answer-is-error", state, failed, cause=cause, certain=False)
    if answer.read_late:
        return stuck_data(seen)
    return slowness(seen) or seen.sound()


def _evidence(seen: Seen) -> list[str]:
    load, signs = seen.load, seen.signs
    shown = _answers(seen.answer)
    if load is not None and load.count:
        queue_ms, rtt_ms = load.mean("queue_ms"), load.mean("rtt_ms")
        shown.append(
            f"{load.count} calls in {load.seconds:.0f} s: {queue_ms:.1f} ms in the "
            f"queue, {rtt_ms:.1f} ms to the server and back"
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
        why = seen.answer.error or f"nothing came within {PROBE_S:g} s"
        return seen.found("no-answer", seen.lost, why, certain=False)
    return _local_fault(seen, signs) or _far_fault(seen, signs)


def _local_fault(seen: Seen, signs: ServerSigns) -> Optional[MountHealth]:
    """Return what is wrong with this host and its link; None if nothing is."""
    rdma = seen.transport == RDMA
    names = ("route", "port") if rdma else ("route",)
    steps = (s for s in signs.steps if s.name in names and s.verdict == NOT_READY)
    wrong = next(steps, None)
    down = ", ".join(signs.ports_down)
    # The address may have gone with the link, and the route with it. Any port may be
    # down for years, so its state alone proves nothing.
    gone = signs.carrier is None and wrong is not None
    if signs.carrier is False or (gone and rdma and down):
        no_sm = signs.waits_for_sm and (signs.infiniband or not signs.devices)
        reason = "port-without-sm" if no_sm else "link-down"
        detail = down if rdma or no_sm else ""
        detail = detail or f"{signs.netdev} has no carrier"
        return seen.found(reason, DEAD, detail, certain=not gone)
    if wrong is None:
        return None
    certain = not (rdma and down)
    return seen.found(
        "host-not-ready", DEAD, wrong.detail, fix=wrong.fix, certain=certain
    )


def _far_fault(seen: Seen, signs: ServerSigns) -> MountHealth:
    """Return what is wrong beyond this host's port."""
    listener, tcp = signs.listener, signs.tcp.result
    refused = listener is not None and listener.refused
    listening = listener is not None and listener.verdict == READY
    # A TCP mount, or no program here that could ask.
    unasked = listener is None or listener.verdict not in (READY, NOT_READY)
    stuck = unasked or signs.tcp.replied is False
    if _loses_packets(seen, signs, listening or unasked):
        return loss(seen, seen.lost)
    state, detail, certain, fix = seen.lost, "", False, server_side_fix(seen.port)
    if refused and tcp == ACCEPTS:
        reason, state, certain = "listener-gone", DEAD, True
    elif tcp == REFUSES and not listening:
        reason, state, certain = "service-down", DEAD, True
        detail = "its NFS service is stopped: it refuses connections"
        fix = "start the NFS service of the server: systemctl start nfs-server"
    elif refused:
        reason, state = "service-down", DEAD
        detail = (
            f"refuses RDMA on port {seen.port}, and answers no TCP: its NFS service is "
            "stopped, or its RDMA listener is gone and a firewall holds back TCP"
        )
    elif listening or (stuck and tcp == ACCEPTS):
        return _stuck_server(seen, signs.tcp.replied)
    elif tcp in (ACCEPTS, REFUSES):
        reason = "fabric-lost" if signs.infiniband else "rdma-lost"
        detail = listener.detail if listener else ""
    elif seen.others_answer is False:
        # They may be one machine.
        reason = "all-servers-silent"
    elif tcp == UNREACHABLE:
        reason, state = "unreachable", DEAD
    else:
        reason, detail = "server-silent", ", or the path beyond this host's port is cut"
        if seen.others_answer:
            detail = f"; other servers answer by {signs.netdev}"
        # A firewall that rejects looks like an address that nobody has.
        certain = bool(seen.others_answer) and tcp == SILENT
    return seen.found(reason, state, detail, certain=certain, fix=fix)


def _loses_packets(seen: Seen, signs: ServerSigns, listening: bool) -> bool:
    """Whether the path loses packets, which a TCP connection survived: each call may
    wait for packets that are sent again, longer than the question.
    """
    # Other exports of the server use the same path.
    if signs.tcp.result != ACCEPTS or seen.siblings_answer:
        return False
    # A connection that ends loses packets in one look, or in two.
    if seen.transport == RDMA and seen.error_looks >= _OFTEN:
        return True
    if signs.tcp.replied is False:
        return False
    if listening:
        return seen.has_waited or seen.loses
    # Packets of a server that has lost its RDMA device do not come a second time.
    again = not (SENT_AGAIN - WAITED).isdisjoint(seen.errors)
    refused = signs.listener is not None and signs.listener.refused
    return seen.has_waited and again and not refused


def _stuck_server(seen: Seen, replied: Optional[bool]) -> MountHealth:
    """Return what hangs on a server that accepts connections."""
    slow, took = slowness(seen), path_s(seen)
    if took:
        return seen.found("path-slow", seen.lost, shown_time(took), certain=False)
    if replied is False or not (slow or replied or seen.siblings_answer):
        certain = replied is False and not seen.errors and not slow
        return seen.found("nfs-stuck", seen.lost, certain=certain)
    if slow:
        return replace(slow, state=seen.lost, certain=False)
    certain = bool(seen.siblings_answer) and not seen.errors
    return seen.found("export-stuck", seen.lost, certain=certain)


def stuck_data(seen: Seen) -> MountHealth:
    """Return why a read of 4 KiB hangs on a server that answers a lookup at once."""
    slow = slowness(seen)
    if slow:
        moves = seen.load is not None and seen.load.total("operations", DATA) > 0
        if seen.answer.stuck_s is None and (seen.looked_up_s >= SLOW_S or moves):
            return slow
        return replace(slow, state=seen.lost, certain=False)
    if not seen.siblings_answer and (seen.has_waited or seen.loses):
        return loss(seen, seen.lost)
    return seen.found("data-stuck", seen.lost, certain=False)


def _is_far(seen: Seen) -> bool:
    """Whether a late answer is that late because the path is slow, although not slow
    enough to be noticed by the answer alone.
    """
    return seen.looked_up_s >= FAR_S and _knock_s(seen) >= FAR_S


def _knock_s(seen: Seen) -> float:
    """Return the seconds of a TCP connection; 0.0 if there is none."""
    tcp = seen.signs.tcp if seen.signs else None
    return tcp.seconds if tcp and tcp.result in (ACCEPTS, REFUSES) else 0.0


def path_s(seen: Seen) -> float:
    """Return the seconds of a TCP connection if the path is slow, else 0.0."""
    took = _knock_s(seen)
    late = _is_far(seen) or (seen.slowest_s >= SLOW_S and took >= SLOW_S / 10)
    if took >= SLOW_S / 2 or (late and took >= _PATH_SHARE * seen.slowest_s):
        return took
    return 0.0


def _waits_for_slots(seen: Seen, load: Load) -> bool:
    if load.count < _FEW:
        return False
    # With free slots, calls also wait until a lost connection is made again. That may
    # have been just before; then they are sent again now.
    if (load.connects or load.sent_again) and not _is_full(seen, load):
        return False
    queue_ms = load.mean("queue_ms")
    return queue_ms >= SLOW_QUEUE_MS and queue_ms > load.mean("rtt_ms")


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
    return load.connects > 0 or load.mean("queue_ms") >= SLOW_QUEUE_MS


def slowness(seen: Seen) -> Optional[MountHealth]:
    """Return why the server, or the way to it, is slower than it should be; None if it
    is not.
    """
    load, far = seen.load or Load(1.0), path_s(seen)
    waits, reset, certain = _waits_for_slots(seen, load), _was_reset(load), False
    moved = load.total("operations", DATA) >= _FEW
    slow_data = moved and load.mean("rtt_ms", DATA) >= SLOW_DATA_MS
    late = seen.slowest_s >= SLOW_S or _is_far(seen)
    if not (late or waits or slow_data or reset):
        return None
    if waits:
        queue_ms, rtt_ms = load.mean("queue_ms"), load.mean("rtt_ms")
        detail = f"{queue_ms:.0f} ms, and take {rtt_ms:.0f} ms at the server"
        reason = "credits-used-up" if seen.transport == RDMA else "link-full"
        if _is_full(seen, load):
            # A server that is late fills any number of slots.
            reason, certain = "slots-used-up", rtt_ms < SLOW_QUEUE_MS
    # A server that ends a connection acknowledges packets until then.
    elif seen.loses or (not far and reset and seen.has_waited):
        return loss(seen, SLOW)
    elif far:
        reason, detail, certain = "path-slow", shown_time(far), True
    elif reset:
        reason, detail = "connection-reset", str(load.sent_again)
    elif seen.looked_up_s < SLOW_S / 2:
        read_s = seen.answer.read_s or 0.0
        data_s = load.mean("rtt_ms", DATA) / 1000.0 if moved else 0.0
        # Many large requests may wait for its link, but one small read does not.
        reason, certain = "disk-slow", read_s >= SLOW_S
        detail = shown_time(max(read_s, data_s))
    else:
        reason, certain = "server-slow", load.on_wire >= 2.0
        detail = shown_time(seen.looked_up_s)
    return seen.found(reason, SLOW, detail, certain=certain)


def loss(seen: Seen, state: str) -> MountHealth:
    """Return the finding for the errors that were counted."""
    counted = ", ".join(f"{name} +{n}" for name, n in sorted(seen.errors.items()))
    fabric = seen.signs is not None and seen.signs.infiniband
    # The port counts what it sent to any server.
    return seen.found(
        "path-lossy", state, counted, cause=FABRIC if fabric else PATH, certain=False
    )
