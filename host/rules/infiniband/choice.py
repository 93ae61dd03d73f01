# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the MTU and the transport mode of an IPoIB netdev, with reasons. Pure.

The first of these decides the MTU: the logical network on the netdev, the bond above
it, the policy, the profile. Otherwise it is the largest that the mode allows. A number
of network, bond or policy above that limit is refused, and so is a change to that mode.
A profile's number may be of the other mode, so it is lowered.

For ``transport_mode: auto``: connected mode carries packets of up to 65520 bytes, but
has no TSO and no checksum offload, one transmit queue, a queue pair and kernel memory
for each peer, and multicast still limited to datagrams. Datagram mode with TSO passes
as many bytes to the adapter at a time and scales with peers and cores: NVIDIA
recommends it, mlx5 supports nothing else, and Omni-Path's vendor measures higher
throughput with it for parallel streams. Without TSO a datagram sender has CPU costs for
every 2044 or 4092 bytes, so the large packets of connected mode are faster. The first
that applies: datagram if connected mode is not possible; connected if a required MTU
does not fit a datagram; datagram on Omni-Path; connected if TSO is not available; else
datagram.

Sources: Linux Documentation/infiniband/ipoib.rst and ipoib_main.c; Red Hat,
"Configuring InfiniBand and RDMA networks"; NVIDIA MLNX_OFED user manual, IPoIB;
Cornelis CN5000 performance tuning, IPoIB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import (
    AUTO,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    GROUP_MTUS,
)
from ovirt_rdma.host.rules.infiniband.limits import (
    MtuLimit,
    is_omni_path,
    mtu_limit,
    no_connected_mode,
    no_mode_file,
    no_tso,
)
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


@dataclass(frozen=True)
class Choice:
    """The ``mode``, a clause with the ``reason`` for it, and one why it is not possible
    (``refused``; empty if it is).
    """

    mode: str
    reason: str
    refused: str = ""


def choose_mode(view: View, interface: Interface) -> Optional[Choice]:
    """Return the mode that the policy sets for ``interface``; None if it sets none."""
    wanted = interface.wanted.transport_mode if interface.wanted else None
    if wanted is None:
        return None
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    unchangeable = no_mode_file(interface)
    if wanted == AUTO:
        if now and unchangeable:
            return Choice(now, unchangeable)
        return _best(view, interface)
    refused = no_connected_mode(view, interface) if wanted == CONNECTED else ""
    if now not in (None, wanted):
        refused = refused or unchangeable
        if wanted == DATAGRAM:
            refused = refused or too_large_for_datagrams(view, interface)
    return Choice(wanted, "the policy requires it", refused)


def asked_mode(view: View, interface: Interface) -> Optional[str]:
    """Return the mode that the logical network on ``interface`` asks for by ipoib_mode;
    None if it asks for none.
    """
    asked = interface.network.ipoib_mode if interface.network else None
    if asked == AUTO:
        return _best(view, interface).mode
    return asked if asked in (DATAGRAM, CONNECTED) else None


def _best(view: View, interface: Interface) -> Choice:
    impossible = no_connected_mode(view, interface)
    if impossible:
        return Choice(DATAGRAM, impossible)
    too_large = too_large_for_datagrams(view, interface)
    if too_large and not decided_mtu(view, interface, CONNECTED).too_large:
        return Choice(CONNECTED, too_large)
    if is_omni_path(interface.device):
        why = "on Omni-Path it carries up to 10236 bytes and scales better"
        return Choice(DATAGRAM, why)
    without_tso = no_tso(interface)
    if without_tso:
        why = f"{without_tso}, and packets of {CONNECTED_MTU} bytes cost less CPU"
        return Choice(CONNECTED, why)
    if without_tso is None:
        why = "it is the kernel's default, and the TSO state is unknown"
        return Choice(DATAGRAM, why)
    why = "it keeps TSO and checksum offload, and scales with the number of peers"
    return Choice(DATAGRAM, why)


def planned_mode(view: View, interface: Interface) -> Optional[str]:
    """Return the mode that ``interface`` has once the plan is applied."""
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    choice = choose_mode(view, interface)
    if choice is None or choice.refused or settings_of(view, interface).blocked:
        return now
    return choice.mode


def mode_for_mtu(view: View, interface: Interface) -> Optional[str]:
    """Return the mode for which the MTU of ``interface`` is decided: the planned one,
    or the one that only this MTU prevents.
    """
    choice = choose_mode(view, interface)
    too_large = too_large_for_datagrams(view, interface)
    if choice and choice.refused and choice.refused == too_large:
        return DATAGRAM
    return planned_mode(view, interface)


def too_large_for_datagrams(view: View, interface: Interface) -> str:
    """Return a clause if the MTU of network, bond or policy does not fit a datagram;
    empty if it does, or if the limit is unknown.
    """
    decided = decided_mtu(view, interface, DATAGRAM)
    if decided.limit is None or not decided.too_large:
        return ""
    return Sentence(
        "mtu-too-large-for-datagram",
        f"MTU {decided.wanted} ({decided.who}) does not fit a datagram: "
        f"{decided.limit.reason}",
    )
