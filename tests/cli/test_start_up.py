# SPDX-License-Identifier: GPL-2.0-or-later
"""The help of a verb imports that verb, and nothing of what it works with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from tools.verbs import verbs

pytestmark = pytest.mark.hypervisor

# Each takes a millisecond or more, or brings modules that do.
SLOW = {"dataclasses", "inspect", "json", "logging", "pathlib", "shutil", "subprocess"}
SLOW |= {"tempfile", "typing", "ovirtsdk4", "pycurl", "rich", "yaml"}
# Of the rest of the package, help needs these.
OURS = {"", ".errors", ".exit_code", ".paths", ".system", ".system.printable"}
# The verbs of one export list the NFS versions that mount_options knows.
OF_EXPORT = {"dataclasses", "inspect", "ovirt_rdma.host.mount_options"}

# The tables of facts, which its sections name.
TABLES = {
    f"ovirt_rdma.cli.host.shown.{name}" for name in ("devices", "virtual_functions")
}

# Each line is run in a process of its own, in which only main was imported.
PROGRAM = """
import importlib, os, sys
bare = set(sys.modules)
main = importlib.import_module(sys.argv[1]).main
for line in sys.argv[2:]:
    if not os.fork():
        main(line.split())
        print("loaded", line, *set(sys.modules) - bare, sep="|", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("ending", ["--help", "--wrong"])
@pytest.mark.parametrize("main", [host, engine], ids=lambda main: main.PROGRAM)
def test_a_verb_is_not_made_ready_to_run(main, ending):
    room = main.__name__.rpartition(".")[0]
    cli = {"ovirt_rdma.cli.command", "ovirt_rdma.cli.output", "ovirt_rdma.cli.parser"}
    cli |= {"ovirt_rdma", "ovirt_rdma.cli", room, main.__name__, f"{room}.arguments"}
    cli |= {f"ovirt_rdma.host{name}" for name in OURS}
    known = {**verbs(main.PROGRAM), **verbs(main.PROGRAM, hidden=True)}
    lines = {f"{name} {ending}": parser.verb for name, parser in known.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, main.__name__, *lines],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [row.split("|") for row in done.stdout.splitlines()]
    found = {row[1]: set(row[2:]) for row in rows if row[0] == "loaded"}
    assert found.keys() == lines.keys()
    for line, verb in lines.items():
        ours = {name for name in found[line] if name.startswith("ovirt_rdma")}
        allowed = {*cli, verb.__module__, f"{room}.shown", f"{room}.shown.devices"}
        if verb.__module__ == f"{room}.nfs":
            allowed |= OF_EXPORT
        assert verb.__module__ in ours, line
        assert (ours | found[line] & SLOW) - allowed == set(), line
