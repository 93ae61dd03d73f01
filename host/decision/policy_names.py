# SPDX-License-Identifier: GPL-2.0-or-later
"""POLICY-01: report policy rules that name nothing on this host. Pure.

The nearest name is only a hint: a device is never changed because its name is similar.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.module_names import CONCERNED, module_name
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.policy.model import (
    InterfaceRule,
    VfRule,
    names_pkey,
    names_port,
    vf_rule_for,
)
from ovirt_rdma.host.rules.base import HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.infiniband.children import required_children
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
    """Yield a finding for each interface rule, and each unknown module."""
    host = view.policy.host
    if host.is_empty:
        yield Finding(ID, HOST, SKIP, "the policy has no host part")
        return
    ports = [_Port(d, p) for d in view.facts.rdma_devices for p in d.ports]
    findings = [_interface(view, rule, ports) for rule in host.interfaces]
    findings += _modules(view)
    findings += [_vfs(view, rule) for rule in host.virtual_functions]
    yield from findings
    if not findings:
        yield Finding(ID, HOST, PASS, "no module name in the policy looks mistyped")


def _interface(view: View, rule: InterfaceRule, ports: list[_Port]) -> Finding:
    subject = rule.name
    named = [port for port in ports if names_port(rule, port.device, port.port)]
    if not named:
        sentence = f"{rule.title} names no port of this host: {_why(rule, ports)}"
        return Finding(ID, subject, WARN, sentence, _fix(ports))
    ruled = [
        interface.name for interface in view.interfaces if interface.wanted == rule
    ]
    if ruled:
        return Finding(ID, subject, PASS, f"{rule.title} names {', '.join(ruled)}")
    of_ports = [interface for interface in view.interfaces if _is_on(interface, named)]
    places = ", ".join(port.name for port in named)
    if not of_ports:
        sentence = f"{rule.title} names {places}, which has no netdev"
        fix = "ip link; an InfiniBand port has a netdev if ib_ipoib is loaded"
        return Finding(ID, subject, WARN, sentence, fix)
    with_pkey = [
        interface for interface in of_ports if names_pkey(rule, interface.netdev)
    ]
    if not with_pkey and _is_planned(view, rule):
        sentence = f"{rule.title} names a P_Key child that the plan creates"
        return Finding(ID, subject, PASS, sentence)
    if not with_pkey:
        sentence = f"{rule.title} names {places}, but no netdev there has {rule.pkey}"
        fix = f"pkey_children: [{rule.pkey}] in another rule creates one"
        if view.policy.host.follows_partitions:
            fix += ", or partitions: follow if the port is in that partition"
        return Finding(ID, subject, WARN, sentence, fix)
    winners = {interface.wanted.title for interface in with_pkey if interface.wanted}
    netdevs = ", ".join(interface.name for interface in with_pkey)
    return Finding(
        ID,
        subject,
        WARN,
        f"{rule.title} has no effect: {', '.join(sorted(winners))} names {netdevs} "
        "before it",
        "move the more specific rule to the front",
    )


def _is_planned(view: View, rule: InterfaceRule) -> bool:
    """Whether another rule requires a child with the P_Key that this one names."""
    wanted = [p for r in view.policy.host.interfaces for p in r.pkey_children]
    wanted += [child.pkey for child in required_children(view)]  # of partitions: follow
    own = partition_of(rule.pkey)
    return own is not None and own in map(partition_of, wanted)


def _is_on(interface: Interface, ports: list[_Port]) -> bool:
    return any(interface.device is p.device and interface.port is p.port for p in ports)


def _why(rule: InterfaceRule, ports: list[_Port]) -> str:
    """Return which keys of the rule match no port, with the nearest name of each."""
    if not ports:
        return "it has no RDMA device"
    wrong = []
    for key, wanted, present in (
        ("device", rule.device, [p.device.name for p in ports]),
        ("pci", rule.pci, [p.device.pci.address for p in ports if p.device.pci]),
        ("guid", rule.guid, [p.port.guid for p in ports if p.port.guid]),
        ("port", rule.port, [str(p.port.number) for p in ports]),
        ("link_layer", rule.link_layer, [p.port.link_layer for p in ports]),
    ):
        if wanted is None or any(_matches(rule, key, port) for port in ports):
            continue
        near = None
        if key in ("device", "pci", "guid"):
            near = nearest(str(wanted), present)
        hint = f" (nearest: {near})" if near else f" (present: {_some(present)})"
        wrong.append(f"no {key} {wanted}{hint if present else ''}")
    return " and ".join(wrong) or "no port matches all of its keys"


def _matches(rule: InterfaceRule, key: str, port: _Port) -> bool:
    """Whether ``port`` would match if the rule had this key only."""
    alone = InterfaceRule(rule.number, rule.name)
    alone = replace(alone, **{key: getattr(rule, key)})
    return names_port(alone, port.device, port.port)


def nearest(name: str, present: Collection[str]) -> Optional[str]:
    """Return the name in ``present`` that is most similar to ``name``, or None."""
    matches = difflib.get_close_matches(name, list(dict.fromkeys(present)), n=1)
    return matches[0] if matches else None


def _some(names: Collection[str]) -> str:
    return ", ".join(list(dict.fromkeys(names))[:4])


def _fix(ports: list[_Port]) -> str:
    if not ports:
        return "nothing to fix if the rule is for other hosts; else see DRIVER-01"
    present = ", ".join(port.name for port in ports[:8])
    return f"nothing to fix if the rule is for other hosts; ports here: {present}"


def _vfs(view: View, rule: VfRule) -> Finding:
    devices = [
        device.name
        for device in view.facts.rdma_devices
        if any(vf_rule_for(view.policy.host, device, p) == rule for p in device.ports)
    ]
    if devices:
        names = ", ".join(devices)
        return Finding(ID, rule.name, PASS, f"{rule.title} names {names}")
    sentence = f"{rule.title} names no RDMA device of this host"
    fix = "nothing to fix if the rule is for other hosts; ovirt-rdma-host facts"
    return Finding(ID, rule.name, WARN, sentence, fix)


def _modules(view: View) -> Iterator[Finding]:
    """Yield a finding for each unknown module name that is similar to a known one.

    MODULE-02 reports modules that this kernel does not have.
    """
    modules = view.facts.modules
    known = {*(modules.available or ()), *modules.loaded}
    options = (option.module for option in view.policy.host.module_options)
    for name in dict.fromkeys(map(module_name, (*view.policy.host.modules, *options))):
        near = None if name in CONCERNED else nearest(name, known)
        if near:
            sentence = f"the policy names an unknown module {name} (nearest: {near})"
            yield Finding(ID, name, WARN, sentence, f"modinfo {name}")


RULE = Rule(ID, decide)

RULES = (RULE,)
