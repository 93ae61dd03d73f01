# SPDX-License-Identifier: GPL-2.0-or-later
"""Probe a server over the network: its address, TCP port and RDMA listener.

Every probe ends at its deadline. Child processes resolve names and try RDMA
connections; at the deadline they are killed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import selectors
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Optional, cast

from ovirt_rdma.host.system.commands import CommandFailed, run_command
from ovirt_rdma.storage.rdma_cm_probe import DEVICE
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Step

SYSTEM_PYTHON = "/usr/bin/python3"
PROBE = Path(__file__).with_name("rdma_cm_probe.py")
# For the child to load Python on a busy host; not part of the timeout.
STARTUP_TIMEOUT_S = 30.0
_LONGEST_LINE = 1 << 16

_STEP = "listener"
_asking: dict[str, threading.Lock] = {}


def resolve(server: str, timeout_s: float) -> tuple[str, ...]:
    """Return the addresses of ``server``; empty if its name does not resolve.

    The order is that of getaddrinfo, which mount.nfs uses. An address is returned
    unchanged. The name service has ``timeout_s`` seconds.
    """
    with contextlib.suppress(ValueError):
        return (str(ipaddress.ip_address(server)),)
    try:
        output = run_command(["getent", "ahosts", "--", server], timeout_s)
    except CommandFailed:
        return ()
    # One line per socket type: ADDRESS TYPE [NAME].
    addresses = [line.split()[0] for line in output.splitlines() if line.split()]
    return tuple(dict.fromkeys(addresses))


def tcp_answers(address: str, port: int, timeout_s: float) -> bool:
    """Whether ``address`` accepts a TCP connection on ``port`` in time."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def rdma_listener(address: str, port: int, timeout_s: float) -> Step:
    """Check whether ``address`` accepts RDMA CM connections on ``port``.

    ``timeout_s`` seconds count from the child's ready signal. The verdict is UNKNOWN
    if the child cannot find out, mostly because the module rdma_ucm is not loaded.
    """
    # Two probes at once would disturb each other; see PAUSES_S of the probe.
    with _asking.setdefault(address, threading.Lock()):
        return _ask_listener(address, port, timeout_s)


def _ask_listener(address: str, port: int, timeout_s: float) -> Step:
    command = [SYSTEM_PYTHON, "-I", "-S", str(PROBE), address, str(port)]
    quiet = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet
        )
    except OSError as error:
        return Step(_STEP, UNKNOWN, f"the RDMA probe could not be started: {error}")
    try:
        return _answer(cast("IO[bytes]", child.stdout), address, port, timeout_s)
    finally:
        child.kill()
        # A child that hangs in the kernel is reaped later, without waiting for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=1)


def _answer(stdout: IO[bytes], address: str, port: int, timeout_s: float) -> Step:
    with stdout, contextlib.closing(_LineReader(stdout.fileno())) as lines:
        if lines.next_line(STARTUP_TIMEOUT_S) != "ready":
            return Step(_STEP, UNKNOWN, "the RDMA probe did not start in time")
        answer = lines.next_line(timeout_s)
    if answer is None:
        detail = f"{address} did not answer an RDMA connection within {timeout_s:g} s"
        fix = "check that the server is up and its RDMA device is ACTIVE"
        return Step(_STEP, NOT_READY, detail, fix)
    return step_of(answer, address, port)


def step_of(answer: str, address: str, port: int) -> Step:
    """Turn the probe's answer line into a step; an invalid line is UNKNOWN."""
    try:
        data = json.loads(answer)
        verdict, detail = data["verdict"], str(data["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        verdict, detail = "", ""
    if not detail:
        return Step(_STEP, UNKNOWN, f"the RDMA probe answered {answer!r}")
    if verdict == "listening":
        return Step(_STEP, READY, detail)
    if verdict == "refused":
        return Step(_STEP, NOT_READY, detail, server_side_fix(port), refused=True)
    if verdict == "no route":
        return Step(
            _STEP, NOT_READY, detail, f"check the RDMA path to {address}: rdma link"
        )
    return Step(_STEP, UNKNOWN, detail, "modprobe rdma_ucm" if DEVICE in detail else "")


def server_side_fix(port: int) -> str:
    """Return how to make a Linux NFS server listen on RDMA ``port`` (nfs.conf(5))."""
    return (
        "check the rule's port, and that the server's NFS service is running; on a "
        f"Linux server set rdma=y and rdma-port={port} in the [nfsd] section of "
        "/etc/nfs.conf, then run systemctl restart nfs-server"
    )


class _LineReader:
    """Read lines from a pipe, each with its own deadline."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        # Not select(2): vdsmd may have more than 1024 files open.
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def close(self) -> None:
        """Stop watching the pipe."""
        self._selector.close()

    def next_line(self, timeout_s: float) -> Optional[str]:
        """Return the next line; None at the deadline, "" if the child has ended, or
        prints a line without end.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                return None
            data = os.read(self._descriptor, 4096)
            if not data:
                return ""
            self._buffer += data
            if len(self._buffer) > _LONGEST_LINE:
                return ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")
