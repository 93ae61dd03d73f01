# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma``: parse the command line, and call the verb that it names.

The arguments of a verb are in ``engine.arguments`` and ``engine.domain_arguments``.
Verbs, and with them the engine's SDK and requests, are imported when they are called;
``--help`` needs none of them.
"""

from __future__ import annotations

import contextlib
import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, add_verbs, load_function
from ovirt_rdma.host import __version__

TYPE_CHECKING = False  # importing typing would take a tenth of the time of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.output import Output
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess

PROGRAM = "ovirt-rdma"

_EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    usage error
  3    checks failed
  4    refused as unsafe, or declined
  5    done on some hosts, not on others
  6    failed, and everything was rolled back
  75   another run is changing the same data center
  130  interrupted; 129 by SIGHUP, 143 by SIGTERM

'{program} VERB --help' shows a verb's options and examples;
{program}(8) is the manual."""

_VERBS = (
    ("login", "set up and test the connection to an engine", "engine.arguments:login"),
    (
        "domain",
        "list, create, convert and verify storage domains",
        "engine.domain_arguments:domain",
    ),
    ("network", "create and attach IPoIB networks", "engine.arguments:network"),
    ("hosts", "list and check hosts", "engine.arguments:hosts"),
    (
        "deploy-hook",
        "let the engine prepare each host that it installs",
        "engine.prepare.arguments:deploy_hook",
    ),
    ("policy", "send a policy to hosts, and compare it", "engine.arguments:policy"),
    (
        "gate",
        "show the cluster feature that keeps out hosts without the add-on",
        "engine.arguments:gate",
    ),
)


def parser() -> Parser:
    """Return the parser of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="Use RDMA for storage and networks of hosts of an oVirt engine.",
        epilog=_EXIT_CODES.format(program=PROGRAM),
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = add_verbs(top)
    for name, help, fill in _VERBS:
        verbs.add(name, help, fill)
    return top


def main(
    arguments: Optional[Sequence[str]] = None, access: Optional[HostAccess] = None
) -> int:
    """Run the command and return its exit code.

    ``access`` is the host access to use in place of the one that the arguments name.
    ``args`` of a verb has it, and ``output`` and ``at_end``, an ExitStack that is
    closed when the verb is done.
    """

    def call(args: Namespace, output: Output) -> int:
        args.access, args.output = access, output
        with contextlib.ExitStack() as args.at_end:
            return int(load_function(args.verb)(args, output))

    return run_command(PROGRAM, parser, arguments, call)


if __name__ == "__main__":
    sys.exit(main())
