# SPDX-License-Identifier: GPL-2.0-or-later
"""Read JSON strictly, write and open the envelope of our documents, and convert frozen
dataclasses to JSON values and back.

All that we store or exchange as JSON is read here first: facts, plans, policies, marks,
journals, states. vdsmd loads this module, so it is small.

Each error is a sentence. Fields are strings, numbers, booleans, Optional, Union of
scalars and None, ``tuple[X, ...]``, ``tuple[X, Y]`` and dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import (
    Any,
    Callable,
    NoReturn,
    Optional,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ovirt_rdma.host.system.safe_file import read_named

# More digits than any 64-bit number has. Python's own limit is 4300 digits, but not for
# all operations.
_MOST_DIGITS = 20


class WrongRecord(ValueError):
    """The data is not the document that was expected; the text says where and how.

    ``fix`` says what to do, and is empty if the file's own fix applies.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class UnreadableJson(WrongRecord):
    """The file has no JSON value. ``is_file`` is false if it could not be read."""

    def __init__(self, reason: str, *, is_file: bool = True) -> None:
        super().__init__(reason)
        self.is_file = is_file


def read_json(
    path: Union[str, Path], read: Callable[[Union[str, Path]], bytes] = read_named
) -> object:
    """Return the value in a JSON file that ``read`` reads. Raises UnreadableJson."""
    try:
        data = read(path)
    except OSError as e:
        reason = f"it cannot be read: {e.strerror or e}"
        raise UnreadableJson(reason, is_file=False) from None
    return json_value(data)


def json_value(data: bytes) -> object:
    """Return the value in JSON text, in UTF-8.

    Raises UnreadableJson, also for NaN, which RFC 8259 does not have, and for what it
    leaves open: repeated keys and very large numbers.
    """
    try:
        value: object = json.loads(
            data.decode("utf-8"),
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_number,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as e:
        raise UnreadableJson(f"it is not JSON: byte {e.start} is not UTF-8") from None
    except json.JSONDecodeError as e:
        line = f"line {e.lineno} " if b"\n" in data else ""
        place = f"{line}column {e.colno}"
        raise UnreadableJson(f"it is not JSON: {place}: {e.msg}") from None
    except RecursionError:
        raise UnreadableJson("it is nested too deeply") from None
    return value


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS and len(digits.lstrip("-")) > _MOST_DIGITS:
        raise UnreadableJson("it has a number with too many digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UnreadableJson("it has a number that is too large")
    return value


def _no_number(word: str) -> NoReturn:
    raise UnreadableJson(f"it is not JSON: it has {word}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise UnreadableJson("it has a key twice in one object")
    return values


class WrongVersion(WrongRecord):
    """An older or a newer version of ovirt-rdma wrote the document."""


def digest_of(data: object) -> str:
    """Return ``sha256:`` and hex digits over a JSON value, in any order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


class Envelope:
    """The first keys of a document: ``schema_version``, ``kind``, ``digest``.

    kind: what the document is
    version: the schema version that is written; no other is read
    digested: the key of the value that has a digest; "" if there is no digest
    """

    def __init__(self, kind: str, version: int = 1, *, digested: str = "") -> None:
        # No dataclass: vdsmd waits for its imports.
        self.kind, self.version, self.digested = kind, version, digested

    def around(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with ``content``."""
        first: dict[str, Any] = {"schema_version": self.version, "kind": self.kind}
        if self.digested:
            first["digest"] = digest_of(content[self.digested])
        return {**first, **content}

    def text(self, content: Mapping[str, Any], indent: Optional[int] = 2) -> str:
        """Return the document as JSON text that ends in a newline; pure ASCII."""
        whole = self.around(content)
        return json.dumps(whole, indent=indent, allow_nan=False) + "\n"

    def content(self, whole: object) -> dict[str, Any]:
        """Return the content of a document. Raises WrongRecord if it is another kind of
        document or its digest differs, and WrongVersion.
        """
        if not isinstance(whole, dict):
            raise WrongRecord(f"it is {json_type(whole)}, not an object")
        content = dict(whole)
        if content.pop("kind", None) != self.kind:
            raise WrongRecord(f"kind is {_shown(whole, 'kind')}, not {self.kind!r}")
        self.check_version(whole)
        del content["schema_version"]
        if self.digested:
            digest = content.pop("digest", None)
            if digest != digest_of(content.get(self.digested)):
                raise WrongRecord(
                    "it is damaged, or was edited by hand (its digest differs)"
                )
        return content

    def check_version(self, whole: Mapping[str, Any]) -> None:
        """Raise WrongVersion unless this program reads ``whole``'s schema version."""
        version = whole.get("schema_version")
        if type(version) is not int:
            shown = _shown(whole, "schema_version")
            raise WrongRecord(f"schema_version is {shown}, not a whole number")
        if version == self.version:
            return
        written = "it was written by an older version of ovirt-rdma"
        fix = "use the version of ovirt-rdma that wrote it"
        if version > self.version:
            written = "it was written by a newer version of ovirt-rdma"
            fix += ", or a newer one"
        reads = f"this one reads {self.version}"
        raise WrongVersion(f"{written} (schema version {version}; {reads})", fix)


def json_type(value: object) -> str:
    """Return the JSON type of a value: ``an object``."""
    if value is None:
        return "null"
    if isinstance(value, (dict, Mapping)):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    if isinstance(value, str):
        return "a string"
    return "true or false" if isinstance(value, bool) else "a number"


_MOST_SHOWN = 60


def _shown(whole: Mapping[str, Any], key: str) -> str:
    """Return a value for a sentence, or its type if it is long or nested."""
    if key not in whole:
        return "missing"
    value = whole[key]
    short = isinstance(value, (int, float, str)) and len(ascii(value)) <= _MOST_SHOWN
    return ascii(value) if short else json_type(value)


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
