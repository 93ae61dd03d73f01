# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the transport mode of an IPoIB netdev, and give the reason. Pure.

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
from ovirt_rdma.host.facts.ipoib import AUTO, CONNECTED, CONNECTED_MTU, DATAGRAM
from ovirt_rdma.host.rules.infiniband.limits import (
    is_omni_path,
    no_connected_mode,
    no_mode_file,
    no_tso,
)
from ovirt_rdma.host.rules.infiniband.mtu_choice import decided_mtu
from ovirt_rdma.host.rules.infiniband.settings import settings_of
from ovirt_rdma.host.rules.view import Interface, View


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
