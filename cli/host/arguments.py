# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments of the verbs that do not change the host, and ``policy load``.

These are ``facts``, ``check``, ``plan``, ``explain``, ``nfs``, ``policy`` and
``bundle``. This module also has the options that several verbs of ``ovirt-rdma-host``
share, and parses exports and mount options: a mistake in them is a usage error.
"""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.parser import Parser, add_verbs, define_verb, file_name
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.mount_options import (
    AUTO,
    VERSIONS,
    MountOptions,
    OptionsProblem,
    engine_problems,
)
from ovirt_rdma.host.paths import POLICY_YAML


def add_facts(parser: Parser) -> None:
    """Add ``--facts``, a facts file in place of this host, for verbs that only read."""
    parser.add_argument(
        "--facts",
        metavar="FILE",
        type=file_name,
        help="use a facts file, from 'facts -o json', in place of this host",
    )


def refuse_facts(parser: Parser) -> None:
    """Add a hidden ``--facts`` that is refused: the verb changes this host."""
    parser.add_argument(
        "--facts", dest="refused_facts", nargs="?", const="", help=argparse.SUPPRESS
    )


def add_policy(parser: Parser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="use a policy file in place of the loaded policy",
    )


def export_of(text: str) -> Export:
    """Return the export in ``text``; raise UsageProblem if it is invalid."""
    try:
        return Export.parse(text)
    except ExportProblem as problem:
        fix = f"{problem.fix}; no rule names an export that is written differently"
        raise UsageProblem(problem.id, str(problem), fix) from problem


def engine_options_of(text: str) -> MountOptions:
    """Return the engine's options.

    Raises UsageProblem if the engine would refuse them, or if their port is not a
    number, for which mount would refuse all of them.
    """
    problems = engine_problems(text)
    if problems:
        raise UsageProblem(
            "engine-options-refused", "\n".join(problems), "change --engine-options"
        )
    options = MountOptions.parse(text)
    try:
        _ = options.port
    except OptionsProblem as problem:
        raise UsageProblem(problem.id, str(problem), problem.fix) from problem
    return options


def nfs(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("list", "list all NFS mounts with their proven transport", _list)
    group.add(
        "check",
        "check step by step whether an export can be mounted over RDMA",
        _nfs_check,
    )
    group.add(
        "mount-options",
        "show the mount options that VDSM passes to mount, and why",
        _mount_options,
    )


def _list(parser: Parser) -> None:
    define_verb(
        parser,
        "host.nfs:show_list",
        codes="0 listed; with --exit-code 3 if a mount is not as its rule says",
        examples=("", "--exit-code", "-v --facts hv1.json"),
    )
    add_policy(parser)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with 3 if a mount is degraded, unproven or not covered",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show the proof of each mount"
    )
    add_facts(parser)


def _nfs_check(parser: Parser) -> None:
    define_verb(
        parser,
        "host.nfs:check",
        codes="0 ready, 3 a step failed or is unknown",
        examples=(
            "nas1:/export/vm",
            "--nfs-version 3 '[fd00:20::1]:/export/vm'",
        ),
        more="Mounts nothing. With --facts no network is used, not even to resolve a\n"
        "name. Port and timeouts are those of the rule that names the export,\n"
        "or built-in defaults.",
    )
    _export(parser)
    add_policy(parser)
    _nfs_version(parser)
    add_facts(parser)


def _mount_options(parser: Parser) -> None:
    define_verb(
        parser,
        "host.nfs:show_options",
        codes="0 printed, 3 the policy refuses the mount",
        examples=(
            "nas1:/export/vm --nfs-version 4.2",
            "nas1:/export/vm --engine-options rdma,port=20049",
        ),
        more="Mounts nothing. With --facts no network is used, not even to resolve a\n"
        "name.",
    )
    _export(parser)
    add_policy(parser)
    parser.add_argument(
        "--engine-options",
        metavar="OPTIONS",
        default="",
        help="the storage connection's additional mount options",
    )
    _nfs_version(parser)
    add_facts(parser)


def _export(parser: Parser) -> None:
    parser.add_argument(
        "export", metavar="SERVER:/PATH", help="the export, as in the engine"
    )


def _nfs_version(parser: Parser) -> None:
    parser.add_argument(
        "--nfs-version",
        choices=VERSIONS,
        default=AUTO,
        help="the storage connection's NFS version; default: auto",
    )


def policy(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("check", "validate a policy file, and show all mistakes", _policy_check)
    group.add("load", "validate a policy file and load it", _load)
    group.add("show", "show the loaded policy, or the rule that names an export", _show)


def _policy_check(parser: Parser) -> None:
    define_verb(
        parser,
        "host.policy:check",
        codes="0 valid, 1 it cannot be read, 3 it has mistakes",
        examples=("", "new.yaml"),
    )
    _file(parser)


def _load(parser: Parser) -> None:
    define_verb(
        parser,
        "host.policy:load",
        codes="0 loaded,\n"
        "1 invalid, writable by others than root, or not stored,\n"
        "75 another run is changing this host",
        examples=("", "new.yaml"),
        more="vdsmd uses the policy from its next connect on. Existing mounts stay\n"
        "as they are.",
    )
    _file(parser)
    refuse_facts(parser)


def _show(parser: Parser) -> None:
    define_verb(
        parser,
        "host.policy:show",
        codes="0 printed, also if no rule names the export",
        examples=(
            "",
            "--export nas1:/export/vm",
            "--policy new.yaml --export nas1:/export/vm",
        ),
    )
    parser.add_argument(
        "--export",
        metavar="SERVER:/PATH",
        help="show the rule that names this export, and why",
    )
    add_policy(parser)


def _file(parser: Parser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the policy file; default: {POLICY_YAML}",
    )


def facts(parser: Parser) -> None:
    """Define ``facts``."""
    define_verb(
        parser,
        "host.facts:show",
        codes="0 printed",
        examples=(
            "",
            "-o json > hv1.json       # for --facts, or for a bug report",
            "--route-to 10.20.0.1",
        ),
    )
    parser.add_argument(
        "--route-to",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="also read the route to this server, an IP address; may be given "
        "several times",
    )
    add_facts(parser)


def check(parser: Parser) -> None:
    """Define ``check``."""
    define_verb(
        parser,
        "host.check:check",
        codes="0 no check failed, 3 a check failed",
        examples=("", "--skip ROCE-PFC-01 -v", "--facts hv1.json --policy new.yaml"),
        more="Changes nothing. PASS is correct, WARN may be wrong or will be, FAIL\n"
        "is wrong, SKIP does not apply here or is unknown. Equal findings share\n"
        "one line, and so do rules that have nothing to do on this host.",
    )
    parser.add_argument(
        "--skip",
        metavar="ID",
        action="append",
        default=[],
        help="leave out a rule; may be given several times; ids: explain --list",
    )
    add_policy(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show every finding on its own line",
    )
    add_facts(parser)


def plan(parser: Parser) -> None:
    """Define ``plan``."""
    define_verb(
        parser,
        "host.plan:plan",
        codes="0 shown; with --exit-code 3 if something would change",
        examples=("", "--diff", "--out plan.json", "--policy new.yaml --exit-code"),
        more="Changes nothing. Each step has an id, a reason, a way to undo it and a\n"
        "class: live (no interruption, now or at the engine's next change to\n"
        "the networks), link-down (the link is down for a moment) or reboot\n"
        "(takes effect at the next boot).",
    )
    parser.add_argument(
        "--diff", action="store_true", help="also show the changes, line by line"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=file_name,
        help="also save the plan as JSON, for review",
    )
    add_policy(parser)
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 3 if something would change"
    )
    add_facts(parser)


def explain(parser: Parser) -> None:
    """Define ``explain``."""
    define_verb(
        parser,
        "host.check:explain",
        codes="0 printed",
        examples=("IPOIB-MTU-01", "--list"),
    )
    parser.add_argument(
        "id", metavar="ID", nargs="?", help="the id of a rule or a step"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list all ids with their titles",
    )


def bundle(parser: Parser) -> None:
    """Define ``bundle``."""
    define_verb(
        parser,
        "host.bundle:bundle",
        codes="0 written, also if parts are missing, 1 not written",
        examples=("hv1.tar.xz",),
        more="It has facts, status, findings, plan, history, policy, mounts, the\n"
        "journal of our units and our lines of vdsm.log; no keys or passwords.\n"
        "What could not be read is in its notes.txt. A plugin of sos collects\n"
        "the same: sos report -o ovirt_rdma.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=file_name,
        help="the file to write; its name ends in .tar.xz, and it must not exist",
    )
    refuse_facts(parser)
