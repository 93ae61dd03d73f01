# SPDX-License-Identifier: GPL-2.0-or-later
"""List all kinds of change, find the kind of a change, and make changes.

To add one: a subclass of :class:`.kind.Kind` beside this module, and its entry here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Host,
    Kind,
    Place,
    Reading,
)
from ovirt_rdma.host.changes.kinds.netdev import (
    DcbSetting,
    OffloadState,
    PkeyChild,
    RoceTos,
    Sysfs,
)
from ovirt_rdma.host.changes.kinds.profile import NewProfile, ProfileProperty
from ovirt_rdma.host.changes.kinds.system import (
    File,
    Module,
    OpensmFile,
    OpensmSettings,
    Unit,
)
from ovirt_rdma.host.changes.kinds.virtual_function import (
    VfDrivers,
    VfGuids,
    VfNumber,
    VfPkeys,
    VfStates,
    restore_meanwhile,
)
from ovirt_rdma.host.rules.base import LINK_DOWN, Change

# The first that a change is for counts: a P_Key child is a write to /sys too.
KINDS: tuple[type[Kind], ...] = (
    PkeyChild,
    Sysfs,
    ProfileProperty,
    OffloadState,
    DcbSetting,
    RoceTos,
    File,
    OpensmFile,
    OpensmSettings,
    Module,
    Unit,
    VfNumber,
    VfGuids,
    VfStates,
    VfPkeys,
    VfDrivers,
)


def kind_of(change: Change, uuid: Optional[str] = None) -> Kind:
    """Return the kind of ``change``; for an unknown kind, one that refuses it."""
    known = next((kind for kind in KINDS if kind.is_for(change)), Kind)
    return known(change, uuid)


def kind_of_act(act: AtomicChange) -> Kind:
    """Return the kind of ``act``: that of its only change, or a new profile."""
    return NewProfile.of(act) or kind_of(act.changes[0], act.uuid)


class HostEffects(Host):
    """A host that can be changed: the only way by which a run changes one."""

    def refusal(self, change: Change) -> str:
        """Return why no rule of ours makes such a change, else "". Reads nothing."""
        return kind_of(change).refusal()

    def read(
        self, change: Change, uuid: Optional[str] = None, place: Optional[Place] = None
    ) -> Reading:
        """Return the present value of the property that ``change`` sets; never raises.

        ``uuid`` is the profile's if the target is ``new:NETDEV``. With ``place`` the
        netdev is found by that, whatever its name is now. The value is None if the
        netdev, profile or file does not exist, or the profile's property is not set.
        """
        kind = kind_of(change, uuid)
        refused = kind.refusal()
        if refused:
            return Reading(problem=refused)
        found = kind.at(self, place)
        return found.read(self) if found else Reading()

    def make_readable(self, change: Change, place: Optional[Place] = None) -> None:
        """Do what the value of an allowed change needs to be read."""
        found = kind_of(change).at(self, place)
        if found:
            found.make_readable(self)

    def do(self, act: AtomicChange) -> None:
        """Set the ``after`` of each change of ``act``, and wait until it is in effect.
        A new profile is made completely or not at all. An active one is activated again
        if that is needed and ``act`` may take the link down. Raises EffectFailed.
        """
        kind = self._allowed(act)
        found = kind.at(self, act.place)
        if found is None:
            raise EffectFailed("netdev-gone", f"{kind.netdev} no longer exists")
        found.do(self)
        if act.effect == LINK_DOWN:
            found.take_effect(self)

    def undo(self, act: AtomicChange) -> None:
        """Undo ``act``, each change to its ``before``. Safe to call again, and if there
        is nothing to undo. Raises EffectFailed.
        """
        found = self._allowed(act).at(self, act.place)
        if found:
            found.undo(self)

    def gone(self, act: AtomicChange) -> bool:
        """Whether the profile, netdev, device or unit of ``act`` does not exist, so
        that there is nothing to undo. False if that is unknown.
        """
        kind = kind_of_act(act).at(self, act.place)
        return kind is None or (not kind.refusal() and kind.is_gone(self))

    def present(self, act: AtomicChange) -> AtomicChange:
        """Return ``act`` with the present names, if the netdev of ``act.place`` has
        been renamed. Reads /sys only. ``do``, ``undo`` and ``gone`` do this themselves.
        """
        kinds = [kind_of(change, act.uuid) for change in act.changes]
        found = [(kind.at(self, act.place) or kind).change for kind in kinds]
        return replace(act, changes=tuple(found))

    def restore_meanwhile(self) -> None:
        """Restore what a run that was killed had set only while it made a change.
        Raises EffectFailed.
        """
        restore_meanwhile(self)

    def _allowed(self, act: AtomicChange) -> Kind:
        """Return the kind of ``act``. Raises EffectFailed if it is not allowed."""
        refusals = [kind_of(change).refusal() for change in act.changes]
        if len(refusals) != 1 and not (refusals and NewProfile.of(act)):
            refusals = [f"step {act.step!a} has {len(refusals)} changes in one"]
        for refusal in filter(None, refusals):
            raise EffectFailed(
                "change-not-allowed",
                refusal,
                "find out who has changed the journal or the plan file",
            )
        return kind_of_act(act)
