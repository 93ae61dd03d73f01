# SPDX-License-Identifier: GPL-2.0-or-later
"""List what is counted: transports, mounts and loads. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
READ, WRITE = "read", "write"


@dataclass(frozen=True)
class Transport:
    """How the bytes travel: ``proto`` is NFS's, ``adapter`` the modules that do what an
    adapter does where it is hardware.
    """

    name: str
    title: str
    proto: str
    adapter: tuple[str, ...]


RDMA = Transport("rdma", "RDMA on the fabric", "rdma", ("ib_fabric",))
DATAGRAM = Transport("datagram", "TCP on IPoIB, datagram", "tcp", ("ib_fabric",))
CONNECTED = Transport("connected", "TCP on IPoIB, connected", "tcp", ("ib_fabric",))
ETHERNET = Transport("ethernet", "TCP on Ethernet", "tcp", ("veth",))
# The checksum of RoCE's packets is the adapter's work too.
RXE = Transport(
    "rxe",
    "RDMA on Soft-RoCE",
    "rdma",
    ("rdma_rxe", "crc32_generic", "crc32_pclmul"),
)
# In this order, because connected mode stays.
TRANSPORTS = (RDMA, ETHERNET, DATAGRAM, CONNECTED, RXE)


@dataclass(frozen=True)
class Mount:
    """A mount by NFS ``version`` with ``nconnect`` asked for."""

    transport: Transport
    version: str
    nconnect: int = 1


@dataclass(frozen=True)
class Load:
    """Operations of ``block`` bytes; each of ``workers`` has one under way."""

    direction: str
    block: int
    workers: int = 1

    @property
    def operations(self) -> int:
        """The operations of the smaller run: more where they are cheap."""
        return 8 if self.block == MIB else 256


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    mount: Mount
    load: Load

    @property
    def key(self) -> str:
        """The row's name in the recorded table."""
        mount, load = self.mount, self.load
        return (
            f"{mount.transport.name} nfs{mount.version} nconnect={mount.nconnect}"
            f" {load.direction} {load.block // KIB}k x{load.workers}"
        )


ALONE = tuple(
    Load(direction, block)
    for block in (4 * KIB, 64 * KIB, MIB)
    for direction in (READ, WRITE)
)
# Several connections need several operations under way.
TOGETHER = tuple(Load(READ, block, workers=8) for block in (4 * KIB, MIB))


def cases(*, every: bool) -> list[Case]:
    """Return the cases of a complete table, or those of every run of the benchmarks."""
    if not every:
        inside = [one for one in TRANSPORTS if one is not RXE]
        return [Case(Mount(one, "4.2"), load) for one in inside for load in ALONE]
    return [
        Case(Mount(transport, version, nconnect), load)
        for transport in TRANSPORTS
        for version in ("3", "4.2")
        for nconnect in (1, 4)
        for load in (*(ALONE if nconnect == 1 else ()), *TOGETHER)
    ]
