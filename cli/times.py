# SPDX-License-Identifier: GPL-2.0-or-later
"""Times in words for people."""

from __future__ import annotations

from datetime import datetime, timezone


def when(seconds: float) -> str:
    """Return a time, in seconds since 1970, for people: in UTC, to a second."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def when_iso(text: str) -> str:
    """Return an ISO 8601 time for people; as it is where it is none."""
    try:
        return when(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return text
