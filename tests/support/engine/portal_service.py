# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask the portal's service, in this process or as systemd starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from engine_double import EngineDouble

from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.report.portal_service import DATA, PATH, Request
from support.engine.engine_command_line import access
from support.engine.report_site import DOMAINS, site

READER = "reader@internal"


@dataclass(frozen=True)
class Said:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def said(raw: bytes) -> Said:
    """Read an answer as it came."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Said(int(first.split()[1]), {k.lower(): v for k, v in headers.items()}, body)


def request(token: str = "", method: str = "GET", target: str = PATH) -> bytes:
    """Return a request as Apache sends it."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


def ask_here(raw: bytes, folder: Path) -> bytes:
    """Return the answer of the service in this process."""

    class Here(Request):
        settings: ClassVar[Mapping[str, str]] = {"CREDENTIALS_DIRECTORY": str(folder)}

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(raw)
        ours.shutdown(socket.SHUT_WR)
        Here(theirs, ("", 0), None)  # type: ignore[arg-type]
        theirs.close()
        return b"".join(iter(lambda: ours.recv(1 << 16), b""))


def ask_as_a_unit(raw: bytes, folder: Path) -> tuple[bytes, bytes]:
    """Return the answer of a process of its own, and what it printed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = subprocess.Popen(
            [sys.executable, "-m", Request.__module__],
            stdin=theirs.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CREDENTIALS_DIRECTORY": str(folder)},
        )
        theirs.close()
        ours.sendall(raw)
        ours.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        printed, _ = program.communicate(timeout=60)
        assert program.returncode == 0
        return answer, printed


def token_of(double: EngineDouble, role: str = "SuperUser") -> str:
    """Log a user of ``role`` in, and return the token."""
    token = double.sso.new_token()
    double.world.roles[READER] = role
    double.world.users[token] = READER
    return token


@contextmanager
def portal_site(
    folder: Path, hosts: int, domains: Sequence[str] = DOMAINS
) -> Iterator[EngineDouble]:
    """Yield the engine of :func:`.report_site.site`; the data are in ``folder``."""
    world, door = site(hosts, domains)
    with EngineDouble(world) as double, mock.patch.dict(os.environ, access(double)):
        assert main(["report", "--portal", str(folder / DATA)], door) == 0
        yield double
        assert double.strict_errors == [], double.strict_errors
