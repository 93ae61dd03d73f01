# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``version``: what is installed on this machine. No engine is asked."""

from __future__ import annotations

import platform
import shutil
from importlib import metadata
from typing import Optional

from ovirt_rdma.cli.parser import Context, Verb
from ovirt_rdma.engine_sdk_tools.deploy_hook.context import engine_version
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import search_path
from ovirt_rdma.host import __version__
from ovirt_rdma.host.system.commands import CommandFailed, run_command

_SDK = "ovirt-engine-sdk-python"


class ShowVersion(Verb):
    """Show the versions of this machine."""

    codes = "0 printed"
    examples = ("", "-o json")
    more = (
        "No login is needed: the engine is the package on this machine. What\n"
        "hosts have, and what their vdsmd runs, is in 'hosts check'."
    )

    def run(self, context: Context) -> int:
        content = {
            "add_on": __version__,
            "engine": engine_version(),
            "sdk": _sdk(),
            "ansible_runner": _ansible_runner(),
            "python": platform.python_version(),
        }
        if not context.output.for_people:
            context.output.document("engine-version", content)
            return 0
        names = ("ovirt-rdma", "ovirt-engine", "SDK", "ansible-runner", "Python")
        context.output.fields(
            (name, version or "not found")
            for name, version in zip(names, content.values())
        )
        return 0


def _sdk() -> Optional[str]:
    try:
        return metadata.version(_SDK)
    except metadata.PackageNotFoundError:
        return None


def _ansible_runner() -> Optional[str]:
    """Return its version. The program counts: its Python may be another one."""
    program = shutil.which("ansible-runner", path=search_path())
    try:
        return run_command([program, "--version"]).strip() or None if program else None
    except CommandFailed:
        return None
