# SPDX-License-Identifier: GPL-2.0-or-later
"""Load the VDSM that the tests use, chosen by ``VDSM_SOURCE``.

Unset, it is the strict double in ``tests/vdsm_double``; set to a checkout of
oVirt/vdsm, it is that source (see :mod:`vdsm_source`). Either is imported as ``vdsm``,
once per process. This works in pytest (fixtures in tests/storage/conftest.py)
and in a plain script inside a lab guest::

    vdsm = load_vdsm()
    with vdsm.fresh(Path("/rhev/data-center/mnt")), vdsm.real_mounts():
        [(connection, status)] = vdsm.connect({"id": "1", "connection": "s:/e"})
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Optional
from unittest.mock import patch

from support.storage import vdsm_source
from support.storage.fake_kernel import FakeKernel
from support.storage.vdsm_access import LocalProcessPool, LocalSuperVdsm

DOUBLE = "double"
SOURCE = "source"

NFS_DOMAIN = 1
POSIXFS_DOMAIN = 6

EXPORT = "nas.example:/export/data"


def definition(**keys: Any) -> dict[str, Any]:
    """Return the engine's definition of EXPORT, with ``keys`` added or changed."""
    return {"id": "1", "connection": EXPORT, **keys}


@dataclass(frozen=True)
class VdsmUnderTest:
    """The imported modules of one VDSM, and ways to put it in a known state.

    ``kind`` is ``double`` or ``source``; ``path`` the folder to put on the
    PYTHONPATH of a child process that should import the same VDSM.
    """

    kind: str
    path: Path
    storage_server: ModuleType
    mount: ModuleType
    exception: ModuleType
    file_sd: ModuleType
    supervdsm: ModuleType
    config: Any
    vdsmd: Optional[ModuleType]

    @contextmanager
    def fresh(self, local_path_base: Path) -> Iterator[None]:
        """Mount below ``local_path_base``; restore afterwards what tests change: the
        registry, DEFAULT_OPTIONS, the base, vdsm.conf's NFS options.
        """
        server = self.storage_server
        registry = server.ConnectionFactory.registeredConnectionTypes
        conf = self.config.get("irs", "nfs_mount_options")
        base = server.MountConnection.getLocalPathBase()
        stack = ExitStack()
        stack.enter_context(patch.dict(registry))
        defaults = list(server.NFSConnection.DEFAULT_OPTIONS)
        stack.enter_context(
            patch.object(server.NFSConnection, "DEFAULT_OPTIONS", defaults)
        )
        with stack:
            server.MountConnection.setLocalPathBase(str(local_path_base))
            try:
                yield
            finally:
                server.MountConnection.setLocalPathBase(base)
                self.config.set("irs", "nfs_mount_options", conf)

    @contextmanager
    def fake_mounts(self, root: Path) -> Iterator[FakeKernel]:
        """Replace mount(8) and umount(8) by a FakeKernel whose proc is in ``root``."""
        kernel = FakeKernel(root, self.mount.MountError)
        with ExitStack() as stack:

            def replace(module: ModuleType, name: str, value: object) -> None:
                stack.enter_context(patch.object(module, name, value))

            replace(self.mount, "_PROC_MOUNTS_PATH", str(kernel.proc_mounts))
            replace(self.mount, "_mount", kernel.mount)
            replace(self.mount, "_umount", kernel.umount)
            replace(self.supervdsm, "getProxy", lambda: LocalSuperVdsm(self.mount))
            replace(self.file_sd, "validateDirAccess", self._check_access(kernel))
            if self.kind == SOURCE:
                replace(self.mount.udevadm, "settle", lambda timeout: None)
            yield kernel

    def _check_access(self, kernel: FakeKernel) -> Any:
        def validate_dir_access(path: str) -> bool:
            error = kernel.access_error(path)
            if isinstance(error, PermissionError):
                raise self.exception.StorageServerAccessPermissionError(path)
            if error is not None:
                raise error
            return True

        return validate_dir_access

    @contextmanager
    def real_mounts(self) -> Iterator[None]:
        """Mount for real, as root, without supervdsmd and ioprocess.

        VDSM's own validateDirAccess runs; only its helper processes are replaced by
        ``test(1)`` under the same uids. Without udevd ``udevadm settle`` is left out.
        """
        with ExitStack() as stack:
            if self.kind == SOURCE:
                proxy = LocalSuperVdsm(self.mount)
                stack.enter_context(
                    patch.object(self.supervdsm, "getProxy", lambda: proxy)
                )
                stack.enter_context(
                    patch.object(self.file_sd, "getProcPool", LocalProcessPool)
                )
                if not Path("/run/udev/control").exists():
                    stack.enter_context(
                        patch.object(self.mount.udevadm, "settle", lambda timeout: None)
                    )
            yield

    def create(self, con_def: Mapping[str, Any]) -> Any:
        """Return VDSM's connection for an NFS definition, not connected."""
        server = self.storage_server
        info = server._connectionDict2ConnectionInfo(NFS_DOMAIN, dict(con_def))
        return server.ConnectionFactory.createConnection(info)

    def connect(
        self, *definitions: Mapping[str, Any], dom_type: int = NFS_DOMAIN
    ) -> list[tuple[Any, int]]:
        """Do what ``StoragePool.connectStorageServer`` does with the engine's
        definitions (keys id, connection, protocol_version, timeout, retrans,
        mnt_options, vfs_type); return VDSM's (connection, status) pairs.
        """
        pairs = self.storage_server.connect(dom_type, [dict(d) for d in definitions])
        return list(pairs)

    def disconnect(
        self, *definitions: Mapping[str, Any], dom_type: int = NFS_DOMAIN
    ) -> list[tuple[Any, int]]:
        """The same for disconnectStorageServer."""
        pairs = self.storage_server.disconnect(dom_type, [dict(d) for d in definitions])
        return list(pairs)


@functools.cache
def load_vdsm() -> VdsmUnderTest:
    """Import the VDSM that VDSM_SOURCE names, or the double.

    Raises RuntimeError if another ``vdsm`` is already imported, or if the tree is not
    VDSM's.
    """
    source = os.environ.get("VDSM_SOURCE")
    if source:
        # Kept until the interpreter ends, because modules are imported from it lazily.
        holder = tempfile.TemporaryDirectory(prefix="vdsm-source-")
        _holders.append(holder)
        path = vdsm_source.build(Path(source), Path(holder.name))
    else:
        path = Path(__file__).resolve().parents[2] / "vdsm_double"
    if "vdsm" in sys.modules:
        raise RuntimeError(f"another vdsm is imported: {sys.modules['vdsm'].__file__}")
    sys.path.insert(0, str(path))

    def module(name: str) -> ModuleType:
        return importlib.import_module(f"vdsm.{name}")

    return VdsmUnderTest(
        kind=SOURCE if source else DOUBLE,
        path=path,
        storage_server=module("storage.storageServer"),
        mount=module("storage.mount"),
        exception=module("storage.exception"),
        file_sd=module("storage.fileSD"),
        supervdsm=module("common.supervdsm"),
        config=module("config").config,
        vdsmd=module("vdsmd"),
    )


_holders: list[tempfile.TemporaryDirectory[str]] = []
