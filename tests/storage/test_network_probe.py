# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ovirt_rdma.host.system import commands
from ovirt_rdma.storage import readiness
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Network

resolve, tcp_answers = Network().resolve, Network().tcp_answers
rdma_listener = Network().rdma_listener

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """Replace the probe by a script of the test."""

    def put(text: str) -> Path:
        script = tmp_path / "probe.py"
        script.write_text("import sys, time, os\n" + text)
        monkeypatch.setattr(readiness, "PROBE", script)
        monkeypatch.setattr(readiness, "SYSTEM_PYTHON", sys.executable)
        return tmp_path

    return put


ANSWER = """
print("ready", flush=True)
print('{"verdict": "%s", "detail": "what it saw"}', flush=True)
"""


@pytest.mark.parametrize(
    "said, verdict",
    [
        ("listening", READY),
        ("refused", NOT_READY),
        ("no route", NOT_READY),
        ("stale", UNKNOWN),
        ("unknown", UNKNOWN),
    ],
)
def test_the_probes_answer(probe, said, verdict):
    probe(ANSWER % said)
    step = rdma_listener("10.0.0.1", 20049, 60)
    assert (step.name, step.verdict) == ("listener", verdict)
    assert step.detail == "what it saw"
    assert bool(step.fix) is (verdict == NOT_READY)


def test_refusal_tells_the_fix_for_the_server(probe):
    probe(ANSWER % "refused")
    step = rdma_listener("10.0.0.1", 20050, 60)
    assert "rdma=y" in step.fix
    assert "rdma-port=20050" in step.fix


@pytest.mark.parametrize("ready", ["", "print('ready', flush=True)\n"])
def test_a_line_without_end_is_no_answer(probe, ready):
    probe(f"{ready}while True: os.write(1, b'x' * 4096)\n")
    assert rdma_listener("10.0.0.1", 20049, 600).verdict == UNKNOWN


def test_silence_after_ready_is_no_answer_and_the_child_is_killed(probe):
    place = probe(
        "with open(__file__ + '.pid', 'w') as f: f.write(str(os.getpid()))\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    step = rdma_listener("10.0.0.1", 20049, 0.2)
    assert step.verdict == NOT_READY
    assert "did not answer an RDMA connection within 0.2 s" in step.detail
    with pytest.raises(ProcessLookupError):
        os.kill(int((place / "probe.py.pid").read_text()), 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print('hello', flush=True)",
        "sys.exit('broken')",
        "print('ready', flush=True); sys.exit(1)",
        "print('ready', flush=True); print('no json', flush=True)",
        "print('ready', flush=True); print('[]', flush=True)",
        "print('ready', flush=True); "
        'print(\'{"verdict": "listening", "detail": ""}\', flush=True)',
        "print('ready', flush=True); print('[' * 100_000, flush=True)",
        "print('ready', flush=True); print('{\"verdict\": 1}', flush=True)",
    ],
)
def test_a_broken_probe_is_honestly_unknown(probe, text):
    probe(text)
    assert rdma_listener("10.0.0.1", 20049, 60).verdict == UNKNOWN


def test_a_probe_that_never_starts_is_unknown(probe, monkeypatch):
    probe("time.sleep(600)")
    monkeypatch.setattr(readiness, "STARTUP_TIMEOUT_S", 0.2)
    assert rdma_listener("10.0.0.1", 20049, 60).verdict == UNKNOWN


def test_no_python_for_the_probe(monkeypatch):
    monkeypatch.setattr(readiness, "SYSTEM_PYTHON", "/nonexistent/python3")
    step = rdma_listener("10.0.0.1", 20049, 60)
    assert step.verdict == UNKNOWN
    assert "could not be started" in step.detail


def test_only_the_lack_of_the_device_asks_for_the_module(probe):
    said = "this host has no RDMA CM: /dev/infiniband/rdma_cm: No such file"
    probe(ANSWER.replace("what it saw", said) % "unknown")
    step = rdma_listener("192.0.2.1", 20049, 60)
    assert (step.verdict, step.detail) == (UNKNOWN, said)
    assert step.fix == "modprobe rdma_ucm"


def test_one_probe_at_a_time_for_an_address(probe):
    place = probe(
        "os.mkdir(__file__ + '.busy')\n"
        "print('ready', flush=True); time.sleep(0.2)\n"
        "os.rmdir(__file__ + '.busy')\n"
        'print(\'{"verdict": "listening", "detail": "alone"}\', flush=True)\n'
    )
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(rdma_listener, "10.0.0.1", 20049, 60) for _ in range(4)]
    assert [one.result().verdict for one in asked] == [READY] * 4
    assert not (place / "probe.py.busy").exists()


def test_tcp_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert tcp_answers("127.0.0.1", port, 60)
    assert not tcp_answers("127.0.0.1", port, 60)


def test_resolve():
    assert resolve("192.0.2.7", 60) == ("192.0.2.7",)
    assert resolve("FD00:0::1", 60) == ("fd00::1",)
    assert set(resolve("localhost", 60)) <= {"127.0.0.1", "::1"} != set()
    assert resolve("no-such-name.invalid", 60) == ()
    assert resolve("-x", 60) == ()


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Replace a tool by a shell script of the test."""

    def put(name: str, text: str) -> None:
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        path = f"{tmp_path}:/usr/bin:/bin"
        monkeypatch.setitem(commands.ENVIRONMENT, "PATH", path)

    return put


def test_all_addresses_of_a_name_in_their_order(tool):
    lines = "fd00::2 STREAM nas\\nfd00::2 DGRAM\\n10.0.0.2 STREAM\\n10.0.0.2 RAW\\n"
    tool("getent", f"printf '{lines}'")
    assert resolve("nas", 60) == ("fd00::2", "10.0.0.2")


def test_a_process_with_many_open_files_can_ask(probe):
    probe(ANSWER % "listening")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.enter_context(open(os.devnull))  # noqa: PTH123
        assert rdma_listener("10.0.0.1", 20049, 60).verdict == READY


def test_resolve_ends_at_its_deadline(tool):
    tool("getent", "exec sleep 600")
    assert resolve("slow.example.org", 0.2) == ()


SILENT = "exec sleep 600"
MOUNTD_FIX = (
    "on the server start rpcbind and nfs-mountd, and open TCP port 111 and mountd's "
    "port in the firewall"
)


@pytest.mark.parametrize(
    ("script", "verdict", "detail", "fix"),
    [
        ("exit 0", READY, "rpcbind and mountd on 127.0.0.1 answer", ""),
        (
            "echo 'rpcinfo: RPC: Program not registered' >&2; exit 1",
            NOT_READY,
            "mountd on 127.0.0.1 does not answer: rpcinfo: RPC: Program not registered",
            MOUNTD_FIX,
        ),
        (
            SILENT,
            NOT_READY,
            "rpcbind on 127.0.0.1 does not answer",
            MOUNTD_FIX,
        ),
        (None, UNKNOWN, "rpcinfo could not be run: No such file or directory", ""),
    ],
)
def test_mountd(tool, monkeypatch, script, verdict, detail, fix):
    if script:
        tool("rpcinfo", script)
    else:
        monkeypatch.setitem(commands.ENVIRONMENT, "PATH", "/nonexistent")
    step = Network().mountd("127.0.0.1", 0.2 if script == SILENT else 60)
    assert (step.verdict, step.detail, step.fix) == (verdict, detail, fix)
