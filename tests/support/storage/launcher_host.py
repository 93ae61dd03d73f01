# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a host with VDSM and our launcher below a folder, and start vdsmd on it.

Processes are real; stock vdsmd, VDSM's main(), syslog and logger(1) are stand-ins
that report what they got.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

import ovirt_rdma.storage
from ovirt_rdma.host.paths import STARTED

LAUNCHER = Path(ovirt_rdma.storage.__path__[0]) / "launcher/vdsmd"
DROPIN = LAUNCHER.parents[1] / "systemd/vdsmd.service.d/50-ovirt-rdma.conf"
STOCK_PATH = "/usr/libexec/vdsm/vdsmd"
LAUNCHER_PATH = "/usr/libexec/ovirt-rdma/launcher/vdsmd"

# What a process got from its parents.
STATE_TEXT = """
import json, os, sys
def state(ran, **more):
    status = open("/proc/self/status").read()
    umask = os.umask(0)
    print(json.dumps({"ran": ran, "argv": sys.argv, "environment": dict(os.environ),
        "sys.path": sys.path, "folder": os.getcwd(), "umask": umask,
        "nice": os.nice(0), "files": os.listdir("/proc/self/fd"),
        "signals": [l for l in status.splitlines() if l[:6] in ("SigBlk", "SigIgn")],
        **more}))
"""
STOCK_TEXT = f"#!{sys.executable}\n{STATE_TEXT}\nstate('stock')\n"
# Stands in for VDSM's main(): it reports what was registered when it ran.
MAIN_TEXT = f"""
{STATE_TEXT}
from vdsm.storage import storageServer
def main():
    nfs = storageServer.ConnectionFactory.registeredConnectionTypes["nfs"]
    state("main", ours=nfs is not storageServer.NFSConnection, module=nfs.__module__)
"""
SYSLOG_TEXT = """
LOG_ERR, LOG_WARNING, LOG_NOTICE = 3, 4, 5
def syslog(priority, line):
    if "\\0" in line:
        raise ValueError("embedded null character")
    with open({log!r}, "wb", 0) as pipe:
        pipe.write(line.encode("ascii") + b"\\n")
"""
# The unit runs the launcher's check without a PYTHONPATH.
_FAKE_SYSLOG = (
    "sys.path.insert(0, {folder!r}); import fake_syslog as syslog; del sys.path[0]"
)
# sitecustomize: the processes cannot open paths that contain this.
DENY_TEXT = """
import sys
def deny(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and {part!r} in arguments[0]:
        raise PermissionError(13, "Permission denied", arguments[0])
sys.addaudithook(deny)
"""


@dataclass
class Host:
    """Puts stock vdsmd, our launcher, VDSM's modules and the marker into ``root``."""

    root: Path
    vdsm_path: Path
    _log: int = field(init=False)

    def __post_init__(self) -> None:
        self.stock = self.root / STOCK_PATH[1:]
        self.launcher = self.root / LAUNCHER_PATH[1:]
        self.enabled = self.root / "etc/ovirt-rdma/enabled"
        self.policy = self.root / "var/lib/ovirt-rdma/policy.json"
        self.started = self.root / STARTED[1:]
        self.extra = self.root / "extra"
        for path in (self.stock, self.launcher, self.enabled, self.policy):
            path.parent.mkdir(parents=True)
        self.stock.write_text(STOCK_TEXT)
        self.stock.chmod(0o755)
        self._write_launcher()
        self.enabled.write_text("mode: vdsmd\n")
        self.extra.mkdir()
        # A pipe, which accepts lines even if the disk is full.
        pipe = self.root / "log"
        os.mkfifo(pipe)
        self._log = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        (self.extra / "fake_syslog.py").write_text(SYSLOG_TEXT.format(log=str(pipe)))
        self.change_vdsm("vdsmd", MAIN_TEXT)

    def _write_launcher(self) -> None:
        text = LAUNCHER.read_text()
        for old, new in (
            (f'STOCK = "{STOCK_PATH}"', f'STOCK = "{self.stock}"'),
            (f'STARTED = "{STARTED}"', f'STARTED = "{self.started}"'),
            ("prepare()", f"prepare({str(self.root)!r})"),
            ("#!/usr/bin/python3", f"#!{sys.executable}"),
            ("import syslog", _FAKE_SYSLOG.format(folder=str(self.extra))),
        ):
            assert old in text
            text = text.replace(old, new)
        self.launcher.write_text(text)
        self.launcher.chmod(0o755)

    def close(self) -> None:
        os.close(self._log)

    @property
    def log(self) -> list[str]:
        """Return the lines of syslog since the last call."""
        try:
            return os.read(self._log, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return []

    def change_vdsm(self, module: str, text: str) -> None:
        """Let ``text`` run at the end of VDSM's ``module``, in a copy of VDSM."""
        path = self.copy_of_vdsm() / f"{module}.py"
        path.write_text(path.read_text() + "\n" + text)

    def copy_of_vdsm(self) -> Path:
        copy = self.root / "vdsm-copy"
        if not copy.exists():
            shutil.copytree(self.vdsm_path, copy, symlinks=False)
            self.vdsm_path = copy
        return copy / "vdsm"

    def replace_our_package(self, text: str) -> None:
        (self.extra / "ovirt_rdma.py").write_text(text)

    def deny(self, part: str) -> None:
        """Let every open() of a path that contains ``part`` fail, as SELinux does."""
        (self.extra / "sitecustomize.py").write_text(DENY_TEXT.format(part=part))

    def environment(self, **more: str) -> dict[str, str]:
        """Return the arguments of daemonAdapter in vdsmd's unit."""
        folders = [str(self.extra), str(self.vdsm_path), *_package_folders()]
        path = os.environ["PATH"]
        return {
            "PATH": path,
            "LC_ALL": "C.UTF8",
            "PYTHONPATH": ":".join(folders),
            **more,
        }

    def run(
        self, command: list[str], environment: dict[str, str], **keys: Any
    ) -> tuple[int, str, str]:
        """Run ``command`` in its own session, which must end with it; return the exit
        code, standard output and error.
        """
        process = self.popen(command, environment, **keys)
        out, err = process.communicate(timeout=60)
        assert processes_of_session(process.pid) == []
        return process.returncode, out, err

    def popen(
        self, command: list[str], environment: dict[str, str], **keys: Any
    ) -> subprocess.Popen[str]:
        # Python starts a process much faster without a preexec_fn.
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            **keys,
        )

    def start(
        self, preexec: Optional[Callable[[], None]] = None, **env: str
    ) -> dict[str, Any]:
        """Start the launcher as the unit does; return the report of what ran."""
        code, out, err = self.run(
            [str(self.launcher), "an argument"],
            self.as_started(**env),
            preexec_fn=preexec,
        )
        assert code == 0, err
        said: dict[str, Any] = json.loads(out)
        return said

    def as_started(self, **env: str) -> dict[str, str]:
        """Return the environment in which the unit starts vdsmd, stock or ours."""
        environment = self.environment(**env)
        path = f"{self.stock.parent}:{environment['PYTHONPATH']}"
        return {**environment, "PYTHONPATH": path}


def processes_of_session(session: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after_name[3]) == session:
            found.append(stat.parent.name)
    return found


def _package_folders() -> list[str]:
    """Return the folder that contains ovirt_rdma, like site-packages on a host."""
    tree = Path(ovirt_rdma.storage.__path__[0]).resolve().parent / ".cache/package"
    return [str(tree)] if tree.is_dir() else []
