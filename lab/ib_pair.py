# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot a hypervisor and an NFS server, joined by InfiniBand, in one guest.

with ib_pair() as pair:
    pair.hypervisor.run(f"mount -t nfs -o rdma,port=20049 {pair.export} /mnt")

The hypervisor is the guest itself, with mlx4_0 and ib0; the server is a second host in
it (lab/second_host.py), with ib1 of mlx4_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Optional

from lab import modules
from lab.guest import Guest
from lab.infiniband import InfiniBand, set_up
from lab.network_manager import (
    add_infiniband_profile,
    start_network_manager,
    wait_for_addresses,
)
from lab.nfs_server import RDMA_PORT, NfsServer
from lab.rpc_services import start_rpc_services
from lab.second_host import SecondHost

EXPORT_PATH = "/srv/data"
SERVER_ADDRESSES = ("10.97.0.1/24", "fd00:97::1/64")
HYPERVISOR_ADDRESSES = ("10.97.0.2/24", "fd00:97::2/64")
DEFAULT = InfiniBand()
# Those of InfiniBand, those that mount.nfs would load, and those of an NFS server.
_MODULES = (*InfiniBand.modules, "rpcrdma", "nfsv3", "nfsv4", *NfsServer.modules)
# Outside the first network namespace nfsd cannot record clients itself, and without a
# record it does not allow its grace period to be ended. The machine's own nfs.conf(5),
# if it has one, names another folder.
_TRACK_CLIENTS = """
set -e
mkdir /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld
mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs
nfsdcld -p /var/lib/nfs/rpc_pipefs
"""
# A guest's own disk may have them from an earlier boot.
_NAME_THEM = "grep -qw server /etc/hosts || cat >> /etc/hosts"


@dataclass
class IbPair:
    """Two hosts in one guest; ``fabric`` controls their cables, P_Keys and MTUs."""

    hypervisor: Guest
    server: SecondHost
    nfs: NfsServer
    fabric: InfiniBand
    rdma_port: Optional[int] = RDMA_PORT
    addresses: tuple[str, ...] = HYPERVISOR_ADDRESSES
    network_manager: bool = False

    netdev = "ib0"
    address = SERVER_ADDRESSES[0].partition("/")[0]
    address6 = SERVER_ADDRESSES[1].partition("/")[0]
    export = f"{address}:{EXPORT_PATH}"
    export6 = f"[{address6}]:{EXPORT_PATH}"

    @property
    def server_netdev(self) -> str:
        """The IPoIB netdev of the server's first port: ``ib1``."""
        return self.fabric.netdevs[self.fabric.ports]

    @property
    def device(self) -> str:
        """The hypervisor's HCA: ``mlx4_0``."""
        return self.fabric.devices[0]

    def start(self) -> None:
        """Set up both hosts; also after the hypervisor was off, with the server."""
        guest = self.hypervisor
        if self.network_manager:
            # The server's netdev belongs to the guest for a moment.
            start_network_manager(guest, [self.server_netdev])
        modules.load(guest, *_MODULES)
        self.server.power_on()
        self.load()
        guest.run(_NAME_THEM, input=_names(), check=True)
        start_rpc_services(guest)
        start_rpc_services(self.server)
        self.server.run(_TRACK_CLIENTS, check=True)
        self.nfs.start(self.rdma_port)
        self.nfs.add_export(EXPORT_PATH)

    def load(self) -> None:
        """Load the fabric, and give both hosts their netdev and addresses.

        Both then have carrier, if the fabric's settings allow it.
        """
        self.fabric.load(self.hypervisor)
        self.server.take(self.server_netdev)
        set_up(self.server, self.server_netdev, SERVER_ADDRESSES)
        if self.network_manager and self.addresses:
            add_infiniband_profile(self.hypervisor, self.netdev, self.addresses)
        else:
            set_up(self.hypervisor, self.netdev, self.addresses)
        if self.fabric.gives_carrier:
            self.fabric.wait_for_carrier(self.hypervisor, self.netdev)
            wait_for_addresses(self.hypervisor, self.netdev, self.addresses)
            self.fabric.wait_for_carrier(self.server, self.server_netdev)

    def reload(self, fabric: InfiniBand) -> None:
        """Replace the current fabric by ``fabric``. The server keeps running."""
        self.fabric.unload(self.hypervisor)
        self.fabric = fabric
        self.load()


@contextmanager
def ib_pair(
    fabric: InfiniBand = DEFAULT,
    *,
    rdma_port: Optional[int] = RDMA_PORT,
    cpus: int = 1,
    kernel_arguments: str = "",
    guest: Optional[Guest] = None,
    addresses: bool = True,
    network_manager: bool = False,
) -> Iterator[IbPair]:
    """Boot the pair: addresses set, /srv/data exported over TCP and, if wanted, RDMA.

    ``fabric`` has two HCAs. ``rdma_port`` None: no RDMA listener. ``guest``
    is one that is off, for example with systemd or a disk.

    With ``network_manager`` (the guest then needs systemd) NetworkManager is running,
    and the hypervisor's netdev has its addresses from a profile of the same name; an
    existing profile is kept. The server's netdev is not managed. Without ``addresses``
    the hypervisor's netdev has neither addresses nor a profile.
    """
    if guest is None:
        guest = Guest("hypervisor", cpus=cpus, kernel_arguments=kernel_arguments)
    with guest:
        server = SecondHost(guest, "server")
        pair = IbPair(
            guest,
            server,
            NfsServer(server),
            fabric,
            rdma_port,
            HYPERVISOR_ADDRESSES if addresses else (),
            network_manager,
        )
        pair.start()
        yield pair


def _names() -> str:
    both = (("server", SERVER_ADDRESSES), ("hypervisor", HYPERVISOR_ADDRESSES))
    lines = [
        f"{address.partition('/')[0]} {name}"
        for name, addresses in both
        for address in addresses
    ]
    return "\n".join(["", *lines, ""])
