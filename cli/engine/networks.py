# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``network create`` and ``network attach``; show their plans and results.

``create`` makes a logical network for IPoIB or RoCE, with an MTU that hosts support.
``attach`` attaches a network to the NICs of many hosts, with static addresses.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Optional, Union

from ovirt_rdma.cli.engine.main import (
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
    mtu,
    nic_match,
)
from ovirt_rdma.cli.engine.session import Approver, changing, show_calls
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Context, Parser, number
from ovirt_rdma.engine_sdk_tools.networks.attach import (
    DONE,
    NOT_BEGUN,
    UNCHANGED,
    AttachPlan,
    AttachRequest,
    AttachResult,
)
from ovirt_rdma.engine_sdk_tools.networks.create import (
    DEFAULT_MTU,
    MOST_VLAN,
    NetworkPlan,
    NetworkRequest,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import is_range, read_plan_file
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.policy.model import ETHERNET, INFINIBAND
from ovirt_rdma.host.system.json_codec import plain
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
        "backup --hosts '*' --pkey vlan=100 --addresses 10.30.0.11-10.30.0.60/24",
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
    keep_going: bool
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
            "that is counted in host order: 10.0.0.11-10.0.0.60/24 or 10.0.0.11/24",
        )
        parser.add_argument(
            "--bond",
            choices=("active-backup",),
            help="bond the NICs that match, or use their existing bond",
        )
        parser.add_argument(
            "--keep-going",
            action="store_true",
            help="continue with the next hosts if one failed",
        )
        add_data_center(parser)
        add_batch(parser)
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        request = _request(self)
        ask = Approver(
            self, output, attach_lines, lambda plan: _show_plan(plan, output)
        )
        with changing(self, context) as rdma:
            result = rdma.attach_network(
                request, batch=self.batch, keep_going=self.keep_going, approve=ask
            )
        if result is None:
            return 0
        show_attach(ask.plan, result, output)
        return result.exit_code


def _request(args: Attach) -> AttachRequest:
    match = nic_match(args.nic_match, args.pkey)
    if match is None:
        raise UsageProblem(
            "nic-match-missing",
            "neither --nic-match nor --pkey is given",
            "give the NIC of each host, as --nic-match ib0",
        )
    name, addresses = args.addresses, None
    if not is_range(name):
        try:
            text = read_named(name).decode("utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageProblem(
                "address-plan-unreadable",
                f"--addresses: {name} cannot be read: {why}",
                "give a file, or a range such as 10.0.0.11-10.0.0.60/24",
            ) from error
        addresses = read_plan_file(text, name)
    return AttachRequest(
        args.name,
        args.hosts,
        match,
        addresses,
        name,
        args.datacenter,
        args.bond is not None,
    )


class Create(EngineVerb, AccessOptions, ChangeOptions):
    """Create the network, or change it to what was requested."""

    codes = (
        "0 created, or exists already, 1 failed, 3 checks failed,\n"
        "4 declined, 6 failed, and rolled back"
    )
    examples = (
        "storage --datacenter dc1 --mtu auto",
        "storage --datacenter dc1 --mtu 2044 --clusters cl1,cl2",
        "storage --datacenter dc1 --link-layer ethernet --vlan 100 --mtu 9000",
    )
    more = (
        "The network is not for virtual machines, because InfiniBand has no\n"
        "bridges, and a bridge over a VLAN has not been seen to carry RoCE. It is\n"
        "not required in its clusters, because hosts without it would become\n"
        "non-operational."
    )

    name: str
    datacenter: str
    mtu: Union[str, int]
    clusters: Optional[tuple[str, ...]]
    hosts: tuple[str, ...]
    nic_match: Optional[str]
    pkey: Optional[str]
    link_layer: str
    vlan: Optional[int]

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
        parser.add_argument(
            "--link-layer",
            choices=(INFINIBAND, ETHERNET),
            default=INFINIBAND,
            help="infiniband, the default: for IPoIB; ethernet: for RoCE, with a "
            "number as --mtu",
        )
        parser.add_argument(
            "--vlan",
            metavar="TAG",
            type=number(1, MOST_VLAN),
            help="the VLAN tag, for ethernet",
        )
        add_nic_match(
            parser,
            default="; default: all IPoIB netdevs but P_Key children, or RoCE ports",
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
            self.link_layer == ETHERNET,
            self.vlan,
        )
        ask = Approver(
            self,
            output,
            lambda plan: create_lines(plan) if plan.calls else (),
            lambda plan: show_calls(
                output, plan.calls, "network-create", **planned_network(plan)
            ),
        )
        with changing(self, context) as rdma:
            made = rdma.create_network(request, approve=ask)
        if made is not None:
            show_create(ask.plan, made.id, output)
        return 0


