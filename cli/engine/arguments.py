# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments of ``ovirt-rdma``: common options, login, hosts, policy, gate, network.

Options that several verbs of ``ovirt-rdma`` take.

The words of ``login``, ``hosts``, ``policy`` and ``gate``.

The words of ``network``: logical networks over IPoIB.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ovirt_rdma.cli.parser import Parser, add_verbs, be_verb, file_name

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


def login(made: Parser) -> None:
    """Say what ``login`` takes."""
    be_engine_verb(
        made,
        "engine.login:login",
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
        "engine.hosts:show",
        codes="0 listed, 1 failed",
        examples=("", "--datacenter dc1 -o json"),
    )
    data_center(made)


def _check(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.hosts:check",
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
        "engine.policy:push",
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
        "engine.policy:diff",
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
        "engine.hosts:status",
        codes="0 shown, 1 failed",
        examples=("", "-o json"),
        more="Changes nothing; docs/gate.md tells how the feature is set.",
    )
    data_center(made)


def network(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("create", "create a network for IPoIB in a data center", _create)
    group.add("attach", "attach it to hosts' nics, with static addresses", _attach)


def _create(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.networks:create",
        codes="0 there, 1 failed, 3 checks failed, 4 declined,\n"
        "6 failed, and taken back",
        examples=(
            "storage --datacenter dc1 --mtu auto",
            "storage --datacenter dc1 --mtu 2044 --clusters cl1,cl2",
        ),
        more="No network of virtual machines: InfiniBand has no bridges. Not required\n"
        "in its clusters, or hosts without it would go down.",
    )
    made.add_argument("name", metavar="NAME", help="the new network's name")
    data_center(made, required=True)
    made.add_argument(
        "--mtu",
        type=_mtu,
        default="auto",
        metavar="auto|N",
        help="auto: the largest that the hosts' ports can do; default: auto",
    )
    made.add_argument(
        "--clusters",
        metavar="NAME,...",
        type=words_between_commas,
        help="default: all of the data center",
    )
    made.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=words_between_commas,
        default=(),
        help="whose ports the MTU is to suit; default: all hosts of the clusters",
    )
    made.add_argument(
        "--nic-match",
        metavar="MATCH",
        help="which ports: as network attach; default: all IPoIB netdevs but children",
    )
    made.add_argument(
        "--migration", action="store_true", help="migrate virtual machines over it"
    )
    made.add_argument(
        "--required-later",
        action="store_true",
        help="make it required in each cluster all of whose hosts have it by now;\n"
        "run it again with this after network attach",
    )
    acts(made)
    asks_hosts(made)


def _attach(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.networks:attach",
        codes="0 attached, or nothing to do, 1 failed, 3 checks failed, 4 declined,\n"
        "5 some hosts done, some not, 6 none done, and all as before",
        examples=(
            "storage --hosts 'hv*' --nic-match 'ib0' --addresses 10.20.0.11/24",
            "storage --hosts hv1,hv2 --nic-match ib0 --addresses plan.yaml --dry-run",
        ),
        more="Each host is verified after it: the network has to be in sync, the MTU\n"
        "to the byte. One where it is not is set back to what it had, and no more\n"
        "hosts are begun.",
    )
    made.add_argument("name", metavar="NAME", help="a network's name")
    made.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=words_between_commas,
        required=True,
        help="hosts by name",
    )
    made.add_argument(
        "--nic-match",
        metavar="MATCH",
        required=True,
        help="which nic of each host: name or glob, port GUID, or PCI address;\n"
        "several with commas",
    )
    made.add_argument(
        "--addresses",
        metavar="PLAN.yaml|RANGE",
        required=True,
        help="a file of lines HOST: ADDRESS/PREFIX, or a range that is counted in\n"
        "host order: 10.0.0.11-10.0.0.60/24, 10.0.0.11/24 or 10.0.0.0/24",
    )
    made.add_argument(
        "--bond",
        choices=("active-backup",),
        help="make a bond of the nics that match, or use the one that they are in",
    )
    made.add_argument(
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_property,
        help="a custom property, as ipoib_mode=connected; may be given again",
    )
    made.add_argument(
        "--keep-going",
        action="store_true",
        help="go on with the next hosts where one failed",
    )
    made.add_argument(
        "--connectivity-timeout",
        metavar="S",
        type=_connectivity,
        default=120,
        help="a host that is cut off goes back by itself after S seconds; default: 120",
    )
    data_center(made)
    batch(made)
    acts(made)
    asks_hosts(made)


def _mtu(text: str) -> str:
    if text == "auto":
        return text
    if not text.isascii() or not text.isdigit() or not 68 <= int(text[:9]) <= 65520:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is neither auto nor an MTU")
    return text


def _connectivity(text: str) -> int:
    # NetworkConnectivityCheckTimeoutInSeconds and the engine's range for it.
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 120:
        raise argparse.ArgumentTypeError(f"it takes 1 to 120 seconds, not {text[:20]}")
    return int(text)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
