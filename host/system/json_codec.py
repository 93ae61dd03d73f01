# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert frozen dataclasses to JSON values and back, strictly.

Each error is a sentence. Fields are strings, numbers, booleans, Optional, Union of
scalars and None, ``tuple[X, ...]``, ``tuple[X, Y]`` and dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import (
    Any,
    Callable,
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

    ``noun`` names the data in sentences: ``the facts``. ``optional`` are names of keys
    that may be missing: they have the dataclass's default then.
    """

    noun: str
    check: Check = lambda cls, values: ("", "")
    optional: frozenset[str] = frozenset()

    def read(self, cls: type[_Record], data: object) -> _Record:
        """Return ``data`` as a ``cls``.

        Raises WrongRecord with the key path of the first missing or unknown key, or
        value of the wrong type.
        """
        try:
            return cast("_Record", self._instance(cls, data))
        except _Refused as refused:
            raise WrongRecord(refused.sentence) from None

    def _instance(self, cls: Any, data: object) -> object:
        if not isinstance(data, dict):
            raise _Refused(f"is {json_type(data)}, not an object")
        forms = _forms(cls)
        if data.keys() != forms.keys():
            self._check_keys(data, forms)
        values = {}
        for key, form in forms.items():
            if key in data:
                try:
                    values[key] = self._value(form, data[key])
                except _Refused as refused:
                    refused.steps.append(key)
                    raise
        wrong_key, mistake = self.check(cls, values)
        if mistake:
            raise _Refused(mistake, wrong_key)
        return cls(**values)

    def _check_keys(self, data: Mapping[str, Any], forms: Mapping[str, Any]) -> None:
        for key in data:
            if key not in forms:
                name = str(key) if str(key).isidentifier() else ascii(key)
                raise _Refused(f"is not a key of {self.noun}", name)
        for key in forms:
            if key not in data and key not in self.optional:
                raise _Refused("is missing", key)

    def _value(self, form: _Form, data: object) -> object:
        kind, inner = form
        if kind is Union:
            return None if data is None else self._value(inner, data)
        if kind is tuple:
            return self._tuple(inner, data)
        if kind is object:
            return self._instance(inner, data)
        if kind is _ANY:
            return _any_of(inner, data)
        if kind is _ROW:
            return self._row(inner, data)
        return data if _is_exact(inner, data) else _scalar(inner, data)

    def _tuple(self, form: _Form, data: object) -> tuple[object, ...]:
        if not isinstance(data, list):
            raise _Refused(f"is {json_type(data)}, not an array")
        kind, inner = form
        if kind is None and all(_is_exact(inner, entry) for entry in data):
            return tuple(data)
        entries = []
        for index, entry in enumerate(data):
            try:
                entries.append(self._value(form, entry))
            except _Refused as refused:
                refused.steps.append(index)
                raise
        return tuple(entries)

    def _row(self, forms: tuple[_Form, ...], data: object) -> tuple[object, ...]:
        if not isinstance(data, list) or len(data) != len(forms):
            raise _Refused(f"is {json_type(data)}, not an array of {len(forms)}")
        return tuple(self._value(form, entry) for form, entry in zip(forms, data))


class _Refused(Exception):
    """What is wrong with a value; ``steps`` lead to it, from the inside out. A path in
    words for each value, also the right ones, took as long as all the rest.
    """

    def __init__(self, what: str, *steps: Union[str, int]) -> None:
        super().__init__(what)
        self.what = what
        self.steps = list(steps)

    @property
    def sentence(self) -> str:
        path = ""
        for step in reversed(self.steps):
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                path = f"{path}.{step}" if path else step
        return f"{path} {self.what}" if path else f"it {self.what}"


def _is_exact(hint: Any, data: object) -> bool:
    """Whether a value needs no second look; true is no int here."""
    return type(data) is hint and hint is not float


def _any_of(hints: tuple[Any, ...], data: object) -> object:
    if type(data) not in hints:
        wanted = " or ".join(_WANTED[hint] for hint in hints)
        raise _Refused(f"is {json_type(data)}, not {wanted}")
    return data


def _scalar(hint: Any, data: object) -> object:
    if isinstance(data, bool) and hint is not bool:  # an int to Python, not to JSON
        raise _Refused(f"is true or false, not {_WANTED[hint]}")
    if hint is float and isinstance(data, (int, float)):
        # JSON has no limit for numbers; Python reads 1e999 as infinite.
        if not abs(data) <= sys.float_info.max:
            raise _Refused("is too large")
        return float(data)
    if not isinstance(data, hint):
        raise _Refused(f"is {json_type(data)}, not {_WANTED[hint]}")
    return data


_ANY, _ROW = "any of the types", "a tuple of this length"
_Form = tuple[Any, Any]
"""Union, tuple, object, _ANY, _ROW or None, and what is inside: the form X of
Optional[X] and ``tuple[X, ...]``, types, forms, otherwise the type itself.
"""


@functools.cache
def _forms(cls: Any) -> dict[str, _Form]:
    return {key: _form(hint) for key, hint in _hints(cls).items()}


def _form(hint: Any) -> _Form:
    origin = get_origin(hint)
    if origin is Union:
        args = [arg for arg in get_args(hint) if arg is not type(None)]
        return Union, _form(args[0]) if len(args) == 1 else (_ANY, tuple(args))
    if origin is tuple:
        first, *others = get_args(hint)
        if others == [...]:
            return tuple, _form(first)
        return _ROW, tuple(map(_form, (first, *others)))
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
