# SPDX-License-Identifier: GPL-2.0-or-later
"""POLICY-01: a rule of the policy that names nothing on this host.

The nearest name is for the reader; nothing is ever done to a device because its name
is alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.module_names import CONCERNED, module_name
from ovirt_rdma.host.policy.model import (
    InterfaceRule,
    names_pkey,
    names_port,
    partition,
)
from ovirt_rdma.host.rules.base import HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.infiniband.children import wanted_children
from ovirt_rdma.host.rules.view import Interface, View

ID = "POLICY-01"


@dataclass(frozen=True)
class _Port:
    device: RdmaDevice
    port: RdmaPort

    @property
    def name(self) -> str:
        return f"{self.device.name}/{self.port.number}"


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each interface rule, and each module that is not here."""
    host = view.policy.host
    if not host.interfaces and not host.modules and not host.module_options:
        yield Finding(ID, HOST, SKIP, "the policy has no host part")
        return
    ports = [_Port(d, p) for d in view.facts.rdma_devices for p in d.ports]
    findings = [_interface(view, rule, ports) for rule in host.interfaces]
    findings += _modules(view)
    yield from findings
    if not findings:
        yield Finding(ID, HOST, PASS, "no name in the policy looks mistyped")


def _interface(view: View, rule: InterfaceRule, ports: list[_Port]) -> Finding:
    subject = rule.name
    named = [port for port in ports if names_port(rule, port.device, port.port)]
    if not named:
        sentence = f"{rule.title} names no port of this host: {_why(rule, ports)}"
        return Finding(ID, subject, WARN, sentence, _fix(ports))
    wins = [one.name for one in view.interfaces if one.wanted == rule]
    if wins:
        return Finding(ID, subject, PASS, f"{rule.title} names {', '.join(wins)}")
    of_ports = [one for one in view.interfaces if _is_on(one, named)]
    places = ", ".join(port.name for port in named)
    if not of_ports:
        sentence = f"{rule.title} names {places}, where there is no netdev"
        fix = "ip link; an InfiniBand port has one when ib_ipoib is loaded"
        return Finding(ID, subject, WARN, sentence, fix)
    with_pkey = [one for one in of_ports if names_pkey(rule, one.netdev)]
    if not with_pkey and _is_planned(view, rule):
        sentence = f"{rule.title} names a P_Key child that the plan makes"
        return Finding(ID, subject, PASS, sentence)
    if not with_pkey:
        sentence = f"{rule.title} names {places}, but no netdev there has {rule.pkey}"
        fix = f"pkey_children: [{rule.pkey}] in another rule makes one"
        if view.policy.host.follows_partitions:
            fix += ", or partitions: follow when the port is in that partition"
        return Finding(ID, subject, WARN, sentence, fix)
    winners = {one.wanted.title for one in with_pkey if one.wanted}
    netdevs = ", ".join(one.name for one in with_pkey)
    return Finding(
        ID,
        subject,
        WARN,
        f"{rule.title} has no effect: {', '.join(sorted(winners))} names {netdevs} "
        "before it",
        "put the rule that names less first",
    )


def _is_planned(view: View, rule: InterfaceRule) -> bool:
    """Whether another rule wants a child with the P_Key that this one names."""
    wanted = [p for r in view.policy.host.interfaces for p in r.pkey_children]
    wanted += [child.pkey for child in wanted_children(view)]  # of partitions: follow
    return rule.pkey is not None and partition(rule.pkey) in map(partition, wanted)


def _is_on(one: Interface, ports: list[_Port]) -> bool:
    return any(one.device is p.device and one.port is p.port for p in ports)


def _why(rule: InterfaceRule, ports: list[_Port]) -> str:
    """Say which of the rule's keys matches no port, with what is nearest to it."""
    if not ports:
        return "there is no RDMA device"
    wrong = []
    for key, wanted, there in (
        ("device", rule.device, [p.device.name for p in ports]),
        ("pci", rule.pci, [p.device.pci.address for p in ports if p.device.pci]),
        ("guid", rule.guid, [p.port.guid for p in ports if p.port.guid]),
        ("port", rule.port, [str(p.port.number) for p in ports]),
        ("link_layer", rule.link_layer, [p.port.link_layer for p in ports]),
    ):
        if wanted is None or any(_matches(rule, key, port) for port in ports):
            continue
        near = nearest(str(wanted), there) if key in ("device", "pci", "guid") else None
        hint = f" (nearest: {near})" if near else f" (there is {_some(there)})"
        wrong.append(f"no {key} {wanted}{hint if there else ''}")
    return " and ".join(wrong) or "no port has all of its keys together"


def _matches(rule: InterfaceRule, key: str, port: _Port) -> bool:
    """Whether ``port`` would be named if the rule had this key only."""
    alone = InterfaceRule(rule.number, rule.name)
    alone = replace(alone, **{key: getattr(rule, key)})
    return names_port(alone, port.device, port.port)


def nearest(name: str, there: Collection[str]) -> Optional[str]:
    """Return the one of ``there`` that looks most like ``name``, or None."""
    found = difflib.get_close_matches(name, list(dict.fromkeys(there)), n=1)
    return found[0] if found else None


def _some(names: Collection[str]) -> str:
    return ", ".join(list(dict.fromkeys(names))[:4])


def _fix(ports: list[_Port]) -> str:
    if not ports:
        return "a policy for several hosts may name what only some have; see DRIVER-01"
    here = ", ".join(port.name for port in ports[:8])
    return f"here are: {here}; a policy for several hosts may name what others have"


def _modules(view: View) -> Iterator[Finding]:
    """Give a finding for each name that is no module's but looks like one. Modules
    that this kernel lacks are MODULE-02's.
    """
    modules = view.facts.modules
    there = {*(modules.available or ()), *modules.loaded}
    options = (option.module for option in view.policy.host.module_options)
    for name in dict.fromkeys(map(module_name, (*view.policy.host.modules, *options))):
        near = None if name in CONCERNED else nearest(name, there)
        if near:
            sentence = f"the policy names the module {name}; did you mean {near}?"
            yield Finding(ID, name, WARN, sentence, f"modinfo {name}")


RULE = Rule(
    id=ID,
    title="policy that names nothing here",
    what=(
        "Each interface rule of the policy should name at least one port and netdev of "
        "this host, and win there; each module that it names should exist."
    ),
    why=(
        "The policy is one file for all hosts, so a rule may well be for another one. "
        "But a mistyped GUID looks the same, and then nothing is set, quietly. The "
        "first rule that names a netdev wins; one that comes later and names nothing "
        "else has no effect."
    ),
    fix=(
        "Compare the rule with ovirt-rdma-host facts. The nearest name is only a hint: "
        "what is not named exactly is not touched."
    ),
    sources=("docs/policy.md",),
    decide=decide,
)

RULES = (RULE,)
