# SPDX-License-Identifier: GPL-2.0-or-later
"""Make all changes to the host: read a property, set it, undo it.

This is the only way by which a run changes the host.
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
from ovirt_rdma.host.changes.kinds.location import netdev_gone, present_target
from ovirt_rdma.host.changes.kinds.model import AtomicChange, Place
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

    ``run`` runs tools. By default they are run on this machine if ``root`` is ``/``,
    and not at all below any other root: a change that needs one then fails.

    ``activates`` is False for a hook before VDSM's network setup: the setup activates
    changed profiles itself, and a hook has no time for it.
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
        """Return, as a sentence without a full stop, why none of our rules makes such a
        change (a target such as /etc/passwd), else "". Reads nothing. ``read`` returns
        it as the problem, ``do`` and ``undo`` raise it as EffectFailed.
        """
        return why_refused(change)

    def read(
        self,
        change: Change,
        uuid: Optional[str] = None,
        place: Optional[Place] = None,
    ) -> Reading:
        """Return the present value of the property that ``change`` sets; never raises.

        ``uuid`` is the profile's if the target is ``new:NETDEV``. With ``place`` the
        netdev is found by that, whatever its name is now. The value is None if there is
        none: the netdev, profile or file does not exist (see :meth:`gone`), or the
        profile's property is not set. By kind: SYSFS the file's text without the
        newline (``create_child``: ``change.after`` if that child exists); PROFILE as
        nmcli prints it; OFFLOAD the requested state, ``on`` or ``off``:
        ``off [requested on]``, as in connected mode, is ``on``; FILE its text; MODULE
        ``loaded``; UNIT ``enabled``, ``disabled`` or systemd's other states
        (``static``, ``masked``).
        """
        refused = why_refused(change)
        if refused:
            return Reading(problem=refused)
        if netdev_gone(self._host, change, place):
            return Reading()
        change = present_target(self._host, change, place)
        if change.kind == PROFILE:
            return network_manager.read(self._host, change, uuid)
        if makes_child(change):
            return sysfs.read_child(self._host, change)
        return _READS[change.kind](self._host, change)

    def do(self, act: AtomicChange) -> None:
        """Set the ``after`` of each change of ``act``, in their order, and wait until
        it is in effect. A new profile (``act.uuid`` is set) is made completely or not
        at all, also after EffectFailed. An active profile is activated again if that is
        needed and ``act`` may take the link down.

        Raises EffectFailed. Use :meth:`read` to verify that the value was accepted.
        """
        act = self._checked(act)
        if makes_profile(act):
            new_profile.do(self._host, act)
            return
        for change in act.changes:
            if netdev_gone(self._host, change, act.place):
                name = netdev_of(change)
                raise EffectFailed("netdev-gone", f"{name} no longer exists")
            self._do_change(change, act.uuid)
            if act.effect == LINK_DOWN:
                self._activate(change, act.uuid, change.name)

    def _activate(self, change: Change, uuid: Optional[str], changed: str = "") -> None:
        known = network_manager.uuid_of(change, uuid)
        if self._activates and known and needs_activation(change):
            network_manager.reapply_or_activate(self._host, known, changed)

    def _do_change(self, change: Change, uuid: Optional[str]) -> None:
        if change.kind == PROFILE:
            network_manager.do(self._host, change, uuid)
        elif makes_child(change):
            sysfs.do_child(self._host, change)
        else:
            _DOES[change.kind](self._host, change)

    def undo(self, act: AtomicChange) -> None:
        """Undo ``act``, the last change first, each to its value in ``act.before`` (if
        that is empty, ``change.before``).

        A new profile is deleted, an active one is activated again if that is needed; a
        module stays loaded. Safe to call again, and if there is nothing to undo. Raises
        EffectFailed.
        """
        act = self._checked(act)
        if makes_profile(act):
            new_profile.undo(self._host, act)
            return
        before = act.before or tuple(change.before for change in act.changes)
        for change, value in reversed(list(zip(act.changes, before))):
            if not netdev_gone(self._host, change, act.place):
                self._undo_change(change, act.uuid, value)

    def _undo_change(
        self, change: Change, uuid: Optional[str], before: Optional[str]
    ) -> None:
        if change.kind == PROFILE:
            if network_manager.undo(self._host, change, uuid, before):
                self._activate(change, uuid)
        elif makes_child(change):
            sysfs.undo_child(self._host, change)
        elif change.kind in _UNDOES:
            _UNDOES[change.kind](self._host, change, before)

    def gone(self, act: AtomicChange) -> bool:
        """Whether the profile, netdev, device or unit of ``act`` does not exist, so
        that there is nothing to undo. False if that is unknown.
        """
        act = self.present(act)
        return all(
            netdev_gone(self._host, change, act.place)
            or self._is_gone(change, act.uuid)
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

    def present(self, act: AtomicChange) -> AtomicChange:
        """Return ``act`` with the present names: if the netdev of ``act.place`` has
        been renamed, targets have its new name. Reads /sys only. ``do``, ``undo`` and
        ``gone`` do this themselves.
        """
        changes = (present_target(self._host, c, act.place) for c in act.changes)
        return replace(act, changes=tuple(changes))

    def _checked(self, act: AtomicChange) -> AtomicChange:
        """Return ``act`` with the present names. Raises EffectFailed if none of our
        rules makes such a change; nothing is done then.
        """
        for refusal in _refusals(act):
            raise EffectFailed(
                "change-not-allowed",
                refusal,
                "find out who has changed the journal or the plan file",
            )
        return self.present(act)

    def boot_id(self) -> str:
        """Return the kernel's boot id, "" if it is unknown."""
        return FileTree(self._host.root).text(_BOOT_ID) or ""

    def now(self) -> float:
        """Return the time in seconds since 1970 UTC."""
        return self._host.clock()


def _refusals(act: AtomicChange) -> Iterator[str]:
    """Yield why none of our rules makes ``act``, or has its earlier values."""
    before = act.before or tuple(change.before for change in act.changes)
    if not act.changes or len(before) != len(act.changes):
        counted = f"{len(act.changes)} changes and {len(before)} earlier values"
        yield f"step {act.step!a} has {counted}"
    for change, value in zip(act.changes, before):
        refusal = why_refused(replace(change, before=value))
        if refusal:
            yield refusal


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
