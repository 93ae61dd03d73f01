# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to SRP targets, log out, set timeouts and rescan: the writes to sysfs.

A login waits in the kernel for its target, and holds the lock of its local port. So
each is a process of its own that is killed at its deadline; local ports log in at the
same time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.block.logins import Login, failure, login_text, timeout_writes
from ovirt_rdma.host.block.read import BLOCK, SRP_LOCAL, BlockReader
from ovirt_rdma.host.collect.storage import SCSI_HOSTS, SRP_PORTS, Session
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.paths import under
from ovirt_rdma.host.policy.block import SrpTarget
from ovirt_rdma.host.system.commands import CommandFailed, Runner
from ovirt_rdma.host.system.tree import FileTree

_PROGRAM = Path(__file__).with_name("add_target.py")
# To load Python on a busy host; not part of the timeout.
_STARTUP_S = 10.0
# The kernel removes the LUNs after it has accepted a logout.
_GONE_S = 10.0
_LOOK_S = 0.1

Write = Callable[[Path, str, float], int]
"""Writes a text to a file within some seconds; returns the errno, 0 for none."""


def write_in_child(path: Path, text: str, timeout_s: float) -> int:
    """Write ``text`` to ``path``; errno.ETIME if it was killed at the deadline."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert child.stdin and child.stdout  # noqa: S101  (for mypy)
        child.stdin.write(text.encode("ascii"))
        child.stdin.close()
        child.stdin = None
        select.select([child.stdout], [], [], _STARTUP_S)
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LOOK_S)
        return errno.ETIME
    except BaseException:
        child.kill()
        raise
    finally:
        if child.stdout:
            child.stdout.close()
    return child.returncode if child.returncode >= 0 else errno.EINTR


class Srp:
    """Acts on the SRP sessions of the host below ``root``; ``run`` runs its tools."""

    def __init__(
        self,
        root: Union[str, Path],
        run: Runner,
        write: Write = write_in_child,
    ) -> None:
        self._root, self._run, self._write = root, run, write

    def _reader(self) -> BlockReader:
        return BlockReader(FileTree(self._root))

    def load_module(self) -> Optional[Sentence]:
        """Load ib_srp; return why that failed."""
        try:
            self._run(("modprobe", "ib_srp"))
        except CommandFailed as error:
            text = f"module ib_srp cannot be loaded: {error}; see journalctl -k, and: "
            more = "modprobe --verbose ib_srp"
            return Sentence("srp-module-not-loaded", text + more)
        return None

    def log_in(
        self,
        logins: Sequence[Login],
        timeout_s: float,
        total_s: Optional[float] = None,
    ) -> list[Login]:
        """Make the ``logins`` that have neither session nor problem; return each with
        its result, in order.

        Each has ``timeout_s`` seconds; after ``total_s`` seconds none is begun.
        """
        end = None if total_s is None else time.monotonic() + total_s
        by_port: dict[str, list[int]] = {}
        for number, login in enumerate(logins):
            if login.problem is None:
                by_port.setdefault(login.local, []).append(number)
        done = list(logins)

        def of_port(numbers: list[int]) -> None:
            for number in numbers:
                if end is not None and time.monotonic() >= end:
                    text = "not tried, because other targets took too long"
                    problem = Sentence("srp-login-not-tried", text)
                    done[number] = replace(logins[number], problem=problem)
                else:
                    done[number] = self._logged_in(logins[number], timeout_s)

        if by_port:
            with ThreadPoolExecutor(len(by_port)) as threads:
                list(threads.map(of_port, by_port.values()))
        return done

    def _logged_in(self, login: Login, timeout_s: float) -> Login:
        target = login.target
        assert isinstance(target, SrpTarget)  # noqa: S101  (for mypy)
        if login.session is not None:
            return replace(login, notes=self._timeouts(target, login.session))
        last = self._log()[-1:]
        path = under(self._root, f"{SRP_LOCAL}/{login.local}/add_target")
        number = self._write(path, login_text(target), timeout_s)
        if number == errno.ETIME:
            text = f"the target does not answer within {timeout_s:g} s"
            return replace(login, problem=Sentence("srp-target-silent", text))
        if number == errno.ENOENT and not path.exists():
            text = f"ib_srp does not offer the port as {SRP_LOCAL}/{login.local}"
            return replace(login, problem=Sentence("srp-local-port-missing", text))
        # EEXIST: srp_daemon or another path of the same target was faster.
        if number not in (0, errno.EEXIST):
            log = _after(self._log(), last)
            return replace(login, problem=failure(number, target, log))
        session = self._session(login, target)
        if session is None:
            text = "the kernel accepted the login, and the session is gone again"
            return replace(login, problem=Sentence("srp-session-gone", text))
        notes = self._timeouts(target, session)
        return replace(login, session=session, made=number == 0, notes=notes)

    def _session(self, login: Login, target: SrpTarget) -> Optional[Session]:
        same = (login.device, login.port, target.id_ext, target.ioc_guid)
        found = [
            one
            for one in self._reader().facts().sessions
            if (one.device, one.port, one.id_ext, one.ioc_guid) == same
        ]
        return max(found, key=lambda one: one.host or 0, default=None)

    def _timeouts(self, target: SrpTarget, session: Session) -> tuple[Sentence, ...]:
        """Set the timeouts of a session; return a sentence for each that failed."""
        for name, value in timeout_writes(session.timeouts, target):
            path = under(self._root, f"{SRP_PORTS}/{session.remote_port}/{name}")
            error = _written(path, str(value))
            if error:
                text = f"{name} of {session.title} could not be set to {value}: {error}"
                return (Sentence("srp-timeout-not-set", text),)
        return ()

    def log_out(self, session: Session) -> Optional[Sentence]:
        """End an SRP session, and wait until it is gone; return why that failed."""
        path = under(self._root, f"{SRP_PORTS}/{session.remote_port}/delete")
        error = _written(path, "1")
        if error and session.host in self._hosts():
            text = f"{session.title} could not be logged out: {error}"
            return Sentence("srp-logout-failed", text)
        deadline = time.monotonic() + _GONE_S
        while session.host in self._hosts():
            if time.monotonic() >= deadline:
                text = f"{session.title} is still there {_GONE_S:g} s after its logout"
                return Sentence("srp-logout-failed", text)
            time.sleep(_LOOK_S)
        return None

    def _hosts(self) -> set[Optional[int]]:
        return {one.host for one in self._reader().facts().sessions}

    def rescan(self, sessions: Iterable[Session]) -> list[Sentence]:
        """Look for new LUNs and new sizes; return what failed.

        VDSM scans Fibre Channel and iSCSI hosts only (lib/vdsm/storage/fc-scan).
        """
        hosts = [one.host for one in sessions]
        before = [lun for host in hosts for lun in self._reader().luns(host)]
        files = [f"{SCSI_HOSTS}/host{host}/scan" for host in hosts]
        errors = [(one, _written(under(self._root, one), "- - -")) for one in files]
        files = [f"{BLOCK}/{lun.device}/device/rescan" for lun in before]
        errors += ((one, _written(under(self._root, one), "1")) for one in files)
        failed = [
            Sentence("rescan-failed", f"{file} could not be written: {error}")
            for file, error in errors
            if error
        ]
        after = {lun.device: lun for host in hosts for lun in self._reader().luns(host)}
        # Once all paths of a map have the new size.
        for map in sorted(
            {
                lun.map
                for lun in before
                if lun.map and after.get(lun.device, lun).size != lun.size
            }
        ):
            try:
                self._run(("multipathd", "resize", "map", map))
            except CommandFailed as error:
                text = f"multipathd did not resize {map}: {error}"
                failed.append(Sentence("rescan-failed", text))
        return failed

    def _log(self) -> list[str]:
        """Return the kernel's log; empty if it cannot be read."""
        try:
            return self._run(("dmesg",)).splitlines()
        except CommandFailed:
            return []


def _after(lines: list[str], last: list[str]) -> list[str]:
    """Return the lines after ``last``, which was the last one before."""
    for number in range(len(lines) - 1, -1, -1):
        if last == [lines[number]]:
            return lines[number + 1 :]
    return lines


def _written(path: Path, text: str) -> str:
    """Write to a file of sysfs; return the error, or an empty text."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or str(error)
    return ""
