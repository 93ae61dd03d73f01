# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked of the engine, as data: so that --dry-run shows what would be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass(frozen=True)
class Read:
    """A reading: a ``get`` or ``list`` of the SDK's service at ``path`` (hosts/ID).

    ``words`` go to the method (``search``, ``max``, ``follow``). ``doing`` completes
    the sentence of a failure: "reading the hosts".
    """

    path: str
    doing: str
    method: str = "list"
    words: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A change: ``method`` of the SDK's service at ``path``, with ``words``.

    ``doing`` as with Read: "moving host01 to maintenance". ``about`` is the name of
    the host, domain or network that it changes.
    """

    path: str
    method: str
    doing: str
    words: Mapping[str, Any] = field(default_factory=dict)
    about: Optional[str] = None
