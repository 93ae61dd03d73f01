# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma-host``: parse the command line, and call the verb that it names.

Verbs are imported when the command line names them, so that ``--help`` and the light
verbs start fast and load no YAML.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import Parser, Table, add_verbs, end_of_help
from ovirt_rdma.host import __version__
from ovirt_rdma.host.errors import ExitCode

PROGRAM = "ovirt-rdma-host"

EXIT_CODES = tuple(code for code in ExitCode if code is not ExitCode.SOME)


_POLICY: Table = (
    (
        "init",
        "print a policy for what is mounted and plugged in now",
        "host.policy.Init",
    ),
    ("check", "validate a policy file, and show all mistakes", "host.policy.Check"),
    ("load", "validate a policy file and load it", "host.policy.Load"),
    ("show", "show the loaded policy", "host.policy.Show"),
)
_NFS: Table = (
    ("list", "list all NFS mounts with their proven transport", "host.nfs.ListMounts"),
    (
        "check",
        "check step by step whether an export can be mounted over RDMA",
        "host.nfs.Check",
    ),
    (
        "health",
        "ask the server of each NFS mount, and name what is wrong",
        "host.nfs.CheckHealth",
    ),
    (
        "paths",
        "show the network paths to NFS servers, and the last moves between them",
        "host.nfs.ShowPaths",
    ),
    (
        "mount-options",
        "show the mount options that VDSM passes to mount, and why",
        "host.nfs.ShowOptions",
    ),
)
_PARTITIONS: Table = (
    (
        "render",
        "print partitions.conf as the policy describes it",
        "host.fabric.Render",
    ),
    (
        "validate",
        "validate partitions.conf, and show all mistakes",
        "host.fabric.Validate",
    ),
    ("apply", "write partitions.conf as the policy says", "host.fabric.Apply"),
)
_SM: Table = (
    ("enable", "run opensm on this host as the policy says", "host.fabric.Enable"),
    ("disable", "undo enable", "host.fabric.Disable"),
)
_FABRIC: Table = (
    ("partitions", "the partitions of opensm", _PARTITIONS),
    ("sm", "the subnet manager", _SM),
    (
        "check",
        "check ports, subnet manager and partitions of the fabric",
        "host.fabric.Check",
    ),
)
_BLOCK: Table = (
    (
        "list",
        "list the sessions and LUNs of block storage over RDMA",
        "host.block.List",
    ),
    ("check", "compare the sessions with the policy", "host.block.Check"),
    ("login", "log in to the SRP and iSER targets of the policy", "host.block.LogIn"),
    ("logout", "log out from targets that nothing uses", "host.block.LogOut"),
    ("rescan", "look for new LUNs and sizes", "host.block.Rescan"),
)
_SERVER: Table = (
    ("check", "check the NFS server on this host", "host.check.ServerCheck"),
)
_DAEMON: Table = (
    ("status", "show what the daemon does, and what fails", "host.daemon.ShowDaemon"),
)
# What our systemd units and the scripts of our package run: ovirt-rdma-host(8), UNITS.
_UNIT: Table = (
    ("netdev", "set the boot settings of a netdev", "host.unit.SetNetdev"),
    ("recover", "roll back a run that was interrupted", "host.unit.Recover"),
    (
        "unconfirmed",
        "roll back a run that was not confirmed",
        "host.unit.RollBackUnconfirmed",
    ),
    (
        "block",
        "log in to block storage before vdsmd starts",
        "host.unit.LogInToBlock",
    ),
    ("daemon", "run the daemon", "host.daemon.RunDaemon"),
    ("daemon-ended", "clean up after the daemon", "host.daemon.DaemonEnded"),
    (
        "installed",
        "report what the installed package lacks",
        "host.unit.ReportInstalled",
    ),
    (
        "erased",
        "disable everything before the package is erased",
        "host.unit.PrepareErase",
    ),
)
_VERBS: Table = (
    ("facts", "show the facts of this host", "host.facts.ShowFacts"),
    ("check", "check this host, and show fixes", "host.check.Check"),
    ("plan", "show what apply would change, and why", "host.plan.ShowPlan"),
    ("apply", "apply the policy to this host and verify the result", "host.plan.Apply"),
    ("confirm", "keep the changes of 'apply --confirm-timeout'", "host.plan.Confirm"),
    ("revert", "undo the changes of apply and the hooks", "host.revert.Revert"),
    (
        "history",
        "show what was changed, when and by which command",
        "host.revert.History",
    ),
    ("explain", "explain a rule of check and plan", "host.check.Explain"),
    ("policy", "check, load and show the policy", _POLICY),
    ("nfs", "list NFS mounts, check exports and their mount options", _NFS),
    ("server", "check a Linux NFS server, on itself", _SERVER),
    ("watch", "show what the NFS mounts do, until it is ended", "host.nfs.Watch"),
    ("fabric", "partitions and subnet manager of the InfiniBand fabric", _FABRIC),
    ("block", "log in to block storage over RDMA, and check it", _BLOCK),
    ("enable", "let VDSM mount NFS storage as the policy says", "host.status.Enable"),
    ("disable", "undo enable", "host.status.Disable"),
    (
        "status",
        "show what is enabled, running, loaded and changed",
        "host.status.ShowStatus",
    ),
    ("daemon", "the daemon that watches this host", _DAEMON),
    ("bench", "measure RDMA against TCP, and name the limit", "host.bench.Bench"),
    ("metrics", "print or write metrics for Prometheus", "host.daemon.ShowMetrics"),
)
_HIDDEN: Table = (("unit", "for systemd units", _UNIT),)


def parser(arguments: Optional[Sequence[str]] = None) -> Parser:
    """Return the parser of the verbs that ``arguments`` name; without, of all verbs.

    ``unit`` is there only if it comes first: help and errors do not list it.
    """
    top = Parser(
        prog=PROGRAM,
        description="Check and configure RDMA on this oVirt hypervisor.",
        epilog=end_of_help(PROGRAM, EXIT_CODES),
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    hidden = _HIDDEN if arguments and arguments[0] == "unit" else ()
    add_verbs(top, (*_VERBS, *hidden), arguments)
    return top


def unit_parser() -> Parser:
    """Return the parser of the verbs of ``unit``."""
    top = Parser(prog=f"{PROGRAM} unit")
    add_verbs(top, _UNIT)
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit code."""
    return run_command(PROGRAM, parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
