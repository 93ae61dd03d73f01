# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several verbs of ``ovirt-rdma`` take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ovirt_rdma.cli.words import Parser, be_verb, file_name

# Most hosts that one step takes on at a time.
MOST_AT_ONCE = 100


def be_engine_verb(
    made: Parser,
    verb: str,
    *,
    codes: str,
    examples: Sequence[str],
    more: str = "",
) -> None:
    """Make ``made`` the parser of ``verb``, which asks an engine. As be_verb."""
    be_verb(made, verb, codes=codes, examples=examples, more=more, on_host=False)
    group = made.add_argument_group("which engine")
    group.add_argument(
        "-c",
        "--config",
        metavar="SECTION",
        help="a section of the settings file; default: its section [default]",
    )
    group.add_argument(
        "--config-file",
        metavar="FILE",
        type=file_name,
        help="the settings file; default: ~/.config/ovirt-rdma.conf",
    )
    group.add_argument("--engine-url", metavar="URL", help="or set OVIRT_URL")
    group.add_argument(
        "--username", metavar="USER", help="as admin@internal; or set OVIRT_USERNAME"
    )
    group.add_argument(
        "--password-file",
        metavar="FILE",
        type=file_name,
        help="its first line is the password; or set OVIRT_PASSWORD, or be asked",
    )
    group.add_argument(
        "--ca-file",
        metavar="FILE",
        type=file_name,
        help="the CA of the engine's certificate; or set OVIRT_CAFILE",
    )


def acts(made: Parser) -> None:
    """Let a verb that changes something show it first, and be run by programs."""
    made.add_argument(
        "-n",
        "--dry-run",
        action="store_true",
        help="change nothing; show the calls that would be made",
    )
    made.add_argument(
        "-y", "--assume-yes", action="store_true", help="do not ask before it begins"
    )
    made.add_argument(
        "--no-job", action="store_true", help="do not appear among the engine's tasks"
    )


def asks_hosts(made: Parser) -> None:
    """Let a verb know hosts: over SSH, or from a folder of what they printed."""
    group = made.add_argument_group("how to know the hosts")
    group.add_argument(
        "--facts-dir",
        metavar="DIR",
        type=file_name,
        help="read HOST.facts.json, HOST.status.json and HOST.policy.yaml from here",
    )
    group.add_argument(
        "--inventory",
        metavar="FILE",
        type=file_name,
        help="an Ansible inventory with what differs from the defaults",
    )
    group.add_argument(
        "--ssh-key",
        metavar="FILE",
        type=file_name,
        help="a private key; default, for root on the engine machine: the engine's",
    )
    group.add_argument("--ssh-user", metavar="USER", help="default: root")


def data_center(made: Parser, *, required: bool = False) -> None:
    """Let a verb be told the data center."""
    made.add_argument(
        "--datacenter",
        metavar="NAME",
        required=required,
        help="the data center" if required else "where a name is in several of them",
    )


def batch(made: Parser) -> None:
    """Let a verb take several hosts at a time."""
    made.add_argument(
        "--batch",
        metavar="N",
        type=_batch,
        default=1,
        help="so many hosts at a time; default: 1",
    )


def words_between_commas(text: str) -> tuple[str, ...]:
    """Return ``a,b`` as words; an argparse type that refuses an empty one."""
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return words


def _batch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of hosts")
    if not 1 <= int(text) <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"it takes 1 to {MOST_AT_ONCE} hosts")
    return int(text)
