# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot ready-made labs: guests, a fabric, and an export.

with two_guests() as lab:
    lab.hypervisor.run(f"mount -t nfs -o rdma,port=20049 {lab.export} /mnt")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Optional, Protocol

from lab import modules
from lab.guest import Guest
from lab.nfs_server import RDMA_PORT, NfsServer
from lab.qemu import ALONE, Wire
from lab.rpc_services import start_rpc_services
from lab.soft_roce import SoftRoce

NETDEV = "eth0"
EXPORT_PATH = "/srv/data"
SERVER_ADDRESSES = ("10.99.0.1/24", "fd00:99::1/64")
HYPERVISOR_ADDRESSES = ("10.99.0.2/24", "fd00:99::2/64")
# The modules that mount.nfs would load one after the other.
_CLIENT_MODULES = ("rpcrdma", "nfsv3", "nfsv4")


class Fabric(Protocol):
    """RDMA devices in guests; ``modules`` are loaded together with others."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the kernel modules it needs."""

    def bring_up(self, guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
        """Give ``netdev`` its addresses and an RDMA device."""

    def take_down(self, guest: Guest, netdev: str) -> None:
        """Remove the RDMA device; the netdev keeps its addresses."""


SOFT_ROCE: Fabric = SoftRoce()


@dataclass(frozen=True)
class Topology:
    """A server and a hypervisor, which may be the same guest."""

    server: Guest
    hypervisor: Guest
    nfs: NfsServer
    fabric: Fabric

    address = SERVER_ADDRESSES[0].partition("/")[0]
    address6 = SERVER_ADDRESSES[1].partition("/")[0]
    export = f"{address}:{EXPORT_PATH}"
    export6 = f"[{address6}]:{EXPORT_PATH}"

    def start_server(self, rdma_port: Optional[int] = RDMA_PORT) -> None:
        """Start the NFS server on ``server``, which is booting or was off."""
        if not self.server.running:
            self.server.power_on()
        self.server.wait_ready()
        _prepare(self.server, self.fabric, SERVER_ADDRESSES, NfsServer.modules)
        self.nfs.start(rdma_port)
        self.nfs.add_export(EXPORT_PATH)


@contextmanager
def one_guest(
    rdma_port: Optional[int] = RDMA_PORT, *, fabric: Fabric = SOFT_ROCE
) -> Iterator[Topology]:
    """Boot server and hypervisor as one guest; ``rdma_port`` None: no RDMA listener."""
    guest = Guest("hypervisor", nics=[ALONE])
    lab = Topology(guest, guest, NfsServer(guest), fabric)
    try:
        lab.start_server(rdma_port)
        yield lab
    finally:
        guest.kill()


@contextmanager
def two_guests(
    rdma_port: Optional[int] = RDMA_PORT,
    *,
    fabric: Fabric = SOFT_ROCE,
    spare_wires: int = 0,
    systemd: bool = False,
    labelled: bool = False,
) -> Iterator[Topology]:
    """Boot a server and a hypervisor in parallel, joined by a wire.

    ``spare_wires`` more join eth1, eth2, ...; nothing is set up on those. With
    ``systemd`` it is the hypervisor's first process; if ``labelled``, the hypervisor
    enforces SELinux.
    """
    wires = [Wire(number) for number in range(1 + spare_wires)]
    with ExitStack() as stack:
        server = Guest("server", nics=[wire.a for wire in wires], memory_mb=1024)
        nics = [wire.b for wire in wires]
        hypervisor = Guest("hypervisor", nics=nics, systemd=systemd, labelled=labelled)
        for guest in (server, hypervisor):
            stack.callback(guest.kill)
            guest.power_on()
        lab = Topology(server, hypervisor, NfsServer(server), fabric)

        def prepare_hypervisor() -> None:
            hypervisor.wait_ready()
            _prepare(hypervisor, fabric, HYPERVISOR_ADDRESSES)

        _side_by_side(
            (server, hypervisor),
            lambda: lab.start_server(rdma_port),
            prepare_hypervisor,
        )
        yield lab


def _prepare(
    guest: Guest,
    fabric: Fabric,
    addresses: Sequence[str],
    more_modules: Sequence[str] = (),
) -> None:
    names = "\n".join(
        f"{address.partition('/')[0]} {name}"
        for name, both in (
            ("server", SERVER_ADDRESSES),
            ("hypervisor", HYPERVISOR_ADDRESSES),
        )
        for address in both
    )
    guest.run("cat >> /etc/hosts", input=f"\n{names}\n", check=True)

    def prepare_fabric() -> None:
        modules.load(guest, *fabric.modules, *_CLIENT_MODULES, *more_modules)
        fabric.bring_up(guest, NETDEV, addresses)

    _side_by_side((guest,), prepare_fabric, lambda: start_rpc_services(guest))


def _side_by_side(guests: Sequence[Guest], *tasks: Callable[[], None]) -> None:
    """Run ``tasks`` in parallel; the first error, or Ctrl-C, ends ``guests``."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        try:
            for done in as_completed([pool.submit(task) for task in tasks]):
                done.result()
        except BaseException:
            # Leaving the pool waits for the other tasks; let them fail at once.
            for guest in guests:
                guest.kill()
            raise
