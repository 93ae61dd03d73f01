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

from ovirt_rdma.host.changes.kinds.base import (
    EffectFailed,
    Host,
    Reading,
    run_effect,
    write_kernel_file,
)
from ovirt_rdma.host.changes.kinds.model import AtomicChange, Place
from ovirt_rdma.host.changes.kinds.registry import kind_of, kinds_of
from ovirt_rdma.host.rules.base import LINK_DOWN, Change
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.tree import FileTree

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


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
        self._host = Host(root, run, sleep, clock, write, activates)

    def refusal(self, change: Change) -> str:
        """Return, as a sentence without a full stop, why none of our rules makes such a
        change (a target such as /etc/passwd), else "". Reads nothing. ``read`` returns
        it as the problem, ``do`` and ``undo`` raise it as EffectFailed.
        """
        return kind_of(change).refusal()

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
        profile's property is not set. Each kind says in its ``read`` what it returns.
        """
        kind = kind_of(change, uuid)
        refused = kind.refusal()
        if refused:
            return Reading(problem=refused)
        if kind.gone_with_netdev(self._host, place):
            return Reading()
        return kind_of(kind.present(self._host, place), uuid).read(self._host)

    def do(self, act: AtomicChange) -> None:
        """Set the ``after`` of each change of ``act``, in their order, and wait until
        it is in effect. A new profile (``act.uuid`` is set) is made completely or not
        at all, also after EffectFailed. An active profile is activated again if that is
        needed and ``act`` may take the link down.

        Raises EffectFailed. Use :meth:`read` to verify that the value was accepted.
        """
        act = self._checked(act)
        for kind in kinds_of(act):
            if kind.gone_with_netdev(self._host, act.place):
                raise EffectFailed("netdev-gone", f"{kind.netdev} no longer exists")
            kind.do(self._host)
            if act.effect == LINK_DOWN:
                kind.take_effect(self._host)

    def undo(self, act: AtomicChange) -> None:
        """Undo ``act``, the last change first, each to its value in ``act.before`` (if
        that is empty, ``change.before``).

        A new profile is deleted, an active one is activated again if that is needed; a
        module stays loaded. Safe to call again, and if there is nothing to undo. Raises
        EffectFailed.
        """
        act = self._checked(act)
        for kind, value in reversed(list(zip(kinds_of(act), _before(act)))):
            if not kind.gone_with_netdev(self._host, act.place):
                kind.undo(self._host, value)

    def gone(self, act: AtomicChange) -> bool:
        """Whether the profile, netdev, device or unit of ``act`` does not exist, so
        that there is nothing to undo. False if that is unknown.
        """
        act = self.present(act)
        return all(
            kind.gone_with_netdev(self._host, act.place)
            or (not kind.refusal() and kind.is_gone(self._host))
            for kind in kinds_of(act)
        )

    def present(self, act: AtomicChange) -> AtomicChange:
        """Return ``act`` with the present names: if the netdev of ``act.place`` has
        been renamed, targets have its new name. Reads /sys only. ``do``, ``undo`` and
        ``gone`` do this themselves.
        """
        kinds = (kind_of(change, act.uuid) for change in act.changes)
        changes = (kind.present(self._host, act.place) for kind in kinds)
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
    before = _before(act)
    if not act.changes or len(before) != len(act.changes):
        counted = f"{len(act.changes)} changes and {len(before)} earlier values"
        yield f"step {act.step!a} has {counted}"
    for change, value in zip(act.changes, before):
        refusal = kind_of(replace(change, before=value)).refusal()
        if refusal:
            yield refusal


def _before(act: AtomicChange) -> tuple[Optional[str], ...]:
    return act.before or tuple(change.before for change in act.changes)
