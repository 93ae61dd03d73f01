# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the TCP connection that tells a living server, against real sockets."""

from __future__ import annotations

import errno
import socket

import pytest

from ovirt_rdma.storage.health.signs import (
    ABSENT,
    ACCEPTS,
    REFUSES,
    SILENT,
    UNREACHABLE,
    knock,
)


def test_a_port_that_accepts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = knock("127.0.0.1", server.getsockname()[1], 20.0)
    assert answer.result == ACCEPTS
    assert 0.0 <= answer.seconds < 20.0


def test_a_port_that_refuses():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert knock("127.0.0.1", port, 20.0).result == REFUSES


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (socket.timeout("timed out"), SILENT),
        (OSError(errno.ETIMEDOUT, "timed out"), SILENT),
        (ConnectionResetError(errno.ECONNRESET, "reset"), REFUSES),
        (OSError(errno.EHOSTUNREACH, "no route to host"), ABSENT),
        (OSError(errno.ENETUNREACH, "network is unreachable"), UNREACHABLE),
    ],
)
def test_a_server_that_does_not_answer(monkeypatch, error, result):
    def connect(address, timeout):
        assert (address, timeout) == (("10.0.0.1", 2049), 1.5)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    assert knock("10.0.0.1", 2049, 1.5).result == result
