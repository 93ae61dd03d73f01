# SPDX-License-Identifier: GPL-2.0-or-later
"""``make engine-session``: write docs/engine-session.md, a terminal session.

It shows ``ovirt-rdma`` with the engine double of the tests and three simulated hosts.
The commands run in separate processes, on a terminal; the double is in this process,
so that hosts can be changed in between. Each exit code is checked; if one is not as
expected, the document is unchanged. Pauses between two requests to the engine are
shortened (:func:`_run_verb`).
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory
from termios import TIOCSWINSZ
from threading import Timer
from unittest import mock

import pyte

TOP = Path(__file__).resolve().parents[1]
DOCUMENT = TOP / "docs" / "engine-session.md"
# For the tests' own double and host access, as in pytest, and the lab.
sys.path[:0] = [str(TOP / "tests"), str(TOP)]

from engine_double import EngineDouble, World, sample_world  # noqa: E402
from engine_double.hosts import our_hooks  # noqa: E402
from support.engine.engine_door import (  # noqa: E402
    DoubleDoor,
    HttpDoor,
    serve_hosts,
)

from lab.problem import LabProblem  # noqa: E402
from lab.story import write_page  # noqa: E402
from ovirt_rdma.cli.engine import main as engine_command  # noqa: E402
from ovirt_rdma.cli.engine import session as cli_session  # noqa: E402
from ovirt_rdma.engine_sdk_tools.api.session import Session  # noqa: E402
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder  # noqa: E402

HOSTS = 3
SERVER = "nas1.example.com"
# For the new domain, which would share the connection of the other server.
SERVER2 = "nas2.example.com"
COLUMNS = 120
# More lines than any command prints, so that nothing scrolls off the screen.
_LINES = 600
_SLEEP_AT_MOST_S = 0.1
_COMMAND_LIMIT_S = 60.0
_QUESTION = "[y/N]"
_USER, _PASSWORD = "admin@ovirt@internalsso", "secret"

_OPENING = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# A session with an engine

`make engine-session` recorded this on {when}, on a terminal of {columns} columns, \
with {hosts} hosts; nothing is typed manually or left out. The engine is the tests' \
[double](engine-double.md), and waiting is shortened: on real hosts a maintenance \
takes minutes. [engine.md](engine.md) explains what is shown.
"""


class Terminal:
    """Runs ``ovirt-rdma`` on a terminal, and answers its question with yes."""

    def __init__(self, url: str, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME")}
        self._environment = {
            **kept,
            "LC_ALL": "C.UTF-8",
            "TERM": "linux",
            "NO_COLOR": "1",
            "PYTHONPATH": str(TOP / "tests"),
            "XDG_CONFIG_HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "OVIRT_URL": url,
            "OVIRT_USERNAME": _USER,
            "OVIRT_PASSWORD": _PASSWORD,
        }
        self._home = home

    def run(self, line: str) -> tuple[int, list[str]]:
        """Return the exit code, and the screen at the end."""
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", _LINES, COLUMNS, 0, 0))
        screen = pyte.Screen(COLUMNS, _LINES)
        stream = pyte.ByteStream(screen)
        command = [sys.executable, __file__, "--verb", *shlex.split(line)]
        program = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self._environment,
            cwd=self._home,
        )
        os.close(theirs)
        # A program that hangs is killed; this ends the reading of its terminal.
        limit = Timer(_COMMAND_LIMIT_S, program.kill)
        limit.start()
        answered = 0
        try:
            for block in _blocks(ours):
                stream.feed(block)
                text = "\n".join(_shown(screen))
                if text.count(_QUESTION) > answered:
                    answered += 1
                    os.write(ours, b"y\n")
            code = program.wait()
        finally:
            limit.cancel()
            program.kill()
            os.close(ours)
        return code, _shown(screen)


class Story:
    """The document that is being written."""

    def __init__(self, terminal: Terminal) -> None:
        self.lines: list[str] = []
        self._terminal = terminal

    def chapter(self, title: str, *sentences: str) -> None:
        """Begin a chapter, with sentences under its title."""
        self.lines += [f"## {title}", "", *(f"{line}\n" for line in sentences)]

    def say(self, sentence: str) -> None:
        """Add a paragraph."""
        self.lines += [sentence, ""]

    def command(self, line: str, code: int = 0, expect: str = "") -> None:
        """Run ``ovirt-rdma`` with the arguments ``line``; show the screen afterwards.

        It must exit with ``code`` and show ``expect``, a pattern.
        """
        prompt = f"$ ovirt-rdma {line}"
        exit_code, shown = self._terminal.run(line)
        text = "\n".join(shown)
        if exit_code != code or not re.search(expect, text):
            wanted = f"exit code {code} and {expect!r}"
            raise LabProblem(f"{prompt}\n{text}\n-> {exit_code}, not {wanted}")
        self.lines += ["```text", prompt, *shown, "```", ""]
        if code:
            self.lines += [f"Its exit code is {code}.", ""]


