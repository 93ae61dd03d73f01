# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``facts``: print an overview of the host.

This module has the head of the overview, ``devices`` its tables.
"""

from __future__ import annotations

import ipaddress
from typing import Optional

from ovirt_rdma.cli.host import devices
from ovirt_rdma.cli.host.arguments import HostVerb, add_facts
from ovirt_rdma.cli.host.devices import interfaces, known
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Context, Parser
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.facts.model import (
    Facts,
    NfsServer,
    RdmaStack,
    load,
    to_json_dict,
)
from ovirt_rdma.host.facts.uses import content_of
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import in_force


def head(facts: Facts) -> list[tuple[str, str]]:
    """Return names and values of the facts that are not in a table."""
    software = facts.software
    lacks = [one.name for one in software.kernel_config or () if one.value == "n"]
    fields: list[tuple[str, Optional[str]]] = [
        ("host", facts.hostname),
        ("distribution", software.distribution),
        ("kernel", facts.kernel_release),
        ("kernel lacks", known(*lacks)),
        ("up for", _uptime(facts.uptime_s)),
        ("VDSM", software.vdsm_version),
        ("rdma-core", software.rdma_core),
        ("RDMA stack", known(*map(_stack, software.stacks), between="; ")),
        ("subnet manager", software.subnet_manager),
        ("NFS server", _nfs_server(facts.nfs_server)),
        ("modules", ", ".join(facts.modules.loaded) or "none loaded"),
    ]
    return [(name, value) for name, value in fields if value]


def _stack(stack: RdmaStack) -> str:
    version = f" {stack.version}" if stack.version else ""
    return f"{stack.name}{version}" + (f" ({stack.evidence})" if stack.evidence else "")


def _nfs_server(server: Optional[NfsServer]) -> Optional[str]:
    if server is None:
        return None
    threads = "unknown" if server.threads is None else str(server.threads)
    ports = ", ".join(f"RDMA at {port}" for port in server.rdma_ports)
    return known(
        f"{threads} threads",
        ports or (None if server.listeners is None else "no RDMA"),
        f"NFS {', '.join(server.versions)}" if server.versions else None,
        None if server.exports is None else count(len(server.exports), "export"),
    )


def _uptime(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{count(days, 'day')} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class ShowFacts(HostVerb):
    """Print the facts of this host, or of a facts file."""

    codes = "0 printed"
    examples = (
        "",
        "-o json > hv1.json       # for --facts, or for a bug report",
        "--interfaces -o json",
        "--route-to 10.20.0.1",
    )

    interfaces: bool
    route_to: list[str]
    facts: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--interfaces",
            action="store_true",
            help="only what each netdev is: driver, PCI address, RDMA port, P_Key, "
            "VLAN, roles",
        )
        parser.add_argument(
            "--route-to",
            metavar="ADDRESS",
            action="append",
            default=[],
            help="also read the route to this server, an IP address; may be given "
            "several times",
        )
        add_facts(parser)

    def run(self, context: Context) -> int:
        if self.facts is not None:
            if self.route_to:
                raise UsageProblem(
                    "options-exclude-each-other",
                    "--route-to reads this host, and --facts a file",
                    "omit one of them",
                )
            facts = load(self.facts)
        else:
            for address in self.route_to:
                _refuse_name(address)
            reader = HostReader(context.root)
            facts = (
                reader.interfaces()
                if self.interfaces
                else reader.facts(self.route_to, exports=True)
            )
        if context.output.for_people:
            fabric = None if self.facts is not None else _fabric(context.root)
            _print(facts, context.output, self.interfaces, fabric)
        elif self.interfaces:
            context.output.document("interfaces", content_of(facts))
        else:
            # The document is the facts file itself, which --facts accepts.
            context.output.raw_document(to_json_dict(facts))
        return 0


def _fabric(root: str) -> FabricPolicy:
    """Return what the loaded policy says of partitions and VLANs."""
    stored = in_force(under(root, POLICY_JSON)).stored
    return (stored.policy if stored else Policy()).fabric


def _refuse_name(address: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise UsageProblem(
            "ip-address-invalid",
            f"--route-to {address!r} is not an IP address",
            "give the address, as in --route-to 10.20.0.1",
        ) from None


def _print(
    facts: Facts, output: Output, only_interfaces: bool, fabric: Optional[FabricPolicy]
) -> None:
    if only_interfaces:
        output.fields([("host", facts.hostname)])
        interfaces(facts, fabric).show(output)
        return
    output.fields(head(facts))
    for section in (
        *devices.adapters(facts),
        *devices.links(facts),
        *devices.netdevs(facts, fabric),
    ):
        section.show(output)
    if facts.problems:
        output.line()
        output.line("could not be read")
        for sentence in facts.problems:
            output.line(f"  {sentence}")
