# SPDX-License-Identifier: GPL-2.0-or-later
"""Which service sets a netdev up: NetworkManager, systemd-networkd or ifupdown.

Each tells what it has taken over below /run, so a configuration file that nothing
reads does not count.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts import Netdev, NetworkManager
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.netdev_stack import concerned

NETWORK_MANAGER = "NetworkManager"
NETWORKD = "systemd-networkd"
IFUPDOWN = "ifupdown"

# One file a netdev, named after its index (systemd src/network/networkd-link.c,
# link_save); NETWORK_FILE is there once a .network file was applied.
_LINKS = "/run/systemd/netif/links"
_APPLIED = re.compile(r"^NETWORK_FILE=.", re.MULTILINE)
# Lines "eth0=eth0" of what ifup brought up (Debian's ifupdown, main.c).
_IFSTATE = "/run/network/ifstate"


def with_owners(
    tree: FileTree, netdevs: tuple[Netdev, ...], manager: Optional[NetworkManager]
) -> tuple[Netdev, ...]:
    """Return ``netdevs`` with the owner of those of RDMA ports and of what is stacked
    on them; None stays where none of the three has taken a netdev over.
    """
    names = concerned(netdevs)
    managed = manager.managed if manager and manager.running else ()
    text = tree.text(_IFSTATE) or ""
    brought_up = {line.partition("=")[0].strip() for line in text.splitlines()}
    return tuple(
        replace(netdev, owner=_owner(tree, netdev.name, managed, brought_up))
        if netdev.name in names
        else netdev
        for netdev in netdevs
    )


def _owner(
    tree: FileTree, name: str, managed: tuple[str, ...], brought_up: set[str]
) -> Optional[str]:
    # First, for NetworkManager counts what another service set up among its own.
    index = tree.text(f"/sys/class/net/{name}/ifindex") or ""
    if index.isdecimal() and _APPLIED.search(tree.text(f"{_LINKS}/{index}") or ""):
        return NETWORKD
    if name in managed:
        return NETWORK_MANAGER
    return IFUPDOWN if name in brought_up else None
