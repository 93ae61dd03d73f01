# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel makes of an MTU in datagram mode: no more than the broadcast group
has, which may change at any time (ipoib_change_mtu and ipoib_mcast_join_finish,
Linux 6.1).
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.effects.door import Door
from ovirt_rdma.host.effects.properties import file_of
from ovirt_rdma.host.effects.same_value import came_true, same_value
from ovirt_rdma.host.effects.targets import netdev_of
from ovirt_rdma.host.policy_host import DATAGRAM
from ovirt_rdma.host.rules.ipoib_limits import GROUP_MTUS
from ovirt_rdma.host.rules.rule import SYSFS, Change

_GROUP_MTUS = frozenset(str(mtu) for mtu in GROUP_MTUS)


def follows_group(host: Door, change: Change) -> bool:
    """Whether ``change`` is of the MTU of a netdev that is in datagram mode."""
    if file_of(change) != "mtu":
        return False
    mode = Change(SYSFS, f"/sys/class/net/{netdev_of(change)}/mode", None, DATAGRAM)
    return same_value(mode, DATAGRAM, host.read(mode).value)


def may_be_groups(change: Change, value: Optional[str]) -> bool:
    """Whether ``value`` may be what the group left of ``change.after``, where that may
    be ``clamped``. Pure.
    """
    of_group = value is not None and value.strip() in _GROUP_MTUS
    return change.clamped and of_group and came_true(change, value)
