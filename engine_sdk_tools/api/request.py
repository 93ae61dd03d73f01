# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests to the engine as data, their answers as problems, and their progress.

A dry run shows exactly what a run sends: the SDK's own service writes the HTTP request,
to a connection that records it and sends nothing. ``types`` are those of the SDK.

An answer, or a missing one, becomes a problem with a kind, by which callers decide. The
SDK raises a plain ``Error`` without a code for a refused connection, a timeout and a
page of HTML, and a TypeError for an answer without a Content-Type (ovirtsdk4 4.6.3), so
the answer itself is evaluated if there is one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Callable, Optional, Protocol, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.lazy import LazyModule


class Listener:
    """Receives progress: a terminal, JSON lines or the engine's job. This one ignores
    all of it.
    """

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Take the hosts or domains of the run and its total number of steps."""

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Take a step that begins: a sentence, and its host."""

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Take the end of a step; ``problem`` is "" if it was successful."""

    def note(self, sentence: str) -> None:
        """Take a sentence that the operator should see."""


@dataclass
class Step:
    """A step that is being done; ``problem`` is "" unless it has failed."""

    problem: str = ""


@contextmanager
def step(
    listener: Listener, doing: str, subject: Optional[str] = None
) -> Iterator[Step]:
    """Report the begin and the end of a step to ``listener``; an error ends it, too."""
    listener.begin(doing, subject)
    now = Step()
    try:
        yield now
    except BaseException as error:
        now.problem = now.problem or (
            error.one_line if isinstance(error, Problem) else "interrupted"
        )
        raise
    finally:
        listener.end(doing, subject, now.problem)


# There is no connection to the engine: the request was not sent.
UNREACHABLE = "unreachable"
# The certificate of the server is not trusted (TLS).
UNTRUSTED = "untrusted"
# Something else answers: the engine is starting, stopping or not there.
UNAVAILABLE = "unavailable"
# No answer came before the deadline, or the connection broke during the wait.
TIMEOUT = "timeout"
DENIED = "denied"
MISSING = "missing"
CONFLICT = "conflict"
# A conflict of a short time: another operation has a lock on the same object.
LOCKED = "locked"
# A conflict until tasks or operations have ended, which may take long.
BUSY = "busy"
INVALID = "invalid"
BROKEN = "broken"

# A reading may be successful later.
PASSING = frozenset({UNREACHABLE, UNAVAILABLE, TIMEOUT})


ADMINISTRATOR = "use a user with an administrator's role (SuperUser)"
SEE_LOG = "see the engine's log, /var/log/ovirt-engine/engine.log"


class EngineProblem(Problem):
    """A request that failed.

    ``kind`` is one of this module's constants, ``code`` the HTTP status, None without
    an answer, ``doing`` what was attempted, ``detail`` the engine's own text.
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


def failed(
    id: str,
    doing: str,
    what: str,
    kind: str,
    *,
    code: Optional[int] = None,
    fix: str = "",
    detail: str = "",
) -> EngineProblem:
    """Return the problem that ``doing`` failed, with the clause ``what``."""
    sentence = f"{doing} failed: {what}"
    more = {"fix": fix, "doing": doing, "detail": detail}
    return EngineProblem(id, sentence, kind, code=code, **more)


class LostAnswer(EngineProblem):
    """A change without an answer: the engine may have made it or not. The caller has to
    read the state.
    """


class TimeoutProblem(EngineProblem):
    """A state was not reached before the deadline."""


class LoginExpired(Exception):
    """The engine does not accept the token, with its sentence, "" for none; the session
    logs in again, so this is not an error.
    """


def lost(problem: EngineProblem) -> LostAnswer:
    """Return ``problem`` as one where it is unknown if the engine made the change."""
    return LostAnswer(
        "engine-answer-lost",
        f"{problem}; the engine may have made the change all the same",
        problem.kind,
        code=problem.code,
        fix=problem.fix,
        doing=problem.doing,
        detail=problem.detail,
    )


