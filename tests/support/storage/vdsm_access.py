# SPDX-License-Identifier: GPL-2.0-or-later
"""Do the work of supervdsmd and ioprocess for a mount in this process.

It is used with a real VDSM source, without these daemons. Both have only the methods
that a storage connection uses; everything else is an AttributeError.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# vdsm.spec and Fedora's uidgid: the ids are fixed on every oVirt host.
_USERS = {"vdsm": 36, "qemu": 107}
_GROUPS = {"kvm": 36, "qemu": 107}


def check_access(path: str, uid: int, groups: Sequence[int], perms: int) -> None:
    """Raise OSError(EACCES) unless ``uid`` in ``groups`` has ``perms`` on ``path``.

    The check runs under that uid, because an NFS server may squash root; if this
    process is not root, it runs under its own uid.
    """
    command = ["test", "-d", path]
    for bit, flag in ((os.R_OK, "-r"), (os.W_OK, "-w"), (os.X_OK, "-x")):
        if perms & bit:
            command += ["-a", flag, path]
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": uid, "group": groups[0], "extra_groups": list(groups)}
    if subprocess.run(command, check=False, **identity).returncode:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


class LocalSuperVdsm:
    """supervdsmd's mount, umount and validateAccess."""

    def __init__(self, mount: ModuleType) -> None:
        self._module = mount

    def mount(self, *args: Any, **kwargs: Any) -> None:
        self._module._mount(*args, **kwargs)

    def umount(self, *args: Any, **kwargs: Any) -> None:
        self._module._umount(*args, **kwargs)

    def validateAccess(
        self, user: str, groups: Sequence[str], path: str, perms: int
    ) -> None:
        check_access(path, _USERS[user], [_GROUPS[g] for g in groups], perms)


class LocalProcessPool:
    """ioprocess, which runs as vdsm; only ``fileUtils.validateAccess``."""

    @property
    def fileUtils(self) -> LocalProcessPool:
        return self

    def validateAccess(self, path: str) -> None:
        perms = os.R_OK | os.W_OK | os.X_OK
        check_access(path, _USERS["vdsm"], [_GROUPS["kvm"]], perms)
