# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-NCONNECT-01, NFS-RESET-01, NFS-LISTENER-01 and RPCCTL-01: connections. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.export import nfs_check
from ovirt_rdma.host.facts.activity import ConnectionActivity, MountActivity
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    PASS,
    SKIP,
    WARN,
    Finding,
    Rule,
)
from ovirt_rdma.host.rules.nfs.mounts import (
    RdmaMount,
    no_mount,
    not_read,
    rdma_mounts,
)
from ovirt_rdma.host.rules.view import View

NCONNECT, RESET = "NFS-NCONNECT-01", "NFS-RESET-01"
LISTENER, RPCCTL = "NFS-LISTENER-01", "RPCCTL-01"

_SWITCHES = "/sys/kernel/sunrpc/xprt-switches"
_REMOUNT = "all mounts of the server must be mounted again"
_FIXES = "boot a kernel with the fixes of March 2026"
_UNBLOCK = f"mount without nconnect ({_REMOUNT}), or {_FIXES}"
# Repeated requests, as a part of all, and connections made, from which they are no
# accident. An idle connection is made again every five minutes without repeating any.
_OFTEN, _AT_LEAST, _CONNECTS = 0.01, 10, 3


def decide_nconnect(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: connections asked for, made and blocked."""
    if not rdma_mounts(view):
        yield no_mount(NCONNECT)
    for one in rdma_mounts(view):
        yield _connections(one)


def _connections(one: RdmaMount) -> Finding:
    made = len(one.mount.protocols)
    taken = one.shown("nconnect") or 0
    asked = one.asked_for("nconnect") or taken or 1
    done = one.activity
    if done and done.blocked:
        return Finding(
            NCONNECT,
            one.export,
            FAIL,
            f"requests wait on {done.blocked} of {made} connections where none is "
            "under way that they could wait for: it is blocked",
            _UNBLOCK,
        )
    if done and done.unanswered:
        return Finding(
            NCONNECT,
            one.export,
            WARN,
            f"{done.unanswered} of {made} connections sent requests and got no reply "
            "while others got some: it may be blocked, or the server is late",
            f"check again; if it stays so: {_UNBLOCK}",
        )
    if not made:
        return Finding(
            NCONNECT, one.export, SKIP, "the kernel shows no connections of this mount"
        )
    if made < asked:
        return Finding(
            NCONNECT,
            one.export,
            WARN,
            f"{asked} connections are asked for, and it has {made}",
            _why_fewer(one, taken),
        )
    if made == 1:
        return Finding(NCONNECT, one.export, PASS, "it has 1 connection, as asked for")
    return Finding(
        NCONNECT,
        one.export,
        PASS,
        f"it has {made} connections, and none of them is blocked; it is unknown if "
        "this kernel has the fixes for several connections",
    )


def _why_fewer(one: RdmaMount, taken: int) -> str:
    if one.asked_for("nconnect") and not taken and one.mount.version != "3":
        return (
            "this kernel may ignore nconnect for NFS 4 over RDMA (before Linux 6.9): "
            "use NFS 3 or a newer kernel; or the mount is older than the policy: "
            f"{_REMOUNT}"
        )
    return (
        "it shares the connections of an earlier mount of this server, or is older "
        f"than the policy: {_REMOUNT}"
    )


def decide_reset(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: whether connections break with requests."""
    if not rdma_mounts(view):
        yield no_mount(RESET)
    for one in rdma_mounts(view):
        if one.activity is None:
            yield not_read(RESET, one.export)
        else:
            seconds = view.facts.activity.seconds if view.facts.activity else 0.0
            yield _resets(one.export, one.activity, seconds)


def _resets(export: str, done: MountActivity, seconds: float) -> Finding:
    again = f"{done.retransmissions} of {done.operations} requests were sent again"
    connects = f"its connections were made {done.connects} times"
    fix = (
        "look at the server's log and CPU, then at PORT-ERRORS-01; for Linux servers "
        "see explain NFS-RESET-01"
    )
    if done.new_connects and done.new_retransmissions:
        sentence = (
            f"a connection broke within the last {seconds:.1f} s and "
            f"{done.new_retransmissions} requests were sent again; {again} in all"
        )
        return Finding(RESET, export, WARN, sentence, fix)
    part = done.retransmissions / max(1, done.operations)
    extra = done.connects - done.connections
    if part >= _OFTEN and done.retransmissions >= _AT_LEAST and extra >= _CONNECTS:
        return Finding(RESET, export, WARN, f"{again}, and {connects}", fix)
    return Finding(RESET, export, PASS, f"{again}; {connects}")


def _of_mount(view: View, one: RdmaMount) -> Optional[tuple[ConnectionActivity, ...]]:
    """Return the connections to the mount's server; None if the kernel shows none."""
    activity = view.facts.activity
    if activity is None or activity.connections is None or not one.mount.address:
        return None
    return tuple(
        transport
        for transport in activity.connections
        if transport.destination == one.mount.address
    )


def decide_listener(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: whether the server takes its connections."""
    if not rdma_mounts(view):
        yield no_mount(LISTENER)
    for one in rdma_mounts(view):
        found = _of_mount(view, one)
        if not found:
            sentence = (
                "this kernel does not show the state of its connections"
                if found is None
                else f"the kernel shows no connection to {one.mount.address}"
            )
            yield Finding(LISTENER, one.export, SKIP, sentence)
            continue
        trying = [t for t in found if "CONNECTING" in t.state and not t.connected]
        if trying:
            yield Finding(
                LISTENER,
                one.export,
                WARN,
                f"{len(trying)} of {len(found)} connections to {one.mount.address} "
                "cannot be made again",
                f"{nfs_check(one.mount.source)}; if the server refuses, "
                "restart its NFS service: it may have lost its RDMA listener when its "
                "address moved",
            )
            continue
        idle = sum(not transport.connected for transport in found)
        sentence = f"{len(found) - idle} connected, {idle} idle"
        yield Finding(LISTENER, one.export, PASS, sentence)


def decide_rpcctl(view: View) -> Iterator[Finding]:
    """Yield a finding: connections that somebody has set offline or removed."""
    activity = view.facts.activity
    if activity is None or activity.connections is None:
        sentence = "this kernel does not show the state of connections"
        yield Finding(RPCCTL, HOST, SKIP, sentence)
        return
    if not activity.connections:
        yield no_mount(RPCCTL)
        return
    off = [c for c in activity.connections if {"OFFLINE", "REMOVE"} & set(c.state)]
    for one in off:
        yield Finding(
            RPCCTL,
            one.name,
            WARN,
            f"somebody has set this connection to {one.destination} offline",
            "set it online again, and never remove it (kernels from 6.12 on crash): "
            f"echo online > {_SWITCHES}/{one.name}/xprt_state",
        )
    if not off:
        sentence = "no connection is offline; none must be removed with rpcctl"
        yield Finding(RPCCTL, HOST, PASS, sentence)


NCONNECT_RULE = Rule(NCONNECT, decide_nconnect)

RESET_RULE = Rule(RESET, decide_reset)

LISTENER_RULE = Rule(LISTENER, decide_listener)

RPCCTL_RULE = Rule(RPCCTL, decide_rpcctl)

RULES = (NCONNECT_RULE, RESET_RULE, LISTENER_RULE, RPCCTL_RULE)
