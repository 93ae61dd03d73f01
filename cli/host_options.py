# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several verbs of ``ovirt-rdma-host`` take."""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.words import Parser, file_name


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
