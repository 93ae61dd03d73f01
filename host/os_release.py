# SPDX-License-Identifier: GPL-2.0-or-later
"""Which distribution a host runs, from os-release(5)."""

from __future__ import annotations

import re
import shlex
from typing import Optional

from ovirt_rdma.host.file_tree import FileTree

FILES = ("/etc/os-release", "/usr/lib/os-release")

_EL_PLATFORM = re.compile(r"platform:(el\d{1,3})")
_EL_FAMILY = frozenset(("rhel", "centos"))
_MAJOR = re.compile(r"\d{1,3}")


def read_distribution(tree: FileTree, problems: list[str]) -> Optional[str]:
    """Return ``el9`` (also for rebuilds of it, and oVirt Node), ``fc40``,
    ``debian12``; ``debian`` where there is no version (its testing), None where
    there is no os-release.
    """
    for path in FILES:
        data = tree.data(path)
        if data is not None:
            fields = parse_os_release(path, data, problems)
            return distribution(fields) or None
    problems.append(f"the distribution is not known: there is no {' or '.join(FILES)}")
    return None


def parse_os_release(path: str, data: bytes, problems: list[str]) -> dict[str, str]:
    """Return the assignments, unquoted as a shell does; others get a sentence."""
    found = {}
    text = data.decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        key, is_assignment, value = plain.partition("=")
        try:
            words = shlex.split(value)
        except ValueError:  # a quote that is not closed
            words = ["", ""]
        if is_assignment and key.isidentifier() and len(words) < 2:
            found[key] = "".join(words)
        else:
            problems.append(f"{path} line {number} is no assignment: {plain[:60]!a}")
    return found


def distribution(fields: dict[str, str]) -> str:
    """Return the name that the fields of an os-release make; empty without ``ID``.

    CentOS Stream, RHEL and their rebuilds say ``PLATFORM_ID=platform:el9``. Fedora is
    like none of them.
    """
    platform = _EL_PLATFORM.fullmatch(fields.get("PLATFORM_ID", ""))
    if platform:
        return platform.group(1)
    own, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    major = _MAJOR.match(version)
    if major and _EL_FAMILY & {own, *fields.get("ID_LIKE", "").split()}:
        return f"el{major.group()}"
    return f"{'fc' if own == 'fedora' else own}{version}" if own else ""
