# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma``: parse the command line, and call the verb that it names.

Verbs, and with them the engine's SDK, are imported when the command line names them;
the help of the command and of its groups needs none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, Table, add_verbs, end_of_help
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess
from ovirt_rdma.host import __version__
from ovirt_rdma.host.exit_code import ExitCode

PROGRAM = "ovirt-rdma"

EXIT_CODES = tuple(ExitCode)


_DOMAIN: Table = (
    (
        "list",
        "list the file storage domains, with their transport",
        "engine.domains.ListDomains",
    ),
    ("create", "create an NFS domain, by default over RDMA", "engine.domains.Create"),
    (
        "convert",
        "convert a domain to RDMA, or back to TCP",
        "engine.conversion.Convert",
    ),
    ("revert", "undo a conversion, complete or incomplete", "engine.conversion.Revert"),
    (
        "heal",
        "remount domains on hosts that fell back to TCP",
        "engine.conversion.Heal",
    ),
    (
        "verify",
        "verify the transport of each domain on each host",
        "engine.domains.Verify",
    ),
)
_NETWORK: Table = (
    ("create", "create a network for IPoIB in a data center", "engine.networks.Create"),
    (
        "attach",
        "attach a network to NICs of hosts, with static addresses",
        "engine.networks.Attach",
    ),
)
_HOSTS: Table = (
    (
        "list",
        "list the hosts, with their hooks and IPoIB NICs",
        "engine.hosts.ListHosts",
    ),
    ("check", "check hosts, and show the results in one table", "engine.hosts.Check"),
    (
        "prepare",
        "install and set up the add-on on hosts, one batch after the other",
        "engine.prepare.Prepare",
    ),
)
_DEPLOY_HOOK: Table = (
    (
        "install",
        "let the engine prepare each host that it installs",
        "engine.deploy_hook.Install",
    ),
    ("remove", "remove our block from the engine's file", "engine.deploy_hook.Remove"),
    (
        "status",
        "show whether the block is installed and can run",
        "engine.deploy_hook.Status",
    ),
)
_POLICY: Table = (
    ("push", "send a policy to hosts and load it there", "engine.policy.Push"),
    ("diff", "compare a policy with those of the hosts", "engine.policy.Diff"),
)
_GATE: Table = (
    (
        "status",
        "show what the cluster feature NFS_RDMA needs, and what is set up",
        "engine.hosts.GateStatus",
    ),
)
_VERBS: Table = (
    ("login", "set up and test the connection to an engine", "engine.login.Login"),
    ("domain", "list, create, convert and verify storage domains", _DOMAIN),
    ("network", "create and attach IPoIB networks", _NETWORK),
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
    (
        "report",
        "write a page about hosts, domains and their fabric",
        "engine.report.MakeReport",
    ),
    (
        "version",
        "show what is installed on this machine",
        "engine.version.ShowVersion",
    ),
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
