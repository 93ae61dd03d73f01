# SPDX-License-Identifier: GPL-2.0-or-later
"""What errors of the SDK mean that the double does not bring about."""

from __future__ import annotations

from types import SimpleNamespace

import ovirtsdk4
import pytest

from ovirt_rdma.engine_sdk_tools.api.errors import (
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
    in_words,
    lost,
    media_type,
)

pytestmark = pytest.mark.hypervisor


def curl(number, text):
    """As ovirtsdk4 4.6.3 puts it."""
    return ovirtsdk4.Error(
        f"Failed to read response: [(<pycurl.Curl object at 0x7f>, {number}, {text!r})]"
    )


def fault(code, detail, reason="Operation Failed"):
    error = ovirtsdk4.Error(f"Fault reason is {reason!r}.", code)
    error.fault = SimpleNamespace(detail=detail, reason=reason)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (curl(6, "Could not resolve host: e"), UNREACHABLE, "Could not resolve host"),
        (curl(7, "Failed to connect to e"), UNREACHABLE, "Failed to connect to e"),
        (curl(28, "Connection timed out after 9 ms"), UNREACHABLE, "after"),
        (curl(28, "Operation timed out after 9 ms"), TIMEOUT, "not answer in time"),
        (curl(52, "Empty reply from server"), TIMEOUT, "Empty reply"),
        (curl(56, "Recv failure: Connection reset by peer"), TIMEOUT, "reset by peer"),
        (curl(60, "SSL certificate problem: self-signed"), UNTRUSTED, "self-signed"),
        (curl(77, "error setting certificate file: it's"), UNTRUSTED, "it's"),
        (fault(409, "[Cannot do.]"), CONFLICT, "says: Cannot do"),
        (fault(409, "[Related operation is currently in progress.]"), LOCKED, "R"),
        (fault(409, "[ACTION_TYPE_FAILED_OBJECT_LOCKED]"), LOCKED, "OBJECT_LOCKED"),
        (fault(403, None, "Forbidden"), DENIED, "says: Forbidden"),
        (fault(503, ""), UNAVAILABLE, "it is not at work"),
        (fault(400, ""), INVALID, "no reason (HTTP 400)"),
        (fault(409, ""), CONFLICT, "no reason (HTTP 409)"),
        (ovirtsdk4.NotFoundError("x", 404), MISSING, "no such object"),
        (ovirtsdk4.Error("strange\nand more"), BROKEN, "failed: strange"),
        (ValueError(), BROKEN, "failed: ValueError"),
    ],
)  # fmt: skip
def test_what_an_error_means(error, kind, said):
    problem = in_words(error, "reading x", "e.example")
    assert problem.kind == kind
    assert said in str(problem)
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
    problem = in_words(TypeError("expected string"), "reading x", "e", answer)
    assert (problem.kind, problem.code) == (kind, code)
    assert "expected string" not in str(problem) or code == 200


def test_a_problem_stays_one():
    problem = EngineProblem("engine-refused", "a", CONFLICT)
    assert in_words(problem, "b") is problem
    assert lost(problem).kind == CONFLICT


@pytest.mark.parametrize(
    ("headers", "media"),
    [
        (["HTTP/1.1 200 OK", "Content-Type: text/HTML; charset=x"], "text/html"),
        ({"Content-Type": "application/json"}, "application/json"),
        ([], ""),
        (None, ""),
    ],
)
def test_media_type(headers, media):
    assert media_type(headers) == media
