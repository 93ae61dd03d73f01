# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's logical networks, as VDSM keeps them on the host.

The form is that of VDSM's network/netconfpersistence.py: a file of JSON a network,
named as the network is.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.system.tree import FileTree

# What is in force, and what VDSM goes back to at boot; each ``netconf`` is a link.
STAGING = "/var/lib/vdsm/staging/netconf/nets"
PERSISTENCE = "/var/lib/vdsm/persistence/netconf/nets"
# Owned by the user vdsm (vdsm.spec.in, %defattr before _localstatedir/lib/vdsm).
_OTHERS = "/var/lib/vdsm"
# Of all files together, which may be one with many names: 4094 VLANs of 1 kB.
_MOST_BYTES = 4 << 20


def read_ovirt_networks(
    tree: FileTree, problems: list[str]
) -> tuple[OvirtNetwork, ...]:
    """Return the networks by name; none on a host that VDSM does not know.

    They are those in force; where VDSM keeps no such list, the persistent ones.
    """
    there = (f for f in (STAGING, PERSISTENCE) if tree.has(f, others=_OTHERS))
    folder = next(there, None)
    if folder is None:
        return ()
    found, left = [], _MOST_BYTES
    for name in tree.names(folder, problems, others=_OTHERS):
        data = tree.data(f"{folder}/{name}", problems, others=_OTHERS)
        left -= len(data or b"")
        if left < 0:
            words = f"has more than {_MOST_BYTES} bytes of networks"
            problems.append(f"{folder} {words}: from {name} on they are not read")
            break
        network = _network(name, data, folder, problems)
        if network:
            found.append(network)
    return tuple(found)


def _network(
    name: str, data: Optional[bytes], folder: str, problems: list[str]
) -> Optional[OvirtNetwork]:
    if data is None:
        return None
    try:
        made = _made_of(name, json.loads(data))
    except (ValueError, RecursionError) as odd:
        words = "nested too deeply" if isinstance(odd, RecursionError) else odd
        problems.append(f"{folder}/{name} is no network of VDSM's: {words}")
        return None
    return made


def _made_of(name: str, network: Any) -> OvirtNetwork:
    """Return what VDSM's NetworkConfig makes of it (network/nmstate/bridge_util.py)."""
    if not isinstance(network, dict):
        raise ValueError("not an object")
    vlan = _number(network, "vlan")
    below = _word(network, "nic") or _word(network, "bonding")
    return OvirtNetwork(
        name=name,
        southbound=f"{below}.{vlan}" if below and vlan is not None else below,
        bridged=network.get("bridged") is True,
        vlan=vlan,
        mtu=_number(network, "mtu"),
        default_route=network.get("defaultRoute") is True,
    )


def _word(network: dict[str, Any], key: str) -> Optional[str]:
    word = network.get(key)
    if word is not None and not isinstance(word, str):
        raise ValueError(f"{key} is no text")
    return word or None


def _number(network: dict[str, Any], key: str) -> Optional[int]:
    number = network.get(key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{key} is no number")
    return number
