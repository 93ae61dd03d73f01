# SPDX-License-Identifier: GPL-2.0-or-later
"""mount(8), umount(8) and the mount table."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from vdsm.common import supervdsm
from vdsm.storage import fileUtils

_PROC_MOUNTS_PATH = "/proc/mounts"


class MountRecord(NamedTuple):
    fs_spec: str
    fs_file: str
    fs_vfstype: str
    fs_mntops: list[str]
    fs_freq: int
    fs_passno: int


class MountError(Exception):
    """The command failed; ``out`` and ``err`` are bytes."""

    def __init__(self, cmd: Sequence[str], rc: int, out: bytes, err: bytes) -> None:
        self.cmd = cmd
        self.rc = rc
        self.out = out
        self.err = err

    def __str__(self) -> str:
        return (
            f"Command {self.cmd} failed with rc={self.rc} out={self.out!r}"
            f" err={self.err!r}"
        )


class Mount:
    log = logging.getLogger("storage.mount")

    def __init__(self, fs_spec: str, fs_file: str) -> None:
        self.fs_spec = fs_spec
        self.fs_file = fs_file

    def mount(
        self,
        mntOpts: Optional[str] = None,
        vfstype: Optional[str] = None,
        cgroup: Optional[str] = None,
    ) -> None:
        run = _mount if os.geteuid() == 0 else supervdsm.getProxy().mount
        self.log.info("mounting %s at %s", self.fs_spec, self.fs_file)
        run(self.fs_spec, self.fs_file, mntOpts=mntOpts, vfstype=vfstype, cgroup=cgroup)

    def umount(
        self, force: bool = False, lazy: bool = False, freeloop: bool = False
    ) -> None:
        run = _umount if os.geteuid() == 0 else supervdsm.getProxy().umount
        self.log.info("unmounting %s", self.fs_file)
        run(self.fs_file, force=force, lazy=lazy, freeloop=freeloop)

    def isMounted(self) -> bool:
        try:
            self.getRecord()
        except OSError:
            return False
        return True

    def getRecord(self) -> MountRecord:
        """Return the first line of the mount table with this spec and file; other
        fields do not matter. Raises OSError(ENOENT) if there is none.
        """
        for record in _records():
            if (record.fs_spec, record.fs_file) == (self.fs_spec, self.fs_file):
                return record
        raise OSError(errno.ENOENT, f"{self.fs_spec} is not mounted at {self.fs_file}")


def _records() -> Iterator[MountRecord]:
    with Path(_PROC_MOUNTS_PATH).open() as table:
        for line in table:
            spec, file, vfstype, options, freq, passno = line.split()[:6]
            yield MountRecord(
                fileUtils.normalize_path(_unescape(spec)),
                _unescape(file),
                vfstype,
                options.split(","),
                int(freq),
                int(passno),
            )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def _mount(
    fs_spec: str,
    fs_file: str,
    mntOpts: Optional[str] = None,
    vfstype: Optional[str] = None,
    cgroup: Optional[str] = None,
) -> None:
    if cgroup is not None:
        raise ValueError("only gluster mounts run in a cgroup")
    kind = ["-t", vfstype] if vfstype is not None else []
    options = ["-o", mntOpts] if mntOpts else []
    _run(["/usr/bin/mount", *kind, *options, fs_spec, fs_file])


def _umount(
    fs_file: str, force: bool = False, lazy: bool = False, freeloop: bool = False
) -> None:
    flags = ["-f"] * force + ["-l"] * lazy + ["-d"] * freeloop
    _run(["/usr/bin/umount", *flags, fs_file])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise MountError(command, done.returncode, done.stdout, done.stderr)
