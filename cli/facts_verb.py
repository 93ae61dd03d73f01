# SPDX-License-Identifier: GPL-2.0-or-later
"""``facts``: what is true of this host."""

from __future__ import annotations

import ipaddress
from argparse import Namespace

from ovirt_rdma.cli import facts_netdevs, facts_rdma, facts_software
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.facts_file import load, to_json_dict
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.host.reader import HostReader


def show(words: Namespace, screen: Screen) -> int:
    """Print the facts of this host, or of a facts file."""
    if words.facts is not None:
        if words.route_to:
            raise UsageProblem(
                "--route-to asks this host and --facts a file", "leave out one of them"
            )
        facts = load(words.facts)
    else:
        for address in words.route_to:
            _refuse_name(address)
        facts = HostReader(words.root).facts(words.route_to)
    if screen.for_people:
        _print(facts, screen)
    else:
        # The document is the facts file itself, so that --facts takes it back.
        screen.raw_document(to_json_dict(facts))
    return 0


def _refuse_name(address: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise UsageProblem(
            f"--route-to {address!r} is not an IP address",
            "give the address, as in --route-to 10.20.0.1",
        ) from None


def _print(facts: Facts, screen: Screen) -> None:
    screen.fields(facts_software.head(facts))
    for section in (
        facts_rdma.adapters,
        facts_rdma.devices,
        facts_rdma.ports,
        facts_rdma.pkeys,
        facts_netdevs.netdevs,
        facts_netdevs.ipoib,
        facts_netdevs.roce,
        facts_netdevs.bonds,
        facts_netdevs.profiles,
        facts_netdevs.networks,
        facts_netdevs.uses,
        facts_netdevs.routes,
        facts_netdevs.mounts,
        facts_software.foreign_modules,
        facts_software.module_settings,
        facts_software.loaded_at_boot,
        facts_software.units,
        facts_software.udev_rules,
    ):
        section(facts).show(screen)
    if facts.problems:
        screen.line()
        screen.line("could not be read")
        for sentence in facts.problems:
            screen.line(f"  {sentence}")
