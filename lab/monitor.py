# SPDX-License-Identifier: GPL-2.0-or-later
"""Control a guest from outside by its QEMU monitor.

The protocol is QMP over an inherited socket: JSON lines, one answer per command, with
events in between (docs/interop/qmp-spec of QEMU).
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Optional

from lab.problem import LabProblem
from lab.qemu import nic_id

# Seconds; QEMU answers at once, unless all cores of the machine are busy.
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
        """Take down the link of ``eth<nic>``: the guest loses the carrier."""
        self.execute("set_link", name=nic_id(nic), up=False)

    def plug_cable(self, nic: int = 0) -> None:
        """Restore the link of ``eth<nic>``."""
        self.execute("set_link", name=nic_id(nic), up=True)

    def freeze(self) -> None:
        """Pause the guest: it exists, but does nothing."""
        self.execute("stop")

    def thaw(self) -> None:
        """Let a paused guest continue."""
        self.execute("cont")

    def execute(self, command: str, **arguments: object) -> None:
        """Let QEMU execute ``command``. Raises LabProblem on an error or no answer."""
        with self._lock:
            if not self._greeted:
                self._answer_to({"execute": "qmp_capabilities"})
                self._greeted = True
            self._answer_to({"execute": command, "arguments": arguments})

    def close(self) -> None:
        """Close the connection; the guest keeps running."""
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
        """Read until an answer; return its error, or None."""
        for line in self._lines:
            message = json.loads(line)
            # The greeting and events have neither.
            if "return" in message:
                return None
            if "error" in message:
                return str(message["error"]["desc"])
        raise OSError("QEMU has ended")
