# SPDX-License-Identifier: GPL-2.0-or-later
"""Netdevs of a fake host's RDMA ports and those above them: IPoIB, P_Key children,
bonds, offloads, DCB.

    host.rdma_device("mlx4_0", pci=hca)
    host.rdma_port("mlx4_0", 1)
    host.ipoib("ib0", pci=hca, addresses=("10.0.0.2/24",))
    host.pkey_child("ib0", "0x8001")
    host.bond("bond0", ("ib0", "ib1"), active="ib0")
    host.offloads("ib0", {"tx-tcp-segmentation": "off [fixed]"})
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND
from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_dcb import Mlx5Dcb
from support.fakes.fake_files import FakeFiles
from support.fakes.fake_runner import FakeRunner

if TYPE_CHECKING:
    from support.fakes.fake_root import Pci

CONNECTED_MTU = 65520
# The features that ``ethtool -k`` prints, with indented members of groups; and states.
FEATURES = {
    "rx-checksumming": "on",
    "tx-checksumming": "on",
    "\ttx-checksum-ipv4": "on",
    "\ttx-checksum-ip-generic": "off [fixed]",
    "\ttx-checksum-ipv6": "off [fixed]",
    "\ttx-checksum-fcoe-crc": "off [fixed]",
    "scatter-gather": "on",
    "\ttx-scatter-gather": "on [fixed]",
    "\ttx-scatter-gather-fraglist": "off [fixed]",
    "tcp-segmentation-offload": "on",
    "\ttx-tcp-segmentation": "on",
    "\ttx-tcp-ecn-segmentation": "off [fixed]",
    "\ttx-tcp6-segmentation": "off [fixed]",
    "generic-segmentation-offload": "on",
    "generic-receive-offload": "on",
    "large-receive-offload": "off [fixed]",
    "highdma": "on [fixed]",
}
# ipoib_fix_features turns these off in connected mode; groups show no request.
_CONNECTED = {
    "tx-checksumming": "off",
    "tx-checksum-ipv4": "off [requested on]",
    "tcp-segmentation-offload": "off",
    "tx-tcp-segmentation": "off [requested on]",
}
NOT_SUPPORTED = CommandFailed("netlink error: Operation not supported", 1)


@dataclass
class FakeNetdevs(FakeFiles):
    """Adds the attributes of RDMA netdevs to FakeRoot's plain netdevs."""

    runner: FakeRunner = field(default_factory=FakeRunner)
    dcb_ports: dict[str, Mlx5Dcb] = field(default_factory=dict)
    _features: dict[str, dict[str, str]] = field(
        default_factory=dict, init=False, repr=False
    )
    _ipoib_links: dict[str, dict[str, Any]] = field(
        default_factory=dict, init=False, repr=False
    )

    if TYPE_CHECKING:  # FakeRoot's

        def netdev(self, name: str, *args: Any, **attributes: Any) -> None: ...

    def complete_netdev(
        self, name: str, kind: Optional[str], lowers: Sequence[str]
    ) -> None:
        """Make ``ethtool`` and ``ip link`` show a netdev, and make a bond's folder;
        FakeRoot calls it for all netdevs.
        """
        if kind == "bond":
            self._bonding(name, lowers, active=next(iter(lowers), ""))
        self._features.setdefault(name, dict(FEATURES))
        self.runner.answer("ethtool -k *", self._ethtool_features)
        self.runner.answer(f"ethtool -a {name}", NOT_SUPPORTED)
        self.runner.answer(
            "ip -j -d link show type ipoib",
            lambda: json.dumps([{}, *self._ipoib_links.values()]),
        )

    # IPoIB

    def ipoib(
        self,
        name: str,
        port: int = 1,
        pci: Optional[Pci] = None,
        guid: str = "0002:c903:00fb:1231",
        mode: str = "datagram",
        mtu: Optional[int] = None,
        pkey: str = "0xffff",
        umcast: bool = False,
        can_connect: bool = True,
        carrier: bool = True,
        addresses: Sequence[str] = (),
    ) -> None:
        """Add a port's base netdev. With ``can_connect`` the first byte of its address
        says that connected mode is possible.
        """
        self.netdev(
            name,
            type=ARPHRD_INFINIBAND,
            mtu=mtu or (CONNECTED_MTU if mode == "connected" else 2044),
            address=_address(guid, can_connect),
            operstate="up" if carrier else "down",
            pci=pci,
            kind="ipoib",
            addresses=addresses,
        )
        folder = f"/sys/class/net/{name}"
        self.write(f"{folder}/dev_port", str(port - 1))
        self.write(f"{folder}/create_child", "")
        self._own_files(folder, mode, pkey, umcast, carrier)
        self._ipoib_link(name, mode, pkey, umcast)

    def pkey_child(
        self,
        parent: str,
        pkey: str,
        name: Optional[str] = None,
        by_ip_link: bool = False,
        mode: str = "datagram",
        mtu: int = 2044,
        carrier: bool = True,
        addresses: Sequence[str] = (),
    ) -> str:
        """Add a P_Key child and return its name.

        It has no device link; made ``by_ip_link`` it has no IPoIB files either.
        """
        name = name or f"{parent}.{pkey[2:]}"
        above = self.path / "sys/class/net" / parent
        self.netdev(
            name,
            type=ARPHRD_INFINIBAND,
            mtu=mtu,
            address=(above / "address").read_text().strip(),
            operstate="up" if carrier else "lowerlayerdown",
            kind="ipoib",
            addresses=addresses,
        )
        folder = f"/sys/class/net/{name}"
        self.write(f"{folder}/dev_port", "0")
        self.write(f"{folder}/carrier", str(int(carrier)))
        if not by_ip_link:
            self._own_files(folder, mode, pkey, False, carrier)
            self.write(f"{folder}/parent", parent)
        self._ipoib_link(name, mode, pkey, False, parent)
        return name

    def _own_files(
        self, folder: str, mode: str, pkey: str, umcast: bool, carrier: bool
    ) -> None:
        self.write(f"{folder}/mode", mode)
        self.write(f"{folder}/pkey", pkey)
        self.write(f"{folder}/umcast", str(int(umcast)))
        self.write(f"{folder}/carrier", str(int(carrier)))

    def _ipoib_link(
        self, name: str, mode: str, pkey: str, umcast: bool, parent: str = ""
    ) -> None:
        data = {"key": pkey, "mode": mode, "umcast": f"{int(umcast):04x}"}
        row = {"ifname": name, "link_type": "infiniband"}
        if parent:
            row["link"] = parent
        self._ipoib_links[name] = {
            **row,
            "linkinfo": {"info_kind": "ipoib", "info_data": data},
        }
        if mode == "connected":
            self.offloads(name, _CONNECTED)

    # Others

    def bond(
        self,
        name: str,
        members: Sequence[str],
        mode: str = "active-backup 1",
        active: str = "",
        fail_over_mac: str = "active 1",
        **attributes: Any,
    ) -> None:
        """Add a bond over existing netdevs; it has their type."""
        for member in members[:1]:
            folder = self.path / "sys/class/net" / member
            attributes["type"] = int((folder / "type").read_text())
            attributes["address"] = (folder / "address").read_text().strip()
        self.netdev(name, kind="bond", lowers=members, **attributes)
        self._bonding(name, members, mode, active, fail_over_mac)

    def _bonding(
        self,
        name: str,
        members: Sequence[str],
        mode: str = "active-backup 1",
        active: str = "",
        fail_over_mac: str = "none 0",
    ) -> None:
        folder = f"/sys/class/net/{name}/bonding"
        self.write(f"{folder}/mode", mode)
        self.write(f"{folder}/active_slave", active)
        self.write(f"{folder}/fail_over_mac", fail_over_mac)
        self.write(f"{folder}/slaves", " ".join(members))

    def offloads(self, netdev: str, states: Mapping[str, str]) -> None:
        """Set the states that ``ethtool -k`` prints, by the names that it prints."""
        known = self._features[netdev]
        shown = {name.strip(): name for name in known}
        known.update((shown[name.strip()], text) for name, text in states.items())

    def pause(self, netdev: str, rx: bool = True, tx: bool = True) -> None:
        """Set the pause frames that ``ethtool -a`` shows."""
        words = ("off", "on")
        self.runner.answer(
            f"ethtool -a {netdev}",
            f"Pause parameters for {netdev}:\nAutonegotiate:\toff\n"
            f"RX:\t\t{words[rx]}\nTX:\t\t{words[tx]}\n\n",
        )

    def dcb(
        self,
        netdev: str,
        pfc: Sequence[int] = (),
        dscp: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Set the priorities with PFC, and those of DSCP values; installs ``dcb``."""
        port = Mlx5Dcb(pfc, dict(dscp))
        self.dcb_ports[netdev] = port
        for what in ("pfc", "app", "buffer"):
            show = partial(port.shown, what)
            self.runner.answer(f"dcb -j {what} show dev {netdev}", show)

    def ecn(self, netdev: str, rp: Sequence[int], np: Sequence[int]) -> None:
        """Write the out-of-tree mlx5 driver's files: priorities with ECN on."""
        for end, priorities in (("roce_rp", rp), ("roce_np", np)):
            folder = f"/sys/class/net/{netdev}/ecn/{end}/enable"
            for priority in range(8):
                self.write(f"{folder}/{priority}", str(int(priority in priorities)))

    def _ethtool_features(self) -> str:
        blocks = []
        for netdev, states in self._features.items():
            lines = [f"{name}: {state}" for name, state in states.items()]
            blocks.append("\n".join([f"Features for {netdev}:", *lines]))
        return "\n\n".join(blocks) + "\n"


def _address(guid: str, can_connect: bool) -> str:
    digits = f"{'80' if can_connect else '00'}000208fe80000000000000{guid}"
    digits = digits.replace(":", "")
    return ":".join(digits[i : i + 2] for i in range(0, 40, 2))
