# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's QEMU monitor: what happens to a machine from outside.

QMP over an inherited socket: JSON lines, one answer to each command, with events
in between (docs/interop/qmp-spec of QEMU).
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Optional

from lab.problem import LabProblem
from lab.qemu import nic_id

# QEMU answers at once, as long as the machine's cores are not all taken.
_ANSWER_TIMEOUT = 30.0


class Monitor:
    """Sends QMP commands, one at a time; safe for several threads.

    ``connection`` is the other end of QEMU's monitor socket; close() closes it.
    """

    def __init__(self, guest: str, connection: socket.socket) -> None:
        self._guest = guest
        self._connection = connection
        self._connection.settimeout(_ANSWER_TIMEOUT)
        self._lock = threading.Lock()
        self._lines = connection.makefile("rb")
        self._greeted = False

    def pull_cable(self, nic: int = 0) -> None:
        """Take the link from ``eth<nic>``: the guest sees its carrier go."""
        self.execute("set_link", name=nic_id(nic), up=False)

    def plug_cable(self, nic: int = 0) -> None:
        """Give ``eth<nic>`` its link back."""
        self.execute("set_link", name=nic_id(nic), up=True)

    def freeze(self) -> None:
        """Stop the guest's time: it is there, and does nothing."""
        self.execute("stop")

    def thaw(self) -> None:
        """Let a frozen guest go on where it was."""
        self.execute("cont")

    def execute(self, command: str, **arguments: object) -> None:
        """Have QEMU do ``command``. LabProblem if it says no, or says nothing."""
        with self._lock:
            if not self._greeted:
                self._answer_to({"execute": "qmp_capabilities"})
                self._greeted = True
            self._answer_to({"execute": command, "arguments": arguments})

    def close(self) -> None:
        """Hang up; the guest goes on."""
        self._lines.close()
        self._connection.close()

    def _answer_to(self, request: dict[str, Any]) -> None:
        what = f"guest {self._guest}: QEMU's {request['execute']}"
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            error = self._error()
        except (OSError, ValueError) as problem:
            raise LabProblem(f"{what} was not answered: {problem}") from None
        if error is not None:
            raise LabProblem(f"{what} failed: {error}")

    def _error(self) -> Optional[str]:
        """Read until an answer; its error, or None."""
        for line in self._lines:
            message = json.loads(line)
            # The greeting and events are neither.
            if "return" in message:
                return None
            if "error" in message:
                return str(message["error"]["desc"])
        raise OSError("QEMU has ended")
