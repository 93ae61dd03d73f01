# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments of ``deploy-hook`` and ``hosts prepare``."""

from __future__ import annotations

from ovirt_rdma.cli.engine.arguments import (
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
    define_engine_verb,
)
from ovirt_rdma.cli.parser import Parser, add_verbs, define_verb, file_name

_FILE = "the post-tasks file; default: the engine's, in /etc/ovirt-engine/ansible"


def deploy_hook(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("install", "let the engine prepare each host that it installs", _install)
    group.add("remove", "remove our block from the engine's file", _remove)
    group.add("lint", "check the engine's file for what the engine ignores", _lint)
    group.add("status", "show whether the block is installed and can run", _status)


def _install(parser: Parser) -> None:
    _define(
        parser,
        "install",
        codes="0 installed, or nothing to do, 1 failed, 75 another run",
        examples=("", "--dry-run"),
        more="Adds a marked block to the engine's file of post-tasks, or updates it.\n"
        "The other lines stay as they are, byte for byte; a copy is kept\n"
        "beside the file. Nothing is written unless ansible-playbook accepts it.",
    )
    _changes(parser)


def _remove(parser: Parser) -> None:
    _define(
        parser,
        "remove",
        codes="0 removed, or nothing to do, 1 failed, 75 another run",
        examples=("", "--dry-run"),
        more="Restores the file as it was before the block, byte for byte. A file\n"
        "that did not exist is deleted.",
    )
    _changes(parser)


def _lint(parser: Parser) -> None:
    _define(
        parser,
        "lint",
        codes="0 nothing found, 1 failed, 3 something was found",
        examples=("", "-o json"),
        more="Checks the whole file, with tasks of others, for what works with\n"
        "ansible-playbook but fails the installation of a host in the engine, or\n"
        "ends it without a failure. Changes nothing.",
    )


def _status(parser: Parser) -> None:
    _define(
        parser,
        "status",
        codes="0 installed and current, 1 failed, 3 not so",
        examples=("", "-o json"),
    )


def _define(
    parser: Parser, verb: str, *, codes: str, examples: tuple[str, ...], more: str = ""
) -> None:
    name = f"engine.prepare.hook:{verb}"
    define_verb(parser, name, codes=codes, examples=examples, more=more, on_host=False)
    parser.add_argument("--file", metavar="FILE", type=file_name, help=_FILE)


def _changes(parser: Parser) -> None:
    parser.add_argument(
        "-n",
        "--dry-run",
        action="store_true",
        help="change nothing; show the differences",
    )
    parser.add_argument(
        "--force", action="store_true", help="also if the block was edited"
    )


def prepare(parser: Parser) -> None:
    """Define ``hosts prepare``."""
    define_engine_verb(
        parser,
        "engine.prepare.hosts:prepare",
        codes="0 prepared, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 done on some hosts, not on others,\n"
        "75 another run is changing the data center",
        examples=("--dry-run", "--batch 4", "hv1 hv2 --by ssh"),
        more="The first host goes alone, and the others follow in batches if it is\n"
        "prepared. By SSH, a host stays at work: packages, policy and what takes no\n"
        "link down. By reinstall, the engine moves it to maintenance, installs it\n"
        "again (with the block of deploy-hook), and activates it. A host counts as\n"
        "prepared only if the last task of the role has run on it. Hosts get the\n"
        "policy of this machine, and the settings in /etc/ovirt-rdma/host-deploy.yml.\n"
        "An interrupted run continues with the same command.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="hosts; default: all")
    parser.add_argument(
        "--by",
        choices=("auto", "ssh", "reinstall"),
        default="auto",
        help="how; auto, the default: by SSH, and by reinstall where a link has to go "
        "down, or the host has to restart",
    )
    parser.add_argument(
        "--canary",
        metavar="NAME",
        help="the host that goes first; default: one that is not SPM, with the fewest "
        "virtual machines",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="also hosts that need nothing, for example to update the package",
    )
    parser.add_argument(
        "--reboot",
        choices=("auto", "yes", "no"),
        default="auto",
        help="let a reinstall restart the host at its end; auto, the default: where "
        "the plan of the host has a step for it, or the plan is unknown",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="end the open task of another run that has been abandoned",
    )
    add_data_center(parser)
    add_batch(parser)
    add_change_options(parser)
    add_host_access(parser)
