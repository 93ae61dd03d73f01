# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests to the engine as data, their answers as problems, and their progress.

A dry run shows exactly what a run sends: the SDK's own service writes the HTTP request,
to a connection that records it and sends nothing. ``types`` are those of the SDK.

An answer, or a missing one, becomes a problem with a kind, by which callers decide. The
SDK raises a plain ``Error`` without a code for a page of HTML (ovirtsdk4 4.6.3), so the
answer itself is evaluated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from importlib import import_module
from typing import Any, Callable, Optional, Union

from ovirt_rdma.host.errors import Problem


class Listener:
    """Receives progress: a terminal, JSON lines or a job. This one ignores it."""

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
    """A request that failed: "DOING failed: WHAT". ``kind`` is a constant of this
    module, ``code`` the HTTP status, if any, ``detail`` the engine's own text.
    ``in_login``: the login failed, and the request was not sent.
    """

    in_login = False

    def __init__(
        self,
        id: str,
        doing: str,
        what: str,
        kind: str,
        *,
        code: Optional[int] = None,
        fix: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(id, f"{doing} failed: {what}", fix)
        self.doing, self.what, self.kind = doing, what, kind
        self.code, self.detail = code, detail


class LostAnswer(EngineProblem):
    """A change without an answer: the engine may have made it. Read the state."""

    def __init__(self, lost: EngineProblem) -> None:
        what = f"{lost.what}; the engine may have made the change all the same"
        super().__init__("engine-answer-lost", lost.doing, what, lost.kind)
        self.code, self.fix, self.detail = lost.code, lost.fix, lost.detail


class TimeoutProblem(EngineProblem):
    """A state was not reached before the deadline."""


class LoginExpired(Exception):
    """The engine does not accept the token, with its sentence, "" for none; the session
    logs in again, so this is not an error.
    """


# Of some kinds: the id, what it says without a text, and the fix.
_OF_KIND = {
    DENIED: ("engine-permission-denied", "does not permit it", ADMINISTRATOR),
    MISSING: ("engine-object-missing", "has no such object", ""),
    UNAVAILABLE: ("engine-unavailable", "is not available", ""),
}
_KINDS = {
    **{400: INVALID, 401: DENIED, 403: DENIED, 404: MISSING, 409: CONFLICT},
    **dict.fromkeys((502, 503, 504), UNAVAILABLE),
}

# ACTION_TYPE_FAILED_OBJECT_LOCKED: its text in the engine's AppErrors.properties, and
# the key, which the engine sends if it has no text.
_LOCKED = re.compile(
    r"Related operation .*is currently in progress|FAILED_OBJECT_LOCKED"
)

# EnforceAuthFilter.java:54-58 gives its sentence to the application server's page.
_PAGE = re.compile(r"<body>([^<>]*)</body>")

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

# libcurl's error numbers, from curl/curl.h. Before the request is sent; 35 is a TLS
# handshake that was cut off, as while httpd restarts, or found no common version. A
# certificate that is not trusted is 60 (lib/vtls/openssl.c, ossl_connect_step2).
_NOT_SENT = {5, 6, 7, 35}
_CURL_NO_NAME = 6
_TLS = {51, 53, 54, 58, 59, 60, 66, 77, 80, 82, 83, 90, 91}
_CURL_TIMEOUT = 28
# libcurl cannot write only if an answer exceeds our limit.
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


def engine_problem_of(
    error: Exception, doing: str, where: str, answer: Any
) -> EngineProblem:
    """Return ``error`` of the SDK as a problem. ``doing`` begins its sentence ("reading
    the hosts"), ``where`` names the engine, ``answer`` is the WebAnswer.
    """
    the_engine, code = f"the engine {where}", answer.code
    xml = answer.media.endswith("/xml")
    if answer.body and xml and code < 400:
        lines = str(error).strip().splitlines()
        reason = lines[0].strip() if lines else type(error).__name__
        what = f"the answer of {the_engine} is invalid: {reason}"
        return EngineProblem("engine-answer-invalid", doing, what, BROKEN, code=code)
    if answer.body and not xml and code not in (400, 401, 403, 409):
        return of_page(doing, the_engine, code, answer.media)
    text = _fault_text(getattr(error, "fault", None))
    kind = _KINDS.get(code, BROKEN)
    if code == 409 and _LOCKED.search(text):
        kind = LOCKED
    elif code in (400, 409) and _BUSY.search(text):
        kind = BUSY
    id, empty, fix = _OF_KIND.get(kind, ("engine-refused", "", ""))
    said = f"says: {text}" if text else empty
    if not said:
        said, fix = f"gives no reason (HTTP {code})", SEE_LOG
    elif kind == BROKEN:
        said = f"{said} (HTTP {code})"
    what = f"{the_engine} {said}"
    return EngineProblem(id, doing, what, kind, code=code, fix=fix, detail=text)


def of_curl(
    number: int, text: str, doing: str, the_engine: str, most_bytes: int = MOST_BYTES
) -> EngineProblem:
    """Return libcurl's error as a problem; ``most_bytes`` limited the answer."""
    text = _BAD_PROXY.sub(r"\1 https_proxy or http_proxy", text)
    text = _TLS_PREFIX.sub("", text, count=1).strip()
    if number in _TLS:
        fix = (
            "give the CA that signed it with --ca-file, or fetch the engine's own CA "
            "with 'ovirt-rdma login --fetch-ca'"
        )
        if _OTHER_NAME.search(text):
            fix = "give the engine's FQDN, as in the certificate, in --engine-url"
        what = f"the certificate of {the_engine} is not trusted: {text}"
        return EngineProblem(
            "engine-certificate-untrusted", doing, what, UNTRUSTED, fix=fix
        )
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
        return EngineProblem("engine-unreachable", doing, what, UNREACHABLE, fix=fix)
    if number == _CURL_TIMEOUT:
        what = f"{the_engine} did not answer in time"
        return EngineProblem("engine-timeout", doing, what, TIMEOUT)
    if number == _CURL_WRITE:
        what = f"the answer of {the_engine} is larger than {most_bytes >> 20} MiB"
        return EngineProblem("engine-answer-too-large", doing, what, BROKEN)
    what = f"the connection to {the_engine} broke: {text}"
    return EngineProblem("engine-connection-lost", doing, what, TIMEOUT)


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
        id, kind = "engine-unavailable", UNAVAILABLE
        return EngineProblem(id, doing, what, kind, code=code, fix=fix)
    what = f"{the_engine} does not answer as an engine's API: HTTP {code} with "
    what += media or "no Content-Type"
    fix = "check the URL: https://ENGINE/ovirt-engine/api"
    return EngineProblem("not-an-engine", doing, what, BROKEN, code=code, fix=fix)


def _fault_text(fault: Any) -> str:
    """Return the engine's text, ``[Cannot ....]``, without brackets and full stop."""
    # Of a refused action it explains nothing; the detail does.
    reason = getattr(fault, "reason", None) or ""
    text = str(getattr(fault, "detail", None) or reason.replace("Operation Failed", ""))
    text = text.strip().removeprefix("[").removesuffix("]")
    return " ".join(text.split()).rstrip(".")


def sentence_of_page(page: str) -> str:
    """Return the body's text of a page of the engine's server, "" for only a status."""
    match = _PAGE.search(page)
    sentence = unescape(" ".join(match[1].split())).rstrip(".") if match else ""
    return "" if sentence == "Unauthorized" else sentence[:300]


class _LazyModule:
    """The module ``name``, imported on first use: help and usage errors need none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


services: Any = _LazyModule("ovirtsdk4.services")
types: Any = _LazyModule("ovirtsdk4.types")


@dataclass(frozen=True)
class Read:
    """A reading: ``get`` or ``list`` of the SDK's service at ``path`` (hosts/ID), with
    its ``arguments``. ``doing`` begins the sentence of a failure: "reading the hosts".
    """

    path: str
    doing: str
    method: str = "list"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A change: ``method`` of the SDK's service at ``path``, with ``arguments``;
    ``doing`` as in Read. ``subject`` is the name of the host, domain or network.
    """

    path: str
    method: str
    doing: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    subject: Optional[str] = None


@dataclass(frozen=True)
class WireForm:
    """An HTTP request below /ovirt-engine/api; ``body`` is XML, "" for none."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class _Recorded(Exception):
    """Carries a request out of the SDK."""


class _Recorder:
    """The part of a connection that the SDK's services use to send a request."""

    def send(self, request: Any) -> Any:
        raise _Recorded(request)


def wire_form(asked: Union[Call, Read]) -> WireForm:
    """Return the HTTP request of ``asked``. Raises TypeError for wrong arguments, and
    the SDK's Error for a path without a service.
    """
    service = services.SystemService(_Recorder(), "").service(asked.path)
    try:
        sdk_method(service, asked)(**dict(asked.arguments))
    except _Recorded as recorded:
        (sent,) = recorded.args
        return WireForm(sent.method, sent.path, dict(sent.query), sent.body or "")
    raise TypeError(f"{asked.path} {asked.method} sends nothing")


def sdk_method(service: Any, asked: Union[Call, Read]) -> Callable[..., Any]:
    """Return the SDK's method that ``asked`` names. Raises TypeError if that or an
    argument does not exist: the SDK itself ignores any argument.
    """
    method = getattr(service, asked.method, None)
    if not callable(method):
        raise TypeError(f"{asked.path} has no {asked.method}")
    unknown = set(asked.arguments) - set(inspect.getfullargspec(method).args)
    if unknown:
        names = ", ".join(sorted(unknown))
        raise TypeError(f"{asked.path} {asked.method} has no argument {names}")
    return method  # type: ignore[no-any-return]
