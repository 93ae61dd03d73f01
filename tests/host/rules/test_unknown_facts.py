# SPDX-License-Identifier: GPL-2.0-or-later
"""Unknown is never taken for good: every fact of every golden host, made unknown.

A PASS rests on a fact if another value of the fact makes the same rule say WARN or FAIL
of the same subject; a step rests on it if another value takes the step away, or refuses
it. Neither may be there if the fact is unknown.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections import defaultdict
from dataclasses import replace

import pytest
from support.golden.golden_hosts import DATA
from support.host.rule_cases import sound_server

from ovirt_rdma.host.facts.devices import Buffer, NetworkManager, Property
from ovirt_rdma.host.facts.infiniband import AUTO, CONNECTED, DATAGRAM
from ovirt_rdma.host.facts.model import UNKNOWN, load
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy, RoceClass
from ovirt_rdma.host.policy.texts import OFF, ON
from ovirt_rdma.host.rules.base import FAIL, PASS, WARN
from ovirt_rdma.host.rules.ipoib import ETHERNET_MTU, MTU, TRANSPORT_MODE, TSO
from ovirt_rdma.host.rules.nfs_server import ALL_RULES
from ovirt_rdma.host.rules.registry import SERVER_RULES, decide

SERVER, LOSSLESS = "an NFS server", "a lossless class"
PATHS = "two paths to a server"
HOSTS = [*sorted(p.parent.name for p in DATA.glob("*/facts.json"))]
HOSTS += [SERVER, LOSSLESS, PATHS]
# None there is "there is none", which is known, and why.
ABSENT = {
    "Adapter.driver": "no driver is bound",
    "Adapter.physical_function": "it is no virtual function",
    "Adapter.vfs": "it has no SR-IOV",
    "Adapter.max_vfs": "it has no SR-IOV",
    "Facts.network_manager": "it is not installed",
    "Ipoib.parent": "it is no P_Key child",
    "Ipoib.pkey": "the name of a child has it too, and a base netdev has its port's",
    "Netdev.bond": "it is no bond",
    "Netdev.dcb": "all in it is unknown",
    "Netdev.ipoib": "it is no IPoIB netdev",
    "Netdev.pci": "it is a virtual netdev",
    "Netdev.rdma_device": "it is of no RDMA port",
    "Netdev.rdma_port": "it is of no RDMA port",
    "NfsExport.free_files": "the file system has no limit of files",
    "NfsExport.problem": "the folder can be looked at",
    "OvirtNetwork.southbound": "the network has no NIC",
    "Profile.active_on": "it is not active",
    "Profile.file": "it is in memory only",
    "Profile.interface_name": "it names no netdev",
    "RdmaPort.guid": "the port of a virtual function has none yet",
    "RdmaDevice.hw_rev": "the PCI revision says the same",
}
# Texts that say UNKNOWN in place of None.
TEXTS = {
    *("RdmaPort.state", "RdmaPort.physical_state", "RdmaDevice.node_type"),
    *("Facts.kernel_release", "Bond.mode", "Netdev.operstate", "Netdev.address"),
}
# The policy names the MTU. The kernel refuses one that the port cannot have, and apply
# rolls back; of Omni-Path's ports the largest one is never known.
NAMED = {("RdmaPort.max_mtu", "IPOIB-MTU-01"), ("RdmaPort.active_mtu", "IPOIB-MTU-01")}
# One tool shows both: they are unknown together.
TOGETHER = {"max_mtu": "active_mtu", "active_mtu": "max_mtu"}
# As many of each kind of fact for each host, and as many other values of each.
MOST, VALUES = 3, 3


@functools.cache
def _host(name):
    if name == SERVER:
        facts = load(DATA / "connectx-6-dx-roce/facts.json")
        return replace(facts, nfs_server=sound_server()), Policy()
    if name == LOSSLESS:
        return lossless(load(DATA / "connectx-6-dx-roce/facts.json"))
    if name == PATHS:
        text = "{server: '*', transport: require-rdma, paths: [10.99.0.1, 10.98.0.1]}"
        policy = parse_policy(f"version: 1\nnfs: {{rules: [{text}]}}", "policy.yaml")
        return load(DATA.parent / "facts/roce-nic.json"), policy.policy
    folder = DATA / name
    text = (folder / "policy.yaml").read_text()
    return load(folder / "facts.json"), parse_policy(text, "policy.yaml").policy


def lossless(facts):
    """Return facts of RoCE with the lossless class of a policy, and the policy."""
    buffers = (Buffer(130944, (0, 1, 2, 4, 5, 6, 7)), Buffer(131072, (3,)))

    def of(netdev):
        dcb = netdev.dcb
        return replace(netdev, dcb=dcb and replace(dcb, buffers=buffers))

    def told(device):
        ports = (replace(port, default_tos=106) for port in device.ports)
        return replace(device, ports=tuple(ports))

    facts = replace(
        facts,
        netdevs=tuple(map(of, facts.netdevs)),
        rdma_devices=tuple(map(told, facts.rdma_devices)),
    )
    roce = RoceClass(3, buffer=131072)
    rule = InterfaceRule(1, "storage", link_layer="ethernet", roce=roce)
    return facts, Policy(host=HostPolicy(interfaces=(rule,)))


@functools.cache
def _hints(kind):
    return typing.get_type_hints(kind)


def _leaves(record, path=()):
    """Yield path, name and value of each field that can be unknown."""
    for field in dataclasses.fields(record):
        here, value = (*path, field.name), getattr(record, field.name)
        name = f"{type(record).__name__}.{field.name}"
        optional = typing.get_origin(_hints(type(record))[field.name]) is typing.Union
        if optional or name in TEXTS:
            yield here, name, value
        several = value if isinstance(value, tuple) else ()
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, here)
        for at, one in enumerate(several):
            if dataclasses.is_dataclass(one):
                yield from _leaves(one, (*here, at))


def _with(record, path, value):
    first, *rest = path
    if isinstance(first, int):
        one = _with(record[first], rest, value) if rest else value
        return (*record[:first], one, *record[first + 1 :])
    old = getattr(record, first)
    return replace(record, **{first: _with(old, rest, value) if rest else value})


@functools.cache
def _pool():
    """All values of each fact in any host."""
    values = defaultdict(dict)
    for name in HOSTS:
        for _, fact, value in _leaves(_host(name)[0]):
            if value not in (None, UNKNOWN):
                values[fact][value] = None
    return values


def _others(path, fact, value):
    others = [one for one in _pool()[fact] if one != value]
    if isinstance(value, bool):
        others = [not value]
    elif type(value) is int:
        others = [0, value // 2, *others] if value > 1 else [*others, 1 - value]
    elif isinstance(value, tuple):
        others = [(), *others]
    if path[-1] in TOGETHER:  # what there is, besides Omni-Path's
        others = [one for one in (2048, 4096) if one != value]
    return list(dict.fromkeys(others))[:VALUES]


def _decided(facts, policy):
    decision = decide(facts, policy, rules=ALL_RULES if facts.nfs_server else None)
    verdicts = defaultdict(set)
    for finding in decision.findings:
        verdicts[finding.rule, finding.subject].add(finding.verdict)
    return verdicts, {step.id: bool(step.refused) for step in decision.steps}


def _rests_on(facts, policy, path, fact, value):
    """Return what is good, or planned, although the fact is unknown."""
    unknown = UNKNOWN if fact in TEXTS else None
    blank = _with(facts, path, unknown)
    if path[-1] in TOGETHER:
        blank = _with(blank, (*path[:-1], TOGETHER[path[-1]]), None)
    for other in _others(path, fact, value):
        known = _with(facts, path, other)
        for what in _wrong(policy, blank, known, fact):
            yield f"{what} without {fact}, and not with {other!r}"


def _wrong(policy, blank, known, fact):
    """Yield what is good or planned with the ``fact`` unknown, and not with it."""
    verdicts, steps = _decided(blank, policy)
    found, planned = _decided(known, policy)
    for about, said in verdicts.items():
        if said & {PASS, WARN, FAIL} == {PASS} and found[about] & {WARN, FAIL}:
            yield f"{about} passes"
    for step, refused in steps.items():
        named = (fact, step.partition("/")[0]) in NAMED
        if not refused and not named and planned.get(step, True):
            yield f"{step} is planned"


@pytest.mark.parametrize("name", HOSTS)
def test_unknown_is_never_good(name):
    facts, policy = _host(name)
    seen: dict[str, int] = defaultdict(int)
    wrong = []
    for path, fact, value in _leaves(facts):
        if value in (None, UNKNOWN) or fact in ABSENT:
            continue
        seen[fact] += 1
        if seen[fact] <= MOST:
            wrong += _rests_on(facts, policy, path, fact, value)
    assert wrong == []


# What a profile may have otherwise.
IN_PROFILES = {
    TRANSPORT_MODE: (CONNECTED, DATAGRAM),
    MTU: ("1500", "2044", "65520"),
    ETHERNET_MTU: ("1500", "9000"),
    TSO: (ON, OFF),
}


def _profiles(manager):
    """Yield ``manager`` as it is, and with another value in one of its profiles."""
    yield manager
    for at, profile in enumerate(manager.profiles):
        for name, values in IN_PROFILES.items():
            rest = [one for one in profile.properties if one.name != name]
            for value in values:
                properties = (*rest, Property(name, value))
                changed = replace(profile, properties=properties)
                yield _with(manager, ("profiles", at), changed)


@pytest.mark.parametrize("choice", [None, AUTO, OFF, ON])
@pytest.mark.parametrize("name", HOSTS)
def test_nothing_is_good_where_nmcli_has_failed(name, choice):
    """It shows the state, the devices and the profiles: all are unknown together.
    With ``choice`` the policy is of what there is, and of TSO as it says.
    """
    facts, policy = _host(name)
    if choice:
        ports = {(n.rdma_device, n.rdma_port): n for n in facts.netdevs}
        rules = [
            InterfaceRule(
                number,
                f"r{number}",
                device=device,
                port=port,
                mtu=AUTO if choice == AUTO else netdev.mtu,
                transport_mode=netdev.ipoib and netdev.ipoib.mode,
                tso=choice,
            )
            for number, ((device, port), netdev) in enumerate(ports.items(), 1)
            if device
        ]
        policy = replace(policy, host=HostPolicy(interfaces=tuple(rules)))
    blank = replace(facts, network_manager=NetworkManager(None))
    wrong = [
        f"{what} without nmcli, and not with {manager!r}"
        for manager in _profiles(facts.network_manager or NetworkManager(True))
        for what in _wrong(policy, blank, replace(facts, network_manager=manager), "")
    ]
    assert wrong == []


def test_nothing_is_wrong_on_the_sound_server():
    facts, policy = _host(SERVER)
    decision = decide(facts, policy, rules=SERVER_RULES)
    assert {f.verdict for f in decision.findings} == {PASS}
    assert {f.rule for f in decision.findings} == {rule.id for rule in SERVER_RULES}


def test_the_exceptions_are_facts_that_there_are():
    known = {name for _, name, _ in _leaves(_host("virtual-functions-in-use")[0])}
    known |= {name for host in HOSTS for _, name, _ in _leaves(_host(host)[0])}
    assert set(ABSENT) | TEXTS <= known
