# SPDX-License-Identifier: GPL-2.0-or-later
"""Mount options as lines of nfsmount.conf, as far as that file can carry them. Pure.

Sources: nfsmount.conf(5); nfs-utils 2.5.4 to 2.9, utils/mount/configfile.c and
support/nfs/conffile.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Keys are lowered before they reach the kernel, and these have a meaning of their
# own to the parser: include= reads a file, default* is taken out again.
_KEY = re.compile(r"(?!include$|default)[a-z][a-z0-9_.-]*")
# A value that ends so is a number of KiB, MiB or GiB to it: "flock" becomes 0.
_UNIT = re.compile(r".*[kmg]", re.IGNORECASE)
_NUMBER_WITH_UNIT = re.compile(r"\d+[kmg]", re.IGNORECASE)
_WORDS = ("true", "false")
# VDSM's own options (NFSConnection) come first, and none of the file's turns a word
# round that the command line has.
_SET_BY_VDSM = {"sharecache": "nosharecache", "lock": "nolock"}


@dataclass(frozen=True)
class Lines:
    """``lines`` as ``key=value``, and a sentence for each option that has none."""

    lines: tuple[str, ...]
    mistakes: tuple[str, ...]


def option_lines(options: str) -> Lines:
    """Return the lines for a policy's mount options (``a,b=1``, as it allows them)."""
    lines: list[str] = []
    mistakes: list[str] = []
    for item in _items(options):
        key, equals, value = item.partition("=")
        why = _word_mistake(key) or (_value_mistake(value) if equals else "")
        if why:
            mistakes.append(f"option {item!r}: {why}")
        elif equals:
            lines.append(f"{key}={_quoted(value)}")
        elif key.startswith("no"):
            lines.append(f"{key[2:]}=False")
        else:
            lines.append(f"{key}=True")
    return Lines(tuple(lines), tuple(mistakes))


def _items(options: str) -> list[str]:
    """Split at commas outside double quotes, as mount does."""
    return re.findall(r'(?:[^,"]|"[^"]*"?)+', options)


def _word_mistake(key: str) -> str:
    if key in _SET_BY_VDSM:
        return f"VDSM itself sends {_SET_BY_VDSM[key]}, which nothing here changes"
    if not _KEY.fullmatch(key.removeprefix("no")):
        return "nfsmount.conf gives this name another meaning"
    return ""


def _value_mistake(value: str) -> str:
    if not value or value.lower() in _WORDS or value.startswith("$"):
        return "nfsmount.conf gives this value another meaning"
    if _UNIT.fullmatch(value) and not _NUMBER_WITH_UNIT.fullmatch(value):
        return "nfsmount.conf takes its last letter for a unit"
    if '"' in value and "'" in value:
        return "nfsmount.conf has no way to write both kinds of quotes"
    return ""


def _quoted(value: str) -> str:
    if value.isalnum():
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'
