# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the hooks that the engine lists for a host with those of this version.

Pure, except :func:`our_checksums` and :func:`checksums_of`, which read our files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, UNKNOWN, Cell
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.system.safe_file import read_file

NAME = "50_ovirt_rdma"
POINTS = (
    "after_get_caps",
    "after_network_setup",
    "before_network_setup",
    "before_vdsm_start",
)
# The folder of VDSM's hooks, into which the package installs (constants.P_VDSM_HOOKS).
INSTALLED = "/usr/libexec/vdsm/hooks"

# By hook point: the digests of our file that the engine may show. The field is called
# md5, but has whichever digest VDSM uses (HostMapper in the engine).
Checksums = Mapping[str, frozenset[str]]


def checksums_of(folders: Iterable[Path]) -> Checksums:
    """Return the digests of our hooks, each from the first of ``folders`` that has it.

    A hook whose file cannot be read is left out.
    """
    checksums: dict[str, frozenset[str]] = {}
    for folder in folders:
        for point in POINTS:
            try:
                data = read_file(folder / point / NAME)
            except OSError:
                continue
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            sha256 = hashlib.sha256(data).hexdigest()
            checksums.setdefault(point, frozenset((md5, sha256)))
    return checksums


def our_checksums() -> Checksums:
    """Return the checksums of the hooks that are installed on this machine, or are in
    the source tree that this runs from.
    """
    spec = find_spec("ovirt_rdma.vdsm_hooks")
    folders = spec.submodule_search_locations if spec else None
    return checksums_of([Path(INSTALLED), *map(Path, folders or ())])


def hooks_cell(host: Host, ours: Checksums) -> Cell:
    """Return whether ``host`` has all our hooks, in this version.

    The engine's list is as old as its last read of the host's capabilities.
    """
    if host.hooks is None:
        return Cell(UNKNOWN, "unknown", "the hooks were not read", source="engine")
    present = {hook.event: hook.checksum for hook in host.hooks if hook.name == NAME}
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
    verdicts = {point: _same(present[point], ours.get(point)) for point in POINTS}
    other = [point for point, same in verdicts.items() if same is False]
    if other:
        sentence = (
            f"the hook at {', '.join(other)} is of another version than this machine's"
        )
        fix = f"install the same version on both; {refresh}"
        return Cell(FAIL, "differ", sentence, fix, "engine")
    unknown = [point for point, same in verdicts.items() if same is None]
    if unknown:
        points = ", ".join(unknown)
        sentence = f"the hooks exist; checksums could not be compared: {points}"
        fix = (
            "install the package ovirt-rdma-host on this machine: it has the files to "
            "compare with"
        )
        return Cell(UNKNOWN, "present", sentence, fix, "engine")
    return Cell(OK, "ok", "the hooks exist and are of this version", "", "engine")


def _same(theirs: Optional[str], ours: Optional[frozenset[str]]) -> Optional[bool]:
    if not theirs or not ours or len(theirs) not in {len(text) for text in ours}:
        return None
    return theirs.lower() in ours
