# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors of the engine, each as one sentence and a kind.

What may go wrong between us and the engine: a problem with a kind to decide by.
:mod:`ovirt_rdma.engine_sdk_tools.api.errors` tells which.

What an answer of the engine means, or that none came, as one sentence and a kind.

The SDK raises a plain ``Error`` without a code for a refused connection, a time-out
and a page of HTML, and a TypeError for an answer without a Content-Type
(ovirtsdk4 4.6.3). So the answer itself is judged, where there was one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ovirt_rdma.host.errors import Problem

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
        id: str,
        sentence: str,
        kind: str,
        *,
        code: Optional[int] = None,
        fix: str = "",
        doing: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(id, sentence, fix)
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

    def __init__(
        self,
        id: str,
        sentence: str,
        last: Any = None,
        doing: str = "",
    ) -> None:
        super().__init__(id, sentence, TIMEOUT, doing=doing)
        self.last = last


class LoginExpired(Exception):
    """The engine no longer takes the token; the session logs in again. No problem of
    anybody's.
    """


def lost(problem: EngineProblem) -> LostAnswer:
    """Return ``problem`` of a change as one where nobody knows if it was made."""
    return LostAnswer(
        "engine-answer-lost",
        f"{problem}; the engine may have done it all the same",
        problem.kind,
        code=problem.code,
        fix=problem.fix,
        doing=problem.doing,
        detail=problem.detail,
    )


_KINDS = {400: INVALID, 401: DENIED, 403: DENIED, 404: MISSING, 409: CONFLICT}

# ACTION_TYPE_FAILED_OBJECT_LOCKED, as the engine's AppErrors.properties has it, and as
# it comes where the engine has no text for it.
_LOCKED = re.compile(
    r"Related operation .*is currently in progress|FAILED_OBJECT_LOCKED"
)

# The reason of each refused action, which says nothing: the detail does.
_NO_REASON = "Operation Failed"

# Refusals that the engine itself asks to repeat: of the keys below, and of texts that
# AppErrors.properties (4.5.7, lines 506, 841, 844, 1427 to 1429) has for them.
_BUSY = re.compile(
    r"wait for operation to complete and retry"
    r"|wait for the operations to complete and try again"
    r"|wait until tasks will finish and try again"
    r"|wait for the operations on those domains to finish"
    r"|Another Setup Networks or Host Refresh process in progress"
    r"|VDS_CANNOT_MAINTENANCE_SPM_(CONTENDING|WITH_RUNNING_TASKS)"
    r"|VDS_CANNOT_MAINTENANCE_HOST_WITH_RUNNING_OPERATIONS"
    r"|FAILED_SETUP_NETWORKS_OR_REFRESH_IN_PROGRESS"
    r"|CANNOT_DEACTIVATE_DOMAIN_WITH_TASKS"
)

# libcurl's numbers, from curl/curl.h. Before the request is on the wire:
_NOT_SENT = {5, 6, 7}
_TLS = {35, 51, 53, 54, 58, 59, 60, 66, 77, 80, 82, 83, 90, 91}
_CURL_TIMEOUT = 28
# Only a limit of ours keeps libcurl from writing, see connection.
_CURL_WRITE = 23
# Of one answer of the API. A host with all that we ask for has some kilobytes, and 500
# events, the most that we read at once, less than one megabyte.
MOST_BYTES = 64 << 20
# How the SDK shows them: [(<pycurl.Curl object at 0x1>, 28, 'Operation timed ...')]
_CURL_ERROR = re.compile(r"\(<[^>]*>, (\d+), (['\"])(.*?)\2\)")


class Answer(Protocol):
    """An HTTP answer, as the SDK keeps it."""

    code: int
    body: Any
    headers: Any


def in_words(
    error: Exception, doing: str, where: str = "", answer: Optional[Answer] = None
) -> EngineProblem:
    """Return what ``error`` of the SDK means. ``doing`` completes the sentence
    ("reading the hosts"), ``where`` names the engine, ``answer`` is what came back.
    """
    if isinstance(error, EngineProblem):
        return error
    the_engine = f"the engine {where}".strip()
    if answer is not None:
        return _of_answer(error, doing, the_engine, answer)
    code = getattr(error, "code", None)
    fault = getattr(error, "fault", None)
    if fault is not None or isinstance(code, int):
        return _of_fault(doing, the_engine, code, _fault_text(fault))
    found = _CURL_ERROR.search(str(error))
    if found:
        return of_curl(int(found.group(1)), found.group(3), doing, the_engine)
    return EngineProblem(
        "engine-request-failed",
        f"{doing} failed: {_first_line(str(error)) or type(error).__name__}",
        BROKEN,
        doing=doing,
    )


def of_curl(number: int, text: str, doing: str, the_engine: str) -> EngineProblem:
    """Return what libcurl's error ``number`` means, ``text`` being its own words."""
    if number in _TLS:
        return untrusted(text, doing, the_engine)
    if number in _NOT_SENT:
        return unreachable(text, doing, the_engine)
    if number == _CURL_TIMEOUT:
        # "Connection timed out after ...": nothing was sent. Older libcurl says this
        # of every time-out while it connects.
        if re.match(r"(Connection|Resolving|SSL connection) time", text):
            return unreachable(text, doing, the_engine)
        return no_answer(doing, the_engine)
    if number == _CURL_WRITE:
        return EngineProblem(
            "engine-answer-too-large",
            f"{doing} failed: {the_engine} answers with more than {MOST_BYTES >> 20} "
            "MiB",
            BROKEN,
            doing=doing,
        )
    return EngineProblem(
        "engine-connection-lost",
        f"{doing} failed: the connection to {the_engine} broke: {text}",
        TIMEOUT,
        doing=doing,
    )


