# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of ``dcb -j`` of iproute2. Pure.

The forms are those of iproute2 5.18 to 7.1 (dcb/dcb_pfc.c, dcb/dcb_app.c).
"""

from __future__ import annotations

import json
from typing import Any, Optional


def pfc_priorities(text: str) -> Optional[tuple[int, ...]]:
    """Return the priorities with PFC enabled, from ``dcb -j pfc show dev NETDEV``.

    Raises ValueError if the text has no such table.
    """
    table = _object(text).get("prio_pfc")
    if not isinstance(table, list) or not all(isinstance(on, bool) for on in table):
        raise ValueError("no table prio_pfc of true and false")
    return tuple(priority for priority, on in enumerate(table) if on)


def has_dscp_priorities(text: str) -> bool:
    """Whether ``dcb -j app show dev NETDEV`` has an entry for a DSCP value.

    Raises ValueError if the text has another form.
    """
    table = _object(text).get("dscp_prio", [])
    if not isinstance(table, list):
        raise ValueError("dscp_prio is not a table")
    return bool(table)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
