# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the TCP connection that tells a living server, against real sockets."""

from __future__ import annotations

import errno
import socket
import struct
import threading

import pytest

from ovirt_rdma.storage.health.signs import (
    ABSENT,
    ACCEPTS,
    REFUSES,
    SILENT,
    UNREACHABLE,
    knock,
)


def asked(answer, timeout_s=60.0):
    """Knock at a server that takes a call and does ``answer(connection, call)``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection = server.accept()[0]
            with connection:
                answer(connection, connection.recv(4096))
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        found = knock("127.0.0.1", server.getsockname()[1], timeout_s)
        thread.join(60)
    assert not thread.is_alive()
    return found


def in_two_parts(connection, call):
    """The last fragment: the number of the call, REPLY, and more (RFC 5531)."""
    reply = (
        struct.pack(">I", 1 << 31 | 24) + call[4:8] + struct.pack(">5I", 1, *[0] * 4)
    )
    connection.sendall(reply[:7])
    connection.sendall(reply[7:])


@pytest.mark.parametrize(
    ("answer", "replied"),
    [
        (in_two_parts, True),
        # Not the number of the call.
        (lambda it, call: it.sendall(bytes(4) + bytes(20)), None),
        (lambda it, call: it.shutdown(socket.SHUT_WR), None),
    ],
)
def test_a_port_that_accepts(answer, replied):
    found = asked(answer)
    assert (found.result, found.replied) == (ACCEPTS, replied)
    assert 0.0 <= found.seconds < 60.0


def test_a_server_whose_threads_do_not_answer_the_null_of_nfs():
    calls = []
    found = asked(lambda connection, call: calls.append(call), timeout_s=0.3)
    assert (found.result, found.replied) == (ACCEPTS, False)
    (call,) = calls
    length, _, kind, rpc, program, version, procedure, *rest = struct.unpack(
        ">11I", call
    )
    assert length == 1 << 31 | 40
    assert (kind, rpc, program, version, procedure) == (0, 2, 100003, 4, 0)
    assert rest == [0] * 4


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
