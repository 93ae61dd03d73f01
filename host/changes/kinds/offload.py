# SPDX-License-Identifier: GPL-2.0-or-later
"""Offloads of netdevs, by ethtool.

What counts is what was asked for: in connected mode the kernel takes TSO away and
remembers the wish, ``off [requested on]``, and gives it back with datagram mode
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

_WORDS = {True: "on", False: "off"}


def read(host: Host, change: Change) -> Reading:
    """Return ``on`` or ``off``, as was asked for; None without the netdev."""
    if is_gone(host, change):
        return Reading()
    try:
        feature = _feature(host, change)
    except CommandFailed as e:
        return Reading(problem=f"ethtool -k {change.target} failed: {e}")
    if feature is None:
        return Reading(problem=f"ethtool does not show {change.name}")
    return Reading(_WORDS[_asked(feature)])


def do(host: Host, change: Change) -> None:
    """Turn the offload on or off. Raises EffectFailed, also where the kernel only keeps
    the wish in mind.
    """
    name, wanted = change.target, change.after or ""
    if is_gone(host, change):
        raise EffectFailed("netdev-gone", f"{name} is gone")
    what = f"{change.name} of {name} cannot be turned {wanted}"
    host.must(what, ("ethtool", "-K", name, change.name, wanted))
    try:
        feature = _feature(host, change)
    except CommandFailed as e:
        raise EffectFailed(
            "ethtool-failed", f"{what}: ethtool -k {name}: {e}"
        ) from None
    if feature is None or _WORDS[feature.on] != wanted:
        raise EffectFailed("offload-unchanged", f"{what}: it stays as it is")


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Ask for what there was. In connected mode ethtool complains that nothing
    changed; the wish is enough.
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
            what = f"{change.name} of {name} cannot be turned {before}"
            raise EffectFailed("ethtool-failed", f"{what}: {e}") from None


def is_gone(host: Host, change: Change) -> bool:
    """Whether the netdev is not there (any more)."""
    return change.target not in FileTree(host.root).names(NET_CLASS)


def _feature(host: Host, change: Change) -> Optional[Offload]:
    text = host.tool("ethtool", "-k", change.target)
    offloads = features(text).get(change.target, ())
    return next((one for one in offloads if one.name == change.name), None)


def _asked(feature: Offload) -> bool:
    return feature.on if feature.requested is None else feature.requested
