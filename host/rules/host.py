# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about the host as a whole: units, the daemon, VDSM's version, unread facts, and
policy rules that name nothing. Pure.

The nearest name is only a hint: a device is never changed because its name is similar.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.errors import did_you_mean
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.facts.model import CONCERNED, RUNNING, module_name
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.policy.model import (
    InterfaceRule,
    names_pkey,
    names_port,
    vf_rule_for,
)
from ovirt_rdma.host.rules.base import (
    FAIL,
    PASS,
    WARN,
    About,
    Finding,
    Outcome,
    Port,
    Rule,
    View,
)
from ovirt_rdma.host.rules.ipoib import required_children
from ovirt_rdma.host.rules.modules import (
    OPENIBD,
    RDMA_LISTS,
    has_rdma_core,
    list_unit,
    lists_for,
    openibd_runs,
)

TARGET = "rdma-hw.target"
_WATCHED = ("rdma-", "openibd", "opensm", "srp_daemon", "iwpmd")


def _units(view: View) -> Iterator[Finding]:
    units, devices = view.facts.software.units, view.facts.rdma_devices
    failed = [u for u in units if u.active == "failed" and u.name.startswith(_WATCHED)]
    openibd, rdma_core = openibd_runs(view), has_rdma_core(view)
    # Those that systemd starts for the devices that are there.
    expected = {TARGET, *map(list_unit, lists_for(devices))} if devices else ()
    idle = [
        unit.name
        for unit in units
        if unit.name in expected
        and unit.load == "loaded"
        and unit.active not in ("active", "failed", "activating")
        and not openibd
    ]
    for unit in failed:
        hint = ""
        if unit.name.startswith("rdma-load-modules@"):
            name = unit.name.partition("@")[2].partition(".")[0]
            hint = f"; {RDMA_LISTS}{name}.conf may name a missing module"
        yield About(UNITS.id, unit.name).warns(
            f"{unit.name} has failed", f"journalctl -b -u {unit.name}{hint}"
        )
    if openibd:
        # It unloads and reloads the modules that rdma-core's units have loaded.
        besides = ", and rdma-core's units do too" if rdma_core else ""
        yield About(UNITS.id, OPENIBD).warns(
            f"openibd loads the RDMA modules on this host{besides}",
            "with the distribution's drivers: systemctl disable --now openibd; with "
            "MLNX_OFED: never restart openibd while storage is mounted",
        )
    if idle and rdma_core:
        yield About(UNITS.id, idle[0]).warns(
            f"the host has an RDMA device, but these are inactive: {', '.join(idle)}",
            f"systemctl start {' '.join(idle)}",
        )
    elif not units:
        yield About(UNITS.id).skips("the state of systemd's units is unknown")
    elif not (failed or openibd) and not (devices and rdma_core is not False):
        yield About(UNITS.id).skips(
            "no RDMA device, or rdma-core's units are not installed"
        )


# More would hide the other findings; facts -o json has them all.
_SHOWN = 20


def _unread(view: View) -> Iterator[Finding]:
    problems, about = view.facts.problems, About(UNREAD.id)
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "a fact could not be read"
        yield about.warns(sentence, _fix(problem))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more facts could not be read"
        yield about.warns(sentence, "ovirt-rdma-host facts shows them")


