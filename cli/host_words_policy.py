# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``policy check``, ``policy load`` and ``policy show``."""

from __future__ import annotations

from ovirt_rdma.cli.host_options import refuses_facts, takes_policy
from ovirt_rdma.cli.words import Parser, add_verbs, be_verb, file_name
from ovirt_rdma.host.paths import POLICY_YAML


def policy(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("check", "say whether a policy file is in order", _check)
    group.add("load", "put the policy file into force", _load)
    group.add(
        "show", "show the policy in force, or which of its rules names an export", _show
    )


def _check(made: Parser) -> None:
    be_verb(
        made,
        "policy_verbs:check",
        codes="0 in order, 1 it cannot be read, 3 it has mistakes",
        examples=("", "new.yaml"),
    )
    _file(made)


def _load(made: Parser) -> None:
    be_verb(
        made,
        "policy_verbs:load",
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
        "policy_verbs:show",
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
