# SPDX-License-Identifier: GPL-2.0-or-later
"""What may go wrong between us and the engine: a problem with a kind to decide by.
:mod:`ovirt_rdma.engine_sdk_tools.engine_answers` tells which.
"""

from __future__ import annotations

from typing import Any, Optional

from ovirt_rdma.host.problem import Problem

# The engine was not reached: the request was not sent.
UNREACHABLE = "unreachable"
# What answers there is not trusted: TLS.
UNTRUSTED = "untrusted"
# Something answers in the engine's place: it starts, stops, or is not there.
UNAVAILABLE = "unavailable"
# No answer came in time, or the connection broke while we waited for it.
TIMEOUT = "timeout"
DENIED = "denied"
MISSING = "missing"
CONFLICT = "conflict"
# A conflict that passes soon: another operation has a lock on the same object.
LOCKED = "locked"
# One that passes when tasks or operations have ended, which may take long.
BUSY = "busy"
INVALID = "invalid"
BROKEN = "broken"

# Asking again may help a reading.
PASSING = frozenset({UNREACHABLE, UNAVAILABLE, TIMEOUT})


class EngineProblem(Problem):
    """A request that failed. ``kind`` is one of this module's words; ``code`` the HTTP
    status, None where there was no answer. ``doing`` is what was being done;
    ``detail`` the engine's own words.
    """

    def __init__(
        self,
        sentence: str,
        kind: str,
        *,
        code: Optional[int] = None,
        fix: str = "",
        doing: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(sentence, fix)
        self.kind = kind
        self.code = code
        self.doing = doing
        self.detail = detail


class LostAnswer(EngineProblem):
    """The answer to a change did not come: the engine may have made it, or not. Whoever
    asked for it reads the state and decides.
    """


class TimeoutProblem(EngineProblem):
    """What was waited for did not come about in time; ``last`` was seen last."""

    def __init__(self, sentence: str, last: Any = None, doing: str = "") -> None:
        super().__init__(sentence, TIMEOUT, doing=doing)
        self.last = last


class LoginExpired(Exception):
    """The engine no longer takes the token; the session logs in again. No problem of
    anybody's.
    """


def lost(problem: EngineProblem) -> LostAnswer:
    """Return ``problem`` of a change as one where nobody knows if it was made."""
    return LostAnswer(
        f"{problem}; the engine may have done it all the same",
        problem.kind,
        code=problem.code,
        fix=problem.fix,
        doing=problem.doing,
        detail=problem.detail,
    )
