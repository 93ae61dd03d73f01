# SPDX-License-Identifier: GPL-2.0-or-later
"""The base class of errors with a code for the engine."""

from __future__ import annotations


class VdsmException(Exception):
    code = 0
    msg = "Vdsm Exception"

    def __str__(self) -> str:
        return self.msg


class GeneralException(VdsmException):
    code = 100
    msg = "General Exception"

    def __init__(self, *value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"{self.msg}: {self.value!r}"


class HookError(GeneralException):
    code = 1500
    msg = "Hook Error"
