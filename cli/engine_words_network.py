# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``network``: logical networks over IPoIB."""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.engine_options import (
    acts,
    asks_hosts,
    batch,
    be_engine_verb,
    data_center,
    words_between_commas,
)
from ovirt_rdma.cli.words import Parser, add_verbs


def network(made: Parser) -> None:
    """Add the verbs of the group."""
    group = add_verbs(made)
    group.add("create", "create a network for IPoIB in a data center", _create)
    group.add("attach", "attach it to hosts' nics, with static addresses", _attach)


def _create(made: Parser) -> None:
    be_engine_verb(
        made,
        "network_create_verb:create",
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
        "network_attach_verb:attach",
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
