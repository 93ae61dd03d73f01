# SPDX-License-Identifier: GPL-2.0-or-later
"""Loading a kernel module. Nothing unloads one again: others may use it by then, and a
module that nobody uses changes nothing.
"""

from __future__ import annotations

from ovirt_rdma.host.effects.effect import Host, Reading
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.module_names import module_name
from ovirt_rdma.host.rules.rule import Change

LOADED = "loaded"


def read(host: Host, change: Change) -> Reading:
    """Return ``loaded``, or None. /sys/module has built-in modules, too."""
    tree = FileTree(host.root)
    name = module_name(change.target)
    listed = (tree.text("/proc/modules") or "").split("\n")
    loaded = name in {line.partition(" ")[0] for line in listed}
    return Reading(LOADED if loaded or tree.is_folder(f"/sys/module/{name}") else None)


def do(host: Host, change: Change) -> None:
    """Load the module. Raises EffectFailed."""
    name = change.target
    fix = f"see journalctl -k, and: modprobe --verbose {name}"
    host.must(f"{name} cannot be loaded", ("modprobe", name), fix)
