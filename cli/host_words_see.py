# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of the verbs that see and judge a host, and change nothing: ``facts``,
``check``, ``plan`` and ``explain``.
"""

from __future__ import annotations

from ovirt_rdma.cli.host_options import takes_facts, takes_policy
from ovirt_rdma.cli.words import Parser, be_verb, file_name


def facts(made: Parser) -> None:
    """Say what ``facts`` takes."""
    be_verb(
        made,
        "facts_verb:show",
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
        "check_verb:check",
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
        "plan_verb:plan",
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
        "explain_verb:explain",
        codes="0 printed",
        examples=("IPOIB-MTU-01", "--list"),
    )
    made.add_argument("id", metavar="ID", nargs="?", help="a rule's id")
    made.add_argument(
        "--list",
        action="store_true",
        help="list all ids with their titles",
    )