# Of some kinds: the id, what it says without a text, and the fix.
_OF_KIND = {
    DENIED: ("engine-permission-denied", "does not permit it", ADMINISTRATOR),
    MISSING: ("engine-object-missing", "has no such object", ""),
    UNAVAILABLE: ("engine-unavailable", "is not available", ""),
}
_KINDS = {400: INVALID, 401: DENIED, 403: DENIED, 404: MISSING, 409: CONFLICT}

# ACTION_TYPE_FAILED_OBJECT_LOCKED: its text in the engine's AppErrors.properties, and
# the key, which the engine sends if it has no text.
_LOCKED = re.compile(
    r"Related operation .*is currently in progress|FAILED_OBJECT_LOCKED"
)

# EnforceAuthFilter.java:54-58 gives its sentence to the application server's page.
_PAGE = re.compile(r"<body>([^<>]*)</body>")
_MOST_SHOWN = 300

# The reason of every refused action, which explains nothing; the detail does.
_NO_REASON = "Operation Failed"

# Refusals after which the engine itself asks for another attempt: texts of
# AppErrors.properties (4.5.7, lines 506, 841, 844, 1427 to 1429) and their keys.
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

# libcurl's error numbers, from curl/curl.h. Before the request is sent:
_NOT_SENT = {5, 6, 7}
_CURL_NO_NAME = 6
_TLS = {35, 51, 53, 54, 58, 59, 60, 66, 77, 80, 82, 83, 90, 91}
_CURL_TIMEOUT = 28
# libcurl cannot write only if an answer exceeds our limit, see connection.
_CURL_WRITE = 23
# Limit of one answer of the API. A host with everything that we request has some
# kilobytes; 500 events, the most that we read at once, less than one megabyte.
MOST_BYTES = 64 << 20
# What libcurl and OpenSSL say before the reason.
_TLS_PREFIX = re.compile(r"(SSL certificate [^:]*: |SSL: |.*\broutines:\w*:)")
# libcurl's words, with OpenSSL, and those of Python's ssl, for another name.
_OTHER_NAME = re.compile(r"subject name.* (does not |)match|[Hh]ostname mismatch")
# libcurl quotes a proxy that it cannot use, perhaps with a password.
_BAD_PROXY = re.compile(r"(Unsupported proxy \w+ (?:in|for)) '.*'", re.DOTALL)
# As the SDK shows them: [(<pycurl.Curl object at 0x1>, 28, 'Operation timed ...')]
_CURL_ERROR = re.compile(r"\(<[^>]*>, (\d+), (['\"])(.*?)\2\)")


class Answer(Protocol):
    """An HTTP answer, as the SDK keeps it."""

    code: int
    body: Any
    headers: Any


