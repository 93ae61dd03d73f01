# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the translation of SDK errors that the double does not cause."""

from __future__ import annotations

from types import SimpleNamespace

import ovirtsdk4
import pytest

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
)

pytestmark = pytest.mark.hypervisor


def curl(number, text):
    """Return an error with the text of ovirtsdk4 4.6.3."""
    return ovirtsdk4.Error(
        f"Failed to read response: [(<pycurl.Curl object at 0x7f>, {number}, {text!r})]"
    )


def fault(code, detail, reason="Operation Failed"):
    error = ovirtsdk4.Error(f"Fault reason is {reason!r}.", code)
    error.fault = SimpleNamespace(detail=detail, reason=reason)
    return error


@pytest.mark.parametrize(
    ("error", "id", "kind", "text"),
    [
        (curl(5, "Could not resolve proxy: e"), "engine-unreachable", UNREACHABLE,
         "Could not resolve proxy"),
        (curl(5, "Unsupported proxy syntax in 'http://u:pw@p': Bad port"),
         "engine-unreachable", UNREACHABLE,
         "Unsupported proxy syntax in https_proxy or http_proxy: Bad port"),
        (curl(6, "Could not resolve host: e"), "engine-unreachable", UNREACHABLE,
         "e.example cannot be reached: its name cannot be resolved"),
        (curl(7, "Failed to connect to e"), "engine-unreachable", UNREACHABLE,
         "Failed to connect to e"),
        (curl(28, "Connection timed out after 9 ms"), "engine-unreachable",
         UNREACHABLE, "after"),
        (curl(28, "Operation timed out after 9 ms"), "engine-timeout", TIMEOUT,
         "e.example"),
        (curl(52, "Empty reply from server"), "engine-connection-lost", TIMEOUT,
         "Empty reply"),
        (curl(56, "Recv failure: Connection reset by peer"), "engine-connection-lost",
         TIMEOUT, "reset by peer"),
        (curl(60, "SSL certificate problem: self-signed"),
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: self-signed"),
        (curl(60, "SSL certificate OpenSSL verify result: self-signed (18)"),
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: self-signed (18)"),
        (curl(60, "SSL: no alternative certificate subject name matches '::1'"),
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: no alternative"),
        (curl(35, "TLS connect error: error:0A00010B:SSL routines::wrong version"),
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: wrong version"),
        (curl(35, "error:1408F10B:SSL routines:ssl3_get_record:wrong version"),
         "engine-certificate-untrusted", UNTRUSTED, "is not trusted: wrong version"),
        (curl(77, "error setting certificate file: it's"),
         "engine-certificate-untrusted", UNTRUSTED, "it's"),
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
        (ovirtsdk4.Error("strange\nand more"), "engine-request-failed", BROKEN,
         "failed: strange"),
        (ValueError(), "engine-request-failed", BROKEN, "failed: ValueError"),
    ],
)  # fmt: skip
def test_what_an_error_means(error, id, kind, text):
    xml = ["Content-Type: application/xml"]
    code = getattr(error, "code", None)
    answer = code and SimpleNamespace(code=code, headers=xml, body=b"<fault/>")
    problem = engine_problem_of(error, "reading x", "e.example", answer)
    assert (problem.id, problem.kind) == (id, kind)
    assert text in str(problem)
    assert str(problem).startswith("reading x failed: ")
    assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "headers", "body", "kind"),
    [
        (200, ["Content-Type: application/xml"], b"<x", BROKEN),
        (200, ["content-type: application/xml;charset=UTF-8"], b"", BROKEN),
        (302, ["Content-Type: text/html"], b"moved", BROKEN),
        (401, ["Content-Type: text/html"], b"<html>", DENIED),
        (502, ["Content-Type: text/html"], b"<html>", UNAVAILABLE),
        (503, [], b"busy", UNAVAILABLE),
        (404, [], b"", MISSING),
    ],
)
def test_what_an_answer_means(code, headers, body, kind):
    answer = SimpleNamespace(code=code, headers=headers, body=body)
    problem = engine_problem_of(TypeError("expected string"), "reading x", "e", answer)
    assert (problem.kind, problem.code) == (kind, code)
    assert "expected string" not in str(problem) or code == 200


def test_a_lost_answer_has_what_the_problem_had():
    problem = EngineProblem("id", "moving h", "e says: no", CONFLICT, fix="f", code=409)
    lost = LostAnswer(problem)
    assert (lost.kind, lost.code, lost.fix) == (CONFLICT, 409, "f")
    assert str(lost).startswith("moving h failed: e says: no; the engine may have")
