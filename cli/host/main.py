# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma-host``: parse the command line, and call the verb that it names.

Verbs are imported when the command line names them, so that ``--help`` and the light
verbs start fast and load no YAML.
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

PROGRAM = "ovirt-rdma-host"

EXIT_CODES = tuple(code for code in ExitCode if code is not ExitCode.SOME)


def _apply(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.apply import VERBS

    return VERBS[name]


def _bench(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.bench import Bench

    return Bench


def _block(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.block import VERBS

    return VERBS[name]


def _metrics(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.metrics import VERBS

    return VERBS[name]


def _check(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.check import VERBS

    return VERBS[name]


def _enable(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.status import VERBS

    return VERBS[name]


def _explain(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.explain import VERBS

    return VERBS[name]


def _facts(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.facts import ShowFacts

    return ShowFacts


def _fabric(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.fabric import VERBS

    return VERBS[name]


def _nfs(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.nfs import VERBS

    return VERBS[name]


def _nfs_list(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.nfs_list import VERBS

    return VERBS[name]


def _plan(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.plan import ShowPlan

    return ShowPlan


def _policy(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.policy import VERBS

    return VERBS[name]


def _revert(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.revert import VERBS

    return VERBS[name]


def _status(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.status import ShowStatus

    return ShowStatus


def _unit(name: str) -> type[Verb]:
    from ovirt_rdma.cli.host.units import VERBS

    return VERBS[name]


_POLICY: Table = (
    ("check", "validate a policy file, and show all mistakes", _policy),
    ("load", "validate a policy file and load it", _policy),
    ("show", "show the loaded policy, or the rule that names an export", _policy),
)
_NFS: Table = (
    ("list", "list all NFS mounts with their proven transport", _nfs_list),
    ("check", "check step by step whether an export can be mounted over RDMA", _nfs),
    ("health", "ask the server of each NFS mount, and name what is wrong", _nfs_list),
    (
        "mount-options",
        "show the mount options that VDSM passes to mount, and why",
        _nfs,
    ),
)
_PARTITIONS: Table = (
    ("render", "print partitions.conf as the policy describes it", _fabric),
    ("validate", "validate partitions.conf, and show all mistakes", _fabric),
    ("diff", "compare partitions.conf with the policy", _fabric),
    ("apply", "write partitions.conf as the policy says", _fabric),
)
_SM: Table = (
    ("status", "show the subnet managers of the fabric", _fabric),
    ("enable", "run opensm on this host as the policy says", _fabric),
    ("disable", "undo enable", _fabric),
)
_FABRIC: Table = (
    ("partitions", "the partitions of opensm", _PARTITIONS),
    ("sm", "the subnet manager", _SM),
    ("check", "check ports, subnet manager and partitions of the fabric", _fabric),
)
_BLOCK: Table = (
    ("list", "list the sessions and LUNs of block storage over RDMA", _block),
    ("check", "compare the sessions with the policy", _block),
    ("login", "log in to the SRP and iSER targets of the policy", _block),
    ("logout", "log out from targets that nothing uses", _block),
    ("rescan", "look for new LUNs and sizes", _block),
)
# What our systemd units and the scripts of our package run: ovirt-rdma-host(8), UNITS.
_UNIT: Table = (
    ("netdev", "set the boot settings of a netdev", _unit),
    ("recover", "roll back a run that was interrupted", _unit),
    ("unconfirmed", "roll back a run that was not confirmed", _unit),
    ("partitions", "keep P_Key children equal to the P_Key table of the port", _unit),
    ("block", "log in to block storage before vdsmd starts", _unit),
    ("health", "watch the NFS mounts, and write their health", _unit),
    ("caps", "write the capabilities that are reported to the engine", _unit),
    ("installed", "report what the installed package lacks", _unit),
    ("erased", "disable everything before the package is erased", _unit),
    ("recheck", "check the host, and compare with the kernel before", _unit),
)
_VERBS: Table = (
    ("facts", "show the facts of this host", _facts),
    ("check", "check this host, and show fixes", _check),
    ("plan", "show what apply would change, and why", _plan),
    ("apply", "apply the policy to this host and verify the result", _apply),
    ("confirm", "keep the changes of 'apply --confirm-timeout'", _apply),
    ("revert", "undo the changes of apply and the hooks", _revert),
    ("history", "show what was changed, when and by which command", _revert),
    ("explain", "explain a rule of check and plan", _explain),
    ("policy", "check, load and show the policy", _POLICY),
    ("nfs", "list NFS mounts, check exports and their mount options", _NFS),
    ("watch", "show what the NFS mounts do, until it is ended", _nfs_list),
    ("fabric", "partitions and subnet manager of the InfiniBand fabric", _FABRIC),
    ("block", "log in to block storage over RDMA, and check it", _BLOCK),
    ("enable", "let VDSM mount NFS storage as the policy says", _enable),
    ("disable", "undo enable", _enable),
    ("status", "show what is enabled, running, loaded and changed", _status),
    ("bench", "measure RDMA against TCP, and name the limit", _bench),
    ("metrics", "print or write metrics for Prometheus", _metrics),
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