_TOOL = (
    "(?P<tool>dcb|ethtool|fapolicyd-cli|ibv_devinfo|ip|nmcli|nsenter|"
    "ofed_info|rdma|rpm|systemctl)"
)
# What to do about a problem: the first whose pattern is in its text.
_FIXES = (
    ("(?i)permission denied|not permitted", "run it as root"),
    (" was not run: ", "run it on that host itself"),
    ("disappeared during the read", "run it again"),
    (
        rf"^{_TOOL}\b.* failed: No such file",
        "install the tool: dnf install '*/*bin/{tool}'",
    ),
    (
        rf"^{_TOOL}\b.* (?:no answer|timed out)\b",
        "see which service or driver holds it up: journalctl -b -n 50",
    ),
    # A warning of it; NFS does not need programs' libraries (libibverbs/init.c).
    (
        "libibverbs: Warning",
        "update rdma-core, or install the library of a vendor's driver; until then "
        "programs do not see the adapter, and NFS is not affected",
    ),
    (
        rf"^(?P<command>{_TOOL}\b.*?) (?:failed|printed|prints|does not|shows)\b",
        "see what it says: {command}",
    ),
    ("^/(?:sys|proc)/", "see the driver's messages: journalctl -k"),
    (r"^(?P<path>/\S+)", "look at the file, and correct it: ls -l {path}"),
    ("", "look at it on the host; until then it counts as unknown"),
)


def _fix(problem: str) -> str:
    found = ((re.search(pattern, problem), fix) for pattern, fix in _FIXES)
    match, fix = next((match, fix) for match, fix in found if match)
    # Quoted, because a problem may be the text of another host.
    words = {name: text.split() for name, text in match.groupdict().items()}
    return fix.format(**{name: shlex.join(words[name]) for name in words})


# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def _vdsm(view: View) -> Iterator[Finding]:
    if not view.ipoib:
        return
    text, about = view.facts.software.vdsm_version, About(VDSM.id)
    version = parsed(text)
    if version is None:
        sentence = f"VDSM's version is unknown ({text!a})"
        yield about.skips(sentence, f"rpm -q vdsm; {_FIRST_TEXT} is required")
    elif version >= FIRST:
        yield about.passes(f"VDSM {text} reports IPoIB netdevs as NICs")
    else:
        names = ", ".join(interface.name for interface in view.ipoib)
        used = any(interface.wanted for interface in view.ipoib)
        yield about.finds(
            FAIL if used else WARN,
            f"VDSM {text} does not report {names} to the engine",
            f"update VDSM to {_FIRST_TEXT} or later",
        )


