# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``network create`` and ``network attach``.

``create`` makes a logical network for IPoIB, with an MTU that the hosts support.
``attach`` attaches a network to the NICs of many hosts, with static addresses.
"""

from __future__ import annotations

from typing import Optional, Union

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine.arguments import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
    add_hosts,
    add_nic_match,
    comma_list,
    connectivity_timeout,
    mtu,
    name_and_value,
    nic_match,
)
from ovirt_rdma.cli.engine.session import Approver, changing, show_calls
from ovirt_rdma.cli.engine.shown import networks as shown
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.engine_sdk_tools.networks.addresses import is_range, read_plan_file
from ovirt_rdma.engine_sdk_tools.networks.attach_calls import AttachRequest
from ovirt_rdma.engine_sdk_tools.networks.attach_plan import AttachPlan
from ovirt_rdma.engine_sdk_tools.networks.create_plan import NetworkRequest
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.system.safe_file import read_named


class Attach(EngineVerb, AccessOptions, ChangeOptions):
    """Return 0 for all hosts, 5 for some, 6 if all were rolled back, else 1."""

    codes = (
        "0 attached, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 declined, 5 done on some hosts, not on others, 6 failed, and rolled back"
    )
    examples = (
        "storage --hosts 'hv*' --nic-match 'ib0' --addresses 10.20.0.11/24",
        "storage --hosts hv1,hv2 --nic-match ib0 --addresses plan.yaml --dry-run",
        "storage --hosts '*' --nic-match link_layer=InfiniBand,port=1 --addresses "
        "plan.yaml",
        "backup --hosts '*' --pkey vlan=100 --addresses 10.30.0.0/24",
    )
    more = (
        "Each host is verified: the network must be in sync, with exactly the\n"
        "requested MTU. If it is not, the host is rolled back and no more hosts\n"
        "are started."
    )

    name: str
    hosts: tuple[str, ...]
    nic_match: Optional[str]
    pkey: Optional[str]
    addresses: str
    bond: Optional[str]
    property: list[tuple[str, str]]
    keep_going: bool
    connectivity_timeout: int
    datacenter: Optional[str]
    batch: int

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="the network's name")
        add_hosts(parser)
        add_nic_match(parser, default=". This or --pkey must be given")
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
            type=name_and_value,
            help="a custom property, as ipoib_mode=connected; may be given several "
            "times",
        )
        parser.add_argument(
            "--keep-going",
            action="store_true",
            help="continue with the next hosts if one failed",
        )
        parser.add_argument(
            "--connectivity-timeout",
            metavar="S",
            type=connectivity_timeout,
            default=120,
            help="a host that loses its connection rolls back by itself after S "
            "seconds (1 to 120); default: 120",
        )
        add_data_center(parser)
        add_batch(parser)
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        request = _request(self)

        def show(plan: AttachPlan) -> None:
            if output.for_people:
                shown.show_nics(plan, output)
            content = shown.planned_attach(plan)
            show_calls(output, plan.calls, "network-attach", **content)

        ask = Approver(self, output, shown.attach_lines, show)
        with changing(self, context) as rdma:
            result = rdma.attach_network(
                request, batch=self.batch, keep_going=self.keep_going, approve=ask
            )
        if result is None:
            return 0
        shown.show_attach(ask.plan, result, output)
        return result.exit_code


def _request(args: Attach) -> AttachRequest:
    addresses, address_range = None, args.addresses
    if not is_range(address_range):
        name, address_range = address_range, ""
        addresses = read_plan_file(_text(name), name)
    names = [name for name, _ in args.property]
    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(
                "property-given-twice",
                f"--property {name} is given twice",
                "omit one of them",
            )
    match = nic_match(args.nic_match, args.pkey)
    if match is None:
        raise UsageProblem(
            "nic-match-missing",
            "neither --nic-match nor --pkey is given",
            "give the NIC of each host, as --nic-match ib0",
        )
    return AttachRequest(
        args.name,
        args.hosts,
        match,
        addresses,
        address_range,
        args.datacenter,
        args.bond is not None,
        dict(args.property),
        args.connectivity_timeout,
    )


def _text(name: str) -> str:
    try:
        return read_named(name).decode("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageProblem(
            "address-plan-unreadable",
            f"--addresses: {name} cannot be read: {why}",
            "give a file, or a range such as 10.0.0.11-10.0.0.60/24",
        ) from error


class Create(EngineVerb, AccessOptions, ChangeOptions):
    """Create the network, or change it to what was requested."""

    codes = (
        "0 created, or exists already, 1 failed, 3 checks failed,\n"
        "4 declined, 6 failed, and rolled back"
    )
    examples = (
        "storage --datacenter dc1 --mtu auto",
        "storage --datacenter dc1 --mtu 2044 --clusters cl1,cl2",
    )
    more = (
        "The network is not for virtual machines, because InfiniBand has no\n"
        "bridges. It is not required in its clusters, because hosts without it\n"
        "would become non-operational."
    )

    name: str
    datacenter: str
    mtu: Union[str, int]
    clusters: Optional[tuple[str, ...]]
    hosts: tuple[str, ...]
    nic_match: Optional[str]
    pkey: Optional[str]
    migration: bool
    required_later: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="the new network's name")
        add_data_center(parser, required=True)
        parser.add_argument(
            "--mtu",
            type=mtu,
            default="auto",
            metavar="auto|N",
            help="in bytes, or auto, the default: the largest MTU that the ports of "
            "all hosts support",
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
        add_nic_match(parser, default="; default: all IPoIB netdevs but P_Key children")
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

    def run(self, context: Context) -> int:
        output = context.output
        request = NetworkRequest(
            self.name,
            self.datacenter,
            self.mtu,
            self.clusters or (),
            self.hosts,
            nic_match(self.nic_match, self.pkey),
            self.migration,
            self.required_later,
        )
        ask = Approver(
            self,
            output,
            lambda plan: shown.create_lines(plan) if plan.calls else (),
            lambda plan: show_calls(
                output, plan.calls, "network-create", **shown.planned_network(plan)
            ),
        )
        with changing(self, context) as rdma:
            made = rdma.create_network(request, approve=ask)
        if made is not None:
            shown.show_create(ask.plan, made.id, output)
        return 0
