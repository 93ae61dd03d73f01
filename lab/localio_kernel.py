# SPDX-License-Identifier: GPL-2.0-or-later
"""Provision guests whose kernel has LOCALIO, with which Debian builds none.

Their kernel is Debian's 6.12. Its modules of the NFS client and server are built again,
from Debian's own source, with CONFIG_NFS_LOCALIO; everything else stays as it is. No
structure that other modules see depends on that option.
"""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from lab import cache, packages
from lab.ib_fabric_build import make_modules
from lab.layer import KERNEL
from lab.layer_program import run_from
from lab.problem import LabProblem, NotProvisioned
from lab.provision import make_layer

_VERSION = "6.12"
_SOURCE = f"linux-source-{_VERSION}"
# Folders of the source with modules that change, by what they are called in fs/.
_FOLDERS = ("nfs_common", "nfs", "nfsd")
# What kbuild would take from .config, for make and for the compiler.
_SETTINGS = (
    "CC=gcc",
    "CONFIG_DEBUG_INFO_BTF_MODULES=",
    "CONFIG_NFS_LOCALIO=y",
    "CONFIG_NFS_COMMON_LOCALIO_SUPPORT=m",
    "KCFLAGS=-g0 -DCONFIG_NFS_LOCALIO=1 -DCONFIG_NFS_COMMON_LOCALIO_SUPPORT_MODULE=1",
)


@contextmanager
def guests_with_localio() -> Iterator[cache.Provision]:
    """Let guests that are started meanwhile have that kernel.

    The first use downloads 320 MB, and builds for some minutes. Raises LabProblem if
    that fails.
    """
    folder = cache.cache_folder() / "localio"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"OVIRT_RDMA_CACHE": str(folder), KERNEL: _VERSION}
    with mock.patch.dict("os.environ", environment):
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                made = cache.provisioned()
            except NotProvisioned:
                made = make_layer(folder, cache.wanted_key())
                _build(made, folder)
                cache.record(made)
        yield made


def _build(made: cache.Provision, folder: Path) -> None:
    """Replace the modules in the layer."""
    archive = packages.fetched(folder, _SOURCE) / f"usr/src/{_SOURCE}.tar.xz"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # nfsd includes the header of fs/.
        wanted = [f"{_SOURCE}/fs/{name}" for name in (*_FOLDERS, "internal.h")]
        unpack = ["tar", "-xJf", str(archive), "-C", scratch, *wanted]
        if subprocess.run(unpack, check=False).returncode:
            raise LabProblem(f"{archive} cannot be unpacked")
        source = Path(scratch) / _SOURCE / "fs"
        (source / "Kbuild").write_text(f"obj-m := {'/ '.join(_FOLDERS)}/\n")
        make_modules(made, source, "NFS with LOCALIO", *_SETTINGS)
        for module in source.rglob("*.ko"):
            place = made.modules / "kernel/fs" / module.relative_to(source)
            place.with_suffix(".ko.xz").unlink(missing_ok=True)
            module.rename(place)
    run_from(
        made.layer, "usr/bin/kmod", "depmod", "-b", str(made.layer), made.kernel_release
    )
