# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts of a fake host, as mountinfo and mountstats show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from support.fakes.fake_files import FakeFiles
from support.storage.nfs_mount_text import escape

RDMA_COUNTERS: tuple[int, ...]
RDMA_COUNTERS = (0, 0, 1, 0, 0, 44, 44, 0, 80, 0, 37, 64, 4, 8411456, 8389512)
RDMA_COUNTERS += (0, 0, 64320, 3, 0, 0, 0, 0, 44, 96, 0, 0)
TCP_COUNTERS = (878, 1, 1, 0, 11, 30, 30, 0, 30, 0, 2, 0, 0)

_BYTES = ("utf-8", "surrogateescape")


@dataclass
class FakeMounts(FakeFiles):
    """Writes /proc/self/mountinfo and mountstats, which agree."""

    _mounts: list[bytes] = field(default_factory=list, init=False, repr=False)
    _stats: list[bytes] = field(default_factory=list, init=False, repr=False)

    def mount(
        self, source: str, mountpoint: str, fstype: str, options: str = "rw"
    ) -> None:
        """Add any mount, on top of those at the same mount point."""
        fields = f"{40 + len(self._mounts)} 25 0:{50 + len(self._mounts)} / "
        fields += f"{escape(mountpoint)} rw,relatime shared:3 - {fstype} "
        self._mounts.append(f"{fields}{escape(source)} {options}".encode(*_BYTES))
        self._stats.append(
            f"device {escape(source)} mounted on {escape(mountpoint)} "
            f"with fstype {fstype}".encode(*_BYTES)
        )
        self._write_mounts()

    def nfs_mount(
        self,
        source: str,
        mountpoint: str,
        protocol: str = "rdma",
        address: str = "10.0.0.1",
        version: str = "4.2",
        port: Optional[int] = None,
        connections: int = 1,
    ) -> None:
        """Add an NFS mount made with VDSM's options; ``protocol`` is a netid, so
        ``rdma6`` where ``address`` is IPv6.
        """
        rdma = protocol.startswith("rdma")
        if port is None and rdma:
            port = 20049
        shown_port = f"port={port}," if port else ""
        self.mount(
            source,
            mountpoint,
            "nfs" if version == "3" else "nfs4",
            f"rw,vers={version},rsize=1048576,wsize=1048576,namlen=255,soft,"
            f"nosharecache,proto={protocol},{shown_port}timeo=100,retrans=3,"
            f"sec=sys,addr={address}",
        )
        counters = RDMA_COUNTERS if rdma else TCP_COUNTERS
        name = "rdma" if rdma else "tcp"
        xprt = f"\txprt:\t{name} {' '.join(map(str, counters))}".encode()
        self._stats[-1] += b"\n".join(
            [
                b" statvers=1.1",
                b"\topts:\trw,vers=" + version.encode(),
                b"\tage:\t2",
                b"\tevents:\t0 0 0 0",
                b"\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)",
                *[xprt] * connections,
                b"\tper-op statistics",
                b"\t        NULL: 1 1 0 44 24 0 0 0 0",
                b"",
            ]
        )
        self._write_mounts()

    def unmount_all(self) -> None:
        """Unmount all that was mounted."""
        self._mounts.clear()
        self._stats.clear()
        self._write_mounts()

    def _write_mounts(self) -> None:
        system = b"22 27 0:21 / /proc rw,relatime - proc proc rw"
        stats = b"device proc mounted on /proc with fstype proc"
        self.write("/proc/self/mountinfo", b"\n".join([system, *self._mounts, b""]))
        self.write("/proc/self/mountstats", b"\n".join([stats, *self._stats, b""]))
