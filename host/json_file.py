# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading a JSON file that a person names: whatever is wrong with it is a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable, Union

from ovirt_rdma.host.safe_file import read_named


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
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as e:
        place = f"line {e.lineno} column {e.colno}"
        raise UnreadableJson(f"{place} is not JSON: {e.msg}") from None
    except (ValueError, RecursionError):  # a number or a nesting without end
        raise UnreadableJson("has a number too long or is nested too deeply") from None
    return value
