# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's NFS server in a guest, over TCP and, if wanted, RDMA."""

from __future__ import annotations

from typing import Optional

from lab.rpc_services import start_rpc_services
from lab.second_host import Host

RDMA_PORT = 20049
VERSIONS = ("3", "4.0", "4.1", "4.2")
# Where vdsm:kvm, 36:36, may write, as oVirt asks of an export.
_OWNER = "36:36"
# Overlay cannot be exported to NFS 4 and is no root for it; a tmpfs can and is, and
# rootdir= keeps paths the same for NFS 3 and 4.
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

    ``block_size`` in bytes is the largest rsize and wsize it grants. A guest that
    was off has forgotten everything: start and export again.
    """

    modules = ("nfsd",)

    def __init__(self, guest: Host, *, block_size: int = 1 << 20) -> None:
        self.guest = guest
        self._block_size = block_size

    def start(self, rdma_port: Optional[int] = RDMA_PORT) -> None:
        """Start it; with ``rdma_port`` None it listens on TCP only.

        Raises CommandFailed, also when the RDMA listener does not come up.
        """
        start_rpc_services(self.guest)
        lines = [
            f"cat > /etc/nfs.conf <<'END'\n{configuration(rdma_port)}END",
            _PREPARE,
            # The kernel takes 10 s at least for either (fs/nfsd/nfsctl.c), and only
            # before its threads run; v4_end_grace is what removes the wait.
            "echo 10 > /proc/fs/nfsd/nfsv4leasetime",
            "echo 10 > /proc/fs/nfsd/nfsv4gracetime",
            # lockd has its own, for NFS 3: by default 50 s without locks.
            "echo 3 > /proc/sys/fs/nfs/nlm_timeout",
            "echo 1 > /proc/sys/fs/nfs/nlm_grace_period",
            f"echo {self._block_size} > /proc/fs/nfsd/max_block_size",
            "exportfs -ra",
            # nfs.conf, and not a write to portlist: one that names a listener a
            # second time makes this kernel oops.
            "rpc.nfsd 4",
            # Refused where it has ended, as with nfsdcld and no clients to reclaim.
            "cd /proc/fs/nfsd && { grep -qx Y v4_end_grace || echo Y > v4_end_grace; }",
        ]
        if rdma_port is not None:
            lines += [
                f"grep -qx 'rdma {rdma_port}' /proc/fs/nfsd/portlist && exit",
                f"echo nfsd has no RDMA listener on port {rdma_port} >&2; exit 1",
            ]
        self._do("\n".join(lines))

    def stop(self) -> None:
        """Stop it; rpcbind and mountd stay, as after ``rpc.nfsd 0``."""
        self._do("rpc.nfsd 0")

    def restart(self, rdma_port: Optional[int] = RDMA_PORT) -> None:
        """Stop and start it: the only way to lose a listener."""
        self.stop()
        self.start(rdma_port)

    def add_export(self, path: str, clients: str = "*") -> None:
        """Export ``path``, an empty folder that vdsm:kvm owns, to ``clients``; what is
        exported already stays as it is.
        """
        options = "rw,no_root_squash,insecure,no_subtree_check"
        lines = [
            f"grep -qF '{path} {clients}(' /etc/exports && exit",
            f"mkdir -p {_ROOT}{path}",
            f"chown {_OWNER} {_ROOT}{path}",
            # A tmpfs has no UUID: the number is what tells exports apart.
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
