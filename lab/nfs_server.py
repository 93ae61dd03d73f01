# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the kernel's NFS server in a guest, over TCP and, if wanted, RDMA."""

from __future__ import annotations

from typing import Optional

from lab.rpc_services import start_rpc_services
from lab.second_host import Host

RDMA_PORT = 20049
VERSIONS = ("3", "4.0", "4.1", "4.2")
# vdsm:kvm must be able to write, as oVirt requires of an export.
_OWNER = "36:36"
# NFS 4 can neither export an overlay nor use it as root, but it can use a tmpfs.
# rootdir= makes the paths of NFS 3 and 4 the same.
_ROOT = "/nfsroot"

_PREPARE = f"""
if ! mountpoint -q {_ROOT}; then
    mkdir -p {_ROOT}
    mount -t tmpfs -o size=70%,mode=755 tmpfs {_ROOT}
    mount -t nfsd nfsd /proc/fs/nfsd
    rm -rf /etc/nfs.conf.d
    : > /etc/exports
    rpc.mountd
fi
"""


class NfsServer:
    """knfsd in ``guest``: off until :meth:`start`, with nothing exported.

    ``block_size`` in bytes is the largest rsize and wsize that it grants. A guest that
    was off has lost everything: start and export again.
    """

    modules = ("nfsd",)

    def __init__(self, guest: Host, *, block_size: int = 1 << 20) -> None:
        self.guest = guest
        self._block_size = block_size

    def start(self, rdma_port: Optional[int] = RDMA_PORT) -> None:
        """Start the server; with ``rdma_port`` None it listens on TCP only.

        Raises CommandFailed, also if the RDMA listener does not come up.
        """
        start_rpc_services(self.guest)
        lines = [
            f"cat > /etc/nfs.conf <<'END'\n{configuration(rdma_port)}END",
            _PREPARE,
            # The kernel accepts 10 s or more for either (fs/nfsd/nfsctl.c), and only
            # before its threads run; v4_end_grace removes the wait.
            "echo 10 > /proc/fs/nfsd/nfsv4leasetime",
            "echo 10 > /proc/fs/nfsd/nfsv4gracetime",
            # lockd has its own grace period for NFS 3: by default 50 s without locks.
            "echo 3 > /proc/sys/fs/nfs/nlm_timeout",
            "echo 1 > /proc/sys/fs/nfs/nlm_grace_period",
            f"echo {self._block_size} > /proc/fs/nfsd/max_block_size",
            "exportfs -ra",
            # With nfs.conf instead of a write to portlist: adding a listener a second
            # time makes this kernel oops.
            "rpc.nfsd 4",
            # Refused if it has ended, as with nfsdcld and no clients to reclaim.
            "cd /proc/fs/nfsd && { grep -qx Y v4_end_grace || echo Y > v4_end_grace; }",
        ]
        if rdma_port is not None:
            lines += [
                f"grep -qx 'rdma {rdma_port}' /proc/fs/nfsd/portlist && exit",
                f"echo nfsd has no RDMA listener on port {rdma_port} >&2; exit 1",
            ]
        self._do("\n".join(lines))

    def stop(self) -> None:
        """Stop the server; rpcbind and mountd stay, as after ``rpc.nfsd 0``."""
        self._do("rpc.nfsd 0")

    def restart(self, rdma_port: Optional[int] = RDMA_PORT) -> None:
        """Stop and start the server: the only way to remove a listener."""
        self.stop()
        self.start(rdma_port)

    def add_export(self, path: str, clients: str = "*") -> None:
        """Export ``path``, an empty folder that vdsm:kvm owns, to ``clients``.

        An existing export is unchanged.
        """
        options = "rw,no_root_squash,insecure,no_subtree_check"
        lines = [
            f"grep -qF '{path} {clients}(' /etc/exports && exit",
            f"mkdir -p {_ROOT}{path}",
            f"chown {_OWNER} {_ROOT}{path}",
            # A tmpfs has no UUID, so a number identifies the export.
            "number=$(($(wc -l < /etc/exports) + 1))",
            f'echo "{path} {clients}({options},fsid=$number)" >> /etc/exports',
            "exportfs -ra",
        ]
        self._do("\n".join(lines))

    def _do(self, script: str) -> None:
        self.guest.run(f"set -e\n{script}", check=True)


def configuration(rdma_port: Optional[int]) -> str:
    """Return the text of nfs.conf(5). Pure."""
    lines = ["[exports]", f"rootdir={_ROOT}", "[nfsd]"]
    lines += [f"vers{version}=y" for version in VERSIONS]
    if rdma_port is not None:
        lines += ["rdma=y", f"rdma-port={rdma_port}"]
    return "\n".join(lines) + "\n"
