# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts as JSON: what ``facts -o json`` prints and ``--facts FILE`` takes back.

Strict on the way in: a dump that this version would only half understand is
refused, with the place of the first thing that is wrong.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from ovirt_rdma.host.facts import SCHEMA_VERSION, Facts, Route
from ovirt_rdma.host.problem import Problem

KIND = "facts"

_FIX = "make it anew, on the host it is about: ovirt-rdma-host facts -o json"


class FactsProblem(Problem):
    """The file or data is no facts dump of this schema version."""


def to_json_dict(facts: Facts) -> dict[str, Any]:
    """Return facts as dicts, lists, strings, numbers and None, keys in field order,
    after ``schema_version`` and ``kind``.
    """
    first = {"schema_version": facts.schema_version, "kind": KIND}
    return {**first, **_plain(facts)}


def to_json(facts: Facts) -> str:
    """Return facts as JSON text that ends in a newline.

    Pure ASCII: bytes of the kernel that were not UTF-8 stay as ``\\udcXX`` escapes
    and come back the same.
    """
    return json.dumps(to_json_dict(facts), indent=2, allow_nan=False) + "\n"


def from_json_dict(data: object, where: str) -> Facts:
    """Return the facts in ``data``, as :func:`to_json_dict` made it.

    ``where`` names the source in errors. Raises FactsProblem with the key path of
    what is wrong: another schema version, a missing or unknown key, a wrong type,
    a route's end that is no IP address.
    """
    if not isinstance(data, dict):
        raise FactsProblem(f"{where}: not a facts dump, {_kind(data)} at the top", _FIX)
    # First, for another version explains whatever else is wrong.
    version = data.get("schema_version")
    if "schema_version" in data and version != SCHEMA_VERSION:
        raise FactsProblem(
            f"{where}: schema_version is {version!a}, this version reads only "
            f"{SCHEMA_VERSION}",
            f"{_FIX} (with the version that is to read it)",
        )
    if data.get("kind") != KIND:
        shown = ascii(data["kind"]) if "kind" in data else "missing"
        raise FactsProblem(f"{where}: kind is {shown}, not {KIND!r}", _FIX)
    rest = {key: value for key, value in data.items() if key != "kind"}
    return cast("Facts", _Check(where).instance(Facts, rest, ""))


def load(path: Union[str, Path]) -> Facts:
    """Return the facts in a JSON file.

    Raises FactsProblem where it cannot be read, is not JSON (with line and column)
    or not a facts dump.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as e:
        raise FactsProblem(
            f"facts file {path} cannot be read: {e.strerror or e}",
            "give the name of a file made with: ovirt-rdma-host facts -o json",
        ) from None
    except UnicodeDecodeError as e:
        raise FactsProblem(
            f"facts file {path} is not JSON: byte {e.start} is not UTF-8", _FIX
        ) from None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as e:
        raise FactsProblem(
            f"facts file {path} line {e.lineno} column {e.colno} is not JSON: {e.msg}",
            _FIX,
        ) from None
    except (ValueError, RecursionError):  # a number or a nesting without end
        raise FactsProblem(
            f"facts file {path} has a number too long or is nested too deeply", _FIX
        ) from None
    return from_json_dict(data, f"facts file {path}")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@dataclasses.dataclass(frozen=True)
class _Check:
    """Turns JSON values into what the type hints of the facts ask for."""

    where: str

    def instance(self, cls: Any, data: object, path: str) -> object:
        if not isinstance(data, Mapping):
            self._refuse(path, f"is {_kind(data)}, not an object")
        hints = _hints(cls)
        for key in data:
            if key not in hints:
                self._refuse(_join(path, key), "is no key of the facts")
        for key in hints:
            if key not in data:
                self._refuse(_join(path, key), "is missing")
        values = {
            key: self._value(hint, data[key], _join(path, key))
            for key, hint in hints.items()
        }
        for key in _ADDRESSES.get(cls, ()):
            self._check_address(values[key], _join(path, key))
        return cls(**values)

    def _check_address(self, value: Any, path: str) -> None:
        if value is None:
            return
        try:
            ipaddress.ip_address(value)
        except ValueError:
            self._refuse(path, f"is {value!a}, not an IP address")

    def _value(self, hint: Any, data: object, path: str) -> object:
        origin = get_origin(hint)
        if origin is Union:  # Optional[X]
            (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
            return None if data is None else self._value(inner, data, path)
        if origin is tuple:
            if not isinstance(data, list):
                self._refuse(path, f"is {_kind(data)}, not an array")
            item = get_args(hint)[0]
            return tuple(
                self._value(item, entry, f"{path}[{index}]")
                for index, entry in enumerate(data)
            )
        if dataclasses.is_dataclass(hint):
            return self.instance(hint, data, path)
        return self._scalar(hint, data, path)

    def _scalar(self, hint: Any, data: object, path: str) -> object:
        if isinstance(data, bool):  # an int to Python, not to JSON
            self._refuse(path, f"is true or false, not {_WANTED[hint]}")
        if hint is float and isinstance(data, (int, float)):
            # JSON has no limit for numbers, Python reads 1e999 as infinite.
            if not abs(data) <= sys.float_info.max:
                self._refuse(path, "is a number too large")
            return float(data)
        if not isinstance(data, hint):
            self._refuse(path, f"is {_kind(data)}, not {_WANTED[hint]}")
        return data

    def _refuse(self, path: str, what: str) -> NoReturn:
        raise FactsProblem(f"{self.where}: {path} {what}", _FIX)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)  # evaluates strings: slow for hundreds of GIDs


# What decisions take for IP addresses. Other addresses are the kernel's text.
_ADDRESSES = {Route: ("destination", "source")}

_WANTED = {str: "a string", int: "a whole number", float: "a number"}


def _join(path: str, key: object) -> str:
    name = str(key) if str(key).isidentifier() else ascii(key)
    return f"{path}.{name}" if path else name


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, (dict, Mapping)):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    if isinstance(value, str):
        return "a string"
    return "a number"
