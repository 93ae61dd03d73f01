# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a second host in a guest, with its own network, mounts and host name.

The InfiniBand fabric is inside one kernel, so its NFS server and client are two hosts
of that kind. They share processes, RDMA devices, and files except for their own mounts.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Optional, Protocol, Union

from lab.command import COMMAND_TIMEOUT, Process, Result
from lab.guest import Guest

# The first process, which keeps the namespaces. /sys is mounted again to show the
# netdevs of this network; /run has sockets and must not be shared.
_FIRST = """
set -e
hostname "$1"
ip link set lo up
mount -t sysfs sysfs /sys
echo $$ > "/run/$1.pid"
mount -t tmpfs -o mode=755 tmpfs /run
touch /run/ready
exec sleep infinity
"""


class Host(Protocol):
    """Something that runs commands: a guest, or a second host in one."""

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: float = COMMAND_TIMEOUT,
        check: bool = False,
        input: Union[str, bytes] = b"",
    ) -> Result:
        """Run ``command``; see :meth:`lab.guest.Guest.run`."""


class SecondHost:
    """A host called ``name`` in ``guest``, as long as the guest is running."""

    def __init__(self, guest: Guest, name: str) -> None:
        self.guest = guest
        self.name = name
        self._first: Optional[Process] = None
        self._pid = ""

    def power_on(self) -> None:
        """Start the host, with lo as its only netdev. Raises CommandFailed."""
        unshare = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
        self._first = self.guest.start(
            [*unshare, "bash", "-c", _FIRST, "first", self.name]
        )
        # The host's own /run, seen through its first process, shows that it is ready.
        wait = f"until [ -s /run/{self.name}.pid ]; do sleep 0.05; done"
        see = f"pid=$(cat /run/{self.name}.pid)"
        ready = "until [ -e /proc/$pid/root/run/ready ]; do sleep 0.05; done"
        line = "; ".join([wait, see, ready, "echo $pid"])
        self._pid = self.guest.run(line, check=True).stdout.strip()

    def take(self, netdev: str) -> None:
        """Move a netdev of the guest to this host; it is then down and has no
        addresses.
        """
        self.guest.run(["ip", "link", "set", netdev, "netns", self._pid], check=True)

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        timeout: float = COMMAND_TIMEOUT,
        check: bool = False,
        input: Union[str, bytes] = b"",
    ) -> Result:
        """Run ``command`` on this host, as root; see :meth:`lab.guest.Guest.run`."""
        entering = self._entering(command)
        return self.guest.run(entering, timeout=timeout, check=check, input=input)

    def start(self, command: Union[str, Sequence[str]]) -> Process:
        """Start ``command`` and return at once."""
        return self.guest.start(self._entering(command))

    def _entering(self, command: Union[str, Sequence[str]]) -> list[str]:
        line = ["bash", "-c", command] if isinstance(command, str) else list(command)
        enter = ["nsenter", "--target", self._pid, "--net", "--mount", "--uts"]
        return [*enter, *line]

    def __str__(self) -> str:
        return f"{self.name} in {shlex.quote(self.guest.name)}"
