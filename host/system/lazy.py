# SPDX-License-Identifier: GPL-2.0-or-later
"""Import libraries on first use: help and usage errors need none."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """The module ``name``, imported when one of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
