# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the translation of SDK errors that the double does not cause."""

from __future__ import annotations

from types import SimpleNamespace

import ovirtsdk4
import pytest

from ovirt_rdma.engine_sdk_tools.api.auth import WebAnswer
from ovirt_rdma.engine_sdk_tools.api.request import (
    BROKEN,
    CONFLICT,
    DENIED,
    INVALID,
    LOCKED,
    MISSING,
    TIMEOUT,
    UNAVAILABLE,
    UNREACHABLE,
    UNTRUSTED,
    EngineProblem,
    LostAnswer,
    engine_problem_of,
    of_curl,
)

pytestmark = pytest.mark.hypervisor


def fault(code, detail, reason="Operation Failed"):
    error = ovirtsdk4.Error(f"Fault reason is {reason!r}.", code)
    error.fault = SimpleNamespace(detail=detail, reason=reason)
    return error


@pytest.mark.parametrize(
    ("number", "said", "id", "kind", "text"),
    [
        (5, "Could not resolve proxy: e", "engine-unreachable", UNREACHABLE,
         "Could not resolve proxy"),
        (5, "Unsupported proxy syntax in 'http://u:pw@p': Bad port",
         "engine-unreachable", UNREACHABLE,
         "Unsupported proxy syntax in https_proxy or http_proxy: Bad port"),
        (6, "Could not resolve host: e", "engine-unreachable", UNREACHABLE,
         "e.example cannot be reached: its name cannot be resolved"),
        (7, "Failed to connect to e", "engine-unreachable", UNREACHABLE,
         "Failed to connect to e"),
        (28, "Connection timed out after 9 ms", "engine-unreachable",
         UNREACHABLE, "after"),
        (28, "Operation timed out after 9 ms", "engine-timeout", TIMEOUT,
         "e.example"),
        (52, "Empty reply from server", "engine-connection-lost", TIMEOUT,
         "Empty reply"),
        (56, "Recv failure: Connection reset by peer", "engine-connection-lost",
         TIMEOUT, "reset by peer"),
        (60, "SSL certificate problem: self-signed",
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: self-signed"),
        (60, "SSL certificate OpenSSL verify result: self-signed (18)",
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: self-signed (18)"),
        (60, "SSL: no alternative certificate subject name matches '::1'",
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: no alternative"),
        (35, "TLS connect error: error:0A00010B:SSL routines::wrong version",
         "engine-unreachable", UNREACHABLE, "cannot be reached: wrong version"),
        (35, "error:1408F10B:SSL routines:ssl3_get_record:wrong version",
         "engine-unreachable", UNREACHABLE, "cannot be reached: wrong version"),
        (35, "OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to e:443 ",
         "engine-unreachable", UNREACHABLE, "SSL_ERROR_SYSCALL in connection to e:443"),
        (77, "error setting certificate file: it's",
         "engine-certificate-untrusted", UNTRUSTED, "it's"),
    ],
)  # fmt: skip
def test_what_a_failure_of_curl_means(number, said, id, kind, text):
    problem = of_curl(number, said, "reading x", "the engine e.example")
    assert (problem.id, problem.kind) == (id, kind)
    assert text in str(problem)
    assert str(problem).startswith("reading x failed: ")
    assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "id", "kind", "text"),
    [
        (fault(409, "[Cannot do.]"), "engine-refused", CONFLICT, "Cannot do"),
        (fault(409, "[Related operation is currently in progress.]"),
         "engine-refused", LOCKED, "Related"),
        (fault(409, "[ACTION_TYPE_FAILED_OBJECT_LOCKED]"), "engine-refused", LOCKED,
         "OBJECT_LOCKED"),
        (fault(403, None, "Forbidden"), "engine-permission-denied", DENIED,
         "Forbidden"),
        (fault(503, ""), "engine-unavailable", UNAVAILABLE, "e.example"),
        (fault(400, ""), "engine-refused", INVALID, "HTTP 400"),
        (fault(409, ""), "engine-refused", CONFLICT, "HTTP 409"),
        (ovirtsdk4.NotFoundError("x", 404), "engine-object-missing", MISSING,
         "e.example"),
    ],
)  # fmt: skip
def test_what_an_error_means(error, id, kind, text):
    answer = WebAnswer(error.code, "<fault/>", "application/xml")
    problem = engine_problem_of(error, "reading x", "e.example", answer)
    assert (problem.id, problem.kind) == (id, kind)
    assert text in str(problem)
    assert str(problem).startswith("reading x failed: ")
    assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "media", "body", "kind", "text"),
    [
        (200, "application/xml", "<x", BROKEN, "is invalid: odd"),
        (200, "application/xml", "", BROKEN, "HTTP 200"),
        (200, "", "<x", BROKEN, "HTTP 200 with no Content-Type"),
        (302, "text/html", "moved", BROKEN, "HTTP 302 with text/html"),
        (401, "text/html", "<html>", DENIED, "does not permit it"),
        (502, "text/html", "<html>", UNAVAILABLE, "HTTP 502"),
        (503, "", "busy", UNAVAILABLE, "HTTP 503"),
        (404, "", "", MISSING, "no such object"),
    ],
)
def test_what_an_answer_means(code, media, body, kind, text):
    answer = WebAnswer(code, body, media)
    problem = engine_problem_of(TypeError("odd\nmore"), "reading x", "e", answer)
    assert (problem.kind, problem.code) == (kind, code)
    assert text in str(problem)
    assert ("odd" in str(problem)) == ("odd" in text)


def test_a_lost_answer_has_what_the_problem_had():
    problem = EngineProblem("id", "moving h", "e says: no", CONFLICT, fix="f", code=409)
    lost = LostAnswer(problem)
    assert (lost.kind, lost.code, lost.fix) == (CONFLICT, 409, "f")
    assert str(lost).startswith("moving h failed: e says: no; the engine may have")
