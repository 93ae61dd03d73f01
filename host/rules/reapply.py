# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide if a change to an active NetworkManager profile needs an activation. Pure.

NetworkManager keeps the connection that it applied separately from the profile. A
Reapply applies some differences between the two without disruption, and is refused if
anything else differs (``can_reapply_change``, NetworkManager
src/core/devices/nm-device.c and nm-device-infiniband.c, the same in 1.42, 1.48, 1.54
and 1.58). nmstate requests a Reapply at each network setup of VDSM. If that is refused,
it activates the profile again (nmstate rust/src/lib/nm/query_apply/profile.rs,
reapply_or_activate): an IPoIB netdev goes down, and any netdev loses its addresses and
ports for a moment. Therefore the step that sets such a property activates the profile
itself, and its class is link-down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ovirt_rdma.host.facts.devices import Profile
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, PROFILE, Change

ETHERNET_MTU = "802-3-ethernet.mtu"
INFINIBAND_MTU = "infiniband.mtu"
# The properties set by our rules that a Reapply accepts.
_REAPPLIED = (INFINIBAND_MTU, ETHERNET_MTU)


def needs_activation(change: Change) -> bool:
    """Whether ``change`` of an active profile takes effect only at an activation."""
    return change.kind == PROFILE and change.name not in _REAPPLIED


def class_of(changes: Iterable[Change], profile: Optional[Profile]) -> str:
    """Return the class of a step whose other changes are live: LINK_DOWN if ``profile``
    is active and must be activated again, else LIVE.
    """
    active = profile is not None and bool(profile.active_on)
    down = active and any(needs_activation(change) for change in changes)
    return LINK_DOWN if down else LIVE
