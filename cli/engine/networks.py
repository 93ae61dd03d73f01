# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``network create`` and ``network attach``.

``create`` makes a logical network for IPoIB, with an MTU that the hosts support.
``attach`` attaches a network to the NICs of many hosts, with static addresses.
"""

from __future__ import annotations

from ovirt_rdma.cli.engine.arguments import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_batch,
    add_change_options,
    add_data_center,
    add_host_access,
    add_hosts,
    comma_list,
    connectivity_timeout,
    mtu,
    name_and_value,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser, Verb
from ovirt_rdma.host.errors import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Union

    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.engine_sdk_tools.networks.attach import AttachResult
    from ovirt_rdma.engine_sdk_tools.networks.attach_calls import (
        AttachRequest,
        HostAttach,
    )
    from ovirt_rdma.engine_sdk_tools.networks.attach_plan import AttachPlan
    from ovirt_rdma.engine_sdk_tools.networks.create_plan import NetworkPlan


class Attach(EngineVerb, AccessOptions, ChangeOptions):
    """Return 0 for all hosts, 5 for some, 6 if all were rolled back, else 1."""

    codes = (
        "0 attached, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 declined, 5 done on some hosts, not on others, 6 failed, and rolled back"
    )
    examples = (
        "storage --hosts 'hv*' --nic-match 'ib0' --addresses 10.20.0.11/24",
        "storage --hosts hv1,hv2 --nic-match ib0 --addresses plan.yaml --dry-run",
    )
    more = (
        "Each host is verified: the network must be in sync, with exactly the\n"
        "requested MTU. If it is not, the host is rolled back and no more hosts\n"
        "are started."
    )

    name: str
    hosts: tuple[str, ...]
    nic_match: str
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
        from ovirt_rdma.cli.engine.session import (
            approve,
            asked_reports,
            open_session,
            work,
        )
        from ovirt_rdma.engine_sdk_tools.names import hosts_named
        from ovirt_rdma.engine_sdk_tools.networks import attach
        from ovirt_rdma.engine_sdk_tools.networks.attach_plan import plan_network_attach
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        request = _request(self)
        with open_session(self, output) as session:
            engine = read_engine(session, networks=True, nics=True, attachments=True)
            hosts = hosts_named(engine, self.hosts)
            reports = asked_reports(self, context, hosts)
            declared = {}
            if request.properties:
                declared = attach.declared_properties(session, engine, hosts)
            plan = plan_network_attach(engine, reports, declared, request)
            for sentence in plan.warnings:
                output.message(f"warning: {sentence}")
            if self.dry_run:
                _show_plan(plan, output)
                return 0
            if plan.todo:
                approve(self, output, _attach_lines(plan))
            title = f"attach network {plan.network.name}"
            resume = (
                "hosts that were in progress may have the network or not, the others "
                "are unchanged; run the same command again to continue"
            )
            with work(
                self, context, session, title, resume=resume, changes=bool(plan.todo)
            ) as progress:
                result = attach.attach_network(
                    session,
                    plan,
                    progress.listener,
                    batch=self.batch,
                    keep_going=self.keep_going,
                )
                progress.ended(_summary(plan, result), succeeded=result.exit_code == 0)
        _show_attach(plan, result, output)
        return result.exit_code


def _request(args: Attach) -> AttachRequest:
    from ovirt_rdma.engine_sdk_tools.networks.addresses import is_range, read_plan_file
    from ovirt_rdma.engine_sdk_tools.networks.attach_calls import AttachRequest

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
    return AttachRequest(
        args.name,
        args.hosts,
        args.nic_match,
        addresses,
        address_range,
        args.datacenter,
        args.bond is not None,
        dict(args.property),
        args.connectivity_timeout,
    )


def _text(name: str) -> str:
    from pathlib import Path

    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageProblem(
            "address-plan-unreadable",
            f"--addresses: {name} cannot be read: {why}",
            "give a file, or a range such as 10.0.0.11-10.0.0.60/24",
        ) from error


def _attach_lines(plan: AttachPlan) -> list[str]:
    hosts = count(len(plan.todo), "host")
    lines = [
        f"network {plan.network.name}, MTU {plan.network.mtu or 1500}, on {hosts}:"
    ]
    lines += [
        f"  {row.host.name}  {row.chosen.target}  {row.address}  {row.act}"
        for row in plan.todo
    ]
    return lines


def _row(row: HostAttach) -> dict[str, object]:
    return {
        "host": row.host.name,
        "nic": row.chosen.target,
        "ports": list(row.chosen.ports),
        "address": str(row.address),
        "act": row.act,
        "why": row.why,
        "properties": dict(row.properties),
    }


def _show_plan(plan: AttachPlan, output: Output) -> None:
    from ovirt_rdma.cli.engine.session import show_calls

    rows = [_row(row) for row in plan.rows]
    if output.for_people:
        table = [
            [r.host.name, _nic(r), str(r.address), r.act, r.why] for r in plan.rows
        ]
        output.table(["HOST", "NIC", "ADDRESS", "ACTION", "REASON"], table)
        output.line()
    show_calls(
        output,
        plan.calls,
        "network-attach",
        network=plan.network.name,
        hosts=rows,
        warnings=list(plan.warnings),
    )


def _nic(row: HostAttach) -> str:
    ports = f" ({', '.join(row.chosen.ports)})" if row.chosen.ports else ""
    return f"{row.chosen.target}{ports}"


def _summary(plan: AttachPlan, result: AttachResult) -> str:
    from ovirt_rdma.engine_sdk_tools.networks import attach

    good = sum(row.outcome in (attach.DONE, attach.UNCHANGED) for row in result.rows)
    return f"network {plan.network.name} is on {good} of {len(result.rows)} hosts"


def _show_attach(plan: AttachPlan, result: AttachResult, output: Output) -> None:
    from dataclasses import asdict

    from ovirt_rdma.engine_sdk_tools.networks import attach
    from ovirt_rdma.engine_sdk_tools.networks.attach_calls import NOTHING

    if not output.for_people:
        document = {
            "dry_run": False,
            "network": plan.network.name,
            "hosts": [asdict(row) for row in result.rows],
            "warnings": list(plan.warnings),
        }
        output.document("network-attach", document)
        return
    tones = {
        attach.DONE: "good",
        attach.UNCHANGED: "good",
        attach.AS_BEFORE: "bad",
        attach.FAILED: "bad",
        attach.NOT_BEGUN: "doubtful",
    }
    output.table(
        ["HOST", "NIC", "ADDRESS", "OUTCOME"],
        [[row.host, row.nic, row.address, row.outcome] for row in result.rows],
        tones,
        below=[row.sentence for row in result.rows],
    )
    if all(row.act == NOTHING for row in plan.rows):
        output.text("Nothing to do: all hosts have the network, in sync.")
    else:
        summary = _summary(plan, result)
        output.text(f"{summary[0].upper()}{summary[1:]}.")
    output.fix(next((row.fix for row in result.rows if row.fix), ""))


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

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.engine.session import (
            approve,
            asked_reports,
            open_session,
            show_calls,
            work,
        )
        from ovirt_rdma.engine_sdk_tools.names import data_center_named, hosts_named
        from ovirt_rdma.engine_sdk_tools.networks import create_plan
        from ovirt_rdma.engine_sdk_tools.networks.create import create_network
        from ovirt_rdma.engine_sdk_tools.reader import read_engine

        output = context.output
        request = create_plan.NetworkRequest(
            self.name,
            self.datacenter,
            self.mtu,
            self.clusters or (),
            self.hosts,
            self.nic_match,
            self.migration,
            self.required_later,
        )
        with open_session(self, output) as session:
            engine = read_engine(session, networks=True, attachments=True)
            center = data_center_named(engine, self.datacenter)
            inside = {host.id for host in engine.hosts_of(center.id)}
            hosts = [h for h in hosts_named(engine, self.hosts) if h.id in inside]
            reports = asked_reports(self, context, hosts)
            plan = create_plan.plan_network_create(engine, reports, request)
            for sentence in plan.warnings:
                output.message(f"warning: {sentence}")
            if self.dry_run:
                show_calls(output, plan.calls, "network-create", **_planned(plan))
                return 0
            if not plan.calls:
                _show_create(plan, plan.network.id if plan.network else "", output)
                return 0
            approve(self, output, _create_lines(plan))
            title = f"create network {plan.name}"
            resume = "run the same command again to continue"
            with work(self, context, session, title, resume=resume) as progress:
                made = create_network(session, plan, progress.listener)
        _show_create(plan, made.id, output)
        return 0


def _create_lines(plan: NetworkPlan) -> list[str]:
    state = "exists already" if plan.network else "new"
    lines = [f"network {plan.name} ({state}), MTU {plan.mtu}: {plan.because}"]
    if plan.join:
        names = ", ".join(cluster.name for cluster in plan.join)
        lines.append(f"in {names}, not required")
    if plan.require:
        names = ", ".join(cluster.name for cluster in plan.require)
        lines.append(f"required in {names} from now on")
    return lines


def _planned(plan: NetworkPlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "mtu": plan.mtu,
        "because": plan.because,
        "clusters": [cluster.name for cluster in plan.join],
        "required": [cluster.name for cluster in plan.require],
        "warnings": list(plan.warnings),
    }


def _show_create(plan: NetworkPlan, network: str, output: Output) -> None:
    if not output.for_people:
        document = {**_planned(plan), "dry_run": False, "id": network}
        output.document("network-create", document)
        return
    if not plan.calls:
        output.text(
            f"Network {plan.name} exists already, MTU {plan.mtu}: nothing to do."
        )
    else:
        for line in _create_lines(plan):
            output.text(f"{line[0].upper()}{line[1:]}.")
    output.next(f"ovirt-rdma network attach {plan.name} --hosts ... --dry-run")


VERBS: dict[str, type[Verb]] = {"create": Create, "attach": Attach}
