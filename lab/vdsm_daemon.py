# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ovirt-rdma and vdsmd in a hypervisor guest, as systemd would start them.

    vdsmd = VdsmDaemon(guest)
    vdsmd.load_policy("version: 1 ...")
    vdsmd.start()
    outcome = vdsmd.connect({"connection": "10.99.0.1:/srv/data"})

The chain is the real one: the unit's ExecStart (with the drop-in that ``enable``
links), daemonAdapter, the launcher or stock vdsmd, VDSM's main(), as uid 36. Only the
storage part of VDSM exists: see lab/vdsm_packages.py and lab/vdsm_daemon_main.py.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from lab import installed_host, systemd_unit, vdsm_packages
from lab.command import Process, Result
from lab.guest import Guest
from lab.problem import LabProblem
from lab.vdsm_daemon_main import LOG, MOUNTS, PORT
from ovirt_rdma.host.paths import DROPIN_DIRECTORY

# Seconds until vdsmd answers; some 5 on an idle machine.
START_TIMEOUT = 120.0
_STOP_TIMEOUT = 30.0
# How long the engine waits for connectStorageServer, in seconds.
CONNECT_TIMEOUT = 180.0
_SYSLOG = "/var/log/messages"
# A line marks the end of each file; a broken link is not a file.
_READ_UNIT = f"""
for file in {vdsm_packages.UNIT} {DROPIN_DIRECTORY}/*.conf; do
    if [ -f "$file" ]; then cat "$file"; echo; echo '# end of file'; fi
done
echo '# environment'
cat /etc/sysconfig/vdsm 2>/dev/null || :
"""
_UNIT_RUNS = """
trap 'systemctl stop vdsmd' TERM
systemctl start vdsmd
while systemctl -q is-active vdsmd; do sleep 0.5; done
"""
# As systemd does it (Nice=, User=, Group=): first the priority, then the user.
_AS_VDSM = [
    *("nice", "-n", "-20"),
    *("setpriv", "--reuid", "36", "--regid", "36", "--clear-groups"),
    *("env", "-i", "LANG=C.UTF-8", "HOME=/var/lib/vdsm", "LOGNAME=vdsm", "USER=vdsm"),
    *("SHELL=/sbin/nologin", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
]


@dataclass(frozen=True)
class Outcome:
    """The engine's result: one status per connection (0 is good), the seconds that the
    call took, and its lines in vdsm.log.
    """

    statuses: list[int]
    seconds: float
    log: list[str]


@dataclass(frozen=True)
class About:
    """How the running vdsmd was started.

    ``program`` is the script, the launcher or stock vdsmd; ``nfs_class`` is the module
    of the class that mounts NFS; ``path`` is Python's; ``children`` is the number of
    its child processes.
    """

    program: str
    arguments: list[str]
    nfs_class: str
    environment: dict[str, str]
    path: list[str]
    uid: int
    nice: int
    children: int


class VdsmDaemon:
    """vdsmd on the hypervisor ``guest``, with ovirt-rdma as its package installs it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self._process: Optional[Process] = None
        self._old_lines = 0
        vdsm_packages.install(guest)

    def command(self, *arguments: str, timeout: float = 60.0) -> Result:
        """Run ``ovirt-rdma-host`` in the guest."""
        return self.guest.run([installed_host.COMMAND, *arguments], timeout=timeout)

    def write_policy(self, text: str) -> None:
        """Write the policy file; it is not loaded yet."""
        write = "mkdir -p /etc/ovirt-rdma && cat > /etc/ovirt-rdma/policy.yaml"
        self.guest.run(write, input=text, check=True)

    def load_policy(self, text: str) -> None:
        """Load a policy and enable the launcher, as an admin does."""
        self.write_policy(text)
        for arguments in (("policy", "load", "-y"), ("enable",)):
            result = self.command(*arguments)
            if result.exit_code:
                raise LabProblem(f"{' '.join(arguments)} failed: {result.stderr}")

    def start(self) -> None:
        """Start vdsmd as systemd would; return when it answers.

        Raises LabProblem, with the ends of its logs, if it ends or does not answer
        within START_TIMEOUT.
        """
        self._old_lines = len(self._syslog_lines())
        process = self.guest.start(self._command())
        up = (
            f"until [ -S {vdsm_packages.SOCKET} ] && "
            f"(exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>&-; do sleep 0.1; done"
        )
        waiting = self.guest.start(up)
        deadline = time.monotonic() + START_TIMEOUT
        while not waiting.ended:
            if process.ended:
                waiting.signal(signal.SIGKILL)
                raise LabProblem(f"vdsmd ended: {process.wait()}\n{self._last_words()}")
            if time.monotonic() > deadline:
                for command_process in (waiting, process):
                    command_process.signal(signal.SIGKILL)
                raise LabProblem(
                    f"vdsmd does not listen on port {PORT} {START_TIMEOUT:.0f} s after"
                    f" its start; killed: {process.wait(_STOP_TIMEOUT)}\n"
                    f"{self._last_words()}"
                )
            time.sleep(0.1)
        waiting.wait(check=True)  # the guest may have died
        self._process = process

    def _command(self) -> list[str]:
        if self.guest.systemd:
            # Until it ends, like a process of ours.
            return ["bash", "-c", _UNIT_RUNS]
        unit, _, variables = self.guest.run(_READ_UNIT, check=True).stdout.partition(
            "# environment\n"
        )
        environment = systemd_unit.environment_file(variables)
        command = systemd_unit.exec_start(unit.split("# end of file\n"))
        return [*_AS_VDSM, *(f"{k}={v}" for k, v in environment.items()), *command]

    def stop(self) -> None:
        """Stop vdsmd, if it is running; mounts stay."""
        if self._process is not None:
            self._process.signal(signal.SIGTERM)
            self._process.wait(_STOP_TIMEOUT)
            self._process = None

    def connect(self, *definitions: Mapping[str, str]) -> Outcome:
        """Let the engine connect storage; keys as in VDSM, the default is NFS 4.2."""
        return self._call("connect", definitions)

    def disconnect(self, *definitions: Mapping[str, str]) -> Outcome:
        """Let the engine disconnect storage."""
        return self._call("disconnect", definitions)

    def about(self) -> About:
        """Ask the running vdsmd how it was started."""
        return About(**self._ask({"verb": "about"}))

    def syslog(self) -> list[str]:
        """Return the lines of processes named vdsmd in syslog since the last
        :meth:`start`, each with its priority: ``warn: ovirt-rdma: ...``.
        """
        return self._syslog_lines()[self._old_lines :]

    def _syslog_lines(self) -> list[str]:
        # busybox: "Nov 21 03:00:00 hypervisor daemon.warn vdsmd: text"
        line = r"s/^.{15} [^ ]+ [a-z0-9]+\.([a-z]+) vdsmd: /\1: /p"
        return self.guest.run(["sed", "-nE", line, _SYSLOG]).stdout.splitlines()

    def _last_words(self) -> str:
        return self.guest.run(f"tail -n 20 {_SYSLOG} {LOG}").stdout

    def _call(self, verb: str, definitions: tuple[Mapping[str, str], ...]) -> Outcome:
        whole = [
            {"id": str(number), "protocol_version": "4.2", **definition}
            for number, definition in enumerate(definitions)
        ]
        return Outcome(**self._ask({"verb": verb, "definitions": whole}))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        result = self.guest.run(
            f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; cat >&3; cat <&3",
            input=json.dumps(request) + "\n",
            # vdsmd continues after the engine's timeout.
            timeout=2 * CONNECT_TIMEOUT,
            check=True,
        )
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer


def local_path(export: str) -> str:
    """Return where VDSM mounts ``export``."""
    return f"{MOUNTS}/{export.replace('_', '__').replace('/', '_')}"
