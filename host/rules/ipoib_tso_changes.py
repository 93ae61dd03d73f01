# SPDX-License-Identifier: GPL-2.0-or-later
"""What has to change so that an IPoIB netdev has TSO, or has none. Pure.

NetworkManager leaves an offload alone that the profile does not name, at activations
and when the netdev is let go (``_ethtool_state_set`` and ``_ethtool_state_reset``,
src/core/devices/nm-device.c). So it is set by ethtool, and again by our unit when the
netdev comes anew. In the profile it would make NetworkManager refuse each Reapply
(:mod:`.reapply`); there it is changed only where the profile names it otherwise, as
NetworkManager would set that with its next activation.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.policy_host import OFF, ON
from ovirt_rdma.host.rules.ipoib_limits import Tso
from ovirt_rdma.host.rules.ipoib_settings import TSO, Settings
from ovirt_rdma.host.rules.rule import OFFLOAD, PROFILE, Change
from ovirt_rdma.host.rules.view import Interface

_PROFILE_BACK = "the profile's property to its earlier value"


def wanted_tso(interface: Interface) -> Optional[str]:
    """Return what the policy says of TSO: ``on``, ``off``, ``auto`` or None."""
    return interface.wanted.tso if interface.wanted else None


def tso_changes(
    interface: Interface, settings: Settings, tso: Tso, target: str
) -> tuple[Change, ...]:
    """Return the Changes that turn TSO to ``target``: in a profile that says otherwise,
    then at once.
    """
    opposed = bool(tso.changeable) and settings.value(TSO) not in (None, target)
    kept = settings.change(TSO, target) if opposed else ()
    return (*kept, *_at_once(interface, tso, target))


def _at_once(interface: Interface, tso: Tso, target: str) -> tuple[Change, ...]:
    if target == ON:
        # Asked for and not on is connected mode's doing; datagram mode gives it back.
        names = [n for n in tso.changeable if n not in (*tso.on, *tso.asked)]
    else:
        names = [n for n in (*tso.on, *tso.asked) if n in tso.changeable]
    before = OFF if target == ON else ON
    known = None if interface.planned else before
    return tuple(Change(OFFLOAD, interface.name, known, target, n) for n in names)


def undo_of(changes: tuple[Change, ...]) -> str:
    """Return what takes ``changes`` back, as a clause."""
    kinds = {change.kind for change in changes}
    if kinds == {OFFLOAD}:
        return "turns it back"
    if kinds == {PROFILE}:
        return f"sets {_PROFILE_BACK}"
    return f"turns it back, and {_PROFILE_BACK}"


def tso_text(tso: Tso) -> str:
    """Return the state of TSO as a word or two."""
    if tso.on:
        return "on"
    if tso.asked:
        return "off, as connected mode has none, but asked for"
    return "off" if tso.changeable else "off [fixed]"
