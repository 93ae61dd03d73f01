# SPDX-License-Identifier: GPL-2.0-or-later
"""Turn the engine's connection definitions into constructor parameters.

VDSM has no such module: there it is a part of storageServer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from vdsm.config import config
from vdsm.storage import exception as se
from vdsm.storage import sd

log = logging.getLogger("storage.storageServer")


class PosixFsConnectionParameters(NamedTuple):
    id: str
    spec: Optional[str]
    vfsType: Optional[str]
    options: Optional[str]


class NfsConnectionParameters(NamedTuple):
    id: str
    export: Optional[str]
    retrans: Optional[int]
    timeout: Optional[int]
    version: Optional[str]
    extraOptions: Optional[str]


class ConnectionInfo(NamedTuple):
    type: str
    params: Any


def read(
    domain_type: int, con: dict[str, Any], nfs_defaults: Sequence[str]
) -> ConnectionInfo:
    """Return the class and parameters for one definition.

    Raises KeyError for a type that the double does not have, and
    InvalidParameterException if timeout or retrans is not a number.
    """
    if {sd.NFS_DOMAIN: "nfs", sd.POSIXFS_DOMAIN: "posixfs"}[domain_type] == "nfs":
        return _nfs(con, nfs_defaults)
    return _posixfs(con)


def _posixfs(con: dict[str, Any]) -> ConnectionInfo:
    params = PosixFsConnectionParameters(
        con["id"], con.get("connection"), con.get("vfs_type"), con.get("mnt_options")
    )
    return ConnectionInfo("posixfs", params)


def _nfs(con: dict[str, Any], nfs_defaults: Sequence[str]) -> ConnectionInfo:
    tuning = [con.get(key) for key in ("protocol_version", "retrans", "timeout")]
    configured = config.get("irs", "nfs_mount_options").replace(" ", "")
    if tuning == [None, None, None] and set(configured.split(",")) != set(nfs_defaults):
        # vdsm.conf's old option wins, and the engine's options are ignored.
        log.warning("Using vdsm.conf nfs_mount_options for %s", con.get("connection"))
        params = PosixFsConnectionParameters(
            con["id"], con.get("connection"), "nfs", configured
        )
        return ConnectionInfo("posixfs", params)
    version: Optional[str] = str(con.get("protocol_version", "3"))
    nfs = NfsConnectionParameters(
        con["id"],
        con.get("connection"),
        _number(con, "retrans"),
        _number(con, "timeout"),
        None if version == "auto" else version,
        con.get("mnt_options"),
    )
    return ConnectionInfo("nfs", nfs)


def _number(con: dict[str, Any], key: str) -> Optional[int]:
    value = con.get(key)
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        raise se.InvalidParameterException(key, value) from None
