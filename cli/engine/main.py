# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ``ovirt-rdma``: its parser, and the start of a verb.

The words of ``ovirt-rdma``: its verbs, and what help says of them.

What a verb takes is in a module for each group, loaded when the verb is named.

``ovirt-rdma``: runs the verb that the command line names.

Verbs, and with them the engine's SDK, requests and rich, are imported when they are
called; ``--help`` needs none of them.
"""

from __future__ import annotations

import contextlib
import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, add_verbs, named
from ovirt_rdma.host import __version__
from ovirt_rdma.host.errors import Problem

PROGRAM = "ovirt-rdma"

_EXIT_CODES = """\
exit codes:
  0    done, or nothing to do
  1    failed
  2    wrong words on the command line
  3    checks failed
  4    refused as unsafe, or declined
  5    some hosts done, some not
  6    failed, and everything was taken back
  75   another run is changing the same
  130  interrupted; 129 by SIGHUP, 143 by SIGTERM

'{program} VERB --help' shows a verb's options and examples;
{program}(8) is the manual."""

_VERBS = (
    ("login", "set up the way to an engine, and try it", "engine.arguments:login"),
    (
        "domain",
        "list, create, convert and verify storage domains",
        "engine.domain_arguments:domain",
    ),
    ("network", "create and attach IPoIB networks", "engine.arguments:network"),
    ("hosts", "list and check hosts", "engine.arguments:hosts"),
    ("policy", "send the policy to hosts, and compare it", "engine.arguments:policy"),
    ("gate", "show what keeps hosts without the add-on out", "engine.arguments:gate"),
)


def parser() -> Parser:
    """Return the parser of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="Use RDMA for storage and networks of an oVirt engine's hosts.",
        epilog=_EXIT_CODES.format(program=PROGRAM),
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = add_verbs(top)
    for name, help, fill in _VERBS:
        verbs.add(name, help, fill)
    return top


TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.output import Screen
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor

# What a machine may lack, by the name of the import: package of EL9, and of PyPI.
_PACKAGES = {
    "ovirtsdk4": ("python3-ovirt-engine-sdk4", "ovirt-engine-sdk-python"),
    "pycurl": ("python3-pycurl", "pycurl"),
    "requests": ("python3-requests", "requests"),
    "rich": ("python3-rich", "rich"),
}


def main(
    arguments: Optional[Sequence[str]] = None, door: Optional[HostDoor] = None
) -> int:
    """Run the command; returns the exit code. Problems become sentences.

    ``door`` is the way to hypervisors, in place of what the words would give. A verb
    finds it in ``words``, beside ``screen`` and ``at_end``, an ExitStack that is closed
    when the verb is done.
    """

    def call(words: Namespace, screen: Screen) -> int:
        words.door, words.screen = door, screen
        try:
            with contextlib.ExitStack() as words.at_end:
                return int(named(words.verb)(words, screen))
        except ModuleNotFoundError as error:
            raise _lacking(error) from error

    return run_command(PROGRAM, parser, arguments, call)


def _lacking(error: ModuleNotFoundError) -> Exception:
    package = _PACKAGES.get((error.name or "").partition(".")[0])
    if package is None:
        return error
    return Problem(
        "python-package-missing",
        f"this machine lacks {package[0]}, which {PROGRAM} needs",
        f"dnf install {package[0]}, or pip install {package[1]}",
    )


if __name__ == "__main__":
    sys.exit(main())
