# SPDX-License-Identifier: GPL-2.0-or-later
"""POLICY-01: report policy rules that name nothing on this host. Pure.

The nearest name is only a hint: a device is never changed because its name is similar.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ovirt_rdma.host.errors import did_you_mean
from ovirt_rdma.host.facts.module_names import CONCERNED, module_name
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.policy.model import (
    InterfaceRule,
    VfRule,
    names_pkey,
    names_port,
    vf_rule_for,
)
from ovirt_rdma.host.rules.base import PASS, About, Finding, Rule
from ovirt_rdma.host.rules.ipoib_children import required_children
from ovirt_rdma.host.rules.view import Port, View


def _names(view: View) -> Iterator[Finding]:
    """Yield a finding for each rule of interfaces or VFs, and each unknown module."""
    host = view.policy.host
    if host.is_empty:
        yield About(NAMES.id).skips("the policy has no host part")
    for rule in host.interfaces:
        yield _interface(view, rule)
    yield from _modules(view)
    for vf_rule in host.virtual_functions:
        yield _vfs(view, vf_rule)


def _interface(view: View, rule: InterfaceRule) -> Finding:
    about, title = About(NAMES.id, rule.name), rule.title
    named = [port for port in view.ports if rule in port.rules]
    if not named:
        why = _why(rule, view.ports)
        present = ", ".join(port.name for port in view.ports[:8])
        fix = "nothing to fix if the rule is for other hosts; "
        fix += f"ports here: {present}" if present else "else see DRIVER-01"
        return about.warns(f"{title} names no port of this host: {why}", fix)
    ruled = [one.name for one in view.interfaces if one.wanted == rule]
    if ruled:
        return about.passes(f"{title} names {', '.join(ruled)}")
    of_ports = [netdev for port in named for netdev in view.on_port(port)]
    places = ", ".join(port.name for port in named)
    if not of_ports:
        return about.warns(
            f"{title} names {places}, which has no netdev",
            "ip link; an InfiniBand port has a netdev if ib_ipoib is loaded",
        )
    with_pkey = [one for one in of_ports if names_pkey(rule, one.netdev)]
    if not with_pkey and _is_planned(view, rule):
        return about.passes(f"{title} names a P_Key child that the plan creates")
    if not with_pkey:
        fix = f"pkey_children: [{rule.pkey}] in another rule creates one"
        if view.policy.host.follows_partitions:
            fix += ", or partitions: follow if the port is in that partition"
        sentence = f"{title} names {places}, but no netdev there has {rule.pkey}"
        return about.warns(sentence, fix)
    winners = {interface.wanted.title for interface in with_pkey if interface.wanted}
    netdevs = ", ".join(interface.name for interface in with_pkey)
    return about.warns(
        f"{title} has no effect: {', '.join(sorted(winners))} names {netdevs} before "
        "it",
        "move the more specific rule to the front",
    )


def _is_planned(view: View, rule: InterfaceRule) -> bool:
    """Whether another rule requires a child with the P_Key that this one names."""
    wanted = [p for r in view.policy.host.interfaces for p in r.pkey_children]
    wanted += [child.pkey for child in required_children(view)]  # of partitions: follow
    own = partition_of(rule.pkey)
    return own is not None and own in map(partition_of, wanted)


def _why(rule: InterfaceRule, ports: Sequence[Port]) -> str:
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
        # If the rule had this key only.
        alone = InterfaceRule(rule.number, rule.name)
        alone = replace(alone, **{key: getattr(rule, key)})
        if wanted is None or any(names_port(alone, p.device, p.port) for p in ports):
            continue
        near = ""
        if key in ("device", "pci", "guid"):
            near = did_you_mean(str(wanted), present)
        hint = f" ({near or 'present: ' + _some(present)})"
        wrong.append(f"no {key} {wanted}{hint if present else ''}")
    return " and ".join(wrong) or "no port matches all of its keys"


def _some(names: Collection[str]) -> str:
    return ", ".join(list(dict.fromkeys(names))[:4])


def _vfs(view: View, rule: VfRule) -> Finding:
    about, host = About(NAMES.id, rule.name), view.policy.host
    names = dict.fromkeys(
        port.device.name
        for port in view.ports
        if vf_rule_for(host, port.device, port.port) == rule
    )
    if names:
        return about.passes(f"{rule.title} names {', '.join(names)}")
    return about.warns(
        f"{rule.title} names no RDMA device of this host",
        "nothing to fix if the rule is for other hosts; ovirt-rdma-host facts",
    )


def _modules(view: View) -> Iterator[Finding]:
    """Yield a finding for each unknown module name that is similar to a known one.

    MODULE-02 reports modules that this kernel does not have.
    """
    modules = view.facts.modules
    known = {*(modules.available or ()), *modules.loaded}
    options = (option.module for option in view.policy.host.module_options)
    for name in dict.fromkeys(map(module_name, (*view.policy.host.modules, *options))):
        near = "" if name in CONCERNED else did_you_mean(name, known)
        if near:
            yield About(NAMES.id, name).warns(
                f"the policy names an unknown module {name}; {near}",
                f"modinfo {name}",
            )


NAMES = Rule("POLICY-01", _names, "no module name in the policy looks mistyped", PASS)
