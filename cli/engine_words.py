# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``ovirt-rdma``: its verbs, and what help says of them.

What a verb takes is in a module for each group, loaded when the verb is named.
"""

from __future__ import annotations

from ovirt_rdma.cli.words import Parser, add_verbs
from ovirt_rdma.host import __version__

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
    ("login", "set up the way to an engine, and try it", "engine_words_hosts:login"),
    (
        "domain",
        "list, create, convert and verify storage domains",
        "engine_words_domain:domain",
    ),
    ("network", "create and attach IPoIB networks", "engine_words_network:network"),
    ("hosts", "list and check hosts", "engine_words_hosts:hosts"),
    ("policy", "send the policy to hosts, and compare it", "engine_words_hosts:policy"),
    ("gate", "show what keeps hosts without the add-on out", "engine_words_hosts:gate"),
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
