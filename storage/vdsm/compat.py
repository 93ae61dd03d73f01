# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the parts of the running VDSM that the connection class uses.

The class uses only what is checked here. VDSM 4.50.0.13 and later pass the check.
"""

from __future__ import annotations

import configparser
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.host.collect.parsers import vdsm_conf
from ovirt_rdma.host.errors import Problem

CONSTRUCTOR = ("id", "export", "timeout", "retrans", "version", "extraOptions")
DEFAULT_OPTIONS = frozenset(("soft", "nosharecache"))
# The engine's code for "Problem while trying to mount target".
MOUNT_FAILED = 477


class UnknownShape(Problem):
    """The running VDSM is not supported; ``difference`` is a complete clause."""

    def __init__(self, difference: str) -> None:
        super().__init__(
            "vdsm-unsupported",
            f"ovirt-rdma does not support this VDSM: {difference}",
            "update ovirt-rdma, or run: ovirt-rdma-host disable",
        )


@dataclass(frozen=True)
class Vdsm:
    """Names of the running VDSM: the class, the registry and two exceptions.

    ``mount_error`` is raised if mount(8) fails and has its standard error in ``err``;
    ``reported_error`` reaches the engine as code 477. ``nfs_mount_options`` is a
    deprecated setting of vdsm.conf: if it is not the default, VDSM makes no NFS
    connection of some of the engine's definitions, but mounts them with these options
    (storageServer.tryDeprecatedNfsParams).
    """

    nfs_connection: Any
    connection_types: dict[str, Any]
    mount_error: type[Exception]
    reported_error: type[Exception]
    nfs_mount_options: str


def load() -> Vdsm:
    """Import VDSM's storage modules and check them.

    Raises UnknownShape, and every error of the import.
    """
    server = importlib.import_module("vdsm.storage.storageServer")
    mount = importlib.import_module("vdsm.storage.mount")
    exception = importlib.import_module("vdsm.storage.exception")
    try:
        vdsm = Vdsm(
            nfs_connection=server.NFSConnection,
            connection_types=server.ConnectionFactory.registeredConnectionTypes,
            mount_error=mount.MountError,
            reported_error=exception.MountError,
            nfs_mount_options=_nfs_mount_options(),
        )
    except AttributeError as error:
        raise UnknownShape(f"a name is missing ({error})") from error
    check(vdsm)
    return vdsm


def load_main() -> Callable[[], Any]:
    """Import VDSM's daemon and return its main function."""
    daemon = importlib.import_module("vdsm.vdsmd")
    main: Optional[Callable[[], Any]] = getattr(daemon, "main", None)
    if main is None:
        raise UnknownShape("vdsm.vdsmd has no main()")
    return main


def check(vdsm: Vdsm) -> None:
    """Raise UnknownShape for the first part that is not as expected."""
    stock: Any = vdsm.nfs_connection
    parameters = tuple(inspect.signature(stock).parameters)
    if parameters != CONSTRUCTOR:
        raise UnknownShape(f"NFSConnection takes {parameters}, not {CONSTRUCTOR}")
    if frozenset(stock.DEFAULT_OPTIONS) != DEFAULT_OPTIONS:
        raise UnknownShape(f"NFSConnection's defaults are {stock.DEFAULT_OPTIONS}")
    registered: Any = vdsm.connection_types.get("nfs")
    if registered is not stock:
        raise UnknownShape("the registered nfs connection is not NFSConnection")
    for name in ("connect", "isConnected", "disconnect", "connect_all"):
        if not callable(getattr(stock, name, None)):
            raise UnknownShape(f"NFSConnection has no {name}()")
    code = getattr(vdsm.reported_error, "code", None)
    if code != MOUNT_FAILED:
        raise UnknownShape(f"exception.MountError has code {code}, not {MOUNT_FAILED}")
    sample = stock(id="guard", export="192.0.2.1:/guard", version="4.2")
    mount_connection = getattr(sample, "_mountCon", None)
    for name in ("options", "remotePath", "vfsType", "_getLocalPath"):
        if not hasattr(mount_connection, name):
            raise UnknownShape(f"NFSConnection's mount connection has no {name}")


def _nfs_mount_options() -> str:
    config = importlib.import_module("vdsm.config").config
    try:
        options: str = config.get(vdsm_conf.SECTION, vdsm_conf.OPTION)
    except configparser.Error:
        # A VDSM that no longer has the setting uses the defaults.
        return vdsm_conf.DEFAULT
    return options
