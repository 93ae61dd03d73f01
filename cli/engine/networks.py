# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``network create`` and ``network attach``.

``create`` makes a logical network for IPoIB, with an MTU that the hosts support.
``attach`` attaches a network to the NICs of many hosts, with static addresses.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from ovirt_rdma.cli.engine.session import (
    access_of,
    approve,
    ask_hosts,
    note_no_access,
    open_session,
    show_calls,
    work,
)
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.names import data_center_named, hosts_named
from ovirt_rdma.engine_sdk_tools.networks.addresses import is_range, read_plan_file
from ovirt_rdma.engine_sdk_tools.networks.attach import (
    AS_BEFORE,
    DONE,
    FAILED,
    NOT_BEGUN,
    UNCHANGED,
    AttachResult,
    attach_network,
    declared_properties,
)
from ovirt_rdma.engine_sdk_tools.networks.attach_calls import (
    NOTHING,
    AttachRequest,
    HostAttach,
)
from ovirt_rdma.engine_sdk_tools.networks.attach_plan import (
    AttachPlan,
    plan_network_attach,
)
from ovirt_rdma.engine_sdk_tools.networks.create import create_network
from ovirt_rdma.engine_sdk_tools.networks.create_plan import (
    NetworkPlan,
    NetworkRequest,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import UsageProblem

_TONES = {
    DONE: "good",
    UNCHANGED: "good",
    AS_BEFORE: "bad",
    FAILED: "bad",
    NOT_BEGUN: "doubtful",
}


def attach(args: Namespace, output: Output) -> int:
    """Attach the network; return 0 for all hosts, 5 for some, 6 rolled back, else 1."""
    request = _request(args)
    with open_session(args) as session:
        engine = read_engine(session, networks=True, nics=True, attachments=True)
        hosts = hosts_named(engine, args.hosts)
        access = access_of(args, engine)
        note_no_access(access, output)
        reports = {
            host.name: report for host, report in ask_hosts(hosts, access, output)
        }
        declared = {}
        if request.properties:
            declared = declared_properties(session, engine, hosts)
        plan = plan_network_attach(engine, reports, declared, request)
        for sentence in plan.warnings:
            output.message(f"warning: {sentence}")
        if args.dry_run:
            _show_plan(plan, output)
            return 0
        if plan.todo:
            approve(args, output, _attach_lines(plan))
        title = f"attach network {plan.network.name}"
        resume = (
            "hosts that were in progress may have the network or not, the others are "
            "unchanged; run the same command again to continue"
        )
        changes = bool(plan.todo)
        with work(
            args, output, session, title, resume=resume, changes=changes
        ) as progress:
            result = attach_network(
                session,
                plan,
                progress.listener,
                batch=args.batch,
                keep_going=args.keep_going,
            )
            progress.ended(_summary(plan, result), succeeded=result.exit_code == 0)
    _show_attach(plan, result, output)
    return result.exit_code


def _request(args: Namespace) -> AttachRequest:
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
    good = sum(row.outcome in (DONE, UNCHANGED) for row in result.rows)
    return f"network {plan.network.name} is on {good} of {len(result.rows)} hosts"


def _show_attach(plan: AttachPlan, result: AttachResult, output: Output) -> None:
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
        _TONES,
        below=[row.sentence for row in result.rows],
    )
    if all(row.act == NOTHING for row in plan.rows):
        output.text("Nothing to do: all hosts have the network, in sync.")
    else:
        summary = _summary(plan, result)
        output.text(f"{summary[0].upper()}{summary[1:]}.")
    output.fix(next((row.fix for row in result.rows if row.fix), ""))


def create(args: Namespace, output: Output) -> int:
    """Create the network, or change it to what was requested."""
    request = NetworkRequest(
        args.name,
        args.datacenter,
        args.mtu if args.mtu == "auto" else int(args.mtu),
        args.clusters or (),
        args.hosts,
        args.nic_match,
        args.migration,
        args.required_later,
    )
    with open_session(args) as session:
        engine = read_engine(session, networks=True, attachments=True)
        center = data_center_named(engine, args.datacenter)
        inside = {host.id for host in engine.hosts_of(center.id)}
        hosts = [h for h in hosts_named(engine, args.hosts) if h.id in inside]
        access = access_of(args, engine)
        note_no_access(access, output)
        reports = {
            host.name: report for host, report in ask_hosts(hosts, access, output)
        }
        plan = plan_network_create(engine, reports, request)
        for sentence in plan.warnings:
            output.message(f"warning: {sentence}")
        if args.dry_run:
            show_calls(output, plan.calls, "network-create", **_planned(plan))
            return 0
        if not plan.calls:
            _show_create(plan, plan.network.id if plan.network else "", output)
            return 0
        approve(args, output, _create_lines(plan))
        title = f"create network {plan.name}"
        resume = "run the same command again to continue"
        with work(args, output, session, title, resume=resume) as progress:
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
