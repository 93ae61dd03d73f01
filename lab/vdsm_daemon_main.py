# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the hypervisor guest and stands in for vdsmd's storage part.

Loads the strict double of VDSM (or VDSM_SOURCE), puts our connection class into it
by the launcher's own code, and answers connectStorageServer and
disconnectStorageServer, one JSON line each, on a loopback port, with real mounts.
"""

from __future__ import annotations

import json
import logging
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from vdsm_under_test import VdsmUnderTest, load_vdsm

from lab.vdsm_daemon import MOUNTS, PORT
from ovirt_rdma.storage.vdsm_launch import prepare

LOG = Path("/var/log/vdsm/vdsm.log")


class _LogOfThread(logging.Handler):
    """Keeps what each thread logged, so that a call can give its own lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self._lines = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        # Without tracebacks: the caller wants the sentences; the file has both.
        line = f"{record.levelname} {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            line += f": {record.exc_info[1]}"
        self._lines.__dict__.setdefault("kept", []).append(line)

    def take(self) -> list[str]:
        kept: list[str] = self._lines.__dict__.pop("kept", [])
        return kept


def main() -> None:
    """Serve until killed."""
    vdsm = load_vdsm()
    LOG.parent.mkdir(parents=True, exist_ok=True)
    mounts = Path(MOUNTS)
    mounts.mkdir(parents=True, exist_ok=True)
    kept = _LogOfThread()
    logging.basicConfig(
        level=logging.INFO, handlers=[kept, logging.FileHandler(LOG)], force=True
    )
    with vdsm.fresh(mounts), vdsm.real_mounts():
        for remark in prepare().remarks:
            logging.info(remark)
        with _server(vdsm, kept) as server:
            server.serve_forever()


def _server(vdsm: VdsmUnderTest, kept: _LogOfThread) -> socketserver.TCPServer:
    class Call(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request: dict[str, Any] = json.loads(self.rfile.readline())
            verb = {"connect": vdsm.connect, "disconnect": vdsm.disconnect}
            started = time.monotonic()
            pairs = verb[request["verb"]](*request["definitions"])
            answer = {
                "statuses": [status for _, status in pairs],
                "seconds": time.monotonic() - started,
                "log": kept.take(),
            }
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    return Server(("127.0.0.1", PORT), Call)


if __name__ == "__main__":
    main()
