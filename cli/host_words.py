# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``ovirt-rdma-host``: its verbs, and what help says of them.

What a verb takes is in a module for each group, loaded when the verb is named.
"""

from __future__ import annotations

from ovirt_rdma.cli.words import Parser, add_verbs
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
    ("facts", "show what is true of this host", "host_words_see:facts"),
    ("check", "say what is right and wrong on this host", "host_words_see:check"),
    ("plan", "show what would change, and why", "host_words_see:plan"),
    (
        "apply",
        "make the host as the policy says, and prove it",
        "host_words_change:apply",
    ),
    ("confirm", "keep what 'apply --confirm-timeout' did", "host_words_change:confirm"),
    ("revert", "set back what was changed", "host_words_change:revert"),
    ("history", "show what was changed, and by whom", "host_words_change:history"),
    ("explain", "explain a rule of check and plan", "host_words_see:explain"),
    ("policy", "check, load and explain the policy", "host_words_policy:policy"),
    ("nfs", "list NFS mounts, check and explain exports", "host_words_nfs:nfs"),
    (
        "enable",
        "let the policy decide how NFS storage is mounted",
        "host_words_enablement:enable",
    ),
    ("disable", "take back what enable did", "host_words_enablement:disable"),
    (
        "status",
        "show what is enabled, running, loaded and changed",
        "host_words_enablement:status",
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
    verbs.add_hidden("unit", "for systemd units", "host_words_change:unit")
    return top
