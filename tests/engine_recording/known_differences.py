# SPDX-License-Identifier: GPL-2.0-or-later
"""List the known differences of engine and double that do not matter, with reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """Regular expressions for the request, the place in the answer, and the kind."""

    kind: str
    request: str
    where: str
    reason: str

    def covers(self, kind: str, request: str, where: str) -> bool:
        return (
            kind == self.kind
            and re.search(self.request, request) is not None
            and re.search(self.where, where) is not None
        )


# Kinds: see compare.py.
KNOWN = (
    Known(
        "not read",
        ".*",
        ".*",
        "the double shows what our product reads and little more; what_matters.READ "
        "has that",
    ),
    Known(
        "passing status",
        ".*",
        ".*",
        "a status that lasts seconds falls between two polls of an engine, while the "
        "double advances when it is read",
    ),
    Known(
        "SPM",
        ".*",
        ".*",
        "which host becomes SPM, and when, is the engine's own choice",
    ),
    Known(
        "other event",
        ".*",
        ".*",
        "an engine writes many events; compared are those of what was asked for, by "
        "the codes that the double has",
    ),
)