def engine_problem_of(
    error: Exception, doing: str, where: str = "", answer: Optional[Answer] = None
) -> EngineProblem:
    """Return ``error`` of the SDK as a problem. ``doing`` begins its sentence ("reading
    the hosts"), ``where`` names the engine, ``answer`` is the HTTP answer, if any.
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
    curl_error = _CURL_ERROR.search(str(error))
    if curl_error:
        return of_curl(int(curl_error.group(1)), curl_error.group(3), doing, the_engine)
    what = _first_line(str(error)) or type(error).__name__
    return failed("engine-request-failed", doing, what, BROKEN)


def of_curl(number: int, text: str, doing: str, the_engine: str) -> EngineProblem:
    """Return libcurl's error ``number`` with its ``text`` as a problem."""
    text = _BAD_PROXY.sub(r"\1 https_proxy or http_proxy", text)
    if number in _TLS:
        text = _TLS_PREFIX.sub("", text, count=1)
        fix = (
            "give the CA that signed it with --ca-file, or fetch the engine's own CA "
            "with 'ovirt-rdma login --fetch-ca'"
        )
        if _OTHER_NAME.search(text):
            fix = "give the engine's FQDN, as in the certificate, in --engine-url"
        what = f"the certificate of {the_engine} is not trusted: {text}"
        return failed("engine-certificate-untrusted", doing, what, UNTRUSTED, fix=fix)
    # "Connection timed out after ...": nothing was sent. Older versions of libcurl
    # report every timeout of a connection like this.
    connecting = re.match(r"(Connection|Resolving|SSL connection) time", text)
    if number in _NOT_SENT or (number == _CURL_TIMEOUT and connecting):
        if number == _CURL_NO_NAME:
            text = "its name cannot be resolved"
        # libcurl's own sentence, "Failed to connect to HOST port N: REASON".
        text = re.sub(r"^Failed to connect to [^:]*: (?=.)", "", text)
        fix = "check the engine's address, and on its machine: systemctl status "
        fix += "ovirt-engine httpd"
        what = f"{the_engine} cannot be reached: {text}"
        return failed("engine-unreachable", doing, what, UNREACHABLE, fix=fix)
    if number == _CURL_TIMEOUT:
        what = f"{the_engine} did not answer in time"
        return failed("engine-timeout", doing, what, TIMEOUT)
    if number == _CURL_WRITE:
        what = f"the answer of {the_engine} is larger than {MOST_BYTES >> 20} MiB"
        return failed("engine-answer-too-large", doing, what, BROKEN)
    what = f"the connection to {the_engine} broke: {text}"
    return failed("engine-connection-lost", doing, what, TIMEOUT)


def of_page(doing: str, the_engine: str, code: int, media: str) -> EngineProblem:
    """Return the problem that something else than the engine's API answers."""
    # httpd or a proxy answers, but 500 is of the engine's application server. While
    # that starts, the API does not exist yet, which gives 404.
    if code >= 500 or code == 404:
        what = f"is not available: HTTP {code} from the web server in front of it"
        fix = "wait until it has started, or check the URL, and on its machine: "
        fix += "systemctl status ovirt-engine"
        if code == 500:
            what = "has failed (HTTP 500)"
            fix = "see the log of its server, /var/log/ovirt-engine/server.log"
        what = f"{the_engine} {what}"
        return failed(
            "engine-unavailable", doing, what, UNAVAILABLE, code=code, fix=fix
        )
    what = f"{the_engine} does not answer as an engine's API: HTTP {code} with "
    what += media or "no Content-Type"
    fix = "check the URL: https://ENGINE/ovirt-engine/api"
    return failed("not-an-engine", doing, what, BROKEN, code=code, fix=fix)


def _of_answer(
    error: Exception, doing: str, the_engine: str, answer: Answer
) -> EngineProblem:
    code, media = int(answer.code), media_type(answer.headers)
    if not answer.body or (media.endswith("/xml") and code >= 400):
        text = _fault_text(getattr(error, "fault", None)) if answer.body else ""
        return _of_fault(doing, the_engine, code, text)
    if media.endswith("/xml"):
        reason = _first_line(str(error)) or type(error).__name__
        what = f"the answer of {the_engine} is invalid: {reason}"
        return failed("engine-answer-invalid", doing, what, BROKEN, code=code)
    if code in _KINDS and code != 404:
        return _of_fault(doing, the_engine, code, "")
    return of_page(doing, the_engine, code, media)


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
    id, empty, fix = _OF_KIND.get(kind, ("engine-refused", "", ""))
    said = f"says: {text}" if text else empty
    if not said:
        said, fix = f"gives no reason (HTTP {code})", SEE_LOG
    elif kind == BROKEN and code:
        said = f"{said} (HTTP {code})"
    more: dict[str, Any] = {"code": code, "fix": fix, "detail": text}
    return failed(id, doing, f"{the_engine} {said}", kind, **more)


