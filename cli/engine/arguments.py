# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments of ``login``, ``hosts``, ``policy``, ``gate`` and ``network``.

It also has the options that several verbs of ``ovirt-rdma`` share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ovirt_rdma.cli.parser import Parser, add_verbs, define_verb, file_name

# The largest number of hosts to process in parallel.
MOST_AT_ONCE = 100


def define_engine_verb(
    parser: Parser,
    verb: str,
    *,
    codes: str,
    examples: Sequence[str],
    more: str = "",
) -> None:
    """Make ``parser`` the parser of ``verb``, which needs an engine."""
    define_verb(parser, verb, codes=codes, examples=examples, more=more, on_host=False)
    group = parser.add_argument_group("engine")
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
    group.add_argument(
        "--engine-url", metavar="URL", help="its URL or name; or set OVIRT_URL"
    )
    group.add_argument(
        "--username",
        metavar="USER",
        help="for example admin@internal, or admin@ovirt@internalsso with Keycloak; or "
        "set OVIRT_USERNAME",
    )
    group.add_argument(
        "--password-file",
        metavar="FILE",
        type=file_name,
        help="its first line is the password; or set OVIRT_PASSWORD; default: ask",
    )
    group.add_argument(
        "--ca-file",
        metavar="FILE",
        type=file_name,
        help="the CA of the engine's certificate; or set OVIRT_CAFILE",
    )


def add_change_options(parser: Parser) -> None:
    """Add the options of verbs that change something."""
    parser.add_argument(
        "-n",
        "--dry-run",
        action="store_true",
        help="change nothing; show the requests that would be sent",
    )
    parser.add_argument(
        "-y", "--assume-yes", action="store_true", help="do not ask for confirmation"
    )
    parser.add_argument(
        "--no-job", action="store_true", help="create no job in the engine"
    )


def add_host_access(parser: Parser) -> None:
    """Add the options for host access: over SSH, or from a folder of reports."""
    group = parser.add_argument_group("host access")
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
        help="an Ansible inventory with the differences from the defaults",
    )
    group.add_argument(
        "--ssh-key",
        metavar="FILE",
        type=file_name,
        help="a private key; default, for root on the engine machine: the engine's",
    )
    group.add_argument(
        "--ssh-user", metavar="USER", help="the user for SSH; default: root"
    )


def add_data_center(parser: Parser, *, required: bool = False) -> None:
    """Add ``--datacenter``."""
    parser.add_argument(
        "--datacenter",
        metavar="NAME",
        required=required,
        help="the data center"
        if required
        else "only this data center; needed if a name exists in several",
    )


def add_batch(parser: Parser) -> None:
    """Add ``--batch``."""
    parser.add_argument(
        "--batch",
        metavar="N",
        type=_batch,
        default=1,
        help="number of hosts to process in parallel; default: 1",
    )


