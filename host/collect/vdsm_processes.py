# SPDX-License-Identifier: GPL-2.0-or-later
"""Find VDSM's running daemons and their SELinux contexts."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from typing import Optional

from ovirt_rdma.host.facts.model import SELinux, VdsmDaemon
from ovirt_rdma.host.paths import LAUNCHER, STOCK_SUPERVDSMD, STOCK_VDSMD
from ovirt_rdma.host.system.processes import ROOT, VDSM_UID, processes, runs
from ovirt_rdma.host.system.tree import FileTree

_DAEMONS = {
    LAUNCHER: "vdsmd",
    STOCK_VDSMD: "vdsmd",
    STOCK_SUPERVDSMD: "supervdsmd",
}
# vdsmd does not start as another user (VDSM, lib/vdsm/vdsmd.py, __assertVdsmUser).
_USERS = {LAUNCHER: VDSM_UID, STOCK_VDSMD: VDSM_UID, STOCK_SUPERVDSMD: ROOT}
# Exists only if SELinux is enabled; "1" or "0" (kernel, security/selinux/selinuxfs.c).
_ENFORCE = "/sys/fs/selinux/enforce"


def running_scripts(
    tree: FileTree, scripts: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield process id and path of those ``scripts`` of vdsmd and supervdsmd that
    Python runs for the daemon's user.

    They are sorted by process id; there may be several, while one stops and one starts.
    """
    wanted = {script.encode(): script for script in scripts}
    for pid, words in processes(tree):
        if not posixpath.basename(words[0]).startswith(b"python"):
            continue
        found = next((word for word in words[1:] if not word.startswith(b"-")), b"")
        script = wanted.get(found)
        if script and runs(tree, pid, _USERS[script], "python"):
            yield pid, script


def read_selinux(tree: FileTree) -> Optional[SELinux]:
    """Return the mode of SELinux and the contexts of VDSM's running daemons, as far as
    they can be read; None if SELinux is disabled.
    """
    enforce = tree.text(_ENFORCE)
    if enforce is None:
        return None
    daemons: dict[str, VdsmDaemon] = {}
    for pid, script in running_scripts(tree, _DAEMONS):
        context = (tree.text(f"/proc/{pid}/attr/current") or "").rstrip("\0")
        if context:
            daemon = VdsmDaemon(_DAEMONS[script], pid, context)
            daemons.setdefault(daemon.name, daemon)
    return SELinux(enforce == "1", tuple(daemons[name] for name in sorted(daemons)))
