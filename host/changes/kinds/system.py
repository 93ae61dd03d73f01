# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds MODULE and UNIT: load kernel modules, enable and start our systemd units.

A module is never unloaded: others may use it by then, and an unused module does no
harm.
"""

from __future__ import annotations

import re
import shlex
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.module_names import module_name
from ovirt_rdma.host.paths import SYSTEMD_BOOTED
from ovirt_rdma.host.rules.base import MODULE, UNIT
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

LOADED = "loaded"
_MODULE = re.compile(r"[a-z0-9][a-z0-9_-]{0,55}")


class Module(Kind):
    """A loaded kernel module."""

    name = MODULE
    title = "module {}"
    stays = Sentence("module-stays-loaded", "a module stays loaded")

    def values(self) -> Optional[str]:
        return LOADED if _MODULE.fullmatch(self.change.target) else None

    def still_holds(self, value: Optional[str]) -> bool:
        return True  # others may have loaded it since

    def read(self, host: Host) -> Reading:
        # /sys/module has built-in modules too.
        tree = FileTree(host.root)
        name = module_name(self.change.target)
        listed = (tree.text("/proc/modules") or "").split("\n")
        loaded = name in {line.partition(" ")[0] for line in listed}
        loaded = loaded or tree.is_folder(f"/sys/module/{name}")
        return Reading(LOADED if loaded else None)

    def do(self, host: Host) -> None:
        name = self.change.target
        fix = f"see journalctl -k, and: modprobe --verbose {name}"
        host.run_or_fail(f"module {name} cannot be loaded", ("modprobe", name), fix)

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Do nothing: it stays loaded."""


ENABLED = "enabled"
_VERBS = {True: "enable", False: "disable"}
_UNIT = re.compile(r"ovirt-rdma-opensm@0x[0-9a-f]{16}\.service")


class Unit(Kind):
    """Whether one of our units is enabled and started."""

    name = UNIT
    is_named = True
    title = "systemd unit {}"

    def values(self) -> Optional[str]:
        # Before our change, a unit may have any state of systemctl: "static".
        known = _UNIT.fullmatch(self.change.target) and self.change.name == ENABLED
        return r"[a-z-]+" if known else None

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        return f"systemctl {_VERBS[value == ENABLED]} --now {target}"

    def read(self, host: Host) -> Reading:
        """Return systemd's UnitFileState; None if there is no such unit."""
        if not host.path(SYSTEMD_BOOTED).is_dir():
            return Reading(problem="systemd is not running here")
        unit = self.change.target
        command = ("systemctl", "show", "-p", "UnitFileState", "--value", unit)
        try:
            return Reading(host.tool(*command).strip() or None)
        except CommandFailed as e:
            return Reading(problem=f"{' '.join(command)} failed: {e}")

    def do(self, host: Host) -> None:
        self._set(host, self.change.after == ENABLED)

    def undo(self, host: Host, before: Optional[str]) -> None:
        present = self.read(host)
        if not present.problem and present.value in (None, before):
            return
        self._set(host, before == ENABLED)

    def is_gone(self, host: Host) -> bool:
        return self.read(host) == Reading()

    def _set(self, host: Host, enabled: bool) -> None:
        unit = self.change.target
        if not host.path(SYSTEMD_BOOTED).is_dir():
            raise EffectFailed(
                "systemd-not-running",
                f"{unit} cannot be changed: systemd is not running here",
            )
        verb = _VERBS[enabled]
        fix = f"see systemctl status {unit}"
        command = ("systemctl", verb, "--now", unit)
        host.run_or_fail(f"{unit} cannot be {verb}d", command, fix)
