# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma``: parse the command line, and call the verb that it names.

Verbs, and with them the engine's SDK, are imported when the command line names them;
the help of the command and of its groups needs none of them.
"""

from __future__ import annotations

import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, add_verbs, end_of_help
from ovirt_rdma.host import __version__
from ovirt_rdma.host.exit_code import ExitCode

TYPE_CHECKING = False  # importing typing would take a tenth of the time of --help
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.parser import Table, Verb
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess

PROGRAM = "ovirt-rdma"

EXIT_CODES = tuple(ExitCode)


def _conversion(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.conversion import VERBS

    return VERBS[name]


def _deploy_hook(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.deploy_hook import VERBS

    return VERBS[name]


def _domains(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.domains import VERBS

    return VERBS[name]


def _gate(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.hosts import GateStatus

    return GateStatus


def _hosts(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.hosts import VERBS

    return VERBS[name]


def _login(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.login import Login

    return Login


def _networks(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.networks import VERBS

    return VERBS[name]


def _policy(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.policy import VERBS

    return VERBS[name]


def _prepare(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.prepare import Prepare

    return Prepare


def _report(name: str) -> type[Verb]:
    from ovirt_rdma.cli.engine.report import MakeReport

    return MakeReport


_DOMAIN: Table = (
    ("list", "list the file storage domains, with their transport", _domains),
    ("create", "create an NFS domain, by default over RDMA", _domains),
    ("convert", "convert a domain to RDMA, or back to TCP", _conversion),
    ("revert", "undo a conversion, complete or incomplete", _conversion),
    ("heal", "remount domains on hosts that fell back to TCP", _conversion),
    ("verify", "verify the transport of each domain on each host", _domains),
)
_NETWORK: Table = (
    ("create", "create a network for IPoIB in a data center", _networks),
    (
        "attach",
        "attach a network to NICs of hosts, with static addresses",
        _networks,
    ),
    ("show", "show how virtual machines can have virtual functions", _networks),
)
_HOSTS: Table = (
    ("list", "list the hosts, with their hooks and IPoIB NICs", _hosts),
    ("check", "check hosts, and show the results in one table", _hosts),
    (
        "prepare",
        "install and set up the add-on on hosts, one batch after the other",
        _prepare,
    ),
)
_DEPLOY_HOOK: Table = (
    ("install", "let the engine prepare each host that it installs", _deploy_hook),
    ("remove", "remove our block from the engine's file", _deploy_hook),
    ("lint", "check the engine's file for what the engine ignores", _deploy_hook),
    ("status", "show whether the block is installed and can run", _deploy_hook),
)
_POLICY: Table = (
    ("push", "send a policy to hosts and load it there", _policy),
    ("diff", "compare a policy with those of the hosts", _policy),
)
_GATE: Table = (
    (
        "status",
        "show what the cluster feature NFS_RDMA needs, and what is set up",
        _gate,
    ),
)
_VERBS: Table = (
    ("login", "set up and test the connection to an engine", _login),
    ("domain", "list, create, convert and verify storage domains", _DOMAIN),
    ("network", "create, attach and show IPoIB networks", _NETWORK),
    ("hosts", "list and check hosts", _HOSTS),
    (
        "deploy-hook",
        "let the engine prepare each host that it installs",
        _DEPLOY_HOOK,
    ),
    ("policy", "send a policy to hosts, and compare it", _POLICY),
    (
        "gate",
        "show the cluster feature that keeps out hosts without the add-on",
        _GATE,
    ),
    ("report", "write a page about hosts, domains and their fabric", _report),
)


def parser(arguments: Optional[Sequence[str]] = None) -> Parser:
    """Return the parser of the verbs that ``arguments`` name; without, of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="Use RDMA for storage and networks of hosts of an oVirt engine.",
        epilog=end_of_help(PROGRAM, EXIT_CODES),
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add_verbs(top, _VERBS, arguments)
    return top


def main(
    arguments: Optional[Sequence[str]] = None, access: Optional[HostAccess] = None
) -> int:
    """Run the command and return its exit code.

    ``access`` is the host access to use in place of the one that the arguments name.
    """
    return run_command(PROGRAM, parser, arguments, access)


if __name__ == "__main__":
    sys.exit(main())
