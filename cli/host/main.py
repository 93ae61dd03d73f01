# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ``ovirt-rdma-host``: its parser, and the start of a verb.

The words of ``ovirt-rdma-host``: its verbs, and what help says of them.

What a verb takes is in a module for each group, loaded when the verb is named.

``ovirt-rdma-host``: runs the verb that the command line names.

Verbs are imported when they are called, so that ``--help`` and the light verbs
start fast and load no YAML.
"""

from __future__ import annotations

import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, add_verbs, named
from ovirt_rdma.host import __version__

PROGRAM = "ovirt-rdma-host"

_EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    wrong words on the command line
  3    checks failed; with --exit-code: the plan is not empty
  4    refused as unsafe
  6    failed, and everything was taken back
  75   another run is changing this host
  130  interrupted; 129 by SIGHUP, 143 by SIGTERM

'{program} VERB --help' shows a verb's options and examples;
{program}(8) is the manual."""

_VERBS = (
    ("facts", "show what is true of this host", "host.arguments:facts"),
    ("check", "say what is right and wrong on this host", "host.arguments:check"),
    ("plan", "show what would change, and why", "host.arguments:plan"),
    (
        "apply",
        "make the host as the policy says, and prove it",
        "host.change_arguments:apply",
    ),
    (
        "confirm",
        "keep what 'apply --confirm-timeout' did",
        "host.change_arguments:confirm",
    ),
    ("revert", "set back what was changed", "host.change_arguments:revert"),
    ("history", "show what was changed, and by whom", "host.change_arguments:history"),
    ("explain", "explain a rule of check and plan", "host.arguments:explain"),
    ("policy", "check, load and explain the policy", "host.arguments:policy"),
    ("nfs", "list NFS mounts, check and explain exports", "host.arguments:nfs"),
    (
        "enable",
        "let the policy decide how NFS storage is mounted",
        "host.change_arguments:enable",
    ),
    ("disable", "take back what enable did", "host.change_arguments:disable"),
    (
        "status",
        "show what is enabled, running, loaded and changed",
        "host.change_arguments:status",
    ),
)


def parser() -> Parser:
    """Return the parser of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="See and set how this oVirt hypervisor uses RDMA.",
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


TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.output import Screen


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code. Problems become sentences."""
    return run_command(PROGRAM, parser, arguments, _call)


def _call(words: Namespace, screen: Screen) -> int:
    return int(named(words.verb)(words, screen))


if __name__ == "__main__":
    sys.exit(main())
