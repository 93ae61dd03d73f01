# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepare what the search for limits looks at, and what the link can carry. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import RDMA, TCP
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    RANDOM_READ,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    LinkResult,
    NetworkPath,
    Setting,
)
from ovirt_rdma.storage.benchmark.summary import Row, Rows

LARGE_READS, LARGE_WRITES, SMALL = "large reads", "large writes", "small requests"
LOADS = {
    LARGE_READS: SEQUENTIAL_READ,
    LARGE_WRITES: SEQUENTIAL_WRITE,
    SMALL: RANDOM_READ,
}
# ib_read_bw reaches 98 % of the payload, good NFS 96 %; a TCP stream less.
_FULL = 0.85
# What a run exceeds by more than this is no limit: a stream of iperf3 may be slower
# than the link.
_EXCEEDED = 1 / _FULL


@dataclass(frozen=True)
class Limit:
    """A limit. ``kind`` is stable, for programs; ``loads`` are those that met it."""

    kind: str
    loads: tuple[str, ...]
    sentence: str
    evidence: str
    fix: str = ""


@dataclass(frozen=True)
class Case:
    """A benchmark, and the setting whose limit is looked for."""

    benchmark: Benchmark
    setting: Setting

    @cached_property
    def rows(self) -> Rows:
        """The rows of all settings."""
        return Rows.of(self.benchmark)

    @property
    def path(self) -> Optional[NetworkPath]:
        """How this host reaches the server."""
        return self.benchmark.path

    def row(self, load: str, transport: Optional[str] = None) -> Optional[Row]:
        """Return the row of a kind of load, at the usual depth, of this transport."""
        setting = self.setting
        if transport:
            setting = Setting(transport, setting.version, setting.nconnect)
        return self.rows.one(setting, LOADS[load], DEPTH)

    @cached_property
    def link_rate(self) -> Optional[float]:
        """The bytes per second that a tool measured on the way to the server; None
        without.
        """
        kinds = (RDMA,) if self.setting.transport == RDMA else (RDMA, TCP)
        return max(
            (
                result.bytes_per_s
                for result in self.benchmark.link
                if result.transport in kinds and self._is_on_the_way(result)
            ),
            default=None,
        )

    def _is_on_the_way(self, result: LinkResult) -> bool:
        path, export = self.path, Export.maybe(self.benchmark.export or "")
        servers = (path and path.address, export and export.server)
        netdev = path and path.netdev
        return result.peer in servers or (
            netdev is not None and result.netdev == netdev
        )

    @cached_property
    def possible(self) -> Optional[float]:
        """The most bytes per second that the link, or a tool on it, has; or None.

        Not less than the largest rate of the run.
        """
        limit = physical_mbps(self.path)
        known = [limit * 1e6 / 8] if limit else []
        known += [self.link_rate] if self.link_rate else []
        most = max((job.bytes_per_s for job in self.benchmark.jobs), default=0.0)
        kept = [rate for rate in known if most <= _EXCEEDED * rate]
        return max(min(kept), most) if kept else None

    def is_full(self, row: Row) -> bool:
        """Whether ``row`` uses all that the link has."""
        return self.possible is not None and row.rate.most >= _FULL * self.possible


def physical_mbps(path: Optional[NetworkPath]) -> Optional[float]:
    """Return the payload that the port on ``path`` can carry, in Mb/s; or None.

    Headers of each packet: InfiniBand LRH 8, BTH 12, ICRC 4, VCRC 2 bytes (IBTA 1, 9);
    RoCE v2 Ethernet with gap 38, IP 20, UDP 8, BTH 12, ICRC 4 (IBTA A17).
    """
    if path is None or not path.data_rate_mbps:
        return None
    headers = 26 if path.link_layer == "InfiniBand" else 82
    mtu = path.active_mtu or 4096
    return path.data_rate_mbps * mtu / (mtu + headers)


def mb(rate: float) -> str:
    """Return bytes per second for people: ``1234 MB/s``, or ``1.2 MB/s``."""
    value = rate / 1e6
    return f"{value:.0f} MB/s" if value >= 10 else f"{value:.1f} MB/s"
