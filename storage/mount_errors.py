# SPDX-License-Identifier: GPL-2.0-or-later
"""What a failed NFS mount means, told from the words of mount.nfs. Pure.

mount.nfs exits with 32 whatever went wrong, so its text decides. The texts and
their causes were measured on kernel 6.1 with nfs-utils 2.6.2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MountFailure:
    """Why a mount failed.

    ``text`` is mount's own last line. ``meaning`` and ``fix`` are for the admin.
    ``about_export`` says that the server refused this path or this client: then
    another transport would fare no better. ``about_server`` says that the other
    exports of the server would fail over this transport, too.
    """

    text: str
    meaning: str
    fix: str = ""
    about_export: bool = False
    about_server: bool = False


@dataclass(frozen=True)
class _Known:
    """A text of mount.nfs and what it means; ``rdma_fix`` where RDMA has its own.

    ``rdma_only``: over another transport it means something else.
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
        "check that nfs-server runs and on which port",
        rdma_fix="on a Linux server put rdma=y into the [nfsd] part of /etc/nfs.conf, "
        "then systemctl restart nfs-server",
        about_server=True,
    ),
    _Known(
        "Protocol error",
        "no RDMA device leads to the server",
        "check that the route to the server leaves by an RDMA netdev",
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
        "check that the server's NFS service runs, and which NFS versions it offers",
    ),
)


def classify(stderr: bytes, over_rdma: bool) -> MountFailure:
    """Tell from mount's standard error what went wrong; never raises."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].strip() if lines else "mount said nothing"
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
    return MountFailure(text, "mount failed for a reason of its own")
