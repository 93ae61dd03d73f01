# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the engine's logical networks, as VDSM keeps them on the host.

VDSM's network/netconfpersistence.py writes one JSON file per network, with the
network's name.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.facts.ipoib import MODE_PROPERTY
from ovirt_rdma.host.system.tree import FileTree

# The present networks, and those that VDSM restores at boot; each ``netconf`` is a
# link.
STAGING = "/var/lib/vdsm/staging/netconf/nets"
PERSISTENCE = "/var/lib/vdsm/persistence/netconf/nets"
# Owned by the user vdsm (vdsm.spec.in, %defattr before _localstatedir/lib/vdsm).
_OTHERS = "/var/lib/vdsm"
# The limit for all files together: 4094 VLANs of 1 kB.
_MOST_BYTES = 4 << 20


def read_ovirt_networks(
    tree: FileTree, problems: list[str]
) -> tuple[OvirtNetwork, ...]:
    """Return the networks by name; none on a host without VDSM's files.

    They are the present ones; if VDSM has no list of these, the persistent ones.
    """
    folders = (f for f in (STAGING, PERSISTENCE) if tree.has(f, others=_OTHERS))
    folder = next(folders, None)
    if folder is None:
        return ()
    networks, left = [], _MOST_BYTES
    for name in tree.names(folder, problems, others=_OTHERS):
        data = tree.data(f"{folder}/{name}", problems, others=_OTHERS)
        left -= len(data or b"")
        if left < 0:
            problems.append(
                f"{folder} has more than {_MOST_BYTES} bytes of networks: those from "
                f"{name} on are not read"
            )
            break
        network = _network(name, data, folder, problems)
        if network:
            networks.append(network)
    return tuple(networks)


def _network(
    name: str, data: Optional[bytes], folder: str, problems: list[str]
) -> Optional[OvirtNetwork]:
    if data is None:
        return None
    try:
        return _parsed(name, json.loads(data))
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        problems.append(f"{folder}/{name} is not a network of VDSM: {reason}")
        return None


def _parsed(name: str, network: Any) -> OvirtNetwork:
    """Read it as VDSM's NetworkConfig does (network/nmstate/bridge_util.py)."""
    if not isinstance(network, dict):
        raise ValueError("not an object")
    vlan = _number(network, "vlan")
    custom = network.get("custom")
    mode = custom.get(MODE_PROPERTY) if isinstance(custom, dict) else None
    below = _word(network, "nic") or _word(network, "bonding")
    return OvirtNetwork(
        name=name,
        southbound=f"{below}.{vlan}" if below and vlan is not None else below,
        bridged=network.get("bridged") is True,
        vlan=vlan,
        mtu=_number(network, "mtu"),
        default_route=network.get("defaultRoute") is True,
        ipoib_mode=mode if isinstance(mode, str) else None,
    )


def _word(network: dict[str, Any], key: str) -> Optional[str]:
    word = network.get(key)
    if word is not None and not isinstance(word, str):
        raise ValueError(f"{key} is not a text")
    return word or None


def _number(network: dict[str, Any], key: str) -> Optional[int]:
    number = network.get(key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{key} is not a number")
    return number
