# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a property that is set in a NetworkManager profile which is active.
Pure.

NetworkManager keeps the connection that it has applied beside the profile. It brings
some differences between the two into force by a Reapply, which interrupts nothing, and
refuses one where anything else differs (``can_reapply_change``, NetworkManager
src/core/devices/nm-device.c and nm-device-infiniband.c, the same in 1.42, 1.48, 1.54
and 1.58). nmstate asks for a Reapply at each network setup of VDSM's, and where that is
refused it activates the profile anew (nmstate rust/src/lib/nm/query_apply/profile.rs,
reapply_or_activate): an IPoIB netdev goes down for that, and addresses and ports of any
netdev go and come back. So such a property is brought into force by the step that sets
it, and the step is one that takes the link down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ovirt_rdma.host.facts.devices import Profile
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, PROFILE, Change

ETHERNET_MTU = "802-3-ethernet.mtu"
INFINIBAND_MTU = "infiniband.mtu"
# Of what our rules set, all that a Reapply takes.
_REAPPLIED = (INFINIBAND_MTU, ETHERNET_MTU)


def needs_activation(change: Change) -> bool:
    """Whether NetworkManager brings ``change`` of an active profile into force by a new
    activation only.
    """
    return change.kind == PROFILE and change.name not in _REAPPLIED


def class_of(changes: Iterable[Change], profile: Optional[Profile]) -> str:
    """Return the class of a step that changes ``profile``, and else nothing that
    anybody notices: LINK_DOWN where the profile is active and has to be activated.
    """
    active = profile is not None and bool(profile.active_on)
    down = active and any(needs_activation(change) for change in changes)
    return LINK_DOWN if down else LIVE