def _fault_text(fault: Any) -> str:
    """Return the engine's text, ``[Cannot ....]``, without brackets and full stop; ""
    if there is none: then the reason is only "Operation Failed".
    """
    reason = getattr(fault, "reason", None) or ""
    text = str(getattr(fault, "detail", None) or reason.replace(_NO_REASON, ""))
    return " ".join(text.strip().removeprefix("[").removesuffix("]").split()).rstrip(
        "."
    )


def media_type(headers: Any) -> str:
    """Return the Content-Type in header lines or a mapping, without parameters."""
    return header(headers, "content-type").partition(";")[0].strip()


def header(headers: Any, name: str) -> str:
    """Return the value of the header ``name`` in header lines or a mapping, all in
    lower case; "" if it is not there.
    """
    if isinstance(headers, Sequence) and not isinstance(headers, str):
        lines = [str(line) for line in headers]
    else:
        lines = [f"{name}: {value}" for name, value in dict(headers or {}).items()]
    for line in lines:
        found, _, value = line.partition(":")
        if found.strip().lower() == name:
            return value.strip().lower()
    return ""


def sentence_of_page(body: Any) -> str:
    """Return the text of the body of a page of the engine's server; "" if there is
    none, or only the name of the status.
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
    match = _PAGE.search(text)
    sentence = unescape(" ".join(match[1].split())).rstrip(".") if match else ""
    return "" if sentence == "Unauthorized" else sentence[:_MOST_SHOWN]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].strip() if text.strip() else ""


services: Any = LazyModule("ovirtsdk4.services")
types: Any = LazyModule("ovirtsdk4.types")


# Describe a request to the engine as data, and show it as HTTP without sending it.


@dataclass(frozen=True)
class Read:
    """A reading: a ``get`` or ``list`` of the SDK's service at ``path`` (hosts/ID).

    ``arguments`` are those of the method (``search``, ``max``, ``follow``). ``doing``
    begins the sentence of a failure: "reading the hosts".
    """

    path: str
    doing: str
    method: str = "list"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A change: ``method`` of the SDK's service at ``path``, with ``arguments``.

    ``doing`` is as in Read: "moving host01 to maintenance". ``subject`` is the name of
    the host, domain or network that it changes.
    """

    path: str
    method: str
    doing: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    subject: Optional[str] = None


@dataclass(frozen=True)
class WireForm:
    """An HTTP request: ``path`` below /ovirt-engine/api, ``body`` as XML, "" for none.

    The session adds the query parameter ``correlation_id`` to changes.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class _Recorded(Exception):
    """Carries the request out of the SDK."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class _Recorder:
    """The part of a connection that the SDK's services use to send a request."""

    def send(self, request: Any) -> Any:
        raise _Recorded(request)


def wire_form(asked: Union[Call, Read]) -> WireForm:
    """Return the HTTP request of ``asked``.

    Raises TypeError for arguments that the SDK's method does not have, and the SDK's
    Error for a path without a service.
    """
    service = services.SystemService(_Recorder(), "").service(asked.path)
    try:
        sdk_method(service, asked)(**dict(asked.arguments))
    except _Recorded as recorded:
        request = recorded.request
        return WireForm(
            request.method, request.path, dict(request.query), request.body or ""
        )
    raise TypeError(f"{asked.path} {asked.method} sends nothing")


def sdk_method(service: Any, asked: Union[Call, Read]) -> Callable[..., Any]:
    """Return the method of the SDK's ``service`` that ``asked`` names.

    Raises TypeError for a method or arguments that it does not have: the SDK itself
    accepts and ignores any argument.
    """
    method = getattr(service, asked.method, None)
    if not callable(method):
        raise TypeError(f"{asked.path} has no {asked.method}")
    known = {
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    unknown = sorted(set(asked.arguments) - known)
    if unknown:
        raise TypeError(
            f"{asked.path} {asked.method} has no argument {', '.join(unknown)}"
        )
    return method  # type: ignore[no-any-return]
