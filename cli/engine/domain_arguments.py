# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``domain``: storage domains and their transport."""

from __future__ import annotations

from ovirt_rdma.cli.engine.arguments import (
    acts,
    asks_hosts,
    batch,
    be_engine_verb,
    data_center,
)
from ovirt_rdma.cli.parser import Parser, add_verbs

_NFS_VERSIONS = ("3", "4", "4.0", "4.1", "4.2")
_ACTS = "1 failed, 4 refused or declined"
_OTHER_RUN = "75 another run is changing this domain"


def domain(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("list", "list the storage domains on files, with their transport", _list)
    group.add("create", "create an NFS domain, over RDMA unless told else", _create)
    group.add("convert", "move a domain to RDMA, or back to TCP", _convert)
    group.add("revert", "take back a conversion, also half of one", _revert)
    group.add("heal", "mount again where a mount has the wrong transport", _heal)
    group.add("verify", "prove the transport of each domain on each host", _verify)


def _list(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.domains:show",
        codes="0 listed, 1 failed",
        examples=("", "--datacenter dc1 -o json", "--facts-dir dumps"),
    )
    data_center(made)
    asks_hosts(made)


def _create(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.domains:create",
        codes="0 active, 1 failed, 3 checks failed, 4 declined,\n"
        "5 active, and some hosts have another transport, 6 failed, and taken back",
        examples=(
            "data2 --export nas1:/exports/data2 --datacenter dc1",
            "data2 --export nas1:/exports/data2 --datacenter dc1 --dry-run",
        ),
        more="Checks first; then creates, attaches and activates the domain, and\n"
        "proves its transport where hosts can be asked.",
    )
    made.add_argument("name", metavar="NAME", help="the new domain's name")
    made.add_argument(
        "--export", metavar="SERVER:/PATH", required=True, help="what is mounted"
    )
    data_center(made, required=True)
    made.add_argument(
        "--nfs-version",
        choices=_NFS_VERSIONS,
        default="4.2",
        help="always told to the engine; default: 4.2",
    )
    made.add_argument(
        "--transport", choices=("rdma", "tcp"), default="rdma", help="default: rdma"
    )
    made.add_argument(
        "--host",
        metavar="NAME",
        help="the host that creates it; default: one that is up",
    )
    made.add_argument(
        "--mount-options",
        metavar="OPTIONS",
        default="",
        help="more options for mount, beside those of the transport",
    )
    acts(made)
    asks_hosts(made)


def _convert(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.conversion:convert",
        codes="0 converted, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 some hosts done, some not,\n"
        f"6 failed, and taken back, {_OTHER_RUN}",
        examples=(
            "data1 --to rdma --rolling",
            "data1 data2 --to rdma --rolling --dry-run",
            "data1 --to tcp",
        ),
        more="Without --rolling the domain is down meanwhile: no virtual machine may\n"
        "use it. With it, hosts go through maintenance one by one, and machines stay\n"
        "up. What was interrupted goes on when the same is asked again.\n"
        "Domains of one server that have the same NFS version 4.x share the kernel's\n"
        "one connection to it: convert them together.",
    )
    made.add_argument("names", metavar="NAME", nargs="+", help="a domain's name")
    made.add_argument(
        "--to", choices=("rdma", "tcp"), required=True, help="the transport"
    )
    made.add_argument(
        "--rolling", action="store_true", help="host by host, while machines run"
    )
    made.add_argument(
        "--engine-options",
        action="store_true",
        help="by the engine's mount options alone: for hosts without the add-on",
    )
    batch(made)
    made.add_argument(
        "--policy-rule",
        choices=("require-rdma", "prefer-rdma"),
        default="require-rdma",
        help="what the policy on hosts is to say; default: require-rdma",
    )
    made.add_argument(
        "--allow-datacenter-down",
        action="store_true",
        help="also where no other domain is active, or with --rolling no other host",
    )
    made.add_argument(
        "--without",
        metavar="HOST",
        action="append",
        default=[],
        help="leave this host as it is, for example one that is down; may be repeated",
    )
    _take_over(made)
    data_center(made)
    acts(made)
    asks_hosts(made)


def _revert(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.conversion:revert",
        codes=f"0 as before, {_ACTS},\n5 some hosts done, some not, {_OTHER_RUN}",
        examples=("data1", "data1 --dry-run"),
        more="Sets back the connection and the hosts' policies that convert recorded.",
    )
    made.add_argument("name", metavar="NAME", help="a domain's name")
    batch(made)
    _take_over(made)
    data_center(made)
    acts(made)
    asks_hosts(made)


def _heal(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.conversion:heal",
        codes=f"0 healed, or nothing to do, {_ACTS},\n"
        "3 nothing can be done for a host, or it is unknown,\n"
        f"5 some hosts done, some not, {_OTHER_RUN}",
        examples=("", "data1 --batch 2"),
        more="Hosts with a mount that fell back to TCP go through maintenance and\n"
        "mount anew; the one that is SPM comes last.",
    )
    made.add_argument("names", metavar="NAME", nargs="*", help="only for these domains")
    batch(made)
    _take_over(made)
    data_center(made)
    acts(made)
    asks_hosts(made)


def _take_over(made: Parser) -> None:
    made.add_argument(
        "--take-over",
        action="store_true",
        help="end the open task of another run, which then stops, and go on",
    )


def _verify(made: Parser) -> None:
    be_engine_verb(
        made,
        "engine.domains:verify",
        codes="0 all as asked, 1 failed, 3 a mount is not as asked, or unknown",
        examples=("", "data1 data2", "--facts-dir dumps -o json"),
        more="Asks each host's kernel. A host that is silent is unknown.",
    )
    made.add_argument(
        "names", metavar="NAME", nargs="*", help="domains; default: all on files"
    )
    data_center(made)
    asks_hosts(made)
