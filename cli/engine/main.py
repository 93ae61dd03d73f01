# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma``: parse the command line, and call the verb that it names.

Verbs, and with them the engine's SDK, are imported when the command line names them;
the help of the command and of its groups needs none of them. Arguments that several
verbs share are here too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Optional, Union

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.parser import (
    Approval,
    Parser,
    Table,
    Verb,
    add_assume_yes,
    add_verbs,
    end_of_help,
    file_name,
    number,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess
from ovirt_rdma.host import __version__
from ovirt_rdma.host.errors import ExitCode
from ovirt_rdma.host.facts.infiniband import FIRST_VLAN, LAST_VLAN, partition_of

# The largest number of hosts to process in parallel.
MOST_AT_ONCE = 100


class EngineVerb(Verb):
    """A verb that needs an engine, with the options that name it.

    With -o json|yaml, it ``streams`` its messages and progress to stderr as objects of
    JSON, unless that is a terminal.
    """

    streams = True

    config: Optional[str]
    config_file: Optional[str]
    engine_url: Optional[str]
    username: Optional[str]
    password_file: Optional[str]
    ca_file: Optional[str]

    @classmethod
    def add_common(cls, parser: Parser) -> None:
        """Add the options of the engine."""
        add = parser.add_group("engine")
        add(
            "-c",
            "--config",
            metavar="SECTION",
            help="a section of the settings file; default: its section [default]",
        )
        add(
            "--config-file",
            metavar="FILE",
            type=file_name,
            help="the settings file; default: ~/.config/ovirt-rdma.conf",
        )
        add("--engine-url", metavar="URL", help="its URL or name; or set OVIRT_URL")
        add(
            "--username",
            metavar="USER",
            help="for example admin@internal, or admin@ovirt@internalsso with "
            "Keycloak; or set OVIRT_USERNAME",
        )
        add(
            "--password-file",
            metavar="FILE",
            type=file_name,
            help="its first line is the password; or set OVIRT_PASSWORD; default: ask",
        )
        add(
            "--ca-file",
            metavar="FILE",
            type=file_name,
            help="the CA of the engine's certificate; or set OVIRT_CAFILE",
        )


class ChangeOptions(Approval):
    """The values of :func:`add_change_options`."""

    changes = True
    dry_run: bool
    no_job: bool


def add_change_options(parser: Parser) -> None:
    """Add the options of verbs that change something."""
    parser.add_argument(
        "-n",
        "--dry-run",
        action="store_true",
        help="change nothing; show the requests that would be sent",
    )
    add_assume_yes(parser)
    parser.add_argument(
        "--no-job", action="store_true", help="create no job in the engine"
    )


class AccessOptions:
    """The values of :func:`add_host_access`."""

    facts_dir: Optional[str]
    inventory: Optional[str]
    ssh_key: Optional[str]
    ssh_user: Optional[str]


def add_host_access(parser: Parser) -> None:
    """Add the options for host access: over SSH, or from a folder of reports."""
    add = parser.add_group("host access")
    add(
        "--facts-dir",
        metavar="DIR",
        type=file_name,
        help="read HOST.facts.json, HOST.status.json and HOST.policy.yaml from here",
    )
    add(
        "--inventory",
        metavar="FILE",
        type=file_name,
        help="an Ansible inventory with the differences from the defaults",
    )
    add(
        "--ssh-key",
        metavar="FILE",
        type=file_name,
        help="a private key; default, for root on the engine machine: the engine's",
    )
    add("--ssh-user", metavar="USER", help="the user for SSH; default: root")


def add_data_center(parser: Parser, *, required: bool = False) -> None:
    """Add ``--datacenter``."""
    what = "the data center"
    if not required:
        what = "only this data center; needed if a name exists in several"
    parser.add_argument("--datacenter", metavar="NAME", required=required, help=what)


def add_policy(parser: Parser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        type=file_name,
        help="the policy that hosts should have; default: that of this machine or, "
        "without one, that of most hosts",
    )


def add_hosts(parser: Parser, *, required: bool = True) -> None:
    """Add ``--hosts``."""
    parser.add_argument(
        "--hosts",
        metavar="GLOB,...",
        type=comma_list,
        required=required,
        help="which hosts, by name"
        if required
        else "which hosts, by name; default: all",
    )


def add_batch(parser: Parser) -> None:
    """Add ``--batch``."""
    parser.add_argument(
        "--batch",
        metavar="N",
        type=number(1, MOST_AT_ONCE),
        default=1,
        help="number of hosts to process in parallel; default: 1",
    )


class ChangesDomains(EngineVerb, AccessOptions, ChangeOptions):
    """A verb that changes the transport of domains, host by host."""

    batch: int
    datacenter: Optional[str]
    take_over: bool

    @classmethod
    def add_shared(cls, parser: Parser) -> None:
        """Add what these verbs share, without --batch."""
        parser.add_argument(
            "--take-over",
            action="store_true",
            help="end the open job of another run in the engine, and start; a run that "
            "is still alive stops before its next change",
        )
        add_data_center(parser)
        add_change_options(parser)
        add_host_access(parser)


def comma_list(text: str) -> tuple[str, ...]:
    """Return the names in ``a,b``; an argparse type that refuses an empty one."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


def mtu(text: str) -> Union[str, int]:
    """Return ``auto`` or an MTU; for argparse."""
    return text if text == "auto" else number(68, 65520)(text)


def add_nic_match(parser: Parser, *, default: str) -> None:
    """Add the options that choose NICs; ``default`` ends the help of the first."""
    parser.add_argument(
        "--nic-match",
        metavar="MATCH",
        help="the NIC of each host: a name or glob, a port GUID, a PCI address, or "
        "conditions that must all hold, as link_layer=InfiniBand,port=1; several with "
        f"commas{default}",
    )
    parser.add_argument(
        "--pkey",
        metavar="P_KEY|vlan=N",
        type=pkey_condition,
        help="the P_Key child of this partition, as 0x8064, or vlan=100 for the "
        "partition 0x8000 + VLAN; with --nic-match, among the NICs that match",
    )


def nic_match(given: Optional[str], pkey: Optional[str]) -> Optional[str]:
    """Return one text of the options --nic-match and --pkey; None without both."""
    return ",".join(text for text in (given, pkey) if text is not None) or given


def pkey_condition(text: str) -> str:
    """Return ``pkey=0x8064`` or ``pkey_vlan=100``; for argparse."""
    word, _, vlan = text.partition("=")
    if word == "vlan" and vlan.isascii() and vlan.isdigit():
        if FIRST_VLAN <= int(vlan[:9]) <= LAST_VLAN:
            return f"pkey_vlan={int(vlan)}"
    elif partition_of(text) is not None:
        return f"pkey={text}"
    raise argparse.ArgumentTypeError(
        f"{text[:20]!r} is neither a P_Key, as 0x8064, nor a VLAN, as vlan=100"
    )


PROGRAM = "ovirt-rdma"
EXIT_CODES = tuple(ExitCode)

_DOMAIN: Table = (
    ("list", "list the file storage domains", "engine.domains.ListDomains"),
    ("create", "create an NFS domain, by default over RDMA", "engine.domains.Create"),
    ("convert", "convert a domain to RDMA, or back to TCP", "engine.domains.Convert"),
    ("revert", "undo a conversion, complete or incomplete", "engine.domains.Revert"),
    ("heal", "remount domains on hosts that fell back to TCP", "engine.domains.Heal"),
    (
        "verify",
        "verify the transport of each domain on each host",
        "engine.domains.Verify",
    ),
)
_NETWORK: Table = (
    ("create", "create a network for IPoIB in a data center", "engine.networks.Create"),
    (
        "attach",
        "attach a network to NICs of hosts, with static addresses",
        "engine.networks.Attach",
    ),
)
_HOSTS: Table = (
    (
        "list",
        "list the hosts, with their hooks and IPoIB NICs",
        "engine.hosts.ListHosts",
    ),
    ("check", "check hosts, and show the results in one table", "engine.hosts.Check"),
    (
        "prepare",
        "install and set up the add-on on hosts, one batch after the other",
        "engine.hosts.Prepare",
    ),
)
_DEPLOY_HOOK: Table = (
    (
        "install",
        "let the engine prepare each host that it installs",
        "engine.deploy_hook.Install",
    ),
    ("remove", "remove our block from the engine's file", "engine.deploy_hook.Remove"),
    (
        "status",
        "show whether the block is installed and can run",
        "engine.deploy_hook.Status",
    ),
)
_POLICY: Table = (
    ("push", "send a policy to hosts and load it there", "engine.policy.Push"),
    ("diff", "compare a policy with those of the hosts", "engine.policy.Diff"),
)
_VERBS: Table = (
    ("login", "set up and test the connection to an engine", "engine.login.Login"),
    ("domain", "list, create, convert and verify storage domains", _DOMAIN),
    ("network", "create and attach IPoIB networks", _NETWORK),
    ("hosts", "list and check hosts", _HOSTS),
    ("deploy-hook", "let the engine prepare each host that it installs", _DEPLOY_HOOK),
    ("policy", "send a policy to hosts, and compare it", _POLICY),
    (
        "report",
        "write a page about hosts, domains and their fabric",
        "engine.report.MakeReport",
    ),
)


def parser(arguments: Optional[Sequence[str]] = None) -> Parser:
    """Return the parser of the verbs that ``arguments`` name; without, of all verbs."""
    top = Parser(
        prog=PROGRAM,
        description="Use RDMA for storage and networks of hosts of an oVirt engine.",
        epilog=end_of_help(PROGRAM, EXIT_CODES),
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add_verbs(top, _VERBS, arguments)
    return top


def main(
    arguments: Optional[Sequence[str]] = None, access: Optional[HostAccess] = None
) -> int:
    """Run the command and return its exit code.

    ``access`` is the host access to use in place of the one that the arguments name.
    """
    return run_command(PROGRAM, parser, arguments, access)


if __name__ == "__main__":
    sys.exit(main())