def comma_list(text: str) -> tuple[str, ...]:
    """Return the names in ``a,b``; an argparse type that refuses an empty one."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


def _batch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number of hosts")
    if not 1 <= int(text) <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(
            f"{text} is out of range, 1 to {MOST_AT_ONCE} hosts"
        )
    return int(text)


def login(parser: Parser) -> None:
    """Define ``login``."""
    define_engine_verb(
        parser,
        "engine.login:login",
        codes="0 logged in and settings written, 1 failed, 4 declined",
        examples=(
            "--engine-url engine.example.com --username admin@internal --fetch-ca",
            "-c prod --password-file pw --save-password",
        ),
        more="Tests the engine's health page and the login, then writes a section of\n"
        "the settings file, without the password. Writes nothing if a test\n"
        "fails.",
    )
    parser.add_argument(
        "--fetch-ca",
        action="store_true",
        help="fetch the CA from the engine, and ask you to confirm its fingerprint",
    )
    parser.add_argument(
        "--fingerprint",
        metavar="SHA256",
        help="the CA's fingerprint, as 'openssl x509 -fingerprint -sha256' shows it, "
        "in place of the question",
    )
    parser.add_argument(
        "--save-password", action="store_true", help="write the password too"
    )


def hosts(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("list", "list the hosts, with their hooks and IPoIB NICs", _hosts_list)
    group.add("check", "check hosts, and show the results in one table", _check)
    group.add(
        "prepare",
        "install and set up the add-on on hosts, one batch after the other",
        "engine.prepare.arguments:prepare",
    )


def policy(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("push", "send a policy to hosts and load it there", _push)
    group.add("diff", "compare a policy with those of the hosts", _diff)


def gate(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add(
        "status",
        "show what the cluster feature NFS_RDMA needs, and what is set up",
        _gate,
    )


def _hosts_list(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.hosts:show",
        codes="0 listed, 1 failed",
        examples=("", "--datacenter dc1 -o json"),
    )
    add_data_center(parser)


def _check(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.hosts:check",
        codes="0 no check failed, 1 failed, 3 a check failed or is unknown",
        examples=("", "hv1 hv2", "--facts-dir dumps --policy policy.yaml", "--events"),
        more="The engine's view of a host and the host's own report are shown\n"
        "separately.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="hosts; default: all")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="the policy that hosts should have; default: that of this machine or, "
        "without one, that of most hosts",
    )
    parser.add_argument(
        "--events",
        action="store_true",
        help="also write an event of the engine for each host with a failed check, "
        "at most one a day for the same failure; for a timer",
    )
    add_data_center(parser)
    add_host_access(parser)


def _push(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.policy:push",
        codes="0 loaded on all hosts, 1 failed, 4 refused or declined,\n"
        "5 done on some hosts, not on others",
        examples=("policy.yaml --hosts 'hv*'", "policy.yaml --hosts hv1 --dry-run"),
        more="The policy is validated here first. Each host then reports which\n"
        "policy it uses.",
    )
    parser.add_argument("file", metavar="FILE", type=file_name, help="the policy file")
    parser.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=comma_list,
        required=True,
        help="which hosts, by name",
    )
    add_data_center(parser)
    add_change_options(parser)
    add_host_access(parser)


def _diff(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.policy:diff",
        codes="0 all equal, 1 failed, 3 a host differs or is unknown",
        examples=("policy.yaml", "policy.yaml --hosts 'hv*' --diff"),
    )
    parser.add_argument("file", metavar="FILE", type=file_name, help="the policy file")
    parser.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=comma_list,
        help="which hosts, by name; default: all",
    )
    parser.add_argument(
        "--diff", action="store_true", help="also show the differences, line by line"
    )
    add_data_center(parser)
    add_host_access(parser)


def _gate(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.hosts:status",
        codes="0 shown, 1 failed",
        examples=("", "-o json"),
        more="Changes nothing; docs/gate.md describes how to set the feature.",
    )
    add_data_center(parser)


def network(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("create", "create a network for IPoIB in a data center", _create)
    group.add(
        "attach", "attach a network to NICs of hosts, with static addresses", _attach
    )


def _create(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.networks:create",
        codes="0 created, or exists already, 1 failed, 3 checks failed,\n"
        "4 declined, 6 failed, and rolled back",
        examples=(
            "storage --datacenter dc1 --mtu auto",
            "storage --datacenter dc1 --mtu 2044 --clusters cl1,cl2",
        ),
        more="The network is not for virtual machines, because InfiniBand has no\n"
        "bridges. It is not required in its clusters, because hosts without it\n"
        "would become non-operational.",
    )
    parser.add_argument("name", metavar="NAME", help="the new network's name")
    add_data_center(parser, required=True)
    parser.add_argument(
        "--mtu",
        type=_mtu,
        default="auto",
        metavar="auto|N",
        help="in bytes, or auto, the default: the largest MTU that the ports of all "
        "hosts support",
    )
    parser.add_argument(
        "--clusters",
        metavar="NAME,...",
        type=comma_list,
        help="the clusters; default: all of the data center",
    )
    parser.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=comma_list,
        default=(),
        help="hosts whose ports must support the MTU; default: all of the clusters",
    )
    parser.add_argument(
        "--nic-match",
        metavar="MATCH",
        help="which of their ports, as for network attach; default: all IPoIB "
        "netdevs but P_Key children",
    )
    parser.add_argument(
        "--migration", action="store_true", help="give it the migration role"
    )
    parser.add_argument(
        "--required-later",
        action="store_true",
        help="make it required in each cluster whose hosts all have it; run the "
        "command again with this option after network attach",
    )
    add_change_options(parser)
    add_host_access(parser)


def _attach(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.networks:attach",
        codes="0 attached, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 declined, 5 done on some hosts, not on others, 6 failed, and rolled back",
        examples=(
            "storage --hosts 'hv*' --nic-match 'ib0' --addresses 10.20.0.11/24",
            "storage --hosts hv1,hv2 --nic-match ib0 --addresses plan.yaml --dry-run",
        ),
        more="Each host is verified: the network must be in sync, with exactly the\n"
        "requested MTU. If it is not, the host is rolled back and no more hosts\n"
        "are started.",
    )
    parser.add_argument("name", metavar="NAME", help="the network's name")
    parser.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=comma_list,
        required=True,
        help="which hosts, by name",
    )
    parser.add_argument(
        "--nic-match",
        metavar="MATCH",
        required=True,
        help="the NIC of each host: a name or glob, a port GUID or a PCI address; "
        "several with commas",
    )
    parser.add_argument(
        "--addresses",
        metavar="PLAN.yaml|RANGE",
        required=True,
        help="a YAML file with one line HOST: ADDRESS/PREFIX per host, or a range "
        "that is counted in host order: 10.0.0.11-10.0.0.60/24, 10.0.0.11/24 or "
        "10.0.0.0/24",
    )
    parser.add_argument(
        "--bond",
        choices=("active-backup",),
        help="bond the NICs that match, or use their existing bond",
    )
    parser.add_argument(
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_property,
        help="a custom property, as ipoib_mode=connected; may be given several times",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="continue with the next hosts if one failed",
    )
    parser.add_argument(
        "--connectivity-timeout",
        metavar="S",
        type=_connectivity,
        default=120,
        help="a host that loses its connection rolls back by itself after S seconds "
        "(1 to 120); default: 120",
    )
    add_data_center(parser)
    add_batch(parser)
    add_change_options(parser)
    add_host_access(parser)


def _mtu(text: str) -> str:
    if text == "auto":
        return text
    if not text.isascii() or not text.isdigit() or not 68 <= int(text[:9]) <= 65520:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is neither auto nor an MTU")
    return text


def _connectivity(text: str) -> int:
    # NetworkConnectivityCheckTimeoutInSeconds and the engine's range for it.
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 120:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not 1 to 120 seconds")
    return int(text)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
