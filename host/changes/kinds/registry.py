# SPDX-License-Identifier: GPL-2.0-or-later
"""List all kinds of change, and find the kind of a change. Pure.

To add one: a module beside this one with a subclass of :class:`.kind.Kind`, and its
entry here. Its name is a constant of :mod:`ovirt_rdma.host.rules.base`, for the rules.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.changes.kinds.file import File, OpensmFile, OpensmSettings
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.changes.kinds.model import AtomicChange
from ovirt_rdma.host.changes.kinds.netdev import (
    OffloadState,
    PkeyChild,
    PortType,
    Sysfs,
)
from ovirt_rdma.host.changes.kinds.profile import NewProfile, ProfileProperty
from ovirt_rdma.host.changes.kinds.system import Module, Unit
from ovirt_rdma.host.changes.kinds.virtual_function import (
    VfDrivers,
    VfGuids,
    VfNumber,
    VfPkeys,
    VfStates,
)
from ovirt_rdma.host.rules.base import Change

# The first that a change is for counts: a P_Key child is a write to /sys too.
KINDS: tuple[type[Kind], ...] = (
    PkeyChild,
    PortType,
    Sysfs,
    ProfileProperty,
    OffloadState,
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
    """Return the kind of ``change``; ``uuid`` is that of a new profile. A change of no
    known kind has one that refuses it.
    """
    known = next((kind for kind in KINDS if kind.is_for(change)), Kind)
    return known(change, uuid)


def kinds_of(act: AtomicChange) -> tuple[Kind, ...]:
    """Return the kinds of the changes of ``act``; a new profile is one."""
    new = NewProfile.of(act) if act.changes else None
    return (new,) if new else tuple(kind_of(c, act.uuid) for c in act.changes)


def kind_of_act(act: AtomicChange) -> Kind:
    """Return the first of the kinds of ``act``."""
    return kinds_of(act)[0]


def describe(act: AtomicChange) -> str:
    """Return as text what ``act`` changes or makes."""
    return kind_of_act(act).describe()
