# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of udev(7) rules that set something of an IPoIB netdev, read as systemd's
src/udev/udev-rules.c reads them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from ovirt_rdma.host.conf_folders import conf_texts, folders_named
from ovirt_rdma.host.facts import ARPHRD_INFINIBAND, UdevLine
from ovirt_rdma.host.file_tree import FileTree

# key{attribute} operator "value"; e and i may stand before the quote.
_TOKEN = re.compile(
    r'\b(\w+)(?:\{([^}"]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*[ei]{0,2}"((?:[^"\\]|\\.)*)"'
)
# UDEV_LINE_SIZE: udev ignores what is longer.
_MAX_RULE = 16384
_ASSIGNS = ("=", "+=", ":=")
_ATTRIBUTES = ("mode", "mtu")
# What a program is run for.
_PROGRAM = re.compile(r"\bethtool\b|/mode\b|\bmtu\b")
# How systemd and the kernel name netdevs that are no IPoIB ones
# (systemd.net-naming-scheme(7)).
_OTHER_NETDEVS = ("en", "eth", "wl", "ww")


def read_udev_lines(tree: FileTree, problems: list[str]) -> tuple[UdevLine, ...]:
    """Return the lines in the order in which udev reads them."""
    found: list[UdevLine] = []
    files = conf_texts(tree, folders_named("udev/rules.d"), ".rules", problems)
    for path, text in files:
        found += (
            UdevLine(path, number, rule)
            for number, rule in rules_of(text)
            if sets_ipoib(rule)
        )
    return tuple(found)


def rules_of(text: str) -> Iterator[tuple[int, str]]:
    r"""Give each rule with the number of its first line, ``\`` at an end joining the
    next one. Comments do not count, not even within a rule; a rule that goes on at
    the end of the file is ignored.
    """
    start = 0
    parts: list[str] = []
    lines = text.split("\n")
    if not lines[-1]:  # what follows the last line's end
        lines.pop()
    for number, line in enumerate(lines, 1):
        plain = line.lstrip()
        if plain.startswith("#"):
            continue
        start = start if parts else number
        parts.append(plain.rstrip("\r"))
        if parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            continue
        rule = "".join(parts).strip()
        if rule and len(rule) < _MAX_RULE:
            yield start, rule
        parts = []


def sets_ipoib(rule: str) -> bool:
    """Whether a rule sets mode or MTU, or runs a program for that or ethtool, and
    what it matches does not leave IPoIB netdevs out.

    A rule may be left out by a GOTO further up too, which is not looked at.
    """
    tokens = _TOKEN.findall(rule)
    return any(_sets(*token) for token in tokens) and all(
        _may_be_ipoib(*token) for token in tokens
    )


def _sets(key: str, attribute: str, operator: str, value: str) -> bool:
    if operator not in _ASSIGNS:
        return False
    if key == "ATTR":
        return attribute in _ATTRIBUTES
    return key == "RUN" and bool(_PROGRAM.search(value))


def _may_be_ipoib(key: str, attribute: str, operator: str, value: str) -> bool:
    """Whether a token lets IPoIB netdevs through; it is matched against all of a
    netdev that is known: its subsystem, its type, and what it is not named.
    """
    if operator not in ("==", "!="):
        return True
    patterns = value.split("|")
    if key == "KERNEL" and operator == "==":
        return not all(pattern.startswith(_OTHER_NETDEVS) for pattern in patterns)
    if key == "SUBSYSTEM":
        own = "net"
    elif key == "ATTR" and attribute == "type":
        own = str(ARPHRD_INFINIBAND)
    else:
        return True
    matches = any(fnmatch.fnmatchcase(own, pattern) for pattern in patterns)
    return matches == (operator == "==")
