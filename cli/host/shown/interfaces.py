# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the table of ``facts`` that says what each netdev is."""

from __future__ import annotations

from ovirt_rdma.cli.host.shown.devices import Section, known, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ovirt_rdma.host.facts.model import Facts


def interfaces(facts: Facts) -> Section:
    """Return the netdevs with what ``network attach --nic-match`` chooses them by."""
    from ovirt_rdma.host.facts.interfaces import interfaces_of

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
                _pkey(found.pkey, found.pkey_vlan),
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


def _pkey(pkey: Optional[str], vlan: Optional[int]) -> Optional[str]:
    """Return ``0x8064 (VLAN 100)``: the VLAN that it stands for by convention."""
    return known(pkey, f"(VLAN {vlan})" if vlan else None, between=" ")


def _speed(mbps: Optional[int]) -> Optional[str]:
    return f"{round(mbps / 1000, 1):g} Gb/s" if mbps else None
