# SPDX-License-Identifier: GPL-2.0-or-later
"""What is written to change a netdev's transport mode: the mode, and the MTU beside it,
in an order that works backwards too. Pure.

The kernel sets an MTU with each mode: 65520 with connected, the smaller of the present
and the broadcast group's with datagram. Connected mode takes every MTU, datagram mode
none above the port's. So the MTU is always written in connected mode: after the mode
on the way there, before it on the way back. Undone backwards, both values then are what
they were (ipoib_set_mode and ipoib_change_mtu, Linux 6.1).
"""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.host.policy_host import AUTO, CONNECTED, DATAGRAM
from ovirt_rdma.host.rules.ipoib_limits import CONNECTED_MTU, datagram_limit
from ovirt_rdma.host.rules.ipoib_settings import MTU, bonds_of, settings_of, write
from ovirt_rdma.host.rules.rule import Change
from ovirt_rdma.host.rules.view import Interface, View


def mode_changes(view: View, interface: Interface, mode: str) -> tuple[Change, ...]:
    """Return the Changes that bring ``interface`` into ``mode``."""
    change = write(interface, "mode", mode)
    if interface.planned:
        return (change,)  # a new child's MTU is IPOIB-MTU-01's
    mtu = write(interface, "mtu", str(coming_mtu(view, interface, mode)))
    if mode == CONNECTED:
        return (change, mtu)
    return (replace(mtu, clamped=True), change)


def coming_mtu(view: View, interface: Interface, mode: str) -> int:
    """Return the MTU in bytes that ``interface`` is to have in ``mode``: the engine's,
    else that of the bond above, the policy, the profile, else the most. In datagram
    mode the broadcast group may make it less.
    """
    now = interface.netdev.mtu
    limit = datagram_limit(interface) if mode == DATAGRAM else None
    most = limit.mtu if limit else now if mode == DATAGRAM else CONNECTED_MTU
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted is None:
        kept = settings_of(view, interface).value(MTU) or ""
        wanted = int(kept) if kept.isdecimal() else AUTO
    if interface.network:
        wanted = interface.network.mtu or now
    elif bonds_of(view, interface):
        wanted = now
    return min(wanted, most) if isinstance(wanted, int) else most
