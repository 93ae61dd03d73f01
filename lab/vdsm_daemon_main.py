# SPDX-License-Identifier: GPL-2.0-or-later
"""Stand in for the rest of vdsmd in the hypervisor guest: VDSM's main().

It answers connectStorageServer and disconnectStorageServer, one JSON line each, on a
loopback port, with VDSM's storage code and real mounts. The guest's vdsm/vdsmd.py
imports it with Debian's own Python, so it imports nothing of the lab.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

PORT = 54321  # vdsmd's own
MOUNTS = "/rhev/data-center/mnt"
LOG = "/var/log/vdsm/vdsm.log"
_NFS_DOMAIN = 1


class _LogOfThread(logging.Handler):
    """Keeps the log lines of each thread, so that a call can return its own."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        # Without tracebacks: the caller needs the sentences; the file has both.
        line = f"{record.levelname} {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            line += f": {record.exc_info[1]}"
        self._lines.__dict__.setdefault("kept", []).append(line)

    def take(self) -> list[str]:
        kept: list[str] = self._lines.__dict__.pop("kept", [])
        return kept


def main() -> None:
    """Serve until killed."""
    kept = _LogOfThread()
    logging.basicConfig(
        level=logging.INFO, handlers=[kept, logging.FileHandler(LOG)], force=True
    )
    try:
        server = importlib.import_module("vdsm.storage.storageServer")
        server.MountConnection.setLocalPathBase(MOUNTS)
        _replace_what_the_guest_lacks()
        with _listener(server, kept) as listener:
            listener.serve_forever()
    except Exception:
        logging.exception("vdsmd ends")
        raise


def _replace_what_the_guest_lacks() -> None:
    """Replace ioprocess and udevd, which only a real VDSM source uses."""
    file_sd = importlib.import_module("vdsm.storage.fileSD")
    if hasattr(file_sd, "getProcPool"):
        access = importlib.import_module("vdsm_access")
        file_sd.getProcPool = access.LocalProcessPool  # type: ignore[attr-defined]
    mount = importlib.import_module("vdsm.storage.mount")
    if hasattr(mount, "udevadm") and not Path("/run/udev/control").exists():
        mount.udevadm.settle = lambda timeout: None


def _about(server: Any) -> dict[str, Any]:
    """Return how this process was started, and which class would mount NFS."""
    nfs = server.ConnectionFactory.registeredConnectionTypes["nfs"]
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii")
    return {
        "program": sys.argv[0],
        "arguments": sys.argv[1:],
        "nfs_class": nfs.__module__,
        "environment": dict(os.environ),
        "path": sys.path,
        "uid": os.geteuid(),
        "nice": os.nice(0),
        "children": len(children.split()),
    }


def _listener(server: Any, kept: _LogOfThread) -> socketserver.TCPServer:
    class Call(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request: dict[str, Any] = json.loads(self.rfile.readline())
            if request["verb"] == "about":
                answer = _about(server)
            else:
                verb = {"connect": server.connect, "disconnect": server.disconnect}
                started = time.monotonic()
                pairs = verb[request["verb"]](_NFS_DOMAIN, request["definitions"])
                answer = {
                    "statuses": [status for _, status in pairs],
                    "seconds": time.monotonic() - started,
                    "log": kept.take(),
                }
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Listener(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    return Listener(("127.0.0.1", PORT), Call)
