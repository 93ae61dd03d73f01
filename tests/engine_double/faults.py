# SPDX-License-Identifier: GPL-2.0-or-later
"""Make chosen requests of a test fail.

    double.fail_next("POST", "/hosts/.*/activate", DropConnection(applied=True))

tests/engine/api/test_session.py has the SDK's reaction to each fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional, Union

from engine_double.answers import Answer, fault

HTML = "text/html; charset=UTF-8"
UNAVAILABLE = (
    b"<!DOCTYPE HTML><html><head><title>503 Service Unavailable</title></head>"
    b"<body><h1>Service Unavailable</h1></body></html>"
)
# EnforceAuthFilter.java calls sendError: the application server makes a page of it.
UNAUTHORIZED = (
    b"<html><head><title>Error</title></head><body>Unauthorized</body></html>"
)


INTERNAL_ERROR = (
    b"<html><head><title>Error</title></head><body>Internal Server Error</body></html>"
)


class Fault:
    """The fault of one request. ``applied``: the engine has carried the request out."""

    applied = False

    def answer(self) -> Optional[Answer]:
        """Return the answer that the client gets instead; None: no answer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Conflict(Fault):
    """409 with a message."""

    message: str = "Cannot do that now. Another operation is running."

    def answer(self) -> Optional[Answer]:
        return fault(409, self.message)


@dataclass(frozen=True)
class Locked(Conflict):
    """409: the object is locked by another action of the engine."""

    message: str = (
        "Cannot do that. Related operation is currently in progress. "
        "Please try again later."
    )


@dataclass(frozen=True)
class Status(Fault):
    """Any HTTP status, with a fault, an HTML page, or an empty body."""

    code: int = 500
    message: str = "Internal Engine Error"
    html: bool = False
    empty: bool = False
    applied: bool = False

    def answer(self) -> Optional[Answer]:
        if self.empty:
            return Answer(self.code)
        if self.html:
            page = f"<html><body><h1>{self.code}</h1></body></html>"
            return Answer(self.code, page.encode(), HTML)
        return fault(self.code, self.message)


@dataclass(frozen=True)
class ServiceUnavailableHtml(Fault):
    """503 as httpd says it in HTML while the engine is down."""

    applied: bool = False

    def answer(self) -> Optional[Answer]:
        return Answer(503, UNAVAILABLE, HTML)


@dataclass(frozen=True)
class NoContentType(Fault):
    """An answer without Content-Type, which makes the SDK raise a TypeError."""

    applied: bool = False

    def answer(self) -> Optional[Answer]:
        return Answer(200, b"<host/>", "")


@dataclass(frozen=True)
class DropConnection(Fault):
    """The connection is closed without an answer."""

    applied: bool = False

    def answer(self) -> Optional[Answer]:
        return None


@dataclass(frozen=True)
class AnswerLost(DropConnection):
    """The engine carries out the request, and its answer is lost."""

    applied: bool = True


@dataclass(frozen=True)
class Timeout(Fault):
    """No answer for ``seconds``, or until the double is closed; then none."""

    seconds: float = 60.0
    applied: bool = False

    def answer(self) -> Optional[Answer]:
        return None


AnyFault = Union[Fault, type]


@dataclass
class Trap:
    """A fault that waits for its request: passes ``after``, then takes ``times``."""

    method: str
    path: re.Pattern[str]
    fault: Fault
    times: int = 1
    after: int = 0


@dataclass
class Traps:
    """All pending faults, in the order in which they were set."""

    traps: list[Trap] = field(default_factory=list)

    def set(
        self, method: str, path: str, what: AnyFault, times: int, after: int
    ) -> None:
        made = what() if isinstance(what, type) else what
        self.traps.append(Trap(method, re.compile(path), made, times, after))

    def spring(self, method: str, path: str) -> Optional[Fault]:
        for trap in self.traps:
            if trap.times and trap.method in (method, "*") and trap.path.search(path):
                if trap.after:
                    trap.after -= 1
                    continue
                trap.times -= 1
                return trap.fault
        return None

    def left(self) -> list[str]:
        """Return the faults that did not happen (often enough): method, path."""
        return [f"{t.method} {t.path.pattern}" for t in self.traps if t.times]
