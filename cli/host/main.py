# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma-host``: parse the command line, and call the verb that it names.

The arguments of a verb are in ``host.arguments`` and ``host.change_arguments``. Verbs
are imported when they are called, so that ``--help`` and the light verbs start fast and
load no YAML.
"""

from __future__ import annotations

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

PROGRAM = "ovirt-rdma-host"

_EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    usage error
  3    checks failed; with --exit-code: the plan is not empty
  4    refused as unsafe
  6    failed, and everything was rolled back
  75   another run is changing this host
  130  interrupted; 129 by SIGHUP, 143 by SIGTERM

'{program} VERB --help' shows a verb's options and examples;
{program}(8) is the manual."""

_VERBS = (
    ("facts", "show the facts of this host", "host.arguments:facts"),
    ("check", "check this host, and show fixes", "host.arguments:check"),
    ("plan", "show what apply would change, and why", "host.arguments:plan"),
    (
        "apply",
        "apply the policy to this host and verify the result",
        "host.change_arguments:apply",
    ),
    (
        "confirm",
        "keep the changes of 'apply --confirm-timeout'",
        "host.change_arguments:confirm",
    ),
    (
        "revert",
        "undo the changes of apply and the hooks",
        "host.change_arguments:revert",
    ),
    (
        "history",
        "show what was changed, when and by which command",
        "host.change_arguments:history",
    ),
    ("explain", "explain a rule of check and plan", "host.arguments:explain"),
    ("policy", "check, load and show the policy", "host.arguments:policy"),
    (
        "nfs",
        "list NFS mounts, check exports and their mount options",
        "host.arguments:nfs",
    ),
    (
        "enable",
        "let VDSM mount NFS storage as the policy says",
        "host.change_arguments:enable",
    ),
    ("disable", "undo enable", "host.change_arguments:disable"),
    (
        "status",
        "show what is enabled, running, loaded and changed",
        "host.change_arguments:status",
    ),
    (
        "bundle",
        "collect what a support case needs in one file",
        "host.arguments:bundle",
    ),
)


def parser() -> Parser:
    """Return the parser of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="Check and configure RDMA on this oVirt hypervisor.",
        epilog=_EXIT_CODES.format(program=PROGRAM),
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = add_verbs(top)
    for name, help, fill in _VERBS:
        verbs.add(name, help, fill)
    # For systemd units: ovirt-rdma-host(8), UNITS.
    verbs.add_hidden("unit", "for systemd units", "host.change_arguments:unit")
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit code."""
    return run_command(PROGRAM, parser, arguments, _call)


def _call(args: Namespace, output: Output) -> int:
    return int(load_function(args.verb)(args, output))


if __name__ == "__main__":
    sys.exit(main())
