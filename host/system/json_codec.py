# SPDX-License-Identifier: GPL-2.0-or-later
"""Read JSON strictly, write and open the envelope of our documents, and convert frozen
dataclasses to JSON values and back; and keep what a task of the daemon saw last in a
file of /run.

All that we store or exchange as JSON is read here first: facts, plans, policies, marks,
journals, states.

Each error is a sentence. Fields are strings, numbers, booleans, Optional, Union of
scalars and None, ``tuple[X, ...]``, ``tuple[X, Y]`` and dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import (
    Any,
    Callable,
    Generic,
    NoReturn,
    Optional,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ovirt_rdma.host.paths import under
from ovirt_rdma.host.system.files import not_written, write_public
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.tree import FileTree, Problems, seconds_after_boot

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


def read_json(path: Union[str, Path]) -> object:
    """Return the value in a JSON file that a person names. Raises UnreadableJson."""
    try:
        data = read_named(path)
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


@dataclasses.dataclass(frozen=True)
class Envelope:
    """The first keys of a document: ``schema_version``, ``kind``, ``digest``.

    kind: what the document is
    version: the schema version that is written; no other is read
    digested: the key of the value that has a digest; "" if there is no digest
    """

    kind: str
    version: int = 1
    digested: str = ""

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
        version = content.pop("schema_version", None)
        if type(version) is not int:
            shown = _shown(whole, "schema_version")
            raise WrongRecord(f"schema_version is {shown}, not a whole number")
        if version != self.version:
            written = "it was written by an older version of ovirt-rdma"
            fix = "use the version of ovirt-rdma that wrote it"
            if version > self.version:
                written = "it was written by a newer version of ovirt-rdma"
                fix += ", or a newer one"
            reads = f"this one reads {self.version}"
            raise WrongVersion(f"{written} (schema version {version}; {reads})", fix)
        digest = content.pop("digest", None) if self.digested else None
        if self.digested and digest != digest_of(content.get(self.digested)):
            raise WrongRecord(
                "it is damaged, or was edited by hand (its digest differs)"
            )
        return content


def json_type(value: object) -> str:
    """Return the JSON type of a value: ``an object``."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
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

    ``noun`` names the data in sentences: ``the facts``. ``any_keys``: unknown keys are
    left out, and one that is missing is null.
    """

    noun: str
    check: Check = lambda cls, values: ("", "")
    any_keys: bool = False

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
        hints = _hints(cls)
        if self.any_keys:
            data = {key: data.get(key) for key in hints}
        if data.keys() != hints.keys():
            self._check_keys(data, hints)
        values = {key: self._at(key, hint, data[key]) for key, hint in hints.items()}
        wrong_key, mistake = self.check(cls, values)
        if mistake:
            raise _Refused(mistake, wrong_key)
        return cls(**values)

    def _check_keys(self, data: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
        for key in data:
            if key not in hints:
                name = str(key) if str(key).isidentifier() else ascii(key)
                raise _Refused(f"is not a key of {self.noun}", name)
        for key in hints:
            if key not in data:
                raise _Refused("is missing", key)

    def _at(self, step: Union[str, int], hint: Any, data: object) -> object:
        if type(data) is hint and hint is not float:  # true is no int here
            return data
        try:
            return self._value(hint, data)
        except _Refused as refused:
            refused.steps.append(step)
            raise

    def _value(self, hint: Any, data: object) -> object:
        kind, inner = _form(hint)
        if kind is tuple:
            if not isinstance(data, list):
                raise _Refused(f"is {json_type(data)}, not an array")
            hints = inner
            if inner[-1] is ...:
                hints = inner[:1] * len(data)
            elif len(data) != len(inner):
                raise _Refused(f"is not an array of {len(inner)}")
            entries = zip(hints, data)
            return tuple(self._at(n, *entry) for n, entry in enumerate(entries))
        if kind is object:
            return self._instance(hint, data)
        if kind is Union and data is None:
            return None
        if kind is Union and len(inner) == 1:
            return self._value(inner[0], data)
        if isinstance(data, bool) and bool not in inner:  # an int to Python
            pass
        elif isinstance(data, (int, float)) and float in inner:
            # JSON has no limit for numbers; Python reads 1e999 as infinite.
            if not abs(data) <= sys.float_info.max:
                raise _Refused("is too large")
            return float(data)
        elif isinstance(data, inner):
            return data
        wanted = " or ".join(_WANTED[one] for one in inner)
        raise _Refused(f"is {json_type(data)}, not {wanted}")


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


@functools.cache
def _form(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return Union, tuple, object or None, and the types inside; for a Union without
    None.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Union:
        return Union, tuple(arg for arg in inner if arg is not type(None))
    if origin is tuple:
        return tuple, inner
    return (object if dataclasses.is_dataclass(hint) else None), (hint,)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)  # evaluates strings: slow for hundreds of GIDs


_WANTED = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


class _State(Protocol):
    def is_fresh(self, now_s: float) -> bool: ...


_S = TypeVar("_S", bound=_State)


class StateFile(Generic[_S]):
    """The file ``path`` with a record of the class ``cls`` in ``envelope``. The record
    says itself whether it ``is_fresh``, so many seconds after boot; ``noun`` is it in
    sentences. ``states``: of classes in it, what their field ``state`` may be.
    """

    def __init__(
        self,
        path: str,
        envelope: Envelope,
        cls: type[_S],
        noun: str,
        states: Mapping[Any, Sequence[str]],
    ) -> None:
        self._path, self._cls, self._noun = path, cls, noun
        self._envelope, self._states = envelope, states
        self._records = Records(f"the {noun}", self._check)

    def _check(self, cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
        if cls in self._states and values["state"] not in self._states[cls]:
            return "state", f"is {values['state']!a}"
        return "", ""

    def write(self, root: Union[str, Path], state: _S) -> None:
        """Write the state below ``root``. Raises Problem if that is not possible."""
        write_public(under(root, self._path), self._envelope.text(plain(state)))

    def remove(self, root: Union[str, Path]) -> None:
        """Remove the state below ``root``, so that nobody takes it for the present one.
        Raises Problem if that is not possible.
        """
        path = under(root, self._path)
        try:
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise not_written(error, path) from error

    def read(
        self,
        root: Union[str, Path] = "/",
        problems: Problems = None,
        now_s: Optional[float] = None,
    ) -> Optional[_S]:
        """Return the state below ``root``; None if nobody keeps it.

        None and a sentence in ``problems`` if it cannot be used, or is stale ``now_s``
        seconds after boot (None: now).
        """
        tree = FileTree(root)
        if not os.path.lexists(tree.below(self._path)):
            return None
        data = tree.data(self._path, problems)
        if data is None:
            return None
        try:
            content = self._envelope.content(json_value(data))
            state = self._records.read(self._cls, content)
        except WrongRecord as error:
            sentence = f"{self._path} is invalid and is ignored: {error}"
        else:
            if state.is_fresh(seconds_after_boot() if now_s is None else now_s):
                return state
            # Without its age: a unit says each sentence once.
            sentence = f"{self._path} is stale, so the {self._noun} is unknown"
        if problems is not None:
            problems.append(sentence)
        return None
