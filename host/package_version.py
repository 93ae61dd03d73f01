# SPDX-License-Identifier: GPL-2.0-or-later
"""Versions of installed packages, asked of rpm, or of dpkg where rpm has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.host.commands import CommandFailed
from ovirt_rdma.host.tools import Tools

# Both exit with 1 for a package that is not installed; rpm says so on stdout, and
# has words on stderr for anything else.
_NOT_INSTALLED = 1
_RPM_WORDS = "exit status 1"
_DPKG_WORDS = "no packages found matching"


def package_version(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    """Return the version, as ``4.50.5.1``, without the distribution's own part; None
    where it is not installed, or no package tool is there to tell.
    """
    return _rpm(tools, package, problems) or _dpkg(tools, package, problems)


def _rpm(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    argv = ["rpm", "-q", "--qf", r"%{VERSION}\n", package]
    lines = _answer(tools, argv, _RPM_WORDS, problems).split()
    return lines[0] if lines else None


def _dpkg(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    """Of a package that was removed, dpkg may still have the configuration."""
    argv = ["dpkg-query", "-W", "-f", r"${db:Status-Status}/${Version}\n", package]
    for line in _answer(tools, argv, _DPKG_WORDS, problems).split():
        status, _, version = line.partition("/")
        if status == "installed":  # epoch:upstream-revision, deb-version(7)
            return version.rpartition(":")[2].rpartition("-")[0] or version
    return None


def _answer(
    tools: Tools, argv: Sequence[str], not_installed: str, problems: list[str]
) -> str:
    try:
        text = tools.text(argv, problems, optional=True, raised_status=_NOT_INSTALLED)
    except CommandFailed as no:
        if not_installed not in str(no):
            problems.append(f"{' '.join(argv)} failed: {no}")
        return ""
    return text or ""
