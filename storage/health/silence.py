# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out why a server does not answer, or answers no read. Pure.

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
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.storage.health.probe import PROBE_S
from ovirt_rdma.storage.health.samples import SENT_AGAIN, WAITED
from ovirt_rdma.storage.health.seen import Found, Seen, shown_time
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    REFUSES,
    SILENT,
    UNREACHABLE,
    ServerSigns,
)
from ovirt_rdma.storage.health.slowness import (
    SLOW_S,
    far_path,
    is_slow,
    loss,
    lossy,
    slowness,
)
from ovirt_rdma.storage.health.state import DEAD, FABRIC, HOST, PATH, SERVER, UNKNOWN
from ovirt_rdma.storage.probe import server_side_fix
from ovirt_rdma.storage.readiness import NOT_READY, READY, Step

# Looks of half a minute in which this host waited for acknowledgements.
_OFTEN = 3


def silence(seen: Seen) -> Found:
    """Return why nobody answered."""
    signs = seen.signs
    if signs is None:
        return Found(
            seen.lost,
            UNKNOWN,
            "no-answer",
            f"{no_answer(seen)}; nobody looked for the cause",
            "ovirt-rdma-host nfs health",
            certain=False,
        )
    return _local_fault(seen, signs) or _far_fault(seen, signs)


def _local_fault(seen: Seen, signs: ServerSigns) -> Optional[Found]:
    """Return what is wrong with this host and its link; None if nothing is."""
    rdma = seen.transport == RDMA
    wrong = _first_wrong(signs.steps, rdma)
    # The address may have gone with the link, and the route with it. Any port may be
    # down for years, so its state alone proves nothing.
    gone = signs.carrier is None and wrong is not None
    no_link = signs.carrier is False or (gone and rdma and bool(signs.ports_down))
    if no_link and signs.waits_for_sm and (signs.infiniband or not signs.devices):
        return Found(
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
        return Found(
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
    return Found(DEAD, HOST, reason, wrong.detail, wrong.fix, certain)


def _first_wrong(steps: tuple[Step, ...], rdma: bool) -> Optional[Step]:
    names = ("route", "port") if rdma else ("route",)
    return next((s for s in steps if s.name in names and s.verdict == NOT_READY), None)


def _far_fault(seen: Seen, signs: ServerSigns) -> Found:
    """Return what is wrong beyond this host's port."""
    listener, tcp = signs.listener, signs.tcp.result
    refused = listener is not None and listener.refused
    listening = listener is not None and listener.verdict == READY
    # A TCP mount, or no program here that could ask.
    unasked = listener is None or listener.verdict not in (READY, NOT_READY)
    if _loses_packets(seen, signs, listening or unasked):
        return replace(loss(seen), state=seen.lost)
    if refused and tcp == ACCEPTS:
        return Found(
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


def _service_down(seen: Seen, tcp: str) -> Found:
    if tcp == REFUSES:
        return Found(
            DEAD,
            SERVER,
            "service-down",
            f"{seen.server} is up, but its NFS service is stopped: it refuses "
            "connections",
            "start the NFS service of the server: systemctl start nfs-server",
        )
    return Found(
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


def _stuck_server(seen: Seen, replied: Optional[bool]) -> Found:
    """Return what hangs on a server that accepts connections."""
    far = far_path(seen)
    if far is not None:
        return replace(far, state=seen.lost, certain=False)
    if replied is not False and is_slow(seen):
        return replace(slowness(seen), state=seen.lost, certain=False)
    if replied is not False and seen.siblings_answer:
        return Found(
            seen.lost,
            SERVER,
            "export-stuck",
            f"{seen.server} answers for other exports, but not for this one: its file "
            "system or disk hangs",
            "check the disks and the file system of this export on the server",
            certain=not seen.errors,
        )
    if replied:
        return Found(
            seen.lost,
            SERVER,
            "export-stuck",
            f"{seen.server} answers calls, but not for this export: its file system "
            "or disk hangs, or this host's connection to it does",
            "check the disks and the file system of this export on the server; if "
            "other hosts have no trouble with it, see the kernel's log of this host",
            certain=False,
        )
    return Found(
        seen.lost,
        SERVER,
        "nfs-stuck",
        f"{seen.server} accepts connections, but its NFS service answers nothing: its "
        "threads wait, mostly for a disk",
        "on the server: check its disks and its log for hung tasks, and that it has "
        "enough NFS threads (nfs.conf, [nfsd] threads)",
        certain=replied is False and not seen.errors and not is_slow(seen),
    )


def stuck_data(seen: Seen) -> Found:
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
    return Found(
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


def _rdma_lost(seen: Seen, signs: ServerSigns) -> Found:
    said = signs.listener.detail if signs.listener else ""
    if signs.infiniband:
        return Found(
            seen.lost,
            FABRIC,
            "fabric-lost",
            f"{seen.server} answers over IP, but not over RDMA: {said}",
            "check the server's HCA, and the path: ovirt-rdma-host fabric check",
            certain=False,
        )
    # A path that passes TCP loses RDMA only by a filter.
    return Found(
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


def _nobody(seen: Seen, signs: ServerSigns) -> Found:
    nothing = f"{seen.server} answers nothing: neither NFS nor TCP"
    mute = signs.listener is not None and signs.listener.verdict == NOT_READY
    nothing += " nor RDMA connections" if mute else " connections"
    if seen.others_answer is False:
        return Found(
            seen.lost,
            PATH,
            "all-servers-silent",
            f"{nothing}; nor does any other server by {signs.netdev}",
            "check the switches between this host and its servers",
            # They may be one machine.
            certain=False,
        )
    if signs.tcp.result == UNREACHABLE:
        return Found(
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
    return Found(
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
