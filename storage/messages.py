# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what the messages of mount.nfs and of the kernel's RDMA parts mean.

docs/reference/messages.md has both tables, which ``explain`` searches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.safe_file import read_file


@dataclass(frozen=True)
class MountFailure:
    """Why a mount failed; mount.nfs exits with 32 for every failure, so only its text
    shows the cause.

    ``text`` is the last line that mount printed; in the table, a part of one.
    ``meaning`` and ``fix`` are for the admin; ``rdma_fix`` replaces ``fix`` over RDMA.
    ``rdma_only``: the text means this over RDMA only. ``about_export``: the server
    refused this path or this client, so another transport would fail too.
    ``about_server``: the other exports of the server would fail over this transport
    too.
    """

    text: str
    meaning: str
    fix: str = ""
    rdma_fix: str = ""
    rdma_only: bool = False
    about_export: bool = False
    about_server: bool = False


# The first were measured on kernel 6.1 with nfs-utils 2.6.2. The texts are those of
# nfs-utils 2.3.3 to 2.9 (utils/mount: mount_error() in error.c, stropts.c, network.c),
# which from 2.6.3 on end in " for MOUNTPOINT" or " for EXPORT on MOUNTPOINT", and of
# strerror(3).
MOUNT = (
    MountFailure(
        "reason given by server: No such file or directory",
        "the server does not export this path to this host",
        "check the path and the server's exports",
        about_export=True,
    ),
    MountFailure(
        "access denied by server",
        "the server refuses this path to this host",
        "check the server's exports",
        about_export=True,
    ),
    MountFailure(
        "Connection refused",
        "the server answers, but nothing listens on the port",
        "check that nfs-server is running, and on which port",
        rdma_fix="on a Linux server set rdma=y in the [nfsd] section of "
        "/etc/nfs.conf, then run systemctl restart nfs-server",
        about_server=True,
    ),
    MountFailure(
        "Protocol error",
        "no RDMA device leads to the server",
        "check that the route to the server uses an RDMA netdev",
        rdma_only=True,
        about_server=True,
    ),
    MountFailure(
        "Connection timed out",
        "the server does not answer",
        "check that the server is up",
        rdma_fix="check that the server is up and its RDMA device is ACTIVE",
        about_server=True,
    ),
    MountFailure(
        "No route to host",
        "the server cannot be reached",
        "check the network between this host and the server",
        about_server=True,
    ),
    MountFailure(
        "Network is unreachable",
        "this host has no route to the server",
        "check this host's network attachment for the storage network",
        about_server=True,
    ),
    MountFailure(
        "an incorrect mount option was specified",
        "the kernel does not know one of the options",
        "check the mount options",
        rdma_fix="check that modprobe rpcrdma works, then the mount options",
    ),
    MountFailure(
        "No such device",
        "the kernel has no such file system or device",
        "check that modprobe nfs works",
        rdma_fix="check that the server's address is not a loopback address",
        about_server=True,
    ),
    MountFailure(
        "Address family for hostname not supported",
        "the protocol and the server's address are of different families",
        "use a protocol of the address's family, such as proto=rdma6 for IPv6",
    ),
    MountFailure(
        "requested NFS version or transport protocol is not supported",
        "the server does not offer this NFS version over this transport",
        "check that the server's NFS service is running, and which NFS versions it "
        "offers",
    ),
    MountFailure(
        "Cannot allocate memory",
        "there is no memory for the connection",
        "free memory on this host: journalctl -k has the allocation that failed",
        rdma_fix="the RDMA device cannot register as much memory: fewer slots (sysctl "
        "sunrpc.rdma_slot_table_entries=64), fewer connections (nconnect), or another "
        "device; journalctl -k -g 'mlx|rpcrdma' has more",
    ),
    MountFailure(
        "mount system call failed",
        "the kernel gave up with an I/O error: the server, or a rule of NFS itself",
        "the kernel's log has the reason: journalctl -k -g 'NFS|RPC'",
        rdma_fix="the kernel's log has the reason: journalctl -k -g 'NFS|rpcrdma'",
    ),
    *(
        MountFailure(
            text,
            "this host cannot resolve the server's name",
            "check DNS and /etc/hosts of this host; getent hosts shows what they say",
        )
        for text in ("Failed to resolve server", "DNS resolution failed")
    ),
    MountFailure(
        "rpc.statd is not running but is required for remote locking",
        "NFS 3 with locks needs rpc.statd on this host",
        "add nolock, as VDSM does, or: systemctl start rpc-statd",
    ),
    MountFailure(
        "Stale file handle",
        "the server no longer has the file system that it exports",
        "on the server mount the file system again, then: exportfs -ra",
    ),
    MountFailure(
        "Required key not available",
        "sec=krb5 without a Kerberos ticket of this host",
        "check rpc-gssd and the keytab of this host, or use sec=sys",
    ),
    MountFailure(
        "Permission denied",
        "the server refuses this host: exports, or Kerberos",
        "check the server's exports (exportfs -v) and, with sec=krb5, rpc-gssd here",
    ),
    MountFailure(
        "Operation not permitted",
        "the server refuses the request: mostly of a client with a port above 1023",
        "on the server export with insecure, or remove noresvport; with sec=krb5 check "
        "rpc-gssd here",
    ),
    MountFailure(
        "Protocol not supported",
        "this kernel or the server does not have the NFS version, or an option is not "
        "for this transport",
        "check the NFS version, and that xprtsec (TLS) is used over TCP only",
    ),
    MountFailure(
        "Invalid argument",
        "the kernel refuses an option, or a combination with this transport",
        "check the mount options (xprtsec is for TCP only); journalctl -k -g NFS names "
        "the option",
    ),
    MountFailure(
        "Cannot assign requested address",
        "no local address or port for the connection",
        "check clientaddr= in the options and the address of the storage network; with "
        "many mounts: noresvport",
    ),
    MountFailure(
        "Transport endpoint is not connected",
        "the connection ended while it was made",
        "check the server's log",
        rdma_fix="look for errors of the link (ovirt-rdma-host check: PORT-ERRORS-01) "
        "and at the server's log",
    ),
    MountFailure(
        "Connection reset by peer",
        "the server ended the connection",
        "check the server's log and its limit of connections",
    ),
    MountFailure(
        "Host is down",
        "the server does not answer",
        "check that the server is up",
    ),
    MountFailure(
        "Program not registered",
        "the server offers no NFS 3: rpcbind does not know its mountd",
        "start the server's NFS service, or use NFS 4",
    ),
    MountFailure(
        "is busy or already mounted",
        "something is mounted there, with other options for the same export",
        "unmount it first (findmnt shows it), or use the same options",
    ),
    MountFailure(
        "mount point",
        "the local folder is missing, or no folder",
        "create the folder",
    ),
    MountFailure(
        "Input/output error",
        "the server or the connection failed in the middle",
        "the kernel's log has the reason: journalctl -k -g 'NFS|RPC'",
        rdma_fix="the kernel's log has the reason: journalctl -k -g 'NFS|rpcrdma'",
    ),
    MountFailure(
        "helper program",
        "this host has no mount.nfs",
        "dnf install nfs-utils, or apt install nfs-common",
    ),
    MountFailure(
        "unknown filesystem type",
        "this host has no mount.nfs, or this kernel no NFS",
        "dnf install nfs-utils, or apt install nfs-common",
    ),
)


