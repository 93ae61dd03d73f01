# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments of the verbs of ``ovirt-rdma-host`` that change nothing.

Options that several verbs of ``ovirt-rdma-host`` take.

Exports and mount options from the command line: what is wrong is wrong usage.

The words of ``nfs list``, ``nfs check`` and ``nfs mount-options``.

The words of ``policy check``, ``policy load`` and ``policy show``.

The words of the verbs that see and judge a host, and change nothing: ``facts``,
``check``, ``plan`` and ``explain``.
"""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.parser import Parser, add_verbs, be_verb, file_name
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.storage.mount_options import (
    AUTO,
    VERSIONS,
    MountOptions,
    OptionsProblem,
    engine_problems,
)


def takes_facts(made: Parser) -> None:
    """Let a verb that only looks read a facts file in place of this host."""
    made.add_argument(
        "--facts",
        metavar="FILE",
        type=file_name,
        help="read a host's facts file, from 'facts -o json', in place of this host",
    )


def refuses_facts(made: Parser) -> None:
    """Take a facts file only to refuse it in a sentence: the verb acts."""
    made.add_argument(
        "--facts", dest="refused_facts", nargs="?", const="", help=argparse.SUPPRESS
    )


def takes_policy(made: Parser) -> None:
    """Let a verb judge by a policy file."""
    made.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="a policy file, in place of the one in force",
    )


def export_of(text: str) -> Export:
    """Return the export; raises UsageProblem where ``text`` is none."""
    try:
        return Export.parse(text)
    except ExportProblem as problem:
        fix = f"{problem.fix}; no rule names what is written otherwise"
        raise UsageProblem(problem.id, str(problem), fix) from problem


def engine_options_of(text: str) -> str:
    """Return the engine's options as they are.

    Raises UsageProblem where the engine would not take them, or mount would take
    none of them for a port that is no number.
    """
    problems = engine_problems(text)
    if problems:
        raise UsageProblem(
            "engine-options-refused", "\n".join(problems), "change --engine-options"
        )
    try:
        _ = MountOptions.parse(text).port
    except OptionsProblem as problem:
        raise UsageProblem(problem.id, str(problem), problem.fix) from problem
    return text


def nfs(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("list", "list all NFS mounts with their transport, proven", _list)
    group.add(
        "check",
        "say step by step whether an export can be mounted over RDMA",
        _nfs_check,
    )
    group.add(
        "mount-options",
        "show the option string that VDSM passes to mount, and why",
        _mount_options,
    )


def _list(made: Parser) -> None:
    be_verb(
        made,
        "host.nfs:show_list",
        codes="0 listed; with --exit-code 3 if a mount is not as its rule says",
        examples=("", "--exit-code", "-v --facts hv1.json"),
    )
    takes_policy(made)
    made.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 3 if a mount is degraded, unproven or not covered",
    )
    made.add_argument(
        "-v", "--verbose", action="store_true", help="also show the proof of each mount"
    )
    takes_facts(made)


def _nfs_check(made: Parser) -> None:
    be_verb(
        made,
        "host.nfs:check",
        codes="0 ready, 3 a step failed or could not be tried",
        examples=(
            "nas1:/export/vm",
            "--nfs-version 3 '[fd00:20::1]:/export/vm'",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.\n"
        "Port and time limits are those of the rule that names the export, or else\n"
        "built-in defaults.",
    )
    _export(made)
    takes_policy(made)
    _nfs_version(made)
    takes_facts(made)


def _mount_options(made: Parser) -> None:
    be_verb(
        made,
        "host.nfs:show_options",
        codes="0 printed, 3 the policy refuses the mount",
        examples=(
            "nas1:/export/vm --nfs-version 4.2",
            "nas1:/export/vm --engine-options rdma,port=20049",
        ),
        more="Mounts nothing. With --facts no network is asked, not even for a name.",
    )
    _export(made)
    takes_policy(made)
    made.add_argument(
        "--engine-options",
        metavar="OPTIONS",
        default="",
        help="the storage connection's additional mount options",
    )
    _nfs_version(made)
    takes_facts(made)


def _export(made: Parser) -> None:
    made.add_argument("export", metavar="SERVER:/PATH", help="as the engine has it")


def _nfs_version(made: Parser) -> None:
    made.add_argument(
        "--nfs-version",
        choices=VERSIONS,
        default=AUTO,
        help="the storage connection's NFS version; default: auto",
    )


def policy(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("check", "say whether a policy file is in order", _policy_check)
    group.add("load", "put the policy file into force", _load)
    group.add(
        "show", "show the policy in force, or which of its rules names an export", _show
    )


def _policy_check(made: Parser) -> None:
    be_verb(
        made,
        "host.policy:check",
        codes="0 in order, 1 it cannot be read, 3 it has mistakes",
        examples=("", "new.yaml"),
    )
    _file(made)


def _load(made: Parser) -> None:
    be_verb(
        made,
        "host.policy:load",
        codes="0 in force, 1 not in order, not root's alone to write, or not stored,\n"
        "75 another run is changing this host",
        examples=("", "new.yaml"),
        more="vdsmd follows with its next connect; mounts that are there stay as they\n"
        "are.",
    )
    _file(made)
    refuses_facts(made)


def _show(made: Parser) -> None:
    be_verb(
        made,
        "host.policy:show",
        codes="0 printed, also where no rule names the export",
        examples=(
            "",
            "--export nas1:/export/vm",
            "--policy new.yaml --export nas1:/export/vm",
        ),
    )
    made.add_argument(
        "--export", metavar="SERVER:/PATH", help="say which rule names it, and why"
    )
    takes_policy(made)


def _file(made: Parser) -> None:
    made.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the policy file; default: {POLICY_YAML}",
    )


def facts(made: Parser) -> None:
    """Say what ``facts`` takes."""
    be_verb(
        made,
        "host.facts:show",
        codes="0 printed",
        examples=(
            "",
            "-o json > hv1.json       # for --facts, or for a bug report",
            "--route-to 10.20.0.1",
        ),
    )
    made.add_argument(
        "--route-to",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="also read the route to this server address; may be given again",
    )
    takes_facts(made)


def check(made: Parser) -> None:
    """Say what ``check`` takes."""
    be_verb(
        made,
        "host.check:check",
        codes="0 nothing failed, 3 a check failed",
        examples=("", "--skip ROCE-PFC-01 -v", "--facts hv1.json --policy new.yaml"),
        more="FAIL is wrong, WARN may be, SKIP does not apply or cannot be told here.\n"
        "Changes nothing. What is alike for many, or does not apply, is one line.",
    )
    made.add_argument(
        "--skip",
        metavar="ID",
        action="append",
        default=[],
        help="leave a rule out; may be given again; ids: explain --list",
    )
    takes_policy(made)
    made.add_argument(
        "-v", "--verbose", action="store_true", help="every check on a line of its own"
    )
    takes_facts(made)


def plan(made: Parser) -> None:
    """Say what ``plan`` takes."""
    be_verb(
        made,
        "host.plan:plan",
        codes="0 shown; with --exit-code 3 if something would change",
        examples=("", "--diff", "--out plan.json", "--policy new.yaml --exit-code"),
        more="Changes nothing. Each change has an id, a reason, a way back and a\n"
        "class: live (nobody notices), link-down (the link is gone for a moment) or\n"
        "reboot (in force with the next boot).",
    )
    made.add_argument(
        "--diff", action="store_true", help="also show what changes, line by line"
    )
    made.add_argument(
        "--out",
        metavar="FILE",
        type=file_name,
        help="also save the plan as JSON, for review",
    )
    takes_policy(made)
    made.add_argument(
        "--exit-code", action="store_true", help="exit 3 if something would change"
    )
    takes_facts(made)


def explain(made: Parser) -> None:
    """Say what ``explain`` takes."""
    be_verb(
        made,
        "host.check:explain",
        codes="0 printed",
        examples=("IPOIB-MTU-01", "--list"),
    )
    made.add_argument("id", metavar="ID", nargs="?", help="a rule's id")
    made.add_argument(
        "--list",
        action="store_true",
        help="list all ids with their titles",
    )