def parsed(text: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return the leading numbers of a version; None if the text is not a version."""
    match = _VERSION.match(text or "")
    return tuple(int(n) for n in match.group(1).split(".")) if match else None


UNITS = Rule("UNIT-01", _units, "no unit of rdma-core has failed", PASS)
UNREAD = Rule("FACTS-01", _unread, "all facts could be read", PASS)
VDSM = Rule("VDSM-01", _vdsm, "no IPoIB netdev, so any VDSM is sufficient")


_ENABLE = (
    "ovirt-rdma-host enable; with --mode host NFS mounts stay stock; if this host is "
    f"enabled: systemctl start {DAEMON_UNIT}"
)


def _daemon(view: View) -> Iterator[Outcome]:
    about, wanted = About(DAEMON.id), "; ".join(_wanted(view))
    unit = next((u for u in view.facts.software.units if u.name == DAEMON_UNIT), None)
    if not wanted:
        yield about.skips(
            "the policy has no health_interval, metrics_folder, paths, targets or "
            "rescan_interval, nor partitions: follow for a netdev of this host"
        )
    elif unit is None:
        yield about.skips(f"it is unknown if {DAEMON_UNIT} is running")
    elif unit.active in RUNNING:
        yield about.passes(f"{DAEMON_UNIT} is running: {wanted}")
    else:
        fix = _ENABLE
        if unit.load == "not-found":
            fix = "install the package ovirt-rdma-host again"
        elif unit.active == "failed":
            again = f"systemctl restart {DAEMON_UNIT}"
            fix = f"journalctl -b -u {DAEMON_UNIT}; then: {again}"
        said = f"{unit.load}, {unit.active}"
        yield about.fails(f"{DAEMON_UNIT} is not running ({said}), but {wanted}", fix)


def _wanted(view: View) -> Iterator[str]:
    interval = view.policy.nfs.health_interval
    folder = view.policy.host.metrics_folder
    parents = [interface.name for interface in view.ipoib if interface.follows]
    moved = [rule.title for rule in view.policy.nfs.rules if rule.paths]
    block = view.policy.block
    if interval:
        yield f"the mounts should be looked at every {interval} s"
    if folder:
        yield f"the metrics should be written into {folder}"
    if parents:
        yield f"the children of {', '.join(parents)} should follow the P_Key table"
    if moved:
        yield f"connections of {', '.join(moved)} should move when a path fails"
    if block.targets:
        yield "logins to block storage that fail should be repeated"
    if block.rescan_interval:
        yield f"LUNs should be rescanned every {block.rescan_interval} s"


DAEMON = Rule("DAEMON-01", _daemon)


def _names(view: View) -> Iterator[Finding]:
    host, modules = view.policy.host, view.facts.modules
    if host.is_empty:
        yield About(NAMES.id).skips("the policy has no host part")
    for rule in host.interfaces:
        yield _interface(view, rule)
    known = {*(modules.available or ()), *modules.loaded}
    named = (*host.modules, *(option.module for option in host.module_options))
    for name in dict.fromkeys(map(module_name, named)):
        near = "" if name in CONCERNED else did_you_mean(name, known)
        if near:
            sentence = f"the policy names an unknown module {name}; {near}"
            yield About(NAMES.id, name).warns(sentence, f"modinfo {name}")
    for vf_rule in host.virtual_functions:
        about, title = About(NAMES.id, vf_rule.name), vf_rule.title
        devices = dict.fromkeys(
            port.device.name
            for port in view.ports
            if vf_rule_for(host, port.device, port.port) == vf_rule
        )
        if devices:
            yield about.passes(f"{title} names {', '.join(devices)}")
        else:
            yield about.warns(
                f"{title} names no RDMA device of this host",
                "nothing to fix if the rule is for other hosts; ovirt-rdma-host facts",
            )


def _interface(view: View, rule: InterfaceRule) -> Finding:
    about, title = About(NAMES.id, rule.name), rule.title
    named = [port for port in view.ports if rule in port.rules]
    if not named:
        present = ", ".join(
            f"{place.name} ({place.port.link_layer}, {place.port.guid or 'no GUID'}, "
            f"{place.device.pci.address if place.device.pci else 'no PCI address'})"
            for place in view.ports[:8]
        )
        fix = "nothing to fix if the rule is for other hosts; "
        fix += f"ports here: {present}" if present else "else see DRIVER-01"
        why = _why(rule, view.ports)
        return about.warns(f"{title} names no port of this host: {why}", fix)
    of_ports = [netdev for port in named for netdev in view.on_port(port)]
    ruled = ", ".join(one.name for one in of_ports if one.wanted == rule)
    with_pkey = [one for one in of_ports if names_pkey(rule, one.netdev)]
    places = ", ".join(port.name for port in named)
    if ruled:
        return about.passes(f"{title} names {ruled}")
    if not of_ports:
        return about.warns(
            f"{title} names {places}, which has no netdev",
            "ip link; an InfiniBand port has a netdev if ib_ipoib is loaded",
        )
    # Those that another rule names, and those of partitions: follow.
    children = [p for r in view.policy.host.interfaces for p in r.pkey_children]
    children += [child.pkey for child in required_children(view)]
    own = partition_of(rule.pkey)
    if not with_pkey and own and own in map(partition_of, children):
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


def _why(rule: InterfaceRule, ports: Sequence[Port]) -> str:
    """Return which keys of the rule match no port."""
    if not ports:
        return "it has no RDMA device"
    wrong = []
    for key in ("device", "pci", "guid", "port", "link_layer"):
        wanted = getattr(rule, key)
        alone = replace(InterfaceRule(rule.number, rule.name), **{key: wanted})
        if wanted and not any(names_port(alone, p.device, p.port) for p in ports):
            wrong.append(f"no {key} {wanted}")
    return " and ".join(wrong) or "no port matches all of its keys"


NAMES = Rule("POLICY-01", _names, "no module name in the policy looks mistyped", PASS)
