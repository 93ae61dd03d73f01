# SPDX-License-Identifier: GPL-2.0-or-later
"""What is held of all that was changed, and whether it is still so. Data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class ChangeStatus:
    """``held`` are the ids of the steps of which something is held, ``since`` is when
    the oldest of them was done (ISO 8601, UTC) and ``policies`` the digests that they
    followed. ``interrupted`` is the run that was, ``awaiting`` the one that waits to be
    confirmed, until ``confirm_by`` (seconds since 1970 UTC).

    ``kept`` says, a sentence each, which values somebody changed since, so that revert
    would leave them. ``at_boot`` is the number of changes that our units set again at
    each boot, ``not_at_boot`` of those that they do not know of, though they should
    (the disk was full). ``problem`` says why the journal cannot be read; then the rest
    is empty.
    """

    held: tuple[str, ...] = ()
    since: Optional[str] = None
    policies: tuple[str, ...] = ()
    interrupted: Optional[int] = None
    awaiting: Optional[int] = None
    confirm_by: Optional[int] = None
    kept: tuple[str, ...] = ()
    at_boot: int = 0
    not_at_boot: int = 0
    problem: str = ""
    fix: str = ""
