# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments of ``domain``: storage domains and their transport."""

from __future__ import annotations

from ovirt_rdma.cli.engine.arguments import (
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
    define_engine_verb,
)
from ovirt_rdma.cli.parser import Parser, add_verbs

_NFS_VERSIONS = ("3", "4", "4.0", "4.1", "4.2")
_OTHER_RUN = "75 another run is changing this data center"


def domain(parser: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(parser)
    group.add("list", "list the file storage domains, with their transport", _list)
    group.add("create", "create an NFS domain, by default over RDMA", _create)
    group.add("convert", "convert a domain to RDMA, or back to TCP", _convert)
    group.add("revert", "undo a conversion, complete or incomplete", _revert)
    group.add("heal", "remount domains on hosts that fell back to TCP", _heal)
    group.add("verify", "verify the transport of each domain on each host", _verify)


def _list(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.domains:show",
        codes="0 listed, 1 failed",
        examples=("", "--datacenter dc1 -o json", "--facts-dir dumps"),
    )
    add_data_center(parser)
    add_host_access(parser)


def _create(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.domains:create",
        codes="0 active, 1 failed, 3 checks failed, 4 declined,\n"
        "5 active, but some hosts have another transport, 6 failed, and rolled back",
        examples=(
            "data2 --export nas1:/exports/data2 --datacenter dc1",
            "data2 --export nas1:/exports/data2 --datacenter dc1 --dry-run",
        ),
        more="Checks first; then creates, attaches and activates the domain, and\n"
        "verifies its transport if hosts can be asked.",
    )
    parser.add_argument("name", metavar="NAME", help="the new domain's name")
    parser.add_argument(
        "--export", metavar="SERVER:/PATH", required=True, help="the export"
    )
    add_data_center(parser, required=True)
    parser.add_argument(
        "--nfs-version",
        choices=_NFS_VERSIONS,
        default="4.2",
        help="always sent to the engine; default: 4.2",
    )
    parser.add_argument(
        "--transport",
        choices=("rdma", "tcp"),
        default="rdma",
        help="of the mounts; default: rdma",
    )
    parser.add_argument(
        "--host",
        metavar="NAME",
        help="the host that creates the domain; default: one that is up",
    )
    parser.add_argument(
        "--mount-options",
        metavar="OPTIONS",
        default="",
        help="additional mount options, without those of the transport",
    )
    add_change_options(parser)
    add_host_access(parser)


def _convert(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.conversion:convert",
        codes="0 converted, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 done on some hosts, not on others,\n"
        f"6 failed, and rolled back, {_OTHER_RUN}",
        examples=(
            "data1 --to rdma --rolling",
            "data1 data2 --to rdma --rolling --dry-run",
            "data1 --to tcp",
        ),
        more="Without --rolling the domain is down during the conversion, and no\n"
        "running virtual machine may use it. With --rolling, hosts go through\n"
        "maintenance one by one while virtual machines run. The same command\n"
        "resumes a conversion that was interrupted. Domains of one server that\n"
        "have the same NFS 4 minor version share one connection of the kernel\n"
        "and must be converted together.",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="a domain's name")
    parser.add_argument(
        "--to", choices=("rdma", "tcp"), required=True, help="the transport"
    )
    parser.add_argument(
        "--rolling", action="store_true", help="host by host, while VMs run"
    )
    parser.add_argument(
        "--engine-options",
        action="store_true",
        help="use the engine's mount options only, for hosts without the add-on",
    )
    add_batch(parser)
    parser.add_argument(
        "--policy-rule",
        choices=("require-rdma", "prefer-rdma"),
        default="require-rdma",
        help="transport of the rule in the hosts' policy; default: require-rdma",
    )
    parser.add_argument(
        "--allow-datacenter-down",
        action="store_true",
        help="convert even if no other data domain is active, or with --rolling no "
        "other host is up",
    )
    parser.add_argument(
        "--without",
        metavar="HOST",
        action="append",
        default=[],
        help="leave out this host, for example because it is down; may be given "
        "several times",
    )
    _take_over(parser)
    add_data_center(parser)
    add_change_options(parser)
    add_host_access(parser)


def _revert(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.conversion:revert",
        codes="0 reverted, 1 failed, 4 refused or declined,\n"
        f"5 done on some hosts, not on others, {_OTHER_RUN}",
        examples=("data1", "data1 --dry-run"),
        more="Restores the storage connection and the hosts' policies that convert\n"
        "recorded.",
    )
    parser.add_argument("name", metavar="NAME", help="a domain's name")
    add_batch(parser)
    _take_over(parser)
    add_data_center(parser)
    add_change_options(parser)
    add_host_access(parser)


def _heal(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.conversion:heal",
        codes="0 healed, or nothing to do, 1 failed,\n"
        "3 a host cannot be healed, or is unknown, 4 refused or declined,\n"
        f"5 done on some hosts, not on others, {_OTHER_RUN}",
        examples=("", "data1 --batch 2"),
        more="Hosts on which a mount has fallen back to TCP go through maintenance\n"
        "and activation, the SPM last, and are verified.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these domains")
    add_batch(parser)
    _take_over(parser)
    add_data_center(parser)
    add_change_options(parser)
    add_host_access(parser)


def _take_over(parser: Parser) -> None:
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="end the open job of another run in the engine, and start; a run that "
        "is still alive stops before its next change",
    )


def _verify(parser: Parser) -> None:
    define_engine_verb(
        parser,
        "engine.domains:verify",
        codes="0 all as requested, 1 failed,\n"
        "3 a mount is not as requested, or unknown",
        examples=("", "data1 data2", "--facts-dir dumps -o json"),
        more="Asks the kernel of each host. A host that does not answer is unknown.",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="domains; default: all NFS domains"
    )
    add_data_center(parser)
    add_host_access(parser)
