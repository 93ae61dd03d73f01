# SPDX-License-Identifier: GPL-2.0-or-later
"""Stand in for a library that is not installed, under its name.

Names can be imported, subclassed and used in ``except``; every call raises, so no test
can pass because of this module.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

__path__: list[str] = []  # so that submodules are searched, and found below


class _Absent(type):
    def __getattr__(cls, name: str) -> Any:
        return _absent(f"{cls.__qualname__}.{name}", name)

    def __or__(cls, other: object) -> Any:  # flags are combined at import
        return cls


def _absent(where: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(cls: type, *args: object, **kwargs: object) -> Any:
        raise NotImplementedError(f"{where} is not installed on this machine")

    return _Absent(name, (Exception,), {"__new__": refuse, "__qualname__": where})


def __getattr__(name: str) -> Any:
    return _absent(f"{__name__}.{name}", name)


class _Submodules:
    """Finds every submodule of this package as another stand-in."""

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(__name__ + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        where = module.__name__
        module.__getattr__ = lambda name: _absent(f"{where}.{name}", name)


sys.meta_path.append(_Submodules())
