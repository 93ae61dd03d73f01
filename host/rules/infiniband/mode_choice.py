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
from ovirt_rdma.host.policy.model import AUTO, CONNECTED, DATAGRAM
from ovirt_rdma.host.rules.infiniband.limits import (
    CONNECTED_MTU,
    datagram_limit,
    is_omni_path,
    no_connected_mode,
    no_mode_file,
    no_tso,
)
from ovirt_rdma.host.rules.infiniband.settings import bonds_of, settings_of
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
    if wanted == CONNECTED:
        refused = no_connected_mode(view, interface)
    else:
        refused = _too_large_above(view, interface)
    if now not in (None, wanted):
        refused = refused or unchangeable
    return Choice(wanted, "the policy requires it", refused)


def _best(view: View, interface: Interface) -> Choice:
    impossible = no_connected_mode(view, interface)
    if impossible:
        return Choice(DATAGRAM, impossible)
    too_large = _too_large_for_datagrams(view, interface)
    if too_large:
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


def _too_large_above(view: View, interface: Interface) -> str:
    """Return a clause if ``interface`` is in connected mode and the MTU of its logical
    network or bond does not fit a datagram; empty if it does.
    """
    ipoib = interface.netdev.ipoib
    if ipoib is None or ipoib.mode != CONNECTED or not _above(view, interface):
        return ""
    return _too_large_for_datagrams(view, interface)


def _too_large_for_datagrams(view: View, interface: Interface) -> str:
    """Return a clause if a required MTU does not fit a datagram; empty if it does.

    The MTU of a logical network or bond takes precedence over the policy's.
    """
    wanted = interface.wanted.mtu if interface.wanted else None
    mtu, who = _above(view, interface) or (wanted, "the policy")
    limit = datagram_limit(interface)
    if limit is None or not isinstance(mtu, int):
        return ""
    if not limit.mtu < mtu <= CONNECTED_MTU:
        return ""
    return Sentence(
        "mtu-too-large-for-datagram",
        f"MTU {mtu} ({who}) does not fit a datagram: {limit.reason}",
    )


def _above(view: View, interface: Interface) -> Optional[tuple[Optional[int], str]]:
    """Return the MTU of the logical network or bond on ``interface``, and its name;
    None if it has neither.
    """
    network = interface.network
    if network:
        return network.mtu, f"network {network.name!r}"
    for name in bonds_of(view, interface):
        bond = view.netdev(name)
        return (bond.mtu if bond else None), name
    return None