def record() -> str:
    """Run the session and return the document. Raises LabProblem."""
    world = _world()
    with EngineDouble(world) as double, TemporaryDirectory() as home:
        serve_hosts(double, DoubleDoor(world))
        Path(home, "policy.yaml").write_text(_POLICY, encoding="utf-8")
        story = Story(Terminal(double.url, Path(home)))
        _look(story, world)
        _create(story)
        _convert(story)
        _degrade_and_heal(story, world)
        _network(story)
        if double.strict_errors:
            raise LabProblem("\n".join(double.strict_errors))
    opening = _OPENING.format(
        hosts=HOSTS, when=date.today().isoformat(), columns=COLUMNS
    )
    return "\n".join([opening, *story.lines])


_POLICY = f"""\
version: 1
nfs:
  rules:
    - name: nas2
      server: {SERVER2}
      path: /exports/data2
      transport: prefer-rdma
"""


def _look(story: Story, world: World) -> None:
    story.chapter(
        "The starting point",
        "One data center with an old domain over TCP.",
    )
    story.command("domain list", expect="tcp")
    story.say("Are the hosts ready?")
    story.command("hosts check", 3, expect="FAIL host02")
    story.say(
        "On host02 somebody runs `ovirt-rdma-host enable` and restarts vdsmd; on "
        "host03 a cable is plugged in."
    )
    world.host("host02").addon = True
    world.host("host02").policy_text = ""
    world.host("host03").rdma_ready = True


def _create(story: Story) -> None:
    story.chapter(
        "A policy for all hosts, and a domain",
        "The policy allows the new export to fall back to TCP:",
    )
    story.lines += ["```yaml", *_POLICY.splitlines(), "```", ""]
    story.command(
        "policy push policy.yaml --hosts 'host*'", expect=f"{HOSTS} of {HOSTS}"
    )
    story.say(
        "On data1's server it would get data1's transport, because hosts have one "
        "connection for all mounts of a server with the same NFS 4 minor version:"
    )
    beside = f"domain create data2 --export {SERVER}:/exports/data2 --datacenter dc1"
    story.command(
        f"{beside} --dry-run", 3, expect="fix: first ovirt-rdma domain convert data1"
    )
    story.say("Another server has its own connection:")
    create = f"domain create data2 --export {SERVER2}:/exports/data2 --datacenter dc1"
    story.command(create, expect="is active")


def _convert(story: Story) -> None:
    story.chapter(
        "The old domain is converted to RDMA while virtual machines run",
        "`--dry-run` shows every request in advance.",
    )
    story.command("domain convert data1 --to rdma --rolling", expect="convert")


def _degrade_and_heal(story: Story, world: World) -> None:
    story.chapter(
        "A host falls back to TCP",
        "host03 was restarted while its RDMA port was down. data2's rule says "
        "`prefer-rdma`, so it was mounted over TCP.",
    )
    world.host("host03").mounts[f"{SERVER2}:/exports/data2"] = "tcp"
    story.command("domain verify", 3, expect="FAIL tcp")
    story.command("domain heal", expect="host03")
    story.say(
        "`ovirt-rdma domain revert data1` undoes the conversion in the same way, at "
        "any time."
    )


def _network(story: Story) -> None:
    story.chapter("A network for storage over IPoIB")
    story.command(
        "network create storage --datacenter dc1 --mtu auto", expect="MTU 2044"
    )
    attach = "network attach storage --nic-match ib0 --addresses 10.20.0.11/24"
    story.command(f"{attach} --hosts 'host*' --batch 2", expect=f"{HOSTS} of {HOSTS}")


def _world() -> World:
    world = sample_world(
        hosts=HOSTS, domains=("data1",), addon=True, server=SERVER, reads_per_stage=2
    )
    for host in world.hosts.values():
        host.hooks = our_hooks()
        host.vms = [f"vm{number}-{host.name}" for number in range(3)]
    world.host("host02").addon = False
    world.host("host02").more["package"] = True
    world.host("host02").policy_text = None
    world.host("host03").rdma_ready = False
    return world


def _blocks(descriptor: int) -> Iterator[bytes]:
    # Once the program has ended, reading its terminal is an error (EIO).
    with contextlib.suppress(OSError):
        while block := os.read(descriptor, 4096):
            yield block


def _shown(screen: pyte.Screen) -> list[str]:
    text = "\n".join(line.rstrip() for line in screen.display)
    return text.strip("\n").splitlines()


def _run_verb(words: list[str]) -> int:
    """Run ``ovirt-rdma`` in this process, with the double's access to its hosts."""

    def short(seconds: float) -> None:
        time.sleep(min(seconds, _SLEEP_AT_MOST_S))

    def quick(settings: object) -> Session:
        return Session(settings, sleep=short)  # type: ignore[arg-type]

    # Not root's state folder, which is the same for every run.
    states = StateFolder(Path(os.environ["XDG_STATE_HOME"]))
    with (
        mock.patch.object(cli_session, "Session", quick),
        mock.patch.object(cli_session, "conversion_states", lambda: states),
    ):
        return engine_command.main(words, HttpDoor(os.environ["OVIRT_URL"]))


def main() -> int:
    """Write the document; return 0 if the session was as expected."""
    if sys.argv[1:2] == ["--verb"]:
        return _run_verb(sys.argv[2:])
    return write_page(DOCUMENT, record)


if __name__ == "__main__":
    sys.exit(main())
