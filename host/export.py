# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse an NFS export, ``SERVER:/PATH``, as mount.nfs and VDSM write it."""

from __future__ import annotations

import functools
import ipaddress
import posixpath
import shlex
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


_FORM = "write it as SERVER:/PATH, an IPv6 address in brackets: [fd00::1]:/PATH"


def nfs_check(export: str) -> str:
    """Return the command that checks ``export``."""
    return f"ovirt-rdma-host nfs check {shlex.quote(export)}"


class ExportProblem(Problem):
    """The text is not an export."""


@dataclass(frozen=True)
class Export:
    """A server and a path.

    ``server`` is the name or address as written, without IPv6 brackets; ``path``
    is absolute and normalised as in VDSM: without doubled and trailing slashes.
    """

    server: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Export:
        """Parse ``server:/path`` or ``[v6 address]:/path``. Raises ExportProblem."""
        server, path = _bracketed(text) if text.startswith("[") else _plain(text)
        if not path.startswith("/"):
            raise ExportProblem(
                "export-path-not-absolute",
                f"export {text!r}: the path {path!r} is not absolute",
                _FORM,
            )
        if any(c < " " or c == "\x7f" for c in text):
            raise ExportProblem(
                "export-control-character",
                f"export {text!r} has a control character in it",
                _FORM,
            )
        normal = posixpath.normpath(path)
        return cls(server, "/" + normal.lstrip("/"))

    @classmethod
    def maybe(cls, text: str) -> Optional[Export]:
        """Parse as :meth:`parse` does; return None for what is not an export."""
        try:
            return cls.parse(text)
        except ExportProblem:
            return None

    @functools.cached_property
    def key(self) -> tuple[str, str]:
        """A value that is equal for all notations of the same server."""
        name = self.server.rstrip(".").lower()
        return (name if self.address is None else str(self.address)), self.path

    def same_as(self, other: Optional[Export]) -> bool:
        """Whether ``other`` is the same export, perhaps in another notation."""
        # The path first: a host may have thousands of mounts, and it costs nothing.
        return other is not None and self.path == other.path and self.key == other.key

    @functools.cached_property
    def address(self) -> Optional[IpAddress]:
        """The server as an IP address, or None if it is a name."""
        return _address(self.server)

    def __str__(self) -> str:
        shown = f"[{self.server}]" if ":" in self.server else self.server
        return f"{shown}:{self.path}"


def _bracketed(text: str) -> tuple[str, str]:
    """Split ``[address]:path``."""
    server, closing, rest = text[1:].partition("]")
    if not closing:
        raise ExportProblem(
            "export-bracket-missing", f"export {text!r} has no closing bracket", _FORM
        )
    if not isinstance(_address(server), ipaddress.IPv6Address):
        raise ExportProblem(
            "export-address-invalid",
            f"export {text!r}: {server!r} in brackets is not an IPv6 address",
            _FORM,
        )
    if not rest.startswith(":"):
        raise ExportProblem(
            "export-colon-missing",
            f"export {text!r} has no colon after the bracket",
            _FORM,
        )
    return server, rest[1:]


def _plain(text: str) -> tuple[str, str]:
    """Split ``server:path``."""
    # An IPv6 address without brackets has colons before that of the path.
    server, separator, path = text.partition(":/")
    if separator and isinstance(_address(server), ipaddress.IPv6Address):
        raise ExportProblem(
            "export-address-unbracketed",
            f"export {text!r}: an IPv6 address needs brackets",
            f"write [{server}]:/{path}",
        )
    server, colon, path = text.partition(":")
    if not server or not colon:
        raise ExportProblem(
            "export-server-missing",
            f"export {text!r} has no server before a colon",
            _FORM,
        )
    if "/" in server or any(c.isspace() for c in server):
        raise ExportProblem(
            "export-server-invalid",
            f"export {text!r}: {server!r} is not a server",
            _FORM,
        )
    return server, path


def _address(text: str) -> Optional[IpAddress]:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
