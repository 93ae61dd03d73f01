# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors with the codes for the engine."""

from __future__ import annotations

from vdsm.common.exception import GeneralException


class StorageException(GeneralException):
    code = 200
    msg = "General Storage Exception"


class StorageServerAccessPermissionError(StorageException):
    code = 469
    msg = "The permissions on the path keep VDSM out"

    def __init__(self, targetPath: str) -> None:
        super().__init__(f"path = {targetPath}")


class MountError(StorageException):
    code = 477
    msg = "Problem while trying to mount target"


class InvalidParameterException(GeneralException):
    code = 1000
    msg = "Invalid parameter"

    def __init__(self, name: str, value: object) -> None:
        super().__init__(f"{name}={value}")
