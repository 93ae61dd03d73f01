# SPDX-License-Identifier: GPL-2.0-or-later
"""Explain a failed NFS mount from the error message of mount.nfs. Pure.

mount.nfs exits with 32 for every failure, so only its text shows the cause. The texts
and their causes were measured on kernel 6.1 with nfs-utils 2.6.2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MountFailure:
    """Why a mount failed.

    ``text`` is the last line that mount printed. ``meaning`` and ``fix`` are for the
    admin. ``about_export``: the server refused this path or this client, so another
    transport would fail too. ``about_server``: the other exports of the server would
    fail over this transport too.
    """

    text: str
    meaning: str
    fix: str = ""
    about_export: bool = False
    about_server: bool = False


@dataclass(frozen=True)
class _Known:
    """A text of mount.nfs and what it means.

    ``rdma_fix`` replaces ``fix`` over RDMA. ``rdma_only``: the text means this over
    RDMA only.
    """

    part: str
    meaning: str
    fix: str
    rdma_fix: str = ""
    rdma_only: bool = False
    about_export: bool = False
    about_server: bool = False


_KNOWN = (
    _Known(
        "reason given by server: No such file or directory",
        "the server does not export this path to this host",
        "check the path and the server's exports",
        about_export=True,
    ),
    _Known(
        "access denied by server",
        "the server refuses this path to this host",
        "check the server's exports",
        about_export=True,
    ),
    _Known(
        "Connection refused",
        "the server answers, but nothing listens on the port",
        "check that nfs-server is running, and on which port",
        rdma_fix="on a Linux server set rdma=y in the [nfsd] section of "
        "/etc/nfs.conf, then run systemctl restart nfs-server",
        about_server=True,
    ),
    _Known(
        "Protocol error",
        "no RDMA device leads to the server",
        "check that the route to the server uses an RDMA netdev",
        rdma_only=True,
        about_server=True,
    ),
    _Known(
        "Connection timed out",
        "the server does not answer",
        "check that the server is up",
        rdma_fix="check that the server is up and its RDMA device is ACTIVE",
        about_server=True,
    ),
    _Known(
        "No route to host",
        "the server cannot be reached",
        "check the network between this host and the server",
        about_server=True,
    ),
    _Known(
        "Network is unreachable",
        "this host has no route to the server",
        "check this host's network attachment for the storage network",
        about_server=True,
    ),
    _Known(
        "an incorrect mount option was specified",
        "the kernel does not know one of the options",
        "check the mount options",
        rdma_fix="check that modprobe rpcrdma works, then the mount options",
    ),
    _Known(
        "No such device",
        "the kernel has no such file system or device",
        "check that modprobe nfs works",
        rdma_fix="check that the server's address is not a loopback address",
        about_server=True,
    ),
    _Known(
        "Address family for hostname not supported",
        "the protocol and the server's address are of different families",
        "use a protocol of the address's family, such as proto=rdma6 for IPv6",
    ),
    _Known(
        "requested NFS version or transport protocol is not supported",
        "the server does not offer this NFS version over this transport",
        "check that the server's NFS service is running, and which NFS versions it "
        "offers",
    ),
)


def classify(stderr: bytes, over_rdma: bool) -> MountFailure:
    """Return what went wrong, from mount's standard error; never raises."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].strip() if lines else "mount printed no error"
    for known in _KNOWN:
        if known.rdma_only and not over_rdma:
            continue
        if any(known.part in line for line in lines):
            return MountFailure(
                text,
                known.meaning,
                (over_rdma and known.rdma_fix) or known.fix,
                known.about_export,
                known.about_server,
            )
    return MountFailure(text, "the cause is unknown")
