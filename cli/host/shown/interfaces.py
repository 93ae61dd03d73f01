# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the table of ``facts`` that says what each netdev is."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.cli.host.shown.devices import Section, known, number
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import Interface, interfaces_of
from ovirt_rdma.host.policy.fabric import FabricPolicy


def interfaces(facts: Facts, fabric: Optional[FabricPolicy] = None) -> Section:
    """Return the netdevs with what ``network attach --nic-match`` chooses them by.

    ``fabric`` has the names of partitions. If it says something of partitions, the
    VLANs are its own, else those of the convention.
    """
    described = None if fabric == FabricPolicy() else fabric
    return Section(
        "interfaces",
        ("NETDEV", "LINK LAYER", "DRIVER", "BUS INFO", "RDMA PORT", "GUID", "PARENT",
         "P_KEY", "VLAN", "MTU", "SPEED", "NETWORKS", "ROLES"),
        [
            (
                found.name,
                found.link_layer,
                found.driver,
                found.bus_info,
                known(found.device, number(found.port), between="/"),
                found.guid,
                found.parent,
                _pkey(found, described),
                number(found.vlan),
                number(found.mtu),
                _speed(found.speed_mbps),
                known(*found.networks),
                known(*found.roles),
            )
            for found in interfaces_of(facts)
        ],
        even_empty=True,
    )  # fmt: skip


def _pkey(found: Interface, fabric: Optional[FabricPolicy]) -> Optional[str]:
    """Return ``0x8064 (storage, VLAN 100)``."""
    if found.pkey is None:
        return None
    name, vlan = None, found.pkey_vlan
    if fabric is not None:
        name, vlan = fabric.name_of(found.pkey), fabric.vlan_of(found.pkey)
    stands_for = known(name, f"VLAN {vlan}" if vlan else None)
    return f"{found.pkey} ({stands_for})" if stands_for else found.pkey


def _speed(mbps: Optional[int]) -> Optional[str]:
    return f"{round(mbps / 1000, 1):g} Gb/s" if mbps else None
