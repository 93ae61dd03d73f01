# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the probe with a double of the kernel's RDMA CM, so that no machine needs it.
tests/lab has the real one.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import struct
import subprocess
import sys
from ctypes import Structure, c_char, c_uint8, c_uint16, c_uint32, c_uint64

import pytest

from ovirt_rdma.storage import rdma_cm_probe

pytestmark = pytest.mark.hypervisor

# enum rdma_cm_event_type (include/rdma/rdma_cm.h).
EVENTS = {
    "ADDR_RESOLVED": 0,
    "ADDR_ERROR": 1,
    "ROUTE_RESOLVED": 2,
    "ROUTE_ERROR": 3,
    "CONNECT_RESPONSE": 5,
    "CONNECT_ERROR": 6,
    "UNREACHABLE": 7,
    "REJECTED": 8,
    "DEVICE_REMOVAL": 11,
}


def structure(name, *fields):
    return type(name, (Structure,), {"_fields_": [*fields]})


# include/uapi/rdma/rdma_user_cm.h, with the paddings that the compiler adds.
Header = structure("Header", ("cmd", c_uint32), ("in_", c_uint16), ("out", c_uint16))
CreateId = structure(
    "CreateId",
    *(("uid", c_uint64), ("response", c_uint64), ("ps", c_uint16)),
    *(("qp_type", c_uint8), ("reserved", c_uint8 * 5)),
)
ResolveIp = structure(
    "ResolveIp",
    *(("src_addr", c_char * 28), ("dst_addr", c_char * 28)),
    *(("id", c_uint32), ("timeout_ms", c_uint32)),
)
ResolveRoute = structure("ResolveRoute", ("id", c_uint32), ("timeout_ms", c_uint32))
ConnParam = structure(
    "ConnParam",
    *(("qp_num", c_uint32), ("qkey", c_uint32), ("private_data", c_uint8 * 256)),
    *((name, c_uint8) for name in ("private_data_len", "srq")),
    *((name, c_uint8) for name in ("responder_resources", "initiator_depth")),
    *((name, c_uint8) for name in ("flow_control", "retry_count")),
    *((name, c_uint8) for name in ("rnr_retry_count", "valid")),
)
Connect = structure(
    "Connect",
    *(("conn_param", ConnParam), ("id", c_uint32), ("reserved", c_uint32)),
    *(("vendor_id", c_uint32), ("attr_mod", c_uint32)),
)
GetEvent = structure("GetEvent", ("response", c_uint64))
# The union is that of the larger one, rdma_ucm_ud_param.
EventResp = structure(
    "EventResp",
    *(("uid", c_uint64), ("id", c_uint32), ("event", c_uint32), ("status", c_uint32)),
    *(("param", c_uint8 * 304), ("reserved", c_uint32), ("ece", c_uint32 * 2)),
)
COMMANDS = {
    0: ("create_id", CreateId),
    3: ("resolve_ip", ResolveIp),
    4: ("resolve_route", ResolveRoute),
    6: ("connect", Connect),
    12: ("get_event", GetEvent),
}
TCP = 0x0106  # RDMA_PS_TCP
ID = 7


