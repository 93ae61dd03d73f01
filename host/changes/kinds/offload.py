# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and set offloads of netdevs with ethtool.

The requested state counts: in connected mode the kernel turns TSO off and remembers the
request, ``off [requested on]``, and turns it on again in datagram mode
(ipoib_fix_features, Linux ulp/ipoib/ipoib_main.c).
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.location import NET_CLASS
from ovirt_rdma.host.collect.parsers.ethtool import features
from ovirt_rdma.host.facts.devices import Offload
from ovirt_rdma.host.rules.base import Change
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

_STATES = {True: "on", False: "off"}


def read(host: Host, change: Change) -> Reading:
    """Return the requested state, ``on`` or ``off``; None without the netdev."""
    if is_gone(host, change):
        return Reading()
    try:
        feature = _feature(host, change)
    except CommandFailed as e:
        return Reading(problem=f"ethtool -k {change.target} failed: {e}")
    if feature is None:
        return Reading(problem=f"ethtool does not show {change.name}")
    return Reading(_STATES[_requested(feature)])


def do(host: Host, change: Change) -> None:
    """Turn the offload on or off. Raises EffectFailed, also if the kernel only
    remembers the request.
    """
    name, wanted = change.target, change.after or ""
    if is_gone(host, change):
        raise EffectFailed("netdev-gone", f"{name} no longer exists")
    failure = f"{change.name} of {name} cannot be turned {wanted}"
    host.run_or_fail(failure, ("ethtool", "-K", name, change.name, wanted))
    try:
        feature = _feature(host, change)
    except CommandFailed as e:
        raise EffectFailed(
            "ethtool-failed", f"{failure}: ethtool -k {name}: {e}"
        ) from None
    if feature is None or _STATES[feature.on] != wanted:
        raise EffectFailed("offload-unchanged", f"{failure}: it did not change")


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Request the earlier state. In connected mode ethtool reports an error because
    nothing changed; the request is enough then.
    """
    if before is None or is_gone(host, change):
        return
    present = read(host, change)
    if present.value == before:
        return
    name = change.target
    try:
        host.tool("ethtool", "-K", name, change.name, before)
    except CommandFailed as e:
        if read(host, change).value != before:
            failure = f"{change.name} of {name} cannot be turned {before}"
            raise EffectFailed("ethtool-failed", f"{failure}: {e}") from None


def is_gone(host: Host, change: Change) -> bool:
    """Whether the netdev does not exist."""
    return change.target not in FileTree(host.root).names(NET_CLASS)


def _feature(host: Host, change: Change) -> Optional[Offload]:
    text = host.tool("ethtool", "-k", change.target)
    offloads = features(text).get(change.target, ())
    return next((o for o in offloads if o.name == change.name), None)


def _requested(feature: Offload) -> bool:
    return feature.on if feature.requested is None else feature.requested
