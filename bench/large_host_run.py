# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma-host`` on a host that :mod:`bench.large_host` wrote.

``python -m bench.large_host_run FOLDER VERB …``. ``cat`` replaces the host's tools, so
that each still costs a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ovirt_rdma.cli.host import check
from ovirt_rdma.cli.host.main import main as ovirt_rdma_host
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.rules.registry import (
    Decision,
    decide,
)
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NotInstalled,
    Runner,
    run_command,
)


def decide_on(folder: Path) -> Decision:
    """Read the host and its policy, and decide, as ``check`` and ``plan`` do."""
    root = folder / "root"
    stored = read(under(root, POLICY_JSON))
    if stored is None:
        raise AssertionError(f"{root} has no policy")
    return decide(HostReader(root, tools_of(folder)).facts(), stored.policy)


def main(arguments: Sequence[str]) -> int:
    """Run ``FOLDER VERB …``; return the exit code."""
    folder, *command = arguments
    tools = tools_of(Path(folder))
    setattr(check, "HostReader", lambda root: HostReader(root, tools))  # noqa: B010
    return ovirt_rdma_host([*command, "--root", f"{folder}/root"])


def tools_of(folder: Path) -> Runner:
    """Return a function that runs the host's tools."""
    written = json.loads((folder / "tools.json").read_bytes())
    answers = {tuple(argv): rest for argv, *rest in written}
    installed = {argv[0] for argv in answers}

    def run(argv: Sequence[str]) -> str:
        if argv[0] not in installed:
            raise NotInstalled("No such file or directory")
        file, error, code = answers[tuple(argv)]
        text = run_command(["/bin/cat", file])
        if error is not None:
            raise CommandFailed(error, code)
        return text

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
