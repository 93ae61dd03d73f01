# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments that several verbs of ``ovirt-rdma-host`` share.

Exports and mount options are parsed here: a mistake in them is a usage error.
"""

from __future__ import annotations

import argparse
import os
from typing import Optional

from ovirt_rdma.cli.parser import Parser, Verb, file_name
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.export import Export, ExportProblem

OTHER_RUN = "75 another run is changing this host"


class HostVerb(Verb):
    """A verb about this host."""

    @classmethod
    def add_common(cls, parser: Parser) -> None:
        """Add ``--root``, for tests on a tree that looks like a host."""
        parser.add_argument(
            "--root", metavar="DIR", default="/", help=argparse.SUPPRESS
        )


class UnitVerb(HostVerb):
    """A verb that our systemd units, or the scripts of our package, run."""

    codes = "0 done or nothing to do, 1 failed"
    examples = ("",)
    more = "For systemd units and package scripts of ovirt-rdma."


def as_root(verb: str, root: str) -> None:
    """Raise Problem if this process may not change the host."""
    if root == "/" and os.geteuid() != 0:
        raise Problem(
            "not-root", f"only root can change this host: {verb}", "run it as root"
        )


class Source:
    """The values of --policy and --facts: files in place of the loaded policy, and of
    this host.
    """

    policy: Optional[str] = None
    facts: Optional[str] = None


def add_facts(parser: Parser) -> None:
    """Add ``--facts``, a facts file in place of this host, for verbs that only read."""
    parser.add_argument(
        "--facts",
        metavar="FILE",
        type=file_name,
        help="use a facts file, from 'facts -o json', in place of this host",
    )


def add_policy(parser: Parser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="use a policy file in place of the loaded policy",
    )


def add_only_export(parser: Parser, help: str) -> None:
    """Add an export that may be left out."""
    parser.add_argument(
        "export", metavar="SERVER:/PATH", type=export_of, nargs="?", help=help
    )


def add_link_down(parser: Parser) -> None:
    """Add ``--allow-link-down``."""
    parser.add_argument(
        "--allow-link-down",
        action="store_true",
        help="also apply changes that interrupt a netdev in use for a moment",
    )


def export_of(text: str) -> Export:
    """Return the export in ``text``; raise UsageProblem if it is invalid."""
    try:
        return Export.parse(text)
    except ExportProblem as problem:
        fix = f"{problem.fix}; no rule names an export that is written differently"
        raise UsageProblem(problem.id, str(problem), fix) from problem
