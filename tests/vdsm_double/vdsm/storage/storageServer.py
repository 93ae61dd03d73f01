# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage connections, their registry and connect/disconnect."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Optional

from vdsm.storage import _definitions, fileSD, fileUtils, mount
from vdsm.storage import exception as se
from vdsm.storage._definitions import ConnectionInfo, NfsConnectionParameters

__all__ = [
    "Connection",
    "ConnectionFactory",
    "ConnectionInfo",
    "MountConnection",
    "NFSConnection",
    "NfsConnectionParameters",
    "connect",
    "disconnect",
]

log = logging.getLogger("storage.storageServer")

Result = tuple["Connection", int]


class Connection:
    @classmethod
    def connect_all(cls, connections: Sequence[Any]) -> list[Result]:
        return cls._each(connections, "connect", "Could not connect to storage server")

    @classmethod
    def disconnect_all(cls, connections: Sequence[Any]) -> list[Result]:
        sentence = "Could not disconnect from storage server"
        return cls._each(connections, "disconnect", sentence)

    @classmethod
    def _each(
        cls, connections: Sequence[Any], verb: str, sentence: str
    ) -> list[Result]:
        # One after the other, in order; one failure does not stop the rest.
        results = []
        for connection in connections:
            status = 0
            try:
                getattr(connection, verb)()
            except Exception as error:
                log.exception(sentence)
                status = cls.translate_error(error)[0]
            results.append((connection, status))
        return results

    @classmethod
    def translate_error(cls, e: Optional[BaseException]) -> tuple[int, str]:
        if e is None:
            return 0, ""
        code = getattr(e, "code", None)
        if code is None:
            return se.GeneralException.code, str(e)
        return code, e.msg  # type: ignore[attr-defined]


class MountConnection(Connection):
    CGROUP: ClassVar[Optional[str]] = None
    DIR = ""
    localPathBase = "/tmp"

    @classmethod
    def setLocalPathBase(cls, path: str) -> None:
        cls.localPathBase = path

    @classmethod
    def getLocalPathBase(cls) -> str:
        return cls.localPathBase

    @classmethod
    def translate_error(cls, e: Optional[BaseException]) -> tuple[int, str]:
        if isinstance(e, mount.MountError):
            return se.MountError.code, se.MountError.msg
        return super().translate_error(e)

    def __init__(
        self,
        id: str,
        spec: str,
        vfsType: Optional[str] = None,
        options: str = "",
        mountClass: Callable[[str, str], Any] = mount.Mount,
    ) -> None:
        self._id = id
        self._vfsType = vfsType
        self._remotePath = fileUtils.normalize_path(spec)
        self._options = options
        self._mount = mountClass(self._remotePath, self._getLocalPath())

    id = property(lambda self: self._id)
    remotePath = property(lambda self: self._remotePath)
    vfsType = property(lambda self: self._vfsType)
    options = property(lambda self: self._options)

    def _getLocalPath(self) -> str:
        name = fileUtils.transformPath(self._remotePath)
        return str(Path(self.localPathBase, self.DIR, name))

    def getMountObj(self) -> Any:
        return self._mount

    def isConnected(self) -> bool:
        return self._mount.isMounted()

    def validate(self) -> None:
        """Left to subclasses."""

    def connect(self) -> None:
        # The transport and the options of an existing mount are not checked.
        if self.isConnected():
            return
        self.validate()
        target = Path(self._getLocalPath())
        target.mkdir(parents=True, exist_ok=True)
        try:
            self._mount.mount(self.options, self._vfsType, cgroup=self.CGROUP)
        except mount.MountError:
            try:
                target.rmdir()
            except OSError as error:
                log.warning("Cannot remove %s: %s", target, error)
            raise
        try:
            fileSD.validateDirAccess(self._mount.getRecord().fs_file)
        except se.StorageServerAccessPermissionError:
            # After any other error the mount stays.
            try:
                self.disconnect()
            except OSError:
                log.exception("Cannot disconnect")
            raise

    def disconnect(self) -> None:
        self._mount.umount(True, True)
        with contextlib.suppress(FileNotFoundError):
            Path(self._getLocalPath()).rmdir()


class NFSConnection(Connection):
    DEFAULT_OPTIONS: ClassVar[list[str]] = ["soft", "nosharecache"]

    def __init__(
        self,
        id: str,
        export: str,
        timeout: int = 100,
        retrans: int = 3,
        version: Optional[str] = None,
        extraOptions: str = "",
    ) -> None:
        wanted = [o for o in extraOptions.split(",") if o]
        # Version 3, or a negotiation that may result in it.
        if version in (None, "3") and not {"lock", "nolock"} & set(wanted):
            wanted.append("nolock")
        text = ",".join(
            [
                *self.DEFAULT_OPTIONS,
                f"timeo={timeout:d}",
                f"retrans={retrans:d}",
                *_version_options(version),
                *wanted,
            ]
        )
        self._mountCon = MountConnection(id, export, "nfs", text)

    id = property(lambda self: self._mountCon.id)

    def connect(self) -> None:
        return self._mountCon.connect()

    def isConnected(self) -> bool:
        return self._mountCon.isConnected()

    def disconnect(self) -> None:
        return self._mountCon.disconnect()


def _version_options(version: Optional[str]) -> list[str]:
    if not version:
        return []
    names = ("nfsvers", "minorversion")
    parts = version.split(".")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= len(names):
        raise ValueError(f"Invalid NFS version {version!r}")
    return [f"{name}={number}" for name, number in zip(names, numbers)]


class ConnectionFactory:
    registeredConnectionTypes: ClassVar[dict[str, Any]] = {
        "nfs": NFSConnection,
        "posixfs": MountConnection,
    }

    @classmethod
    def createConnection(cls, conInfo: ConnectionInfo) -> Any:
        given = conInfo.params._asdict()
        # Parameters that the engine left out get the constructor's default.
        given = {name: value for name, value in given.items() if value is not None}
        return cls.registeredConnectionTypes[conInfo.type](**given)


def connect(dom_type: int, con_defs: Sequence[dict[str, Any]]) -> list[Result]:
    con_class, connections = _prepare_connections(dom_type, con_defs)
    return con_class.connect_all(connections)


def disconnect(dom_type: int, con_defs: Sequence[dict[str, Any]]) -> list[Result]:
    con_class, connections = _prepare_connections(dom_type, con_defs)
    return con_class.disconnect_all(connections)


def _prepare_connections(
    dom_type: int, con_defs: Sequence[dict[str, Any]]
) -> tuple[Any, list[Any]]:
    # Errors of constructors are not caught; the last definition's class does the work.
    connections = []
    last: Any = None
    for con_def in con_defs:
        info = _connectionDict2ConnectionInfo(dom_type, con_def)
        connections.append(ConnectionFactory.createConnection(info))
        last = info.type
    return ConnectionFactory.registeredConnectionTypes[last], connections


def _connectionDict2ConnectionInfo(
    conTypeId: int, conDict: dict[str, Any]
) -> ConnectionInfo:
    return _definitions.read(conTypeId, conDict, NFSConnection.DEFAULT_OPTIONS)
