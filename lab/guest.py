# SPDX-License-Identifier: GPL-2.0-or-later
"""Start a guest, run commands in it, and cut its power.

    with Guest("hypervisor") as guest:
        print(guest.run("ip -brief link", timeout=20).stdout)

The guest sees the machine's own files (writes stay in the guest), so the checkout and
its .venv work there unchanged. It ends with the ``with`` block, with Ctrl-C, and with
the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Optional, Union

from lab import qemu, systemd_boot
from lab.agent_link import AgentLink
from lab.cache import Provision, cache_folder, provisioned
from lab.command import COMMAND_TIMEOUT, Command, Process, Result
from lab.disk import make_disk
from lab.initramfs import initramfs
from lab.labelled_root import labelled_root
from lab.layer_program import compile_checkout
from lab.monitor import Monitor
from lab.problem import GuestDied, LabProblem

# Seconds; some 3 on an idle machine, more if its cores are busy.
BOOT_TIMEOUT = 180.0
# Lines of console in an error: a whole oops.
_TAIL = 60
_KEEPER = Path(__file__).with_name("keeper.py")


class Guest:
    """One virtual machine, off until :meth:`power_on` or ``with``.

    ``name`` is its host name, ``nics`` its eth0, eth1, ...; ``kernel_arguments`` are
    appended to ours. With ``systemd`` the first process is systemd, with udev, D-Bus
    and a journal. ``disk`` is an image that is made at the first power-on and then
    kept; it keeps the guest's writes, which are otherwise lost at each boot. A
    ``labelled`` guest has systemd, enforces SELinux (lab/labelled_root.py), and does
    not see the machine's files. With ``counted`` its instructions are counted.
    ``boot_seconds`` is the time of the last boot.
    """

    def __init__(
        self,
        name: str,
        *,
        cpus: int = 1,
        memory_mb: int = 1536,
        nics: Sequence[qemu.Nic] = (),
        kernel_arguments: str = "",
        systemd: bool = False,
        disk: Optional[Path] = None,
        labelled: bool = False,
        counted: Optional[qemu.Counted] = None,
    ) -> None:
        self.name = name
        self.systemd = systemd or labelled
        self.boot_seconds = 0.0
        self._cpus = cpus
        self._memory_mb = memory_mb
        self._nics = tuple(nics)
        if self.systemd:
            ours = systemd_boot.kernel_arguments(name, labelled)
            kernel_arguments = f"{ours} {kernel_arguments}".rstrip()
        self._kernel_arguments = kernel_arguments
        self._disk = disk
        self._labelled = labelled
        self._counted = counted
        self._keeper: Optional[subprocess.Popen[bytes]] = None
        self._console: Optional[IO[bytes]] = None
        self._link: Optional[AgentLink] = None
        self._monitor: Optional[Monitor] = None
        self._started = 0.0

    def __enter__(self) -> Guest:
        self.power_on()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        """Whether QEMU is running."""
        keeper = self._keeper
        return keeper is not None and keeper.poll() is None

    @property
    def monitor(self) -> Monitor:
        """QEMU's monitor, which controls the machine. Raises GuestDied while it is
        off.
        """
        if self._monitor is None:
            raise GuestDied(f"guest {self.name} is off")
        return self._monitor

    @property
    def starved_s(self) -> float:
        """Seconds since the start for which QEMU's threads together were ready to run
        and had no processor; 0 while it is off.

        The machine's schedstat has it (Documentation/scheduler/sched-stats.rst): the
        second number of a thread, in nanoseconds.
        """
        waited = 0
        if self._keeper is not None:
            keeper = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}")
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (keeper / "children").read_text().split():
                    for thread in Path(f"/proc/{child}/task").iterdir():
                        waited += int((thread / "schedstat").read_text().split()[1])
        return waited / 1e9

    def power_on(self) -> None:
        """Start QEMU and return at once; several guests can boot at the same time.

        Raises NotProvisioned if the lab's downloads are missing, and LabProblem if the
        machine cannot start the guest.
        """
        self.kill()
        provision = provisioned()
        try:
            self._power_on(provision)
        except OSError as error:
            self.kill()
            raise LabProblem(
                f"guest {self.name} cannot be started: {error}; it needs to write to"
                f" {tempfile.gettempdir()} (TMPDIR) and {cache_folder()}"
                " (OVIRT_RDMA_CACHE)"
            ) from None

    def _power_on(self, provision: Provision) -> None:
        folder = Path(tempfile.gettempdir())
        disk = labelled_root(provision) if self._labelled else self._disk
        archive = initramfs(
            provision,
            systemd=self.systemd,
            disk=disk is not None,
            labelled=self._labelled,
        )
        compile_checkout(provision.layer)
        if self._disk is not None:
            make_disk(self._disk, provision.layer)
        # Without a name, so it cannot be left behind; it exists while it is open.
        self._console = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        our_monitor, their_monitor = socket.socketpair()
        self._link = AgentLink(ours)
        self._monitor = Monitor(self.name, our_monitor)
        with theirs, their_monitor:
            machine = qemu.Machine(
                name=self.name,
                kernel=provision.kernel,
                initramfs=archive,
                layer=provision.layer,
                agent_fd=theirs.fileno(),
                monitor_fd=their_monitor.fileno(),
                folder=folder,
                cpus=self._cpus,
                memory_mb=self._memory_mb,
                nics=self._nics,
                kernel_arguments=self._kernel_arguments,
                disk=disk,
                keep_disk=not self._labelled,
                counted=self._counted,
            )
            fds = [machine.agent_fd, machine.monitor_fd]
            task = {
                "command": qemu.arguments(machine, qemu.accelerator()),
                "folder": str(folder),
                "fds": fds,
                "sockets": [str(nic.local) for nic in self._nics if nic.local],
            }
            self._started = time.monotonic()
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=self._console,
                stderr=self._console,
                pass_fds=fds,
                # Ctrl-C must reach only this process.
                start_new_session=True,
            )

    def wait_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Wait until the guest accepts commands.

        ``timeout`` in seconds since :meth:`power_on`. Raises GuestDied, with the last
        lines of the console, if the guest does not come up.
        """
        link = self._link
        if link is None:
            raise GuestDied(f"guest {self.name} is off, it cannot become ready")
        try:
            link.ready.result(max(0.0, self._started + timeout - time.monotonic()))
        except ConnectionError:
            why = "" if shutil.which(qemu.PROGRAM) else " (QEMU is not installed)"
            raise self._gone(f"did not boot{why}") from None
        except NotYet:
            raise self._death(f"did not boot in {timeout:.0f} s") from None
        self.boot_seconds = time.monotonic() - self._started

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: float = COMMAND_TIMEOUT,
        check: bool = False,
        input: Union[str, bytes] = b"",
        uid: int = 0,
        cwd: str = "/",
        environment: Optional[Mapping[str, str]] = None,
    ) -> Result:
        """Run ``command`` and return its result.

        A string is a bash line, a sequence an argument vector. It runs as user and
        group ``uid`` without other groups; its standard input is ``input``. After
        ``timeout`` seconds of the machine's clock the command's process group is killed
        and CommandTimeout raised. With ``check`` a status other than 0 raises
        CommandFailed. Raises GuestDied if the guest ends meanwhile.
        """
        process = self.start(
            command, input=input, uid=uid, cwd=cwd, environment=environment
        )
        return process.wait(timeout, check=check)

    def start(
        self,
        command: Union[str, Sequence[str]],
        *,
        input: Union[str, bytes] = b"",
        uid: int = 0,
        cwd: str = "/",
        environment: Optional[Mapping[str, str]] = None,
    ) -> Process:
        """Start ``command`` (see :meth:`run`) and return at once."""
        link = self._link
        if link is None:
            raise GuestDied(f"guest {self.name} is off, it cannot run: {command}")
        content = input.encode() if isinstance(input, str) else input
        wanted = Command(command, content, uid, cwd, dict(environment or {}))
        return Process(self.name, wanted, link, self._gone)

    def kill(self) -> None:
        """Cut the power at once, without writing back. A second call does nothing."""
        if self._link is not None:
            self._link.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            self._keeper.wait()
        self._link = self._monitor = self._keeper = None

    def console(self, lines: Optional[int] = None) -> str:
        """Return the text of the guest's console, or its last ``lines``."""
        if self._console is None:
            return ""
        # QEMU uses the same file offset, so do not move it.
        file = self._console.fileno()
        content = os.pread(file, os.fstat(file).st_size, 0)
        text = content.decode(errors="backslashreplace")
        shown = text.replace("\r", "").splitlines()
        return "\n".join(shown if lines is None else shown[-lines:])

    def _gone(self, what: str) -> GuestDied:
        """Wait for the end of QEMU; return the error of a guest that has ended."""
        keeper = self._keeper
        if keeper is not None:
            with suppress(subprocess.TimeoutExpired):
                keeper.wait(10)
        return self._death(what)

    def _death(self, what: str) -> GuestDied:
        tail = self.console(_TAIL) or "(nothing)"
        return GuestDied(f"guest {self.name} {what}; its console ends with:\n{tail}")
