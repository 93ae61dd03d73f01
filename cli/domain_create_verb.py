# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain create``: an NFS domain, checked first, active and proven after."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from ovirt_rdma.cli.asked_hosts import asked, say_no_way
from ovirt_rdma.cli.engine_session import approve, door_of, opened, show_calls
from ovirt_rdma.cli.engine_work import work
from ovirt_rdma.cli.hosts_alike import OnHost, said_once
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.engine_sdk_tools.domain_create import (
    DomainPlan,
    DomainRequest,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.domain_create_run import DomainMade, create_domain
from ovirt_rdma.engine_sdk_tools.domain_mounted import ProvenHost, what_is_open
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.names import data_center_named

_TONES = {
    "rdma": "good",
    "not verified": "doubtful",
    "unproven": "doubtful",
    "not mounted": "bad",
}


def create(words: Namespace, screen: Screen) -> int:
    """Create the domain: 0 active, 5 with another transport on some hosts."""
    request = DomainRequest(
        words.name,
        words.export,
        words.datacenter,
        words.nfs_version,
        words.transport,
        words.host,
        words.mount_options,
    )
    with opened(words) as session:
        engine = read_engine(session)
        center = data_center_named(engine, words.datacenter)
        door = door_of(words, engine)
        say_no_way(door, screen)
        up = [host for host in engine.hosts_of(center.id) if host.status == "up"]
        reports = {host.name: told for host, told in asked(up, door, screen)}
        plan = plan_domain_create(engine, reports, request)
        for sentence in plan.warnings:
            screen.message(f"warning: {sentence}")
        if words.dry_run:
            show_calls(screen, plan.calls, "domain-create", **_planned(plan))
            return 0
        if not plan.nothing:
            approve(words, screen, _lines(plan))
        what = f"create domain {plan.name}"
        go_on = "the same command goes on with what is there"
        acts = not plan.nothing
        with work(words, screen, session, what, go_on=go_on, changes=acts) as shown:
            # A folder of dumps has nothing that is newer.
            asks = None if words.facts_dir is not None else door
            made = create_domain(session, asks, plan, shown.listener)
    _show(plan, made, screen)
    return made.exit_code


def _lines(plan: DomainPlan) -> list[str]:
    options = plan.row.mount_options or "no mount options"
    return [
        f"domain {plan.name} on {plan.row.export}, over {plan.transport}",
        f"NFS version {plan.row.nfs_version}, {options}",
        f"created by {plan.host.name}, attached to {plan.data_center.name}, mounted by "
        f"{count(len(plan.hosts), 'host')}",
    ]


def _planned(plan: DomainPlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "export": plan.row.export,
        "transport": plan.transport,
        "nfs_version": plan.row.nfs_version,
        "mount_options": plan.row.mount_options,
        "host": plan.host.name,
        "warnings": list(plan.warnings),
    }


def _show(plan: DomainPlan, made: DomainMade, screen: Screen) -> None:
    unknown = what_is_open(made.hosts)
    if not screen.for_people:
        document = {
            **_planned(plan),
            "dry_run": False,
            "id": made.id,
            "made": made.made,
            "hosts": [asdict(host) for host in made.hosts],
            "not_verified": list(made.not_verified),
            "problems": [unknown] if unknown else [],
        }
        screen.document("domain-create", document)
        return
    there = "is active" if made.made else "is there and active: nothing to do"
    screen.text(f"Domain {plan.name} ({plan.row.export}) {there}.")
    rows = [[host.host, _word(host)] for host in made.hosts]
    screen.table(["HOST", "TRANSPORT"], rows, _TONES)
    addresses = {host.name: host.address for host in plan.hosts}
    # The same sentence once: of fifty hosts most say the same.
    told = said_once(
        OnHost(host.host, addresses.get(host.host, ""), host.sentence)
        for host in made.hosts
        if host.sentence
    )
    for one in told:
        screen.text(one.line)
    if unknown:
        screen.text(f"{unknown[0].upper()}{unknown[1:]}.")
    screen.fix(next((h.fix for h in made.hosts if h.fix), ""))
    screen.next(f"ovirt-rdma domain verify {plan.name}")


def _word(host: ProvenHost) -> str:
    if host.mounted is None:
        return "not verified"
    return host.transport or ("unproven" if host.mounted else "not mounted")