class Kernel:
    """Does what drivers/infiniband/core/ucma.c does with the writes of one process.

    ``events``: in the order of their arrival, a rejection with its reason (enum
    ib_cm_rej_reason); ``fails``: the call that fails.
    """

    O_RDWR, O_CLOEXEC = os.O_RDWR, os.O_CLOEXEC

    def __init__(self, events, fails):
        self.events, self.fails = [event.split() for event in events], fails
        self.calls, self.files, self.waiting = [], [], 0

    def open(self, path, flags):
        assert (path, flags) == ("/dev/infiniband/rdma_cm", os.O_RDWR | os.O_CLOEXEC)
        assert not self.files
        self.called("open")
        self.files.append(9)
        return 9

    def close(self, file):
        self.files.remove(file)

    def called(self, name, command=None):
        self.calls.append((name, command))
        if self.fails == name:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    def write(self, file, data):
        assert file in self.files
        header = Header.from_buffer_copy(data)
        # ucma_write (line 1741): more is allowed, less is EINVAL.
        assert header.in_ + ctypes.sizeof(Header) == len(data)
        name, form = COMMANDS[header.cmd]
        # copy_from_user of the whole structure.
        assert header.in_ >= ctypes.sizeof(form)
        command = form.from_buffer_copy(data, ctypes.sizeof(Header))
        self.called(name, command)
        getattr(self, name)(command, header.out)
        return len(data)

    def create_id(self, command, out):
        assert (command.ps, out >= 4) == (TCP, True)
        # ucma_event_handler (line 348): without it, no event is reported.
        assert command.uid, "waits for ever"
        ctypes.memmove(command.response, struct.pack("=I", ID), 4)

    def resolve_ip(self, command, out):
        assert command.id == ID
        assert not any(bytes(command)[:28]), "an address of this host was asked for"
        self.waiting += 1

    def resolve_route(self, command, out):
        assert command.id == ID
        self.waiting += 1

    def connect(self, command, out):
        # ucma_connect: EINVAL without it.
        assert (command.id, command.conn_param.valid) == (ID, 1)
        self.waiting += 1

    def get_event(self, command, out):
        # The real one waits for ever where nothing is under way.
        assert self.waiting == 1, "waits for an event that nobody asked for"
        self.waiting = 0
        assert out >= ctypes.sizeof(EventResp) - 12  # ENOSPC
        name, *status = self.events.pop(0)
        # cma_ib_handler (cma.c, line 2240): of a rejection its reason.
        event = EventResp(id=ID, event=EVENTS[name], status=sum(map(int, status)))
        size = min(out, ctypes.sizeof(EventResp))
        ctypes.memmove(command.response, bytes(event)[:size], size)


@pytest.fixture
def asked(monkeypatch):
    """Ask a kernel; return the kernel, the verdict and the detail."""

    def ask(*events, fails="", address="10.0.0.1"):
        kernel = Kernel(events, fails)
        monkeypatch.setattr(rdma_cm_probe, "os", kernel)
        monkeypatch.setattr(rdma_cm_probe, "PAUSES_S", (0.0,) * 4)
        answer = rdma_cm_probe.ask(address, 20049)
        assert not kernel.files, "a connection is left"
        return kernel, answer

    return ask


def test_the_structures_have_the_kernel_s_sizes():
    """As a compiler has them from the header."""
    sizes = {form.__name__: ctypes.sizeof(form) for _, form in COMMANDS.values()}
    assert sizes == {
        "CreateId": 24,
        "ResolveIp": 64,
        "ResolveRoute": 8,
        "Connect": 288,
        "GetEvent": 8,
    }


WAY = ("ADDR_RESOLVED", "ROUTE_RESOLVED")
# IB_CM_REJ_INVALID_SERVICE_ID, IB_CM_REJ_STALE_CONN (include/rdma/ib_cm.h).
NO_LISTENER, STALE = "REJECTED 8", "REJECTED 10"
REFUSES = "10.0.0.1 refuses RDMA connections on port 20049"


@pytest.mark.parametrize(
    ("events", "verdict", "detail"),
    [
        (
            (*WAY, "CONNECT_RESPONSE"),
            "listening",
            "10.0.0.1 accepts RDMA connections on port 20049",
        ),
        (
            (*WAY, NO_LISTENER),
            "refused",
            REFUSES,
        ),
        (
            (*WAY, "REJECTED 28"),  # by the consumer
            "refused",
            REFUSES,
        ),
        (
            (*WAY, "UNREACHABLE"),
            "no route",
            "10.0.0.1 does not answer RDMA connections",
        ),
        # Taken for a stale connection, because another probe was running.
        (
            (*WAY, STALE, *WAY, "CONNECT_RESPONSE"),
            "listening",
            "10.0.0.1 accepts RDMA connections on port 20049",
        ),
        ((*WAY, STALE, *WAY, NO_LISTENER), "refused", REFUSES),
        # The end of an earlier probe was lost, so nothing is known of the port.
        (
            (*WAY, STALE) * 4,
            "stale",
            "10.0.0.1 waits for the end of an earlier question of this host, for a "
            "minute or two",
        ),
        ((*WAY, "CONNECT_ERROR"), "unknown", "RDMA CM answered with event 6"),
        ((*WAY, "DEVICE_REMOVAL"), "unknown", "RDMA CM answered with event 11"),
        (("ADDR_ERROR",), "no route", "no RDMA device leads to 10.0.0.1"),
        (
            ("ADDR_RESOLVED", "ROUTE_ERROR"),
            "no route",
            "there is no RDMA path to 10.0.0.1",
        ),
    ],
)
def test_each_event(asked, events, verdict, detail):
    kernel, answer = asked(*events)
    assert answer == (verdict, detail)
    assert not kernel.events


