# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a command in a guest, wait for it, and return its result."""

from __future__ import annotations

import base64
import shlex
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import Union

from lab.agent_link import AgentLink, Answer
from lab.problem import CommandFailed, CommandTimeout, GuestDied, LabProblem

# For what hangs only: a loop that waits in an emulated guest is slow on a busy machine.
COMMAND_TIMEOUT = 600.0
# How long a killed command may take to end.
_GRACE = 15.0


@dataclass(frozen=True)
class Command:
    """A bash line or an argument vector to run, with its input, user and folder."""

    words: Union[str, Sequence[str]]
    input: bytes = b""
    uid: int = 0
    cwd: str = "/"
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.words if isinstance(self.words, str) else shlex.join(self.words)

    def request(self) -> dict[str, object]:
        """Return the fields of the agent's request."""
        line = isinstance(self.words, str)
        return {
            "run": ["bash", "-c", self.words] if line else list(self.words),
            "input": base64.b64encode(self.input).decode(),
            "uid": self.uid,
            "cwd": self.cwd,
            "environment": self.environment,
        }


@dataclass(frozen=True)
class Result:
    """The result of a command.

    ``exit_code`` is negative for a signal, as in subprocess. ``stdout`` and
    ``stderr`` show bytes that are not UTF-8 as ``\\xNN``. ``seconds`` are measured with
    the guest's clock.
    """

    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    def __str__(self) -> str:
        parts = [f"exit code {self.exit_code} after {self.seconds:.1f} s"]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text.strip():
                parts.append(f"{name}: {text.rstrip()}")
        return "\n".join(parts)


class Process:
    """A running command."""

    def __init__(
        self,
        guest: str,
        command: Command,
        link: AgentLink,
        death: Callable[[str], GuestDied],
    ) -> None:
        self._guest = guest
        self._command = command
        self._link = link
        self._death = death
        self._number, self._answer = link.request(command.request())

    @property
    def ended(self) -> bool:
        """Whether the command has ended (or the guest has)."""
        return self._answer.done()

    def signal(self, wanted: int = signal.SIGTERM) -> None:
        """Send a signal to the command's process group."""
        self._link.signal(self._number, wanted)

    def wait(self, timeout: float = COMMAND_TIMEOUT, *, check: bool = False) -> Result:
        """Wait until the command ends; see :meth:`lab.guest.Guest.run`."""
        try:
            result = self._result(timeout)
        except NotYet:
            self.signal(signal.SIGKILL)
            raise CommandTimeout(
                f"{self._where()} took more than {timeout:.0f} s; {self._last_words()}"
            ) from None
        if check and result.exit_code:
            raise CommandFailed(f"{self._where()} failed: {result}")
        return result

    def _result(self, timeout: float) -> Result:
        try:
            answer = self._answer.result(timeout)
        except ConnectionError:
            raise self._death(f"ended while it ran: {self._command}") from None
        if "error" in answer:
            raise CommandFailed(f"{self._where()} cannot start: {answer['error']}")
        return _read(answer)

    def _last_words(self) -> str:
        try:
            return f"killed: {self._result(_GRACE)}"
        except NotYet:
            return "it hangs in the kernel and cannot be killed"
        except LabProblem as problem:
            return str(problem)

    def _where(self) -> str:
        return f"in guest {self._guest}: {self._command}:"


def _read(answer: Answer) -> Result:
    def text(name: str) -> str:
        return base64.b64decode(answer[name]).decode(errors="backslashreplace")

    return Result(
        answer["exit_code"], text("stdout"), text("stderr"), answer["seconds"]
    )
