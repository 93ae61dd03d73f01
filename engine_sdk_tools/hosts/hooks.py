# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether VDSM's hooks on a host are ours, told by the engine's own list of them. Pure
but for :func:`checksums_of`, which reads the files of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, UNKNOWN, Cell
from ovirt_rdma.engine_sdk_tools.model import Host

NAME = "50_ovirt_rdma"
POINTS = (
    "after_get_caps",
    "after_network_setup",
    "before_network_setup",
    "before_vdsm_start",
)
# Where the package puts them, and VDSM looks (constants.P_VDSM_HOOKS).
INSTALLED = "/usr/libexec/vdsm/hooks"

# By hook point: the texts that the engine may show of our file. Its field is called
# md5; VDSM fills in whichever digest it uses (facts of HostMapper in the engine).
Checksums = Mapping[str, frozenset[str]]


def checksums_of(folders: Iterable[Path]) -> Checksums:
    """Return our hooks' digests, a point's from the first of ``folders`` that has it.

    A point whose file cannot be read is left out.
    """
    found: dict[str, frozenset[str]] = {}
    for folder in folders:
        for point in POINTS:
            try:
                data = (folder / point / NAME).read_bytes()
            except OSError:
                continue
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            sha256 = hashlib.sha256(data).hexdigest()
            found.setdefault(point, frozenset((md5, sha256)))
    return found


def hooks_cell(host: Host, ours: Checksums) -> Cell:
    """Say whether all our hooks are on ``host``, and are those of this version.

    The engine knows them since it last asked the host for its capabilities.
    """
    if host.hooks is None:
        return Cell(UNKNOWN, "unknown", "hooks were not asked for", source="engine")
    present = {hook.event: hook.checksum for hook in host.hooks if hook.name == NAME}
    missing = [point for point in POINTS if point not in present]
    refresh = "if it was installed just now, refresh the host's capabilities first"
    if len(missing) == len(POINTS):
        sentence = "the engine knows of no hook of ovirt-rdma there"
        fix = f"install ovirt-rdma-host there; {refresh}"
        return Cell(FAIL, "missing", sentence, fix, "engine")
    if missing:
        sentence = f"no hook of ovirt-rdma at {', '.join(missing)}"
        fix = f"install ovirt-rdma-host there anew; {refresh}"
        return Cell(FAIL, "incomplete", sentence, fix, "engine")
    verdicts = {point: _same(present[point], ours.get(point)) for point in POINTS}
    other = [point for point, same in verdicts.items() if same is False]
    if other:
        sentence = (
            f"the hook at {', '.join(other)} is another version than this machine's"
        )
        fix = f"install the same version on both; {refresh}"
        return Cell(FAIL, "differ", sentence, fix, "engine")
    untold = [point for point, same in verdicts.items() if same is None]
    if untold:
        points = ", ".join(untold)
        sentence = f"the hooks are there; checksums cannot be compared of: {points}"
        fix = "the files to compare with come with the package ovirt-rdma-host"
        return Cell(UNKNOWN, "present", sentence, fix, "engine")
    return Cell(OK, "ok", "the hooks are there, in this version", "", "engine")


def _same(theirs: Optional[str], ours: Optional[frozenset[str]]) -> Optional[bool]:
    if not theirs or not ours or len(theirs) not in {len(text) for text in ours}:
        return None
    return theirs.lower() in ours
