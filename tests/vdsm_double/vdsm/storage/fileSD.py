# SPDX-License-Identifier: GPL-2.0-or-later
"""May VDSM and the VMs use a directory?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from vdsm.storage import exception as se

_VDSM = {"user": 36, "group": 36, "extra_groups": [36]}
_QEMU = {"user": 107, "group": 107, "extra_groups": [36, 107]}


def validateDirAccess(dirPath: str) -> bool:
    """Ask as vdsm for all access and as qemu to read and enter; True or 469."""
    for who, flags in ((_VDSM, "rwx"), (_QEMU, "rx")):
        identity: dict[str, Any] = who if os.geteuid() == 0 else {}
        for flag in flags:
            test = ["test", f"-{flag}", dirPath]
            if subprocess.run(test, check=False, **identity).returncode:
                Path(dirPath).stat()  # a directory that is gone or dead is not 469
                raise se.StorageServerAccessPermissionError(dirPath)
    return True
