# SPDX-License-Identifier: GPL-2.0-or-later
"""``make session``: write docs/fabric-session.md, a session on a simulated fabric.

Each command is run, by bash, on the host hv1 of :mod:`lab.simulated_fabric`; its exit
code is checked. If one is another than expected, the document is unchanged.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from lab import simulated_fabric
from lab.problem import LabProblem
from lab.simulated_fabric import SimulatedFabric
from lab.story import write_page

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "fabric-session.md"
HOSTS = ("hv1", "hv2", "nas1")
_FIRST = 0x2C90300FB1230
_POLICY = """\
version: 1
fabric:
  hosts:
    hv1: [0002:c903:00fb:1231]
    hv2: [0002:c903:00fb:1241]
    nas1: [0002:c903:00fb:1251]
  partitions:
    storage: {pkey: 0x8001, members: [hv1, hv2, nas1]}
    vlan100: {vlan: 100, members: [hv1, hv2=limited]}
"""
_OPENING = (
    "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n"
    "# A terminal session with opensm\n\n"
    "Recorded on {when} by `make session`, on hv1. opensm ({opensm}) and"
    " infiniband-diags are real, and the fabric is simulated by ibsim"
    " ([the lab](lab.md)), without netdevs. On a host with InfiniBand, `ovirt-rdma-host"
    " fabric partitions apply` writes the file, signals opensm and asks it, in one run"
    " that `revert` undoes ([partitions and subnet manager](fabric.md)).\n"
)


@dataclass
class Session:
    """Runs commands on hv1 and keeps them, with their output, as Markdown."""

    fabric: SimulatedFabric
    environment: dict[str, str]
    text: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        self.end()
        self.text += [f"## {title}", ""]

    def say(self, sentence: str) -> None:
        """Write a paragraph."""
        self.end()
        self.text += [sentence, ""]

    def run(self, command: str, code: int = 0, *, seen: str = "") -> None:
        """Run ``command``. Raises LabProblem if its exit code is not ``code``, or it
        does not print ``seen``.
        """
        done = subprocess.run(
            ["bash", "-c", command],
            env=self.environment,
            cwd=self.fabric.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != code or seen not in done.stdout:
            raise LabProblem(f"{command}: {done.returncode}\n{done.stdout}")
        output = done.stdout.expandtabs().rstrip().splitlines()
        self.shown += [f"$ {command}", *(line.rstrip() for line in output)]

    def end(self) -> None:
        """End the block of commands."""
        if self.shown:
            self.text += ["```text", *self.shown, "```", ""]
            self.shown = []


def record() -> str:
    """Run the session and return the document. Raises LabProblem."""
    with _session() as session:
        _render(session)
        _mistake(session)
        _serve(session)
        session.end()
        said = session.fabric.run("hv1", "opensm", "--version")
        version = re.findall(r"[0-9]+(?:\.[0-9]+)+", said)[0]
        opening = _OPENING.format(when=date.today().isoformat(), opensm=version)
        return "\n".join([opening, *session.text])


@contextmanager
def _session() -> Iterator[Session]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = simulated_fabric.fetched()
        with simulated_fabric.running(package, folder, HOSTS, _FIRST) as fabric:
            environment = fabric.environment("hv1")
            # The preloaded library is for infiniband-diags only.
            command = folder / "bin/ovirt-rdma-host"
            command.parent.mkdir()
            program = Path(sys.executable).parent / "ovirt-rdma-host"
            command.write_text(
                f'#!/bin/sh\nunset LD_PRELOAD LD_LIBRARY_PATH\nexec {program} "$@"\n'
            )
            command.chmod(0o755)
            environment["PATH"] = f"{command.parent}:{environment['PATH']}"
            (folder / "policy.yaml").write_text(_POLICY)
            yield Session(fabric, environment)


def _render(session: Session) -> None:
    session.chapter("The policy becomes partitions.conf")
    session.run("cat policy.yaml")
    render = "ovirt-rdma-host fabric partitions render --policy policy.yaml"
    session.run(f"{render} > partitions.conf")
    session.run("cat partitions.conf")
    validate = "ovirt-rdma-host fabric partitions validate"
    session.run(f"{validate} partitions.conf", seen="is valid")


def _mistake(session: Session) -> None:
    session.chapter("A mistake that opensm swallows")
    session.say(
        "The name of a host in place of its GUID: opensm exits with 0, and gives every"
        " port the default partition only, as a full member. `validate` refuses the"
        " file, and says where."
    )
    session.run("sed 's/0x0002c90300fb1241=/hv2=/' partitions.conf > typo.conf")
    session.run(
        "opensm --once -f opensm.log -P typo.conf > /dev/null; echo exit code $?",
        seen="exit code 0",
    )
    session.run(
        "grep -o 'Partition configuration in error.*' opensm.log", seen="default config"
    )
    session.run("smpquery pkeys -D 0 | head -n 1", seen="0: 0xffff 0x0000")
    session.run("ovirt-rdma-host fabric partitions validate typo.conf", 3)


def _serve(session: Session) -> None:
    fabric = session.fabric
    session.chapter("The subnet manager has these partitions")
    session.say("opensm runs on hv1, with `-P partitions.conf`.")
    file = fabric.folder / "partitions.conf"
    with fabric.manager("hv1", file) as opensm:
        session.run("sminfo", seen="SMINFO_MASTER")
        groups = "saquery -g | grep MGID"
        session.run(groups, seen="ff12:401b:8064::ffff:ffff")
        session.say("The P_Key tables of hv1, hv2 and nas1:")
        for host, keys in (("hv1", "0x8064"), ("hv2", "0x0064"), ("nas1", "0x8001")):
            table = f"smpquery -G pkeys {fabric.guids[host]:#x} | head -n 1"
            session.run(table, seen=keys)
        session.chapter("A change of the policy")
        session.run("sed -i 's/hv2=limited/nas1/' policy.yaml")
        session.run(
            "ovirt-rdma-host fabric partitions render --policy policy.yaml > new.conf"
        )
        session.run("diff partitions.conf new.conf", 1)
        session.run("mv new.conf partitions.conf")
        session.say("opensm gets SIGHUP, and reads the file. nas1 and hv2:")
        opensm.send_signal(signal.SIGHUP)
        simulated_fabric.wait(lambda: 0x8064 in fabric.pkeys("nas1"))
        for host, keys in (("nas1", "0x8064"), ("hv2", "0x8001")):
            table = f"smpquery -G pkeys {fabric.guids[host]:#x} | head -n 1"
            session.run(table, seen=keys)


def main() -> int:
    """Write the document; return 0 if all steps succeeded."""
    return write_page(DOCUMENT, record)


if __name__ == "__main__":
    sys.exit(main())
