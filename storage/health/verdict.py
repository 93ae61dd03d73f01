# SPDX-License-Identifier: GPL-2.0-or-later
"""Judge the health of a mount from what was seen: state, cause, fix. Pure."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.host.rules.nfs.slots import sleep_without_slot
from ovirt_rdma.storage.health.probe import PROBE_S, Answer
from ovirt_rdma.storage.health.samples import Load
from ovirt_rdma.storage.health.seen import DENIED, Found, Seen, shown_time
from ovirt_rdma.storage.health.signs import ACCEPTS, REFUSES, SILENT, UNASKED
from ovirt_rdma.storage.health.silence import silence, stuck_data
from ovirt_rdma.storage.health.slowness import is_slow, lossy, may_be_far, slowness
from ovirt_rdma.storage.health.state import (
    DEAD,
    FABRIC,
    HOST,
    OK,
    PATH,
    SERVER,
    SLOTS,
    UNKNOWN,
    MountHealth,
    Remark,
)
from ovirt_rdma.storage.review import DEGRADED, NOT_COVERED


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
    found = _found(seen)
    mount = seen.mount
    return MountHealth(
        mount.source,
        mount.mountpoint,
        seen.transport,
        mount.version,
        found.state if found else OK,
        found.cause if found else None,
        found.certain if found else True,
        found.reason if found else "",
        found.sentence if found else _answered(seen),
        found.fix if found else "",
        tuple(_evidence(seen)),
        answered_s=seen.answer.seconds if seen.is_answered else None,
        remarks=tuple(_remarks(seen)),
    )


def _found(seen: Seen) -> Optional[Found]:
    answer = seen.answer
    if answer.problem:
        return Found(
            UNKNOWN,
            UNKNOWN,
            "not-asked",
            f"{seen.server} could not be asked: {answer.problem}",
            "run it again; if that does not help, report it",
        )
    if not seen.is_answered:
        return silence(seen)
    if answer.error == "ESTALE" or answer.read_error == "ESTALE":
        return Found(
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
        return Found(
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


def _remarks(seen: Seen) -> list[Remark]:
    remarks = []
    if seen.answer.error in DENIED or seen.answer.read_error in DENIED:
        remarks.append(
            Remark(
                "access-refused",
                SERVER,
                f"{seen.server} answers, but refuses access to {seen.mount.source}",
                "give vdsm:kvm (36:36) access to the export",
            )
        )
    asked, made = seen.connections_asked, seen.connections
    if asked is not None and made and made < asked:
        remarks.append(
            Remark(
                "nconnect-ignored",
                HOST,
                f"{seen.mount.source} has {made} of the {asked} connections of "
                "nconnect: this kernel does not make more, or an earlier mount of the "
                "server decided it",
                "see ovirt-rdma-host explain NFS-NCONNECT-01; remount all mounts of "
                "the server together",
            )
        )
    load = seen.load
    if load is not None and load.is_local:
        remarks.append(
            Remark(
                "local-io",
                HOST,
                f"data of {seen.mount.source} does not go over the network: this host "
                "is also its server (LOCALIO), so the transport does not matter",
                "nothing, if that is wanted; ovirt-rdma-host explain NFS-LOCALIO-01",
            )
        )
    if load is not None and _sleeps(seen, load):
        every = load.all
        remarks.append(
            Remark(
                "sleep-without-slot",
                SLOTS,
                f"calls to {seen.server} wait {every.queue_ms:.1f} ms on this "
                f"host, and take {every.rtt_ms:.1f} ms at the server: all slots "
                "are in use at times, and this kernel may then wait 250 ms",
                "see ovirt-rdma-host explain NFS-SLOTS-01",
            )
        )
    found = seen.is_answered and lossy(seen) is not None
    for name, count in sorted(seen.errors.items()) if found else ():
        remarks.append(
            Remark(
                "port-errors",
                FABRIC if seen.signs and seen.signs.infiniband else PATH,
                f"errors on the port to {seen.server}: {name} +{count}",
                "check cables, transceivers and switch ports on the path",
            )
        )
    review = seen.review
    if review is not None and review.verdict in (DEGRADED, NOT_COVERED):
        remarks.append(Remark("transport-degraded", HOST, review.sentence, review.fix))
    return remarks


def _sleeps(seen: Seen, load: Load) -> bool:
    if seen.transport != RDMA or load.connects or load.sent_again:
        return False
    return sleep_without_slot(
        (load.reads, load.writes),
        calls=load.count,
        sends=load.sends,
        backlog=load.backlog,
        slots=seen.slots,
    )


def _answered(seen: Seen) -> str:
    return f"{seen.server} answered in {shown_time(seen.answer.seconds or 0.0)}"


def _evidence(seen: Seen) -> list[str]:
    load, signs = seen.load, seen.signs
    shown = _answers(seen.answer)
    if load is not None and load.count:
        every = load.all
        shown.append(
            f"{load.count} calls in {load.seconds:.0f} s: {every.queue_ms:.1f} ms in "
            f"the queue, {every.rtt_ms:.1f} ms to the server and back"
        )
    if load is not None and (load.connects or load.sent_again or load.timeouts):
        shown.append(
            f"connects +{load.connects}, sent again +{load.sent_again}, timeouts "
            f"+{load.timeouts}"
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
        if knocked != UNASKED:
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
