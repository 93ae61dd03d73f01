# SPDX-License-Identifier: GPL-2.0-or-later
"""Say which of our hooks the engine lists for a host. Pure."""

from __future__ import annotations

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, UNKNOWN, Cell
from ovirt_rdma.engine_sdk_tools.model import Host

NAME = "50_ovirt_rdma"
POINTS = (
    "after_get_caps",
    "after_network_setup",
    "before_network_setup",
    "before_vdsm_start",
)


def hooks_cell(host: Host) -> Cell:
    """Return whether ``host`` has all our hooks.

    The engine's list is as old as its last read of the host's capabilities.
    """
    if host.hooks is None:
        return Cell(UNKNOWN, "unknown", "the hooks were not read", source="engine")
    present = {hook.event for hook in host.hooks if hook.name == NAME}
    missing = [point for point in POINTS if point not in present]
    refresh = "if it was installed just now, refresh the host's capabilities first"
    if len(missing) == len(POINTS):
        sentence = "the engine lists no hook of ovirt-rdma for the host"
        fix = f"install ovirt-rdma-host on the host; {refresh}"
        return Cell(FAIL, "missing", sentence, fix, "engine")
    if missing:
        sentence = f"no hook of ovirt-rdma at {', '.join(missing)}"
        fix = f"reinstall ovirt-rdma-host on the host; {refresh}"
        return Cell(FAIL, "incomplete", sentence, fix, "engine")
    return Cell(OK, "ok", "the engine lists all hooks of ovirt-rdma", "", "engine")
