# SPDX-License-Identifier: GPL-2.0-or-later
"""Set up Soft-RoCE: an RDMA device in software (rdma_rxe) on an Ethernet netdev."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab import modules
from lab.guest import Guest
from lab.ib_fabric_build import built_module

_CARRIER = Path(__file__).with_name("rxe_carrier")
# The folder from where SELinux lets kmod load modules.
_INSERT = """
file=/usr/lib/modules/$(uname -r)/{0}.ko
cat > $file
[ -e /sys/module/{0} ] || insmod $file
"""


class SoftRoce:
    """A fabric of Soft-RoCE devices; see :class:`lab.topology.Fabric`."""

    # rdma_ucm is for our probe, with ib_uverbs for rping.
    modules = ("virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm")

    def bring_up(self, guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
        """Give ``netdev`` its addresses (``10.0.0.1/24``) and an RDMA device.

        Existing addresses stay. Linux 6.12 loses what it sends without a carrier, as
        adapters do (lab/rxe_carrier/). Raises CommandFailed, LabProblem.
        """
        modules.load(guest, *self.modules)
        if not guest.run("uname -r", check=True).stdout.startswith("6.1."):
            module = built_module(_CARRIER).read_bytes()
            guest.run(_INSERT.format(_CARRIER.name), input=module, check=True)
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

    def device(self, netdev: str) -> str:
        """Return the RDMA device's name on ``netdev``: rxe0 on eth0."""
        return "rxe" + netdev.lstrip("abcdefghijklmnopqrstuvwxyz")
