# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the probe with a scripted stand-in for pyverbs, so that no machine needs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ovirt_rdma.storage import rdma_cm_probe

pytestmark = pytest.mark.hypervisor

# enum rdma_cm_event_type of librdmacm (rdma_cma.h).
EVENTS = {
    "ADDR_RESOLVED": 0,
    "ADDR_ERROR": 1,
    "ROUTE_RESOLVED": 2,
    "ROUTE_ERROR": 3,
    "CONNECT_RESPONSE": 5,
    "CONNECT_ERROR": 6,
    "UNREACHABLE": 7,
    "REJECTED": 8,
    "ESTABLISHED": 9,
    "DEVICE_REMOVAL": 11,
}

# The connecting side of rdma-core's cmid.pyx: strict about
# names, order and arguments. A script has "events" in the order of their arrival,
# "fails" (the call that raises) and "service" (the keyword of the port); the calls
# are recorded in "calls".
CMID = """
import json
from pathlib import Path
from pyverbs.pyverbs_error import PyverbsError

HERE = Path(__file__).parent
script = json.loads((HERE / "script.json").read_text())
state = {"waiting": 0, "unacknowledged": 0}

def called(name, *details):
    with (HERE / "calls").open("a") as calls:
        calls.write(json.dumps([name, *details]) + "\\n")
    if script["fails"] == name:
        raise PyverbsError("No such device. Errno: 19")

class CMEventChannel:
    def __init__(self):
        called("CMEventChannel")

class CMID:
    def __init__(self, creator=None):
        assert isinstance(creator, CMEventChannel)
        called("CMID")

    def resolve_addr(self, addr_info, timeout_ms):
        assert isinstance(addr_info, AddrInfo)
        called("resolve_addr", timeout_ms)
        state["waiting"] += 1

    def resolve_route(self, timeout_ms):
        called("resolve_route", timeout_ms)
        state["waiting"] += 1

    def connect(self, param):
        assert isinstance(param, ConnParam)
        called("connect")
        state["waiting"] += 1

class ConnParam:
    pass

class AddrInfo:
    def __init__(self, **arguments):
        known = {"src", "dst", "port_space", "flags", script["service"]}
        for name in arguments:
            if name not in known:
                raise TypeError(f"unexpected keyword argument {name!r}")
        called("AddrInfo", arguments)

class CMEvent:
    def __init__(self, channel):
        assert isinstance(channel, CMEventChannel)
        # The real one blocks for ever where nothing is under way.
        assert state["waiting"] == 1, "waits for an event that nobody asked for"
        assert not state["unacknowledged"], "librdmacm wants each event acknowledged"
        state.update(waiting=0, unacknowledged=1)
        self.event_type = script["events"].pop(0)

    def ack_cm_event(self):
        state["unacknowledged"] -= 1
"""


