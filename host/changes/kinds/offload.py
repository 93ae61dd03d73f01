# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind OFFLOAD: set offloads of netdevs with ethtool.

The requested state counts: in connected mode the kernel turns TSO off and remembers the
request, ``off [requested on]``, and turns it on again in datagram mode
(ipoib_fix_features, Linux ulp/ipoib/ipoib_main.c).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import NETDEV, SWITCH, Kind
from ovirt_rdma.host.collect.parsers.ethtool import KEPT, features
from ovirt_rdma.host.facts.devices import Offload
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import OFFLOAD, Change
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

_STATES = {True: "on", False: "off"}


class OffloadState(Kind):
    """An offload of a netdev, ``on`` or ``off``."""

    name = OFFLOAD
    is_named = True
    is_volatile = True
    title = "ethtool -K {}"

    def values(self) -> Optional[str]:
        known = re.fullmatch(NETDEV, self.change.target)
        return SWITCH if known and self.change.name in KEPT.values() else None

    @property
    def netdev(self) -> Optional[str]:
        return self.change.target

    @property
    def goes_with_mode(self) -> bool:
        return True  # a mode turns offloads off and on

    def on_netdev(self, name: str) -> Change:
        return replace(self.change, target=name)

    def describe(self) -> str:
        return f"{self.change.name} of {self.change.target}"

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        return f"ethtool -K {target} {self.change.name} {shlex.quote(value or '')}"

    def read(self, host: Host) -> Reading:
        """Return the requested state, ``on`` or ``off``; None without the netdev."""
        if self.is_gone(host):
            return Reading()
        try:
            feature = self._feature(host)
        except CommandFailed as e:
            return Reading(problem=f"ethtool -k {self.change.target} failed: {e}")
        if feature is None:
            return Reading(problem=f"ethtool does not show {self.change.name}")
        return Reading(_STATES[_requested(feature)])

    def do(self, host: Host) -> None:
        """Turn the offload on or off. Raises EffectFailed, also if the kernel only
        remembers the request.
        """
        change = self.change
        name, wanted = change.target, change.after or ""
        if self.is_gone(host):
            raise EffectFailed("netdev-gone", f"{name} no longer exists")
        failure = f"{change.name} of {name} cannot be turned {wanted}"
        host.run_or_fail(failure, ("ethtool", "-K", name, change.name, wanted))
        try:
            feature = self._feature(host)
        except CommandFailed as e:
            raise EffectFailed(
                "ethtool-failed", f"{failure}: ethtool -k {name}: {e}"
            ) from None
        if feature is None or _STATES[feature.on] != wanted:
            raise EffectFailed("offload-unchanged", f"{failure}: it did not change")

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Request the earlier state. In connected mode ethtool reports an error because
        nothing changed; the request is enough then.
        """
        if before is None or self.is_gone(host):
            return
        if self.read(host).value == before:
            return
        name, feature = self.change.target, self.change.name
        try:
            host.tool("ethtool", "-K", name, feature, before)
        except CommandFailed as e:
            if self.read(host).value != before:
                failure = f"{feature} of {name} cannot be turned {before}"
                raise EffectFailed("ethtool-failed", f"{failure}: {e}") from None

    def is_gone(self, host: Host) -> bool:
        return self.change.target not in FileTree(host.root).names(NET_CLASS)

    def _feature(self, host: Host) -> Optional[Offload]:
        text = host.tool("ethtool", "-k", self.change.target)
        offloads = features(text).get(self.change.target, ())
        return next((o for o in offloads if o.name == self.change.name), None)


def _requested(feature: Offload) -> bool:
    return feature.on if feature.requested is None else feature.requested
