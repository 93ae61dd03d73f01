# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-VERS-01, NFS-COPY-01, NFS-SIZE-01 and FIREWALL-01: what was negotiated. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.rules.base import HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.nfs.mounts import (
    RdmaMount,
    no_mount,
    not_read,
    rdma_mounts,
)
from ovirt_rdma.host.rules.view import View

VERSION, COPY = "NFS-VERS-01", "NFS-COPY-01"
SIZE, FIREWALL = "NFS-SIZE-01", "FIREWALL-01"


def decide_version(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: whether servers will offer its version."""
    if not rdma_mounts(view):
        yield no_mount(VERSION)
    for one in rdma_mounts(view):
        version = one.mount.version
        if version == "4.0":
            yield Finding(
                VERSION,
                one.export,
                WARN,
                "it uses NFS 4.0, which Linux servers with nfs-utils 2.9.1 or later do "
                "not offer by default",
                "choose NFS version 4.2 (or auto) for the storage domain in the engine",
            )
        elif version is None:
            yield Finding(VERSION, one.export, SKIP, "its NFS version is unknown")
        else:
            yield Finding(VERSION, one.export, PASS, f"it uses NFS {version}")


def decide_copy(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: whether server-side copies came to an end."""
    if not rdma_mounts(view):
        yield no_mount(COPY)
    for one in rdma_mounts(view):
        if one.mount.version is not None and not one.is_v4_2:
            sentence = f"NFS {one.mount.version} has no server-side copy"
            yield Finding(COPY, one.export, PASS, sentence)
        elif one.activity is None:
            yield not_read(COPY, one.export)
        elif one.activity.cancelled_copies:
            yield Finding(
                COPY,
                one.export,
                WARN,
                f"{one.activity.cancelled_copies} of {one.activity.copies} server-side "
                "copies were given up: the server's message about the end may be lost",
                "choose NFS version 4.1 for the storage domain in the engine",
            )
        elif one.activity.copies:
            sentence = f"none of {one.activity.copies} server-side copies was given up"
            yield Finding(COPY, one.export, PASS, sentence)
        else:
            yield Finding(
                COPY,
                one.export,
                SKIP,
                "no server-side copy was made yet, so it is unknown if it would end",
            )


def decide_size(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: rsize and wsize, asked for and negotiated."""
    if not rdma_mounts(view):
        yield no_mount(SIZE)
    for one in rdma_mounts(view):
        yield _sizes(one)


def _sizes(one: RdmaMount) -> Finding:
    shown: list[str] = []
    smaller: list[str] = []
    for name in ("rsize", "wsize"):
        negotiated, asked = one.shown(name), one.asked_for(name)
        if negotiated is None:
            continue
        shown.append(f"{name} is {negotiated}")
        # The kernel rounds down to a power of two, or to a page (nfs_block_size).
        if asked is not None and negotiated < asked // 2 + 1:
            smaller.append(f"{name} is {negotiated}, and {asked} is asked for")
    if smaller:
        return Finding(
            SIZE,
            one.export,
            WARN,
            "; ".join(smaller),
            "raise the server's largest size (knfsd: max_block_size, which it lowers "
            "itself with little memory), or ask for less; then mount again",
        )
    if not shown:
        return Finding(SIZE, one.export, SKIP, "its rsize and wsize are unknown")
    return Finding(SIZE, one.export, PASS, ", ".join(shown))


def decide_firewall(view: View) -> Iterator[Finding]:
    """Yield findings: Soft-RoCE's UDP port, and the ports beside NFS 3."""
    soft = [d.name for d in view.facts.rdma_devices if d.is_soft_roce]
    connected = {
        cm_id.device for cm_id in view.facts.cm_ids or () if cm_id.state == "CONNECT"
    }
    for name in soft:
        if name in connected:
            sentence = "Soft-RoCE has a connection, so UDP port 4791 is open"
            yield Finding(FIREWALL, name, PASS, sentence)
        else:
            yield Finding(
                FIREWALL,
                name,
                SKIP,
                "Soft-RoCE needs UDP port 4791 in both directions; it is unknown if "
                "firewalls let it pass",
                "firewall-cmd --permanent --add-port=4791/udp; firewall-cmd --reload",
            )
    locking = [one for one in rdma_mounts(view) if _locks_beside(one)]
    for one in locking:
        yield Finding(
            FIREWALL,
            one.export,
            SKIP,
            "NFS 3 with locks also needs TCP ports in both directions (rpcbind 111, "
            "mountd, lockd, statd); it is unknown if firewalls let them pass",
            "mount with nolock as VDSM does, or fix the ports in /etc/nfs.conf",
        )
    if not soft and not locking:
        sentence = "nothing here needs other ports than RDMA's"
        if rdma_mounts(view):
            yield Finding(FIREWALL, HOST, PASS, sentence)
        else:
            yield no_mount(FIREWALL)


def _locks_beside(one: RdmaMount) -> bool:
    options = one.mount.options.split(",")
    return one.mount.version == "3" and not (
        "nolock" in options or "local_lock=all" in options
    )


VERSION_RULE = Rule(VERSION, decide_version)

COPY_RULE = Rule(COPY, decide_copy)

SIZE_RULE = Rule(SIZE, decide_size)

FIREWALL_RULE = Rule(FIREWALL, decide_firewall)

RULES = (VERSION_RULE, COPY_RULE, SIZE_RULE, FIREWALL_RULE)
