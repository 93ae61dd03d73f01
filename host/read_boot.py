# SPDX-License-Identifier: GPL-2.0-or-later
"""When the host booted, from /proc/uptime and /proc/stat."""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.file_tree import FileTree

_UPTIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\b.*")
_BOOTED_AT = re.compile(r"^btime (\d{1,12})$", re.MULTILINE)


def read_uptime(tree: FileTree, problems: list[str]) -> float:
    """Return the seconds since boot; 0.0 where they cannot be read."""
    path = "/proc/uptime"
    text = tree.text(path, problems)
    if text is None:
        return 0.0
    match = _UPTIME.fullmatch(text)
    if not match:
        problems.append(f"{path} reads {text!a}, not two numbers")
        return 0.0
    return float(match.group(1))


def read_booted_at(tree: FileTree, problems: list[str]) -> Optional[int]:
    """Return when the host booted, in seconds since 1970, UTC (``btime``, which
    follows the clock when that is set); None where that cannot be read.
    """
    path = "/proc/stat"
    text = tree.text(path, problems)
    if text is None:
        return None
    match = _BOOTED_AT.search(text)
    if not match:
        problems.append(f"{path} has no btime")
        return None
    return int(match.group(1))