@pytest.mark.parametrize(
    ("call", "verdict", "words"),
    [
        ("open", "unknown", "this host has no RDMA CM: /dev/infiniband/rdma_cm"),
        ("create_id", "unknown", "this host has no RDMA CM: /dev/infiniband/rdma_cm"),
        ("resolve_ip", "no route", "RDMA CM cannot reach 10.0.0.1"),
        ("resolve_route", "no route", "RDMA CM cannot reach 10.0.0.1"),
        # iWARP only connects with a queue pair: that proves nothing about the server.
        ("connect", "unknown", "RDMA CM does not connect without a queue pair"),
    ],
)
def test_each_call_that_fails(asked, call, verdict, words):
    _, answer = asked(*WAY, fails=call)
    assert answer == (verdict, f"{words}: No such device")


V4 = struct.pack("=H", socket.AF_INET) + bytes.fromhex("4e51 0a000001")
V6 = struct.pack("=H", socket.AF_INET6) + bytes.fromhex("4e51 00000000")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", V4),
        ("fd00::1", V6 + bytes.fromhex("fd00" + "00" * 13 + "01")),
        # The scope of an address of a link is its netdev's number.
        (
            "fe80::2%1",
            V6 + bytes.fromhex("fe80" + "00" * 13 + "02") + struct.pack("=I", 1),
        ),
    ],
)
def test_what_is_asked(asked, address, expected):
    kernel, (verdict, _) = asked(*WAY, "CONNECT_RESPONSE", address=address)
    assert verdict == "listening"
    calls = dict(kernel.calls)
    assert bytes(calls["resolve_ip"])[28:56] == expected.ljust(28, b"\0")
    times = calls["resolve_ip"].timeout_ms, calls["resolve_route"].timeout_ms
    assert times == (2000, 2000)


def test_no_queue_pair_of_the_host_is_named(asked):
    """A server ends the connection that has the number already (cm_match_req)."""
    kernel, _ = asked(*WAY, "CONNECT_RESPONSE")
    param = dict(kernel.calls)["connect"].conn_param
    assert (param.qp_num, param.private_data_len, param.srq) == (0, 0, 0)
    assert (param.responder_resources, param.initiator_depth) == (1, 1)


def test_nothing_is_sent_where_the_way_is_unknown(asked):
    kernel, _ = asked("ADDR_ERROR")
    assert [name for name, _ in kernel.calls][-2:] == ["resolve_ip", "get_event"]


def probe(*arguments):
    return subprocess.run(
        [sys.executable, "-I", "-S", rdma_cm_probe.__file__, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_program_says_ready_and_the_answer():
    """Nobody listens there, whether this machine has RDMA or not."""
    done = probe("192.0.2.1", "20049")
    assert (done.returncode, done.stderr) == (0, "")
    ready, line = done.stdout.splitlines()
    assert ready == "ready"
    answer = json.loads(line)
    assert list(answer) == ["verdict", "detail"]
    assert answer["verdict"] in ("no route", "unknown")


def test_ready_is_said_before_anything_is_asked(monkeypatch, capsys):
    """The parent's deadline counts from it, and a connect may never return."""
    said = []
    monkeypatch.setattr(
        rdma_cm_probe,
        "ask",
        lambda address, port: said.append(capsys.readouterr().out) or ("refused", "x"),
    )
    assert rdma_cm_probe.main(["10.0.0.1", "20049"]) == 0
    assert said == ["ready\n"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("10.0.0.1",),
        ("10.0.0.1", "20049", "x"),
        ("10.0.0.1", "nfs"),
        ("10.0.0.1", "-1"),
        ("10.0.0.1", ""),
    ],
)
def test_wrong_arguments(arguments):
    done = probe(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: rdma_cm_probe.py ADDRESS PORT\n"