# Show the plans and results of ``network create`` and ``network attach``.

_TONES = {DONE: "good", UNCHANGED: "good", NOT_BEGUN: "doubtful"}


def attach_lines(plan: AttachPlan) -> list[str]:
    """Return what the operator approves; nothing if there is nothing to do."""
    lines = [
        f"  {row.host.name}  {row.chosen.target}  {row.address}  {row.act}"
        for row in plan.todo
    ]
    mtu, hosts = plan.network.mtu or DEFAULT_MTU, count(len(lines), "host")
    head = f"network {plan.network.name}, MTU {mtu}, on {hosts}:"
    return [head, *lines] if lines else []


def _show_plan(plan: AttachPlan, output: Output) -> None:
    """Print which NIC each host gets, and the requests."""
    if output.for_people:
        what = ["RDMA PORT", "P_KEY"]
        rows = []
        for row in plan.rows:
            chosen, nic = row.chosen, row.chosen.interface
            ports = f" ({', '.join(chosen.ports)})" if chosen.ports else ""
            is_what = ["-", "-"]
            if nic is not None and nic.device is not None:
                is_what = [f"{nic.device}/{nic.port}", nic.pkey or "-"]
            cells = [*is_what, str(row.address), row.act, row.why]
            rows.append([row.host.name, f"{chosen.target}{ports}", *cells])
        headings = ["HOST", "NIC", *what, "ADDRESS", "ACTION", "REASON"]
        output.table(headings, rows, minor=what)
        output.line()
    content = {
        "network": plan.network.name,
        "hosts": [
            {
                "host": row.host.name,
                "nic": row.chosen.target,
                "ports": list(row.chosen.ports),
                "interface": plain(row.chosen.interface),
                "address": str(row.address),
                "act": row.act,
                "why": row.why,
            }
            for row in plan.rows
        ],
        "warnings": list(plan.warnings),
    }
    show_calls(output, plan.calls, "network-attach", **content)


def show_attach(plan: AttachPlan, result: AttachResult, output: Output) -> None:
    """Print the result of each host."""
    if not output.for_people:
        document = {
            "dry_run": False,
            "network": plan.network.name,
            "hosts": [asdict(row) for row in result.rows],
            "warnings": list(plan.warnings),
        }
        output.document("network-attach", document)
        return
    output.table(
        ["HOST", "NIC", "ADDRESS", "OUTCOME"],
        [[row.host, row.nic, row.address, row.outcome] for row in result.rows],
        {row.outcome: _TONES.get(row.outcome, "bad") for row in result.rows},
        below=[row.sentence for row in result.rows],
    )
    if not plan.todo:
        output.text("Nothing to do: all hosts have the network, in sync.")
    else:
        output.text(f"{result.summary[0].upper()}{result.summary[1:]}.")
    output.fix(next((row.fix for row in result.rows if row.fix), ""))


def create_lines(plan: NetworkPlan) -> list[str]:
    """Return what the operator approves."""
    state = "exists already" if plan.network else "new"
    tag = "" if plan.vlan is None else f", VLAN tag {plan.vlan}"
    lines = [f"network {plan.name} ({state}){tag}, MTU {plan.mtu}: {plan.because}"]
    if plan.join:
        names = ", ".join(cluster.name for cluster in plan.join)
        lines.append(f"in {names}, not required")
    return lines


def planned_network(plan: NetworkPlan) -> dict[str, object]:
    """Return the content of the document of a plan."""
    return {
        "name": plan.name,
        "mtu": plan.mtu,
        "vlan": plan.vlan,
        "because": plan.because,
        "clusters": [cluster.name for cluster in plan.join],
        "warnings": list(plan.warnings),
    }


def show_create(plan: NetworkPlan, network: str, output: Output) -> None:
    """Print the result; ``network`` is the id of the network."""
    if not output.for_people:
        document = {**planned_network(plan), "dry_run": False, "id": network}
        output.document("network-create", document)
        return
    if not plan.calls:
        output.text(
            f"Network {plan.name} exists already, MTU {plan.mtu}: nothing to do."
        )
    else:
        for line in create_lines(plan):
            output.text(f"{line[0].upper()}{line[1:]}.")
    output.text("Hosts get it by network attach.")