class Pyverbs:
    """A folder with the stand-in, and the probe that runs with it."""

    def __init__(self, folder):
        self.folder = folder / "pyverbs"
        self.folder.mkdir()
        (self.folder / "__init__.py").touch()
        (self.folder / "pyverbs_error.py").write_text(
            "class PyverbsError(Exception): pass\n"
        )
        (self.folder / "cmid.py").write_text(CMID)

    def script(self, *events, fails="", service="dst_service"):
        numbers = [EVENTS[event] for event in events]
        content = {"events": numbers, "fails": fails, "service": service}
        (self.folder / "script.json").write_text(json.dumps(content))

    def probe(self, *arguments):
        return subprocess.run(
            [sys.executable, rdma_cm_probe.__file__, *arguments],
            env={**os.environ, "PYTHONPATH": str(self.folder.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def answer(self, *events, address="10.0.0.1", **script):
        """Return verdict and detail; also check the form of the output."""
        self.script(*events, **script)
        done = self.probe(address, "20049")
        assert (done.returncode, done.stderr) == (0, "")
        ready, line = done.stdout.splitlines()
        assert ready == "ready"
        answer = json.loads(line)
        assert list(answer) == ["verdict", "detail"]
        return answer["verdict"], answer["detail"]

    @property
    def calls(self):
        lines = (self.folder / "calls").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def pyverbs(tmp_path):
    return Pyverbs(tmp_path)


WAY = ("ADDR_RESOLVED", "ROUTE_RESOLVED")


@pytest.mark.parametrize(
    ("events", "verdict", "detail"),
    [
        (
            (*WAY, "CONNECT_RESPONSE"),
            "listening",
            "10.0.0.1 accepts RDMA connections on port 20049",
        ),
        (
            (*WAY, "ESTABLISHED"),
            "listening",
            "10.0.0.1 accepts RDMA connections on port 20049",
        ),
        (
            (*WAY, "REJECTED") * 4,
            "refused",
            "10.0.0.1 refuses RDMA connections on port 20049",
        ),
        (
            (*WAY, "UNREACHABLE"),
            "no route",
            "10.0.0.1 does not answer RDMA connections",
        ),
        # Taken for a stale connection, because another probe was running.
        (
            (*WAY, "REJECTED", *WAY, "CONNECT_RESPONSE"),
            "listening",
            "10.0.0.1 accepts RDMA connections on port 20049",
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
def test_each_event(pyverbs, events, verdict, detail):
    assert pyverbs.answer(*events) == (verdict, detail)


@pytest.mark.parametrize(
    ("call", "verdict", "words"),
    [
        ("CMEventChannel", "unknown", "this host has no RDMA CM"),
        ("CMID", "unknown", "this host has no RDMA CM"),
        ("AddrInfo", "no route", "RDMA CM cannot reach 10.0.0.1"),
        ("resolve_addr", "no route", "RDMA CM cannot reach 10.0.0.1"),
        ("resolve_route", "no route", "RDMA CM cannot reach 10.0.0.1"),
        # iWARP only connects with a queue pair: that proves nothing about the server.
        ("connect", "unknown", "RDMA CM does not connect without a queue pair"),
    ],
)
def test_each_call_that_fails(pyverbs, call, verdict, words):
    answer = pyverbs.answer(*WAY, fails=call)
    assert answer == (verdict, f"{words}: No such device. Errno: 19")


@pytest.mark.parametrize("service", ["dst_service", "service"])
@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"])
def test_what_is_asked_with_either_release_of_pyverbs(pyverbs, service, address):
    verdict, _ = pyverbs.answer(*WAY, "ESTABLISHED", address=address, service=service)
    assert verdict == "listening"
    calls = {name: rest for name, *rest in pyverbs.calls}
    # RDMA_PS_TCP of rdma_cma.h.
    assert calls["AddrInfo"] == [
        {"dst": address, service: "20049", "port_space": 0x0106}
    ]
    assert calls["resolve_addr"] == calls["resolve_route"] == [2000]


def test_nothing_is_sent_where_the_way_is_unknown(pyverbs):
    pyverbs.answer("ADDR_ERROR")
    assert [name for name, *_ in pyverbs.calls][-1] == "resolve_addr"


@pytest.mark.parametrize("missing", ["cmid", "pyverbs_error"])
def test_a_pyverbs_that_is_not_whole(pyverbs, missing):
    (pyverbs.folder / f"{missing}.py").unlink()
    verdict, detail = pyverbs.answer()
    assert verdict == "no pyverbs"
    assert detail.startswith("python3-pyverbs cannot be used: ")
    assert missing in detail


def test_a_pyverbs_whose_library_does_not_load(pyverbs):
    (pyverbs.folder / "cmid.py").write_text(
        "raise ImportError('librdmacm.so.1: cannot open shared object file')"
    )
    assert pyverbs.answer() == (
        "no pyverbs",
        "python3-pyverbs cannot be used: "
        "librdmacm.so.1: cannot open shared object file",
    )


def test_ready_is_said_before_anything_is_asked(pyverbs):
    """The parent's deadline counts from it, and a connect may never return."""
    pyverbs.script(*WAY, "REJECTED")
    cmid = pyverbs.folder / "cmid.py"
    cmid.write_text(
        cmid.read_text() + "class CMEventChannel:\n"
        "    def __init__(self):\n"
        "        import os\n"
        "        os._exit(7)\n"
    )
    done = pyverbs.probe("10.0.0.1", "20049")
    assert (done.returncode, done.stdout) == (7, "ready\n")


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
def test_wrong_arguments(pyverbs, arguments):
    done = pyverbs.probe(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: rdma_cm_probe.py ADDRESS PORT\n"
