# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind MODULE: load kernel modules.

A module is never unloaded: others may use it by then, and an unused module does no
harm.
"""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import Host, Reading
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.module_names import module_name
from ovirt_rdma.host.rules.base import MODULE
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
