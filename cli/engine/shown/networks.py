# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the plans and results of ``network create`` and ``network attach``."""

from __future__ import annotations

from dataclasses import asdict

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.networks import attach
from ovirt_rdma.engine_sdk_tools.networks.attach import AttachResult
from ovirt_rdma.engine_sdk_tools.networks.attach_calls import NOTHING, HostAttach
from ovirt_rdma.engine_sdk_tools.networks.attach_plan import AttachPlan
from ovirt_rdma.engine_sdk_tools.networks.create_plan import NetworkPlan
from ovirt_rdma.host.system.json_codec import plain


def attach_lines(plan: AttachPlan) -> list[str]:
    """Return what the operator approves; nothing if there is nothing to do."""
    if not plan.todo:
        return []
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
        "interface": plain(row.chosen.interface),
        "address": str(row.address),
        "act": row.act,
        "why": row.why,
        "properties": dict(row.properties),
    }


def planned_attach(plan: AttachPlan) -> dict[str, object]:
    """Return the content of the document of a plan, besides its requests."""
    return {
        "network": plan.network.name,
        "hosts": [_row(row) for row in plan.rows],
        "warnings": list(plan.warnings),
    }


def show_nics(plan: AttachPlan, output: Output) -> None:
    """Print which NIC each host gets."""
    # Conditions choose a NIC by what it is.
    what = ["RDMA PORT", "P_KEY"] if "=" in plan.request.nic_match else []
    table = [
        [r.host.name, _nic(r), *(_is(r) if what else ()), str(r.address), r.act, r.why]
        for r in plan.rows
    ]
    output.table(["HOST", "NIC", *what, "ADDRESS", "ACTION", "REASON"], table)
    output.line()


def _nic(row: HostAttach) -> str:
    ports = f" ({', '.join(row.chosen.ports)})" if row.chosen.ports else ""
    return f"{row.chosen.target}{ports}"


def _is(row: HostAttach) -> list[str]:
    """Return RDMA port and P_Key of the NIC, a dash for what is unknown."""
    nic = row.chosen.interface
    if nic is None or nic.device is None:
        return ["-", "-"]
    return [f"{nic.device}/{nic.port}", nic.pkey or "-"]


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
        output.text(f"{result.summary[0].upper()}{result.summary[1:]}.")
    output.fix(next((row.fix for row in result.rows if row.fix), ""))


def create_lines(plan: NetworkPlan) -> list[str]:
    """Return what the operator approves."""
    state = "exists already" if plan.network else "new"
    lines = [f"network {plan.name} ({state}), MTU {plan.mtu}: {plan.because}"]
    if plan.join:
        names = ", ".join(cluster.name for cluster in plan.join)
        lines.append(f"in {names}, not required")
    if plan.require:
        names = ", ".join(cluster.name for cluster in plan.require)
        lines.append(f"required in {names} from now on")
    return lines


def planned_network(plan: NetworkPlan) -> dict[str, object]:
    """Return the content of the document of a plan."""
    return {
        "name": plan.name,
        "mtu": plan.mtu,
        "because": plan.because,
        "clusters": [cluster.name for cluster in plan.join],
        "required": [cluster.name for cluster in plan.require],
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
