# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the MTU of an IPoIB netdev in a transport mode. Pure.

The first of these decides: the logical network on the netdev, the bond above it, the
policy, the profile. Otherwise the MTU is the largest that the mode allows.

A number of network, bond or policy above that limit is refused, and so is a change to
that mode. A profile's number may be of the other mode, so it is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.ipoib import AUTO, DATAGRAM, GROUP_MTUS
from ovirt_rdma.host.rules.infiniband.limits import MtuLimit, mtu_limit
from ovirt_rdma.host.rules.infiniband.settings import MTU, bonds_of, settings_of
from ovirt_rdma.host.rules.view import Interface, View

# VDSM's MTU if the network has none (lib/vdsm/network/nmstate/bridge_util.py).
VDSM_DEFAULT = 1500

NETWORK, BOND, POLICY, PROFILE = "network", "bond", "policy", "profile"


@dataclass(frozen=True)
class DecidedMtu:
    """The MTU of a netdev in a mode; MTUs are in bytes.

    - ``by``: NETWORK, BOND, POLICY or PROFILE; empty if none of them has an MTU.
      ``who`` names it in a sentence.
    - ``wanted``: its MTU; None for the largest.
    - ``limit``: the largest in that mode; None if it is unknown.
    """

    by: str
    who: str
    wanted: Optional[int]
    limit: Optional[MtuLimit]

    @property
    def too_large(self) -> bool:
        """Whether network, bond or policy want more than the mode allows."""
        return (
            self.by in (NETWORK, BOND, POLICY)
            and self.limit is not None
            and self.wanted is not None
            and self.wanted > self.limit.mtu
        )

    @property
    def mtu(self) -> Optional[int]:
        """The MTU to set; None if that is the largest, and unknown.

        It is above the limit only if the policy's is, which is refused.
        """
        if self.limit is None:
            return self.wanted
        if self.wanted is None:
            return self.limit.mtu
        return self.wanted if self.by == POLICY else min(self.wanted, self.limit.mtu)


def decided_mtu(view: View, interface: Interface, mode: Optional[str]) -> DecidedMtu:
    """Return the MTU of ``interface`` in ``mode``, which need not be its present one;
    None for an unknown mode.

    In datagram mode the broadcast group may reduce it, see :func:`may_be_group_mtu`.
    """
    return DecidedMtu(*_decider(view, interface), mtu_limit(interface, mode))


def _decider(view: View, interface: Interface) -> tuple[str, str, Optional[int]]:
    """Return who decides, its name for a sentence, and the MTU."""
    network = interface.network
    if network:
        return NETWORK, f"network {network.name!r}", network.mtu or VDSM_DEFAULT
    for name in bonds_of(view, interface):
        bond = view.netdev(name)
        return BOND, name, bond.mtu if bond else interface.netdev.mtu
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted is not None:
        return POLICY, "the policy", None if wanted == AUTO else int(wanted)
    stored = settings_of(view, interface).number(MTU)
    return (PROFILE, "its profile", stored) if stored is not None else ("", "", None)


def may_be_group_mtu(interface: Interface, wanted: int) -> bool:
    """Whether the broadcast group's MTU may keep the present MTU below ``wanted``."""
    ipoib, mtu = interface.netdev.ipoib, interface.netdev.mtu
    datagram = ipoib is not None and ipoib.mode == DATAGRAM
    return datagram and mtu in GROUP_MTUS and mtu < wanted
