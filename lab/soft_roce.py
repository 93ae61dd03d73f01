# SPDX-License-Identifier: GPL-2.0-or-later
"""Set up Soft-RoCE: an RDMA device in software (rdma_rxe) on an Ethernet netdev."""

from __future__ import annotations

from collections.abc import Sequence

from lab import modules
from lab.guest import Guest


class SoftRoce:
    """A fabric of Soft-RoCE devices; see :class:`lab.topology.Fabric`."""

    # rdma_ucm is for our probe, with ib_uverbs for rping.
    modules = ("virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm")

    def bring_up(self, guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
        """Give ``netdev`` its addresses (``10.0.0.1/24``) and an RDMA device.

        Existing addresses stay. Raises CommandFailed.
        """
        modules.load(guest, *self.modules)
        # nodad: an IPv6 address and its GID can be used at once.
        lines = [
            f"until [ -e /sys/class/net/{netdev} ]; do sleep 0.1; done",
            f"ip link set {netdev} up",
            *(
                f"ip address replace {address} dev {netdev}"
                + (" nodad" if ":" in address else "")
                for address in addresses
            ),
            f"rdma link add {self.device(netdev)} type rxe netdev {netdev}",
        ]
        guest.run(" && ".join(lines), check=True)

    def take_down(self, guest: Guest, netdev: str) -> None:
        """Remove the RDMA device; the netdev keeps its addresses."""
        guest.run(f"rdma link delete {self.device(netdev)}", check=True)

    def mend(self, guest: Guest, netdev: str) -> None:
        """Add the RDMA device again if it has lost its GSI queue pair.

        With Linux 6.12 one datagram that it sends without a carrier ends that for ever
        (rxe_net.c:372, rxe_req.c:845): its port then gets no RDMA connection any more.
        Raises CommandFailed.
        """
        line = f"rdma res show qp link {self.device(netdev)}/1"
        if "type GSI state ERR" in guest.run(line, check=True).stdout:
            self.take_down(guest, netdev)
            self.bring_up(guest, netdev, [])

    def device(self, netdev: str) -> str:
        """Return the RDMA device's name on ``netdev``: rxe0 on eth0."""
        return "rxe" + netdev.lstrip("abcdefghijklmnopqrstuvwxyz")
