# SPDX-License-Identifier: GPL-2.0-or-later
"""Write remote paths and names of mount points as VDSM does."""

from __future__ import annotations

import posixpath
import re


def normalize_path(path: str) -> str:
    """Normalise the path of ``server:/path``, ``[v6]:/path`` or a local path.

    Raises ValueError if the server or the path is empty.
    """
    if path.startswith("/") or ":" not in path:
        return _normal(path)
    if path.startswith("["):
        host, closing, tail = path[1:].partition("]:")
        if not closing:
            raise ValueError(f"{path} is not a server and a path")
    else:
        host, _, tail = path.partition(":")
    if not host or not tail:
        raise ValueError(f"{path} is not a server and a path")
    shown = f"[{host}]" if ":" in host else host
    port, colon, rest = tail.partition(":")
    if colon and re.fullmatch(r"[1-9][0-9]{0,4}", port) and int(port) < 65536:
        return f"{shown}:{port}:{_normal(rest)}"
    return f"{shown}:{_normal(tail)}"


def _normal(path: str) -> str:
    # normpath keeps two leading slashes.
    return re.sub("^//", "/", posixpath.normpath(path))


def transformPath(remotePath: str) -> str:
    return remotePath.replace("_", "__").replace("/", "_")