def classify(stderr: bytes, over_rdma: bool) -> MountFailure:
    """Return what went wrong, from mount's standard error; never raises."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].strip() if lines else "mount printed no error"
    for known in MOUNT:
        if known.rdma_only and not over_rdma:
            continue
        if any(known.text in line for line in lines):
            fix = (over_rdma and known.rdma_fix) or known.fix
            return replace(known, text=text, fix=fix)
    return MountFailure(text, "the cause is unknown")


# The page with both tables: in a checkout, and where the package installs it.
PAGES = (
    Path(__file__).resolve().parents[1] / "docs/reference/messages.md",
    Path("/usr/share/ovirt-rdma/messages.md"),
)
_ROW = re.compile(r"^\| `(.+)` \| (.+?) \| (.+?) \| .+ \|$", re.MULTILINE)


def log_messages() -> list[MountFailure]:
    """Return the messages of the kernel's log and of tools, which only the page has.
    Raises Problem if it cannot be read.
    """
    page = next((each for each in PAGES if each.is_file()), PAGES[-1])
    try:
        _, _, table = read_file(page).decode().partition("\n## The kernel's log")
    except (OSError, ValueError) as error:
        raise Problem(
            "messages-unreadable",
            f"the messages, {page}, cannot be read: {error}",
            "install the package ovirt-rdma-host again",
        ) from error
    rows = _ROW.findall(table.replace("\\|", "|"))
    return [MountFailure(*row) for row in rows]


def known_in(text: str) -> list[MountFailure]:
    """Return the rows of both tables whose text is in ``text``, or has it, in any case;
    those of the kernel's log first.
    """
    wanted = text.lower().strip()
    return [
        known
        for known in (*log_messages(), *MOUNT)
        if known.text.lower() in wanted
        or (len(wanted) > 5 and wanted in known.text.lower())
    ]
