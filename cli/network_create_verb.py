# SPDX-License-Identifier: GPL-2.0-or-later
"""``network create``: a logical network for IPoIB, with an MTU that hosts can have."""

from __future__ import annotations

from argparse import Namespace

from ovirt_rdma.cli.asked_hosts import asked, say_no_way
from ovirt_rdma.cli.engine_session import approve, door_of, opened, show_calls
from ovirt_rdma.cli.engine_work import work
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.names import data_center_named, hosts_named
from ovirt_rdma.engine_sdk_tools.network_create import (
    NetworkPlan,
    NetworkRequest,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.network_create_run import create_network


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
            _show(plan, plan.network.id if plan.network else "", screen)
            return 0
        approve(words, screen, _lines(plan))
        what = f"create network {plan.name}"
        go_on = "the same command goes on with what is there"
        with work(words, screen, session, what, go_on=go_on) as shown:
            made = create_network(session, plan, shown.listener)
    _show(plan, made.id, screen)
    return 0


def _lines(plan: NetworkPlan) -> list[str]:
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


def _show(plan: NetworkPlan, network: str, screen: Screen) -> None:
    if not screen.for_people:
        document = {**_planned(plan), "dry_run": False, "id": network}
        screen.document("network-create", document)
        return
    if not plan.calls:
        screen.text(f"Network {plan.name} is there, MTU {plan.mtu}: nothing to do.")
    else:
        for line in _lines(plan):
            screen.text(f"{line[0].upper()}{line[1:]}.")
    screen.next(f"ovirt-rdma network attach {plan.name} --hosts ... --dry-run")
