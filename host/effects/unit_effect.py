# SPDX-License-Identifier: GPL-2.0-or-later
"""Enabling and starting a systemd unit of ours, and the reverse."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.commands import CommandFailed
from ovirt_rdma.host.effects.effect import EffectFailed, Host, Reading
from ovirt_rdma.host.paths import SYSTEMD_BOOTED
from ovirt_rdma.host.rules.rule import Change

ENABLED = "enabled"
_VERBS = {True: "enable", False: "disable"}


def read(host: Host, change: Change) -> Reading:
    """Return systemd's UnitFileState; None where there is no such unit."""
    if not host.path(SYSTEMD_BOOTED).is_dir():
        return Reading(problem="systemd does not run here")
    words = ("systemctl", "show", "-p", "UnitFileState", "--value", change.target)
    try:
        return Reading(host.tool(*words).strip() or None)
    except CommandFailed as e:
        return Reading(problem=f"{' '.join(words)} failed: {e}")


def do(host: Host, change: Change) -> None:
    """Enable and start the unit, or disable and stop it. Raises EffectFailed."""
    _set(host, change.target, change.after == ENABLED)


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Give the unit its earlier state; one that is gone needs nothing."""
    present = read(host, change)
    if not present.problem and present.value in (None, before):
        return
    _set(host, change.target, before == ENABLED)


def is_gone(host: Host, change: Change) -> bool:
    """Whether there is no such unit (any more)."""
    return read(host, change) == Reading()


def _set(host: Host, unit: str, enabled: bool) -> None:
    if not host.path(SYSTEMD_BOOTED).is_dir():
        raise EffectFailed(f"{unit} cannot be changed: systemd does not run here")
    verb = _VERBS[enabled]
    fix = f"see systemctl status {unit}"
    host.must(f"{unit} cannot be {verb}d", ("systemctl", verb, "--now", unit), fix)
