# SPDX-License-Identifier: GPL-2.0-or-later
"""Read JSON strictly, and write and open the envelope of our documents.

All that we store or exchange as JSON is read here first: facts, plans, policies, marks,
journals, states. vdsmd loads this module, so it is small.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional, Union

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
