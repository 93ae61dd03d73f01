# SPDX-License-Identifier: GPL-2.0-or-later
"""Undo a plan's steps in facts: all changes in reverse order, each to its earlier
value.

Strict, as :mod:`ipoib_kernel` is.
"""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.host.facts.devices import Property
from ovirt_rdma.host.rules.base import PROFILE
from support.host.ipoib_kernel import Kernel

MODE = "infiniband.transport-mode"


def undone(facts, steps, group_mtu=4092):
    """Return ``facts``, to which ``steps`` were applied, after their undo."""
    kernel = UndoKernel(facts, group_mtu)
    for step in reversed(steps):
        if not step.refused:
            kernel.undo(step)
    return kernel.facts


class UndoKernel(Kernel):
    def undo(self, step):
        first = step.changes[0]
        makes_netdev = step.rule == "IPOIB-PKEY-01"
        if first.name == "connection.type":
            self._keep(f"ours-{step.subject}")
        else:
            for change in () if makes_netdev else reversed(step.changes):
                self._undo_change(change)
        if makes_netdev:
            self._delete(self.netdev(step.subject).name)

    def _undo_change(self, change):
        if change.kind == PROFILE:
            self._put_back(change)
        elif change.before is not None:  # else its netdev is removed
            back = replace(change, before=change.after, after=change.before)
            self.do(replace(back, clamped=change.clamped))

    def _offload(self, change):
        netdev = self.netdev(change.target)
        if change.after == "on" and netdev.ipoib.mode == "connected":
            # Requested but not on: ethtool reports an error, datagram mode turns it on.
            offloads = tuple(
                replace(o, requested=True) if o.name == change.name else o
                for o in netdev.offloads
            )
            self._put(replace(netdev, offloads=offloads))
        else:
            super()._offload(change)

    def _put_back(self, change):
        uuid = change.target.replace("new:", "ours-")
        (profile,) = [p for p in self.profiles if p.uuid == uuid]
        assert profile.value(change.name) == change.after
        if change.name == MODE:
            assert change.before, "the property is missing"
        values = {p.name: p.value for p in profile.properties}
        values[change.name] = change.before
        found = tuple(Property(n, v) for n, v in values.items() if v is not None)
        name = values["connection.interface-name"]
        mended = replace(profile, interface_name=name, properties=found)
        self._keep(uuid, mended)
