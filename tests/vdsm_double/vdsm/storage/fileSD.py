# SPDX-License-Identifier: GPL-2.0-or-later
"""Check whether VDSM and the VMs may use a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from vdsm.common import supervdsm
from vdsm.storage import exception as se

_VDSM = {"user": 36, "group": 36, "extra_groups": [36]}
_QEMU = {"user": 107, "group": 107, "extra_groups": [36, 107]}


def validateDirAccess(dirPath: str) -> bool:
    """Check all access as vdsm, and read and execute as qemu; True or error 469."""
    if os.geteuid() == 0:
        allowed = _may("rwx", dirPath, _VDSM) and _may("rx", dirPath, _QEMU)
    else:
        allowed = _may("rwx", dirPath, {}) and _qemu_may(os.R_OK | os.X_OK, dirPath)
    if not allowed:
        Path(dirPath).stat()  # a directory that is missing or hangs is not 469
        raise se.StorageServerAccessPermissionError(dirPath)
    return True


def _may(flags: str, path: str, identity: dict[str, Any]) -> bool:
    tests = (["test", f"-{flag}", path] for flag in flags)
    return all(
        subprocess.run(test, check=False, **identity).returncode == 0 for test in tests
    )


def _qemu_may(permissions: int, path: str) -> bool:
    proxy = supervdsm.getProxy()
    try:
        proxy.validateAccess("qemu", ("qemu", "kvm"), path, permissions)
    except PermissionError:
        return False
    return True
