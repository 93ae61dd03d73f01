# SPDX-License-Identifier: GPL-2.0-or-later
"""The only door through which a plan's effects go to the host: read a property, do an
act, take it back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.kinds import (
    network_manager,
    new_profile,
    offload,
    sysfs,
    system,
)
from ovirt_rdma.host.changes.kinds.base import (
    EffectFailed,
    Host,
    Reading,
    run_effect,
    write_kernel_file,
)
from ovirt_rdma.host.changes.kinds.location import is_empty, present_target
from ovirt_rdma.host.changes.kinds.model import Act, Place
from ovirt_rdma.host.changes.kinds.properties import (
    makes_child,
    makes_profile,
    netdev_of,
    why_refused,
)
from ovirt_rdma.host.rules.base import (
    FILE,
    LINK_DOWN,
    MODULE,
    OFFLOAD,
    PROFILE,
    SYSFS,
    UNIT,
    Change,
)
from ovirt_rdma.host.rules.reapply import needs_activation
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.tree import FileTree

_BOOT_ID = "/proc/sys/kernel/random/boot_id"

__all__ = ["EffectFailed", "HostEffects", "Reading"]


class HostEffects:
    """Reads and changes the host below ``root``.

    Tools are run through ``run``; by default on this machine (``root`` is ``/``) for
    real, and below any other root not at all: an effect that needs one then fails.

    ``activates`` is False for a hook before VDSM's network setup: that brings changed
    profiles into force itself, and a hook has no time for it.
    """

    def __init__(
        self,
        root: Union[str, Path] = "/",
        run: Optional[Runner] = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        write: Callable[[Path, bytes], None] = write_kernel_file,
        *,
        activates: bool = True,
    ) -> None:
        root = Path(root)
        if run is None and root == Path("/"):
            run = run_effect
        self._host = Host(root, run, sleep, clock, write)
        self._activates = activates

    def refusal(self, change: Change) -> str:
        """Say, as a sentence without a full stop, why ``change`` is nothing that our
        rules give (a target such as /etc/passwd), so that nobody carries it out; else
        "". Reads nothing. ``read`` gives it as the problem, ``do`` and ``undo`` raise
        it as EffectFailed.
        """
        return why_refused(change)

    def read(
        self,
        change: Change,
        uuid: Optional[str] = None,
        place: Optional[Place] = None,
    ) -> Reading:
        """Return the present value of what ``change`` changes; raises nothing.

        ``uuid`` is the profile's where the target is ``new:NETDEV``. With ``place`` the
        netdev is found by that, whatever its name is now. A value is None where there
        is none: the netdev, profile or file is not there (see :meth:`gone`), the
        profile's property is not set. By kind: SYSFS the file's text without the
        newline (``create_child``: ``change.after`` if that child is there); PROFILE as
        nmcli prints it; OFFLOAD ``on`` or ``off`` as was asked for, so that
        ``off [requested on]``, as in connected mode, is ``on``; FILE its text; MODULE
        ``loaded``; UNIT ``enabled``, ``disabled`` or what else systemd says
        (``static``, ``masked``).
        """
        refused = why_refused(change)
        if refused:
            return Reading(problem=refused)
        if is_empty(self._host, change, place):
            return Reading()
        change = present_target(self._host, change, place)
        if change.kind == PROFILE:
            return network_manager.read(self._host, change, uuid)
        if makes_child(change):
            return sysfs.read_child(self._host, change)
        return _READS[change.kind](self._host, change)

    def do(self, act: Act) -> None:
        """Carry ``act`` out, to each change's ``after``, in their order, and wait until
        it is in force. The changes of a new profile (``act.uuid`` is set) together
        are one thing: the profile is whole, or not there, also after EffectFailed. A
        profile that is active is activated anew where that is needed and ``act`` may
        take the link down.

        Raises EffectFailed. Whether the value stuck is for :meth:`read` to tell.
        """
        act = self._checked(act)
        if makes_profile(act):
            new_profile.do(self._host, act)
            return
        for change in act.changes:
            if is_empty(self._host, change, act.place):
                raise EffectFailed("netdev-gone", f"{netdev_of(change)} is gone")
            self._do_change(change, act.uuid)
            if act.effect == LINK_DOWN:
                self._bring_into_force(change, act.uuid, change.name)

    def _bring_into_force(
        self, change: Change, uuid: Optional[str], changed: str = ""
    ) -> None:
        known = network_manager.uuid_of(change, uuid)
        if self._activates and known and needs_activation(change):
            network_manager.bring_into_force(self._host, known, changed)

    def _do_change(self, change: Change, uuid: Optional[str]) -> None:
        if change.kind == PROFILE:
            network_manager.do(self._host, change, uuid)
        elif makes_child(change):
            sysfs.do_child(self._host, change)
        else:
            _DOES[change.kind](self._host, change)

    def undo(self, act: Act) -> None:
        """Take ``act`` back, the last change first, each to its value in
        ``act.before`` (without that, ``change.before``).

        A new profile is deleted, one that is active is activated anew where that is
        needed; a module stays loaded. Safe to call again, and where there is nothing
        (any more) to take back. Raises EffectFailed.
        """
        act = self._checked(act)
        if makes_profile(act):
            new_profile.undo(self._host, act)
            return
        before = act.before or tuple(change.before for change in act.changes)
        for change, value in reversed(list(zip(act.changes, before))):
            if not is_empty(self._host, change, act.place):
                self._undo_change(change, act.uuid, value)

    def _undo_change(
        self, change: Change, uuid: Optional[str], before: Optional[str]
    ) -> None:
        if change.kind == PROFILE:
            if network_manager.undo(self._host, change, uuid, before):
                self._bring_into_force(change, uuid)
        elif makes_child(change):
            sysfs.undo_child(self._host, change)
        elif change.kind in _UNDOES:
            _UNDOES[change.kind](self._host, change, before)

    def gone(self, act: Act) -> bool:
        """Whether the profile, netdev, device or unit of ``act`` is not there (any
        more), so that there is nothing to undo. False where that cannot be told.
        """
        act = self.present(act)
        return all(
            is_empty(self._host, change, act.place) or self._is_gone(change, act.uuid)
            for change in act.changes
        )

    def _is_gone(self, change: Change, uuid: Optional[str]) -> bool:
        if why_refused(change):
            return False
        if change.kind == PROFILE:
            return network_manager.is_gone(self._host, change, uuid)
        if makes_child(change):
            return sysfs.present_child(self._host, change) is None
        is_gone = _GONE.get(change.kind)
        return is_gone is not None and is_gone(self._host, change)

    def present(self, act: Act) -> Act:
        """Return ``act`` with today's names: where the netdev of ``act.place`` has
        been renamed, targets name it as it is called now. Reads /sys only. ``do``,
        ``undo`` and ``gone`` do this themselves.
        """
        changes = (present_target(self._host, one, act.place) for one in act.changes)
        return replace(act, changes=tuple(changes))

    def _checked(self, act: Act) -> Act:
        """Return the act by today's names. Raises EffectFailed for one that is not of
        our rules: then nothing of it is done.
        """
        for words in _refusals(act):
            raise EffectFailed(
                "change-not-allowed",
                words,
                "see where that is from, the journal or a plan",
            )
        return self.present(act)

    def boot_id(self) -> str:
        """Return the kernel's boot id, "" where it does not tell."""
        return FileTree(self._host.root).text(_BOOT_ID) or ""

    def now(self) -> float:
        """Return the time in seconds since 1970 UTC."""
        return self._host.clock()


def _refusals(act: Act) -> Iterator[str]:
    """Yield why parts of ``act``, its earlier values too, are none of our rules."""
    before = act.before or tuple(change.before for change in act.changes)
    if not act.changes or len(before) != len(act.changes):
        counted = f"{len(act.changes)} changes and {len(before)} earlier values"
        yield f"the act of {act.step!a} has {counted}"
    for change, value in zip(act.changes, before):
        words = why_refused(replace(change, before=value))
        if words:
            yield words


_READS = {
    SYSFS: sysfs.read,
    OFFLOAD: offload.read,
    FILE: system.read_file_text,
    MODULE: system.read_module,
    UNIT: system.read_unit,
}
_DOES = {
    SYSFS: sysfs.do,
    OFFLOAD: offload.do,
    FILE: system.do_file,
    MODULE: system.do_module,
    UNIT: system.do_unit,
}
_UNDOES = {
    SYSFS: sysfs.undo,
    OFFLOAD: offload.undo,
    FILE: system.undo_file,
    UNIT: system.undo_unit,
}
_GONE = {
    SYSFS: sysfs.is_gone,
    OFFLOAD: offload.is_gone,
    UNIT: system.is_gone,
}
