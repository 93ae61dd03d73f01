# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about the host as a whole. Pure.

UNIT-01 checks rdma-core's units and openibd. FACTS-01 reports facts that could not be
read. VDSM-01 checks that VDSM reports IPoIB netdevs. DAEMON-01: the daemon runs, if the
policy wants something of it; there is no step, it runs while the host is enabled.
POLICY-01 reports policy rules that name nothing on this host; the nearest name is only
a hint: a device is never changed because its name is similar.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.errors import did_you_mean
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.facts.model import CONCERNED, Unit, module_name
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.policy.model import (
    InterfaceRule,
    VfRule,
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
from ovirt_rdma.host.rules.ipoib_children import required_children
from ovirt_rdma.host.rules.modules import (
    OPENIBD,
    file_of,
    has_rdma_core,
    is_of_the_kernel,
    list_unit,
    lists_for,
    openibd_runs,
)

TARGET = "rdma-hw.target"
_WATCHED = ("rdma-", "openibd", "opensm", "srp_daemon", "iwpmd")


def _units(view: View) -> Iterator[Finding]:
    """Yield a finding for each unit in a wrong state."""
    units = view.facts.software.units
    if not units:
        yield About(UNITS.id).skips("the state of systemd's units is unknown")
        return
    findings = [*_failed(view), *_openibd(view), *_inactive(view)]
    yield from findings
    if findings:
        return
    if not view.facts.rdma_devices:
        yield About(UNITS.id).skips("no RDMA device, so rdma-core's units are inactive")
    elif has_rdma_core(view) is False:
        yield About(UNITS.id).skips("rdma-core's units are not installed")


def _failed(view: View) -> Iterator[Finding]:
    for unit in view.facts.software.units:
        if unit.active == "failed" and unit.name.startswith(_WATCHED):
            hint = ""
            if unit.name.startswith("rdma-load-modules@"):
                name = unit.name.partition("@")[2].partition(".")[0]
                hint = f"; /etc/rdma/modules/{name}.conf may name a missing module"
            yield About(UNITS.id, unit.name).warns(
                f"{unit.name} has failed", f"journalctl -b -u {unit.name}{hint}"
            )


def _openibd(view: View) -> Iterator[Finding]:
    """Yield a finding if MLNX_OFED's openibd is active: it unloads and reloads the
    modules that rdma-core's units have loaded.
    """
    if openibd_runs(view):
        sentence = "openibd and rdma-core are both active, and both load RDMA modules"
        if has_rdma_core(view) is not True:
            sentence = "openibd loads the RDMA modules on this host"
        yield About(UNITS.id, OPENIBD).warns(
            sentence,
            "with the distribution's drivers: systemctl disable --now openibd; with "
            "MLNX_OFED: never restart openibd while storage is mounted",
        )


def _inactive(view: View) -> Iterator[Finding]:
    """Yield a finding if units are inactive that systemd starts for a known device."""
    if not view.facts.rdma_devices or not has_rdma_core(view) or openibd_runs(view):
        return
    names = lists_for(view.facts.rdma_devices)
    expected = {TARGET, *(list_unit(name) for name in names)}
    idle = [
        unit.name
        for unit in view.facts.software.units
        if unit.name in expected
        and unit.load == "loaded"
        and unit.active not in ("active", "failed", "activating")
    ]
    if idle:
        verb = "is" if len(idle) == 1 else "are"
        yield About(UNITS.id, idle[0]).warns(
            f"the host has an RDMA device, but {', '.join(idle)} {verb} inactive",
            f"systemctl start {' '.join(idle)}",
        )


# More would hide the other findings; facts -o json has them all.
_SHOWN = 20


def _unread(view: View) -> Iterator[Finding]:
    """Yield a finding for each problem of the facts."""
    problems, about = view.facts.problems, About(UNREAD.id)
    for problem in problems[:_SHOWN]:
        sentence = problem.rstrip(".") or "a fact could not be read"
        cause, fix = _library(view, problem)
        yield about.warns(f"{sentence}{cause}", fix or _fix(problem))
    left = len(problems) - _SHOWN
    if left > 0:
        sentence = f"{left} more facts could not be read"
        yield about.warns(sentence, "ovirt-rdma-host facts shows them")


_KERNEL = "the kernel or a driver holds it up: journalctl -k -g 'blocked for more'"
# Where to look if a tool does not answer: at what it asks.
_SILENT = {
    **dict.fromkeys(
        ("dcb", "ethtool", "ibv_devinfo", "ip", "nsenter", "rdma"), _KERNEL
    ),
    **dict.fromkeys(
        ("dpkg-query", "ofed_info", "rpm"),
        "wait for what holds the package database: ps -C dnf,rpm,apt-get,dpkg",
    ),
    "fapolicyd-cli": "systemctl status fapolicyd",
    "nmcli": "systemctl status NetworkManager",
    "systemctl": "systemd does not answer: journalctl -b _PID=1 -n 30",
}
_TOOL = f"(?P<tool>{'|'.join(_SILENT)})"
# What to do about a problem: the first whose pattern is in its text.
_FIXES = tuple(
    (re.compile(pattern), fix)
    for pattern, fix in (
        ("(?i)permission denied|not permitted", "run it as root"),
        (" was not run: ", "run it on that host itself"),
        ("disappeared during the read", "run it again"),
        (
            rf"^{_TOOL}\b.* failed: No such file",
            "install the tool: dnf install '*bin/{tool}'",
        ),
        *(
            (rf"^{tool}\b.* (?:no answer|timed out)", look)
            for tool, look in _SILENT.items()
        ),
        (
            rf"^(?P<command>{_TOOL}\b.*?) (?:failed|printed|prints|does not|shows)\b",
            "see what it says: {command}",
        ),
        ("^/(?:sys|proc)/", "see the driver's messages: journalctl -k"),
        (r"^(?P<path>/\S+)", "look at the file, and correct it: ls -l {path}"),
        ("", "look at it on the host; until then it counts as unknown"),
    )
)


# Warnings of libibverbs (rdma-core, libibverbs/init.c).
_ABI = re.compile(r"Driver (\w+) does not support the kernel ABI of")
_NO_PROVIDER = "no userspace device-specific driver found"
_PROGRAMS = "programs (ibv_devinfo, perftest, qemu) do not see it, NFS is not affected"


def _library(view: View, problem: str) -> tuple[str, str]:
    """Return why libibverbs does not use an adapter that the kernel has, and the fix;
    empty if the problem is another one.
    """
    match = _ABI.search(problem)
    if match:
        driver = match[1]
        path = file_of(view.facts.modules, driver)
        if path and not is_of_the_kernel(path):
            return (
                f" (the kernel's {driver} is a vendor's, {path}, and this rdma-core is "
                f"too old for it: {_PROGRAMS})",
                f"install the library for it from the vendor too (lib{driver}), or "
                f"remove the vendor's {driver} and use the kernel's own",
            )
        return (
            f" (this rdma-core is too old for the kernel's {driver}: {_PROGRAMS})",
            "update rdma-core and libibverbs",
        )
    if _NO_PROVIDER in problem:
        return (
            f" (libibverbs has no provider for the adapter: {_PROGRAMS})",
            "install the providers: dnf install libibverbs, or apt install "
            "ibverbs-providers",
        )
    return "", ""


def _fix(problem: str) -> str:
    """Return what to do about the cause that the problem's text names."""
    found = ((pattern.search(problem), fix) for pattern, fix in _FIXES)
    match, fix = next((match, fix) for match, fix in found if match)
    # Quoted, because a problem may be the text of another host.
    words = {name: text.split() for name, text in match.groupdict().items()}
    return fix.format(**{name: shlex.join(words[name]) for name in words})


# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def _vdsm(view: View) -> Iterator[Finding]:
    """Yield one finding for a host with IPoIB."""
    if not view.ipoib:
        return
    text, about = view.facts.software.vdsm_version, About(VDSM.id)
    version = parsed(text)
    if version is None:
        sentence = "VDSM's version is unknown"
        if text:
            sentence = f"VDSM's version {text!a} is not a version number"
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


# While it starts, systemd calls it activating.
_RUNS = ("active", "activating", "reloading")
_ENABLE = (
    "ovirt-rdma-host enable; with --mode host NFS mounts stay stock; if this host is "
    f"enabled: systemctl start {DAEMON_UNIT}"
)


def _daemon(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host."""
    about, wanted = About(DAEMON.id), "; ".join(_wanted(view))
    unit = next((u for u in view.facts.software.units if u.name == DAEMON_UNIT), None)
    if not wanted:
        sentence = "the policy has no health_interval, metrics_folder or partitions"
        yield about.skips(f"{sentence}: follow for a netdev of this host")
    elif unit is None:
        yield about.skips(f"it is unknown if {DAEMON_UNIT} is running")
    elif unit.active in _RUNS:
        yield about.passes(f"{DAEMON_UNIT} is running: {wanted}")
    else:
        why, fix = _why_not(unit)
        yield about.fails(f"{DAEMON_UNIT} {why}, but {wanted}", fix)


def _wanted(view: View) -> Iterator[str]:
    interval = view.policy.nfs.health_interval
    if interval:
        yield f"the mounts should be looked at every {interval} s"
    folder = view.policy.host.metrics_folder
    if folder:
        yield f"the metrics should be written into {folder}"
    parents = [interface.name for interface in view.ipoib if interface.follows]
    if parents:
        yield f"the children of {', '.join(parents)} should follow the P_Key table"


def _why_not(unit: Unit) -> tuple[str, str]:
    if unit.load == "not-found":
        return "is not installed", "install the package ovirt-rdma-host again"
    if unit.active == "failed":
        again = f"journalctl -b -u {DAEMON_UNIT}; then: systemctl restart {DAEMON_UNIT}"
        return "has failed", again
    return "is not running", _ENABLE


DAEMON = Rule("DAEMON-01", _daemon)


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
