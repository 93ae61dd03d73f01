# SPDX-License-Identifier: GPL-2.0-or-later
"""List all kinds of change, and find the kind of a change. Pure.

To add one: a module beside this one with a subclass of :class:`.kind.Kind` (and of
:class:`.kind.Maker` if it makes something that other changes can set), and its entry
here. Its name is a constant of :mod:`ovirt_rdma.host.rules.base`, for the rules.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.changes.kinds.file import File
from ovirt_rdma.host.changes.kinds.kind import Kind, Maker
from ovirt_rdma.host.changes.kinds.model import AtomicChange
from ovirt_rdma.host.changes.kinds.module import Module
from ovirt_rdma.host.changes.kinds.new_profile import NewProfile
from ovirt_rdma.host.changes.kinds.offload import OffloadState
from ovirt_rdma.host.changes.kinds.pkey_child import NewChild, PkeyChild
from ovirt_rdma.host.changes.kinds.profile import ProfileProperty
from ovirt_rdma.host.changes.kinds.sysfs import Sysfs
from ovirt_rdma.host.changes.kinds.unit import Unit
from ovirt_rdma.host.rules.base import Change

# The first that a change is for counts: a P_Key child is a write to /sys too.
KINDS: tuple[type[Kind], ...] = (
    PkeyChild,
    Sysfs,
    ProfileProperty,
    OffloadState,
    File,
    Module,
    Unit,
)
MAKERS: tuple[type[Maker], ...] = (NewProfile, NewChild)


def kind_of(change: Change, uuid: Optional[str] = None) -> Kind:
    """Return the kind of ``change``; ``uuid`` is that of a new profile. A change of no
    known kind has one that refuses it.
    """
    known = next((kind for kind in KINDS if kind.is_for(change)), Kind)
    return known(change, uuid)


def kind_of_act(act: AtomicChange) -> Kind:
    """Return the kind of the first change of ``act``."""
    return kind_of(act.changes[0], act.uuid)


def maker_of(act: AtomicChange) -> Optional[Maker]:
    """Return what ``act`` makes that other changes can set, None if it makes none."""
    return next((maker(act) for maker in MAKERS if maker.is_for(act)), None)


def made_netdev(act: AtomicChange) -> Optional[str]:
    """Return the P_Key child that ``act`` makes, by its profile or in sysfs."""
    maker = maker_of(act)
    return maker.netdev if maker else None


def is_part_of(act: AtomicChange, other: AtomicChange) -> bool:
    """Whether ``act`` has changed something that ``other`` made."""
    maker = None if act is other else maker_of(other)
    return maker is not None and maker.owns(kind_of_act(act))


def describe(act: AtomicChange) -> str:
    """Return as text what ``act`` changes: the profile or netdev that it makes, or its
    property.
    """
    maker = maker_of(act)
    return maker.describe() if maker else kind_of_act(act).describe()


def manual_fix(act: AtomicChange, value: Optional[str]) -> str:
    """Return the command with which an operator restores ``value``, which is None if
    there was none.
    """
    maker = maker_of(act)
    return maker.manual_fix() if maker else kind_of_act(act).manual_fix(value)
