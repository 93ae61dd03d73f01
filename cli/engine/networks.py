# SPDX-License-Identifier: GPL-2.0-or-later
"""``network create`` and ``network attach``.

``network attach``: a network on the nics of many hosts, with static addresses.

``network create``: a logical network for IPoIB, with an MTU that hosts can have.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from ovirt_rdma.cli.engine.session import (
    approve,
    asked,
    door_of,
    opened,
    say_no_way,
    show_calls,
    work,
)
from ovirt_rdma.cli.output import Screen, count
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


def attach(words: Namespace, screen: Screen) -> int:
    """Attach the network: 0 all, 5 some, 6 none and all as before, 1 else."""
    request = _request(words)
    with opened(words) as session:
        engine = read_engine(session, networks=True, nics=True, attachments=True)
        hosts = hosts_named(engine, words.hosts)
        door = door_of(words, engine)
        say_no_way(door, screen)
        reports = {host.name: told for host, told in asked(hosts, door, screen)}
        declared = {}
        if request.properties:
            declared = declared_properties(session, engine, hosts)
        plan = plan_network_attach(engine, reports, declared, request)
        for sentence in plan.warnings:
            screen.message(f"warning: {sentence}")
        if words.dry_run:
            _show_plan(plan, screen)
            return 0
        if plan.todo:
            approve(words, screen, _attach_lines(plan))
        what = f"attach network {plan.network.name}"
        go_on = (
            "a host that was at work may have the network or not, those that it did "
            "not reach are as before; the same command looks at all and goes on"
        )
        acts = bool(plan.todo)
        with work(words, screen, session, what, go_on=go_on, changes=acts) as shown:
            result = attach_network(
                session,
                plan,
                shown.listener,
                batch=words.batch,
                keep_going=words.keep_going,
            )
            shown.ended(_told(plan, result), succeeded=result.exit_code == 0)
    _show_attach(plan, result, screen)
    return result.exit_code


def _request(words: Namespace) -> AttachRequest:
    addresses, span = None, words.addresses
    if not is_range(span):
        addresses, span = read_plan_file(_text(span), span), ""
    names = [name for name, _ in words.property]
    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(
                "property-given-twice",
                f"--property {name} is given twice",
                "leave out one",
            )
    return AttachRequest(
        words.name,
        words.hosts,
        words.nic_match,
        addresses,
        span,
        words.datacenter,
        words.bond is not None,
        dict(words.property),
        words.connectivity_timeout,
    )


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise UsageProblem(
            "address-plan-unreadable",
            f"--addresses: {name} cannot be read: {why}",
            "give a file, or a range as 10.0.0.11-10.0.0.60/24",
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


def _show_plan(plan: AttachPlan, screen: Screen) -> None:
    rows = [_row(row) for row in plan.rows]
    if screen.for_people:
        table = [
            [r.host.name, _nic(r), str(r.address), r.act, r.why] for r in plan.rows
        ]
        screen.table(["HOST", "NIC", "ADDRESS", "DO", "WHY"], table)
        screen.line()
    show_calls(
        screen,
        plan.calls,
        "network-attach",
        network=plan.network.name,
        hosts=rows,
        warnings=list(plan.warnings),
    )


def _nic(row: HostAttach) -> str:
    ports = f" ({', '.join(row.chosen.ports)})" if row.chosen.ports else ""
    return f"{row.chosen.target}{ports}"


def _told(plan: AttachPlan, result: AttachResult) -> str:
    good = sum(row.outcome in (DONE, UNCHANGED) for row in result.rows)
    return f"network {plan.network.name} is on {good} of {len(result.rows)} hosts"


def _show_attach(plan: AttachPlan, result: AttachResult, screen: Screen) -> None:
    if not screen.for_people:
        document = {
            "dry_run": False,
            "network": plan.network.name,
            "hosts": [asdict(row) for row in result.rows],
            "warnings": list(plan.warnings),
        }
        screen.document("network-attach", document)
        return
    screen.table(
        ["HOST", "NIC", "ADDRESS", "OUTCOME"],
        [[row.host, row.nic, row.address, row.outcome] for row in result.rows],
        _TONES,
        below=[row.sentence for row in result.rows],
    )
    if all(row.act == NOTHING for row in plan.rows):
        screen.text("Nothing to do: all have it, in sync.")
    else:
        told = _told(plan, result)
        screen.text(f"{told[0].upper()}{told[1:]}.")
    screen.fix(next((row.fix for row in result.rows if row.fix), ""))


def create(words: Namespace, screen: Screen) -> int:
    """Create the network, or bring it to what is asked for."""
    request = NetworkRequest(
        words.name,
        words.datacenter,
        words.mtu if words.mtu == "auto" else int(words.mtu),
        words.clusters or (),
        words.hosts,
        words.nic_match,
        words.migration,
        words.required_later,
    )
    with opened(words) as session:
        engine = read_engine(session, networks=True, attachments=True)
        center = data_center_named(engine, words.datacenter)
        inside = {host.id for host in engine.hosts_of(center.id)}
        hosts = [h for h in hosts_named(engine, words.hosts) if h.id in inside]
        door = door_of(words, engine)
        say_no_way(door, screen)
        reports = {host.name: told for host, told in asked(hosts, door, screen)}
        plan = plan_network_create(engine, reports, request)
        for sentence in plan.warnings:
            screen.message(f"warning: {sentence}")
        if words.dry_run:
            show_calls(screen, plan.calls, "network-create", **_planned(plan))
            return 0
        if not plan.calls:
            _show_create(plan, plan.network.id if plan.network else "", screen)
            return 0
        approve(words, screen, _create_lines(plan))
        what = f"create network {plan.name}"
        go_on = "the same command goes on with what is there"
        with work(words, screen, session, what, go_on=go_on) as shown:
            made = create_network(session, plan, shown.listener)
    _show_create(plan, made.id, screen)
    return 0


def _create_lines(plan: NetworkPlan) -> list[str]:
    there = "there already" if plan.network else "new"
    lines = [f"network {plan.name} ({there}), MTU {plan.mtu}: {plan.because}"]
    if plan.join:
        names = ", ".join(cluster.name for cluster in plan.join)
        lines.append(f"in {names}, not required there")
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


def _show_create(plan: NetworkPlan, network: str, screen: Screen) -> None:
    if not screen.for_people:
        document = {**_planned(plan), "dry_run": False, "id": network}
        screen.document("network-create", document)
        return
    if not plan.calls:
        screen.text(f"Network {plan.name} is there, MTU {plan.mtu}: nothing to do.")
    else:
        for line in _create_lines(plan):
            screen.text(f"{line[0].upper()}{line[1:]}.")
    screen.next(f"ovirt-rdma network attach {plan.name} --hosts ... --dry-run")