def unreachable(text: str, doing: str, the_engine: str) -> EngineProblem:
    """Return that nothing was sent, because of ``text``."""
    return EngineProblem(
        "engine-unreachable",
        f"{doing} failed: {the_engine} cannot be reached: {text}",
        UNREACHABLE,
        fix="check the engine's address and that it runs; "
        "'systemctl status ovirt-engine httpd' on its machine tells",
        doing=doing,
    )


def untrusted(text: str, doing: str, the_engine: str) -> EngineProblem:
    """Return that TLS failed because of ``text``; nothing was sent."""
    return EngineProblem(
        "engine-certificate-untrusted",
        f"{doing} failed: the certificate of {the_engine} is not trusted: {text}",
        UNTRUSTED,
        fix="give the CA that signed it with --ca-file, or fetch the engine's own with "
        "'ovirt-rdma login --fetch-ca'",
        doing=doing,
    )


def no_answer(doing: str, the_engine: str) -> EngineProblem:
    """Return that no answer came in time."""
    return EngineProblem(
        "engine-timeout",
        f"{doing} failed: {the_engine} did not answer in time",
        TIMEOUT,
        doing=doing,
    )


def _of_answer(
    error: Exception, doing: str, the_engine: str, answer: Answer
) -> EngineProblem:
    code, media = int(answer.code), media_type(answer.headers)
    if not answer.body:
        return _of_fault(doing, the_engine, code, "")
    if media.endswith("/xml") and (code >= 400):
        text = _fault_text(getattr(error, "fault", None))
        return _of_fault(doing, the_engine, code, text)
    if media.endswith("/xml"):
        said = _first_line(str(error)) or type(error).__name__
        return EngineProblem(
            "engine-answer-invalid",
            f"{doing} failed: the answer of {the_engine} makes no sense: {said}",
            BROKEN,
            code=code,
            doing=doing,
        )
    # httpd or a proxy in the engine's place. While the engine's server starts, the
    # API's address is not there yet and gives 404.
    if code >= 500 or code == 404:
        return EngineProblem(
            "engine-unavailable",
            f"{doing} failed: {the_engine} is not at work: HTTP {code} from the web "
            "server in front of it",
            UNAVAILABLE,
            code=code,
            fix="wait until it has started, or check the URL; "
            "'systemctl status ovirt-engine' on its machine tells",
            doing=doing,
        )
    if code in _KINDS:
        return _of_fault(doing, the_engine, code, "")
    return EngineProblem(
        "not-an-engine",
        f"{doing} failed: what answers is not an engine's API: HTTP {code} with "
        f"{media or 'no Content-Type'}",
        BROKEN,
        code=code,
        fix="check the URL: https://ENGINE/ovirt-engine/api",
        doing=doing,
    )


def _of_fault(
    doing: str, the_engine: str, code: Optional[int], text: str
) -> EngineProblem:
    kind = _KINDS.get(code or 0, BROKEN)
    if code in (502, 503, 504):
        kind = UNAVAILABLE
    elif code == 409 and _LOCKED.search(text):
        kind = LOCKED
    elif code in (400, 409) and _BUSY.search(text):
        kind = BUSY
    said = text or {
        DENIED: "it does not allow it",
        MISSING: "it has no such object",
        UNAVAILABLE: "it is not at work",
    }.get(kind, f"no reason (HTTP {code})")
    if kind == BROKEN and text and code:
        said = f"{text} (HTTP {code})"
    fix = ""
    if kind == DENIED:
        fix = "use a user with an administrator's role (SuperUser)"
    elif kind == BROKEN or (not text and kind in (INVALID, CONFLICT)):
        fix = "its log has more: /var/log/ovirt-engine/engine.log"
    return EngineProblem(
        "engine-refused",
        f"{doing} failed: {the_engine} says: {said}",
        kind,
        code=code,
        fix=fix,
        doing=doing,
        detail=text,
    )


def _fault_text(fault: Any) -> str:
    """Return the engine's words, ``[Cannot ....]``, without brackets and full stop; ""
    where it gives none: the reason alone is "Operation Failed" then.
    """
    reason = getattr(fault, "reason", None) or ""
    text = str(getattr(fault, "detail", None) or reason.replace(_NO_REASON, ""))
    return " ".join(text.strip().removeprefix("[").removesuffix("]").split()).rstrip(
        "."
    )


def media_type(headers: Any) -> str:
    """Return the Content-Type of header lines or of a mapping, without parameters."""
    if isinstance(headers, Sequence) and not isinstance(headers, str):
        lines = [str(line) for line in headers]
    else:
        lines = [f"{name}: {value}" for name, value in dict(headers or {}).items()]
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-type":
            return value.partition(";")[0].strip().lower()
    return ""


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].strip() if text.strip() else ""
