# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading JSON that others wrote, strictly: whatever is wrong with it is a sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, NoReturn, Union

from ovirt_rdma.host.safe_file import read_named

# More than any 64-bit number has. Python refuses 4301 digits, but not everywhere, and
# what is computed of 4300 of them.
_MOST_DIGITS = 20


class UnreadableJson(Exception):
    """The file gives no JSON value; the text goes on from the file's name.

    ``is_file`` says whether it could be read at all.
    """

    def __init__(self, words: str, *, is_file: bool = True) -> None:
        super().__init__(words)
        self.is_file = is_file


def read_json(
    path: Union[str, Path], read: Callable[[Union[str, Path]], bytes] = read_named
) -> object:
    """Return the value in a JSON file, in UTF-8, read by ``read``. Raises
    UnreadableJson.
    """
    try:
        text = read(path).decode("utf-8")
    except OSError as e:
        words = f"cannot be read: {e.strerror or e}"
        raise UnreadableJson(words, is_file=False) from None
    except UnicodeDecodeError as e:
        raise UnreadableJson(f"is not JSON: byte {e.start} is not UTF-8") from None
    return json_value(text)


def json_value(text: str) -> object:
    """Return the value in JSON text. Raises UnreadableJson, also for what RFC 8259 does
    not have (NaN) or leaves open: a key given twice, a number too large.
    """
    try:
        value: object = json.loads(
            text,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_number,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as e:
        place = f"line {e.lineno} column {e.colno}"
        raise UnreadableJson(f"{place} is not JSON: {e.msg}") from None
    except RecursionError:
        raise UnreadableJson("is nested too deeply") from None
    return value


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise UnreadableJson("has a number too long")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UnreadableJson("has a number too large")
    return value


def _no_number(word: str) -> NoReturn:
    raise UnreadableJson(f"is not JSON: it has {word}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableJson("has a key twice in one object")
    return found
