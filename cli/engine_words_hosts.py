# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``login``, ``hosts``, ``policy`` and ``gate``."""

from __future__ import annotations

from ovirt_rdma.cli.engine_options import (
    acts,
    asks_hosts,
    be_engine_verb,
    data_center,
    words_between_commas,
)
from ovirt_rdma.cli.words import Parser, add_verbs, file_name


def login(made: Parser) -> None:
    """Say what ``login`` takes."""
    be_engine_verb(
        made,
        "login_verb:login",
        codes="0 logged in, and the settings written, 1 failed, 4 declined",
        examples=(
            "--engine-url engine.example.com --username admin@internal --fetch-ca",
            "-c prod --password-file pw --save-password",
        ),
        more="Tries the engine's health page and the login, then writes a section of\n"
        "the settings file, without the password.",
    )
    made.add_argument(
        "--fetch-ca",
        action="store_true",
        help="get the engine's CA from the engine; you confirm its fingerprint",
    )
    made.add_argument(
        "--fingerprint",
        metavar="SHA256",
        help="the CA's, as 'openssl x509 -fingerprint -sha256' shows it: do not ask",
    )
    made.add_argument(
        "--save-password", action="store_true", help="write the password too"
    )


def hosts(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("list", "list the hosts, with what they have of RDMA", _hosts_list)
    group.add("check", "say in one table what is right and wrong on hosts", _check)


def policy(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("push", "send a policy to hosts, and load it there", _push)
    group.add("diff", "compare a policy with those of the hosts", _diff)


def gate(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add(
        "status", "show what the cluster feature NFS_RDMA needs, and is set", _gate
    )


def _hosts_list(made: Parser) -> None:
    be_engine_verb(
        made,
        "hosts_verbs:show",
        codes="0 listed, 1 failed",
        examples=("", "--datacenter dc1 -o json"),
    )
    data_center(made)


def _check(made: Parser) -> None:
    be_engine_verb(
        made,
        "hosts_verbs:check",
        codes="0 nothing failed, 1 failed, 3 a check failed, or is unknown",
        examples=("", "hv1 hv2", "--facts-dir dumps --policy policy.yaml"),
        more="What the engine says of a host and what the host says are apart.",
    )
    made.add_argument("names", metavar="NAME", nargs="*", help="hosts; default: all")
    made.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="the policy that hosts should have; default: the one of this machine",
    )
    data_center(made)
    asks_hosts(made)


def _push(made: Parser) -> None:
    be_engine_verb(
        made,
        "policy_fleet_verbs:push",
        codes="0 in force on all, 1 failed, 4 refused or declined,\n"
        "5 some hosts done, some not",
        examples=("policy.yaml --hosts 'hv*'", "policy.yaml --hosts hv1 --dry-run"),
        more="Checked here first; each host says after it which policy it follows.",
    )
    made.add_argument("file", metavar="FILE", type=file_name, help="the policy file")
    made.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=words_between_commas,
        required=True,
        help="hosts by name",
    )
    data_center(made)
    acts(made)
    asks_hosts(made)


def _diff(made: Parser) -> None:
    be_engine_verb(
        made,
        "policy_fleet_verbs:diff",
        codes="0 all the same, 1 failed, 3 a host differs, or is unknown",
        examples=("policy.yaml", "policy.yaml --hosts 'hv*' --diff"),
    )
    made.add_argument("file", metavar="FILE", type=file_name, help="the policy file")
    made.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=words_between_commas,
        help="hosts by name; default: all",
    )
    made.add_argument(
        "--diff", action="store_true", help="also show what differs, line by line"
    )
    data_center(made)
    asks_hosts(made)


def _gate(made: Parser) -> None:
    be_engine_verb(
        made,
        "gate_verb:status",
        codes="0 shown, 1 failed",
        examples=("", "-o json"),
        more="Changes nothing; docs/gate.md tells how the feature is set.",
    )
    data_center(made)
