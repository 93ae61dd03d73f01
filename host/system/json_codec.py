# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert frozen dataclasses to JSON values and back, strictly.

Each error is a sentence. Fields are strings, numbers, booleans, Optional,
``tuple[X, ...]`` and dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import (
    Any,
    Callable,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ovirt_rdma.host.system.json_document import WrongRecord, json_type

_Record = TypeVar("_Record")

Check = Callable[[Any, Mapping[str, Any]], tuple[str, str]]
"""Gets a dataclass and its values; returns a key and the mistake in its value, or two
empty texts.
"""


def plain(value: Any) -> Any:
    """Return a dataclass as dicts, lists, strings, numbers and None, in field order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _hints(type(value))}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


@dataclasses.dataclass(frozen=True)
class Records:
    """Convert JSON values to dataclasses according to their type hints.

    ``noun`` names the data in sentences: ``the facts``. ``added`` are names of keys
    that data of earlier versions lack: they have the dataclass's default then.
    """

    noun: str
    check: Check = lambda cls, values: ("", "")
    added: frozenset[str] = frozenset()

    def read(self, cls: type[_Record], data: object) -> _Record:
        """Return ``data`` as a ``cls``.

        Raises WrongRecord with the key path of the first missing or unknown key, or
        value of the wrong type.
        """
        return cast("_Record", self._instance(cls, data, ""))

    def _instance(self, cls: Any, data: object, path: str) -> object:
        if not isinstance(data, Mapping):
            _refuse(path, f"is {json_type(data)}, not an object")
        hints = _hints(cls)
        for key in data:
            if key not in hints:
                _refuse(_join(path, key), f"is not a key of {self.noun}")
        for key in hints:
            if key not in data and key not in self.added:
                _refuse(_join(path, key), "is missing")
        before = f"{path}." if path else ""
        values = {
            key: self._value(hint, data[key], before + key)
            for key, hint in hints.items()
            if key in data
        }
        wrong_key, mistake = self.check(cls, values)
        if mistake:
            _refuse(_join(path, wrong_key), mistake)
        return cls(**values)

    def _value(self, hint: Any, data: object, path: str) -> object:
        form, inner = _form(hint)
        if form is Union:
            return None if data is None else self._value(inner, data, path)
        if form is tuple:
            if not isinstance(data, list):
                _refuse(path, f"is {json_type(data)}, not an array")
            return tuple(
                self._value(inner, entry, f"{path}[{index}]")
                for index, entry in enumerate(data)
            )
        if form is object:
            return self._instance(inner, data, path)
        return _scalar(inner, data, path)


def _scalar(hint: Any, data: object, path: str) -> object:
    if isinstance(data, bool) and hint is not bool:  # an int to Python, not to JSON
        _refuse(path, f"is true or false, not {_WANTED[hint]}")
    if hint is float and isinstance(data, (int, float)):
        # JSON has no limit for numbers; Python reads 1e999 as infinite.
        if not abs(data) <= sys.float_info.max:
            _refuse(path, "is too large")
        return float(data)
    if not isinstance(data, hint):
        _refuse(path, f"is {json_type(data)}, not {_WANTED[hint]}")
    return data


def _refuse(path: str, what: str) -> NoReturn:
    raise WrongRecord(f"{path} {what}" if path else f"it {what}")


@functools.cache
def _form(hint: Any) -> tuple[Any, Any]:
    """Return Union, tuple, object or None, and the inner type: X of Optional[X] and
    ``tuple[X, ...]``, otherwise the type itself.
    """
    origin = get_origin(hint)
    if origin is Union:
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return Union, inner
    if origin is tuple:
        return tuple, get_args(hint)[0]
    return (object if dataclasses.is_dataclass(hint) else None), hint


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)  # evaluates strings: slow for hundreds of GIDs


_WANTED = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _join(path: str, key: object) -> str:
    name = str(key) if str(key).isidentifier() else ascii(key)
    return f"{path}.{name}" if path else name
