# SPDX-License-Identifier: GPL-2.0-or-later
"""MODULE-01 and MODULE-02: modules that must be loaded. Pure.

MODULE-02: the modules that the policy wants loaded at every boot.

A module that something loads at boot already gets no line of ours. The file is one
step, and each module that is not loaded now is one.

MODULE-01: modules that this hardware needs, and what loads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import RdmaDevice
from ovirt_rdma.host.facts.model import ModprobeLine, Modules
from ovirt_rdma.host.facts.module_names import CONCERNED, module_name
from ovirt_rdma.host.policy.model import INFINIBAND
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LIVE,
    MODULE,
    PASS,
    SKIP,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
    no_device,
)
from ovirt_rdma.host.rules.module_loading import (
    blocking_line,
    boot_loader,
    brought_by_rdma_core,
    has_rdma_core,
    is_available,
    is_loaded,
    kept_lines,
    line_for_rdma_core,
    load_lines,
    openibd_runs,
    own_file_change,
    place_of,
)
from ovirt_rdma.host.rules.rdma_stack import NFS_MODULE, misfit
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.own_files import MODULES_LOAD

WANTED_ID = "MODULE-02"
# The subject of the step that writes our file.
BOOT = "boot"

_SOURCE = "modules-load.d(5); policy.yaml, host: modules"


def decide_wanted(view: View) -> Iterator[Outcome]:
    """Give a finding for each module of the policy, then the steps."""
    wanted = tuple(dict.fromkeys(map(module_name, view.policy.host.modules)))
    if not wanted:
        yield _without_policy(view)
        return
    lines, steps = [], []
    for module in wanted:
        refused = _refusal(view, module)
        loader = _other_loader(view, module)
        if not refused and not loader:
            lines.append(module)
        if not is_loaded(view.facts.modules, module) and _is_told(module):
            steps.append(_load(module, refused))
        yield _wanted_finding(view, module, refused, loader)
    yield from _file_step(view, lines)
    yield from steps


def _is_told(module: str) -> bool:
    """Whether the facts say of this module whether it is loaded."""
    return module in CONCERNED


def _refusal(view: View, module: str) -> str:
    modules = view.facts.modules
    if _is_told(module) and is_available(modules, module) is False:
        return f"this kernel has no {module}"
    line = blocking_line(modules, module)
    if line:
        return f"{place_of(line)} forbids it ({line.command} {module})"
    return ""


def _other_loader(view: View, module: str) -> str:
    """Say what loads the module at boot besides our own file, or return ""."""
    for line in load_lines(view.facts.modules, module):
        if line.file.startswith(("/etc/rdma/", MODULES_LOAD)):
            continue
        return place_of(line)
    line_of_list = brought_by_rdma_core(view, module)
    return f"rdma-core ({place_of(line_of_list)})" if line_of_list else ""


def _wanted_finding(view: View, module: str, refused: str, loader: str) -> Finding:
    modules = view.facts.modules
    if refused:
        fix = "take away what forbids it, or the module out of the policy"
        return Finding(
            WANTED_ID,
            module,
            FAIL,
            f"{module} cannot be loaded at boot: {refused}",
            fix,
        )
    if not _is_told(module):
        sentence = f"whether {module} is loaded is not among the facts"
        return Finding(WANTED_ID, module, SKIP, sentence, f"lsmod | grep {module}")
    boot = f"loaded at boot by {loader}" if loader else ""
    if not boot and module in kept_lines(view.facts.software, MODULES_LOAD):
        boot = f"loaded at boot by {MODULES_LOAD}"
    if is_loaded(modules, module) and boot:
        return Finding(WANTED_ID, module, PASS, f"{module} is loaded, and {boot}")
    now = "is loaded" if is_loaded(modules, module) else "is not loaded"
    then = boot or "nothing loads it at boot"
    return Finding(
        WANTED_ID, module, WARN, f"{module} {now}, {then}", "ovirt-rdma-host plan"
    )


def _load(module: str, refused: str) -> Step:
    return Step(
        rule=WANTED_ID,
        subject=module,
        sentence=f"load {module}",
        before="not loaded",
        after="loaded",
        effect=LIVE,
        reason=f"the policy wants {module}",
        source=_SOURCE,
        undo="a module stays loaded until the next boot",
        changes=() if refused else (Change(MODULE, module, None, "loaded"),),
        refused=refused,
    )


def _file_step(view: View, lines: list[str]) -> Iterator[Step]:
    found = own_file_change(view.facts.software, MODULES_LOAD, lines)
    if found.change is None:
        return
    before = kept_lines(view.facts.software, MODULES_LOAD)
    yield Step(
        rule=WANTED_ID,
        subject=BOOT,
        sentence=f"load {_list(lines)} at every boot" if lines else "load none at boot",
        before=_list(before),
        after=_list(lines),
        effect=LIVE,
        reason="the policy wants them, and nothing else on this host loads them",
        source=_SOURCE,
        undo=_undo(found.change.before),
        changes=() if found.refused else (found.change,),
        refused=found.refused,
    )


def _undo(before: Optional[str]) -> str:
    if before is None:
        return f"{MODULES_LOAD} is removed"
    return f"{MODULES_LOAD} gets its earlier text"


def _list(names: object) -> str:
    words = [str(n) for n in names] if isinstance(names, (list, tuple)) else []
    return ", ".join(words) or "none"


def _without_policy(view: View) -> Finding:
    kept = kept_lines(view.facts.software, MODULES_LOAD)
    if kept:
        return Finding(
            WANTED_ID,
            HOST,
            WARN,
            f"{MODULES_LOAD} still loads {_list(kept)}, which the policy no longer "
            "names",
            f"ovirt-rdma-host revert {WANTED_ID}/{BOOT}",
        )
    return Finding(WANTED_ID, HOST, SKIP, "the policy names no modules")


WANTED_RULE = Rule(
    id=WANTED_ID,
    title="modules of the policy",
    what=(
        "The modules that policy.yaml names under host: modules should be loaded, now "
        "and at every boot."
    ),
    why=(
        "Some are loaded by nothing else: nvme_rdma, ib_srp without srp_daemon, "
        "rdma_rxe. A module that a modules-load.d file or rdma-core loads already is "
        "left to it. A blacklist line wins over modules-load.d, so then the step is "
        "refused, with the file and the line."
    ),
    fix=(
        "ovirt-rdma-host plan shows the steps, and apply does them: "
        "/etc/modules-load.d/ovirt-rdma.conf, and loading what is not loaded. The file "
        "is ours as long as its first line says so; a line # mine in it makes it yours."
    ),
    sources=("modules-load.d(5)", "modprobe.d(5)", "rdma-core Documentation/udev.md"),
    decide=decide_wanted,
)

WANTED_RULES = (WANTED_RULE,)


ID = "MODULE-01"

# The half of a driver that makes the RDMA device; the other half has the PCI function.
_COMPANIONS = {"mlx4_core": "mlx4_ib", "mlx5_core": "mlx5_ib"}
_SOFT_ROCE = "rdma_rxe"


@dataclass(frozen=True)
class _Need:
    """A module and what for. ``asked_for`` says that the kernel loads it by itself when
    it is first used, ``by_alias`` that it then asks for an alias: a blacklist hides a
    module's aliases, not its name (modprobe.d(5)).
    """

    module: str
    purpose: str
    asked_for: bool = False
    by_alias: bool = False


# Aliases in Linux 6.1: net/sunrpc loads rpc<netid> for a mount, libibverbs, libibumad
# and librdmacm have rdma-client-uverbs, -umad and -rdma_cm loaded.
_FOR_ALL = (
    _Need("ib_uverbs", "RDMA for programs", asked_for=True, by_alias=True),
    _Need("rdma_ucm", "RDMA CM for programs", asked_for=True, by_alias=True),
    _Need("rpcrdma", "NFS over RDMA", asked_for=True),
)
_FOR_INFINIBAND = (
    _Need("ib_ipoib", "IP over InfiniBand"),
    _Need("ib_umad", "ibstat and a subnet manager", asked_for=True, by_alias=True),
)


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each module that the hardware needs."""
    needs = list(_needs(view))
    if not needs:
        yield no_device(ID)
        return
    if has_rdma_core(view) is False and not openibd_runs(view):
        yield Finding(
            ID,
            HOST,
            WARN,
            "rdma-core is not installed, so nothing loads RDMA modules for the "
            "hardware that is there",
            "dnf install rdma-core",
        )
    for need in needs:
        yield _finding(view, need)


def _needs(view: View) -> Iterator[_Need]:
    devices = view.facts.rdma_devices
    present = {device.pci.address for device in devices if device.pci}
    halves = {
        _COMPANIONS[adapter.driver]: adapter.pci.address
        for adapter in view.facts.adapters
        if adapter.driver in _COMPANIONS and adapter.pci.address not in present
    }
    for module, address in halves.items():
        if not is_loaded(view.facts.modules, module):
            yield _Need(module, f"an RDMA device for {address}")
    if any(device.driver == _SOFT_ROCE for device in devices):
        yield _Need(_SOFT_ROCE, "Soft-RoCE")
    if devices:
        yield from _FOR_ALL
    if _has_infiniband(devices):
        yield from _FOR_INFINIBAND


def _has_infiniband(devices: Iterable[RdmaDevice]) -> bool:
    return any(p.link_layer.lower() == INFINIBAND for d in devices for p in d.ports)


def _finding(view: View, need: _Need) -> Finding:
    modules, module = view.facts.modules, need.module
    loader = boot_loader(view, module)
    if is_loaded(modules, module):
        return _loaded(view, need, loader)
    missing = FAIL if _policy_needs(view, need) else WARN
    cannot = _cannot_be_loaded(modules, need, missing)
    if cannot:
        return cannot
    line = blocking_line(modules, module)
    if line and not (need.asked_for and _gets_past(line, need)):
        sentence = f"{place_of(line)} keeps {module} from being loaded ({line.command})"
        fix = f"take that line away, then modprobe {module}: it is for {need.purpose}"
        return Finding(ID, module, missing, sentence, fix)
    if need.asked_for:
        sentence = (
            f"{module} is not loaded; the kernel loads it when it is first used "
            f"({need.purpose})"
        )
        return Finding(ID, module, PASS, sentence)
    sentence = f"{module} is not loaded, which is for {need.purpose}"
    if loader:
        fix = f"modprobe {module}; {loader} should have: see UNIT-01"
        return Finding(
            ID, module, missing, f"{sentence}, although {loader} names it", fix
        )
    fix = _policy_line(module)
    if module in view.policy.host.modules:
        fix = "see MODULE-02, for the policy names it"
    return Finding(ID, module, missing, sentence, fix)


def _cannot_be_loaded(modules: Modules, need: _Need, missing: str) -> Optional[Finding]:
    """Say that there is no such module, or none that fits; what becomes of NFS then
    another rule says.
    """
    module = need.module
    there = is_available(modules, module) is not False
    if module == NFS_MODULE and (not there or misfit(modules)):
        sentence = f"{module} cannot be loaded: NFSRDMA-01 says more"
        return Finding(ID, module, SKIP, sentence)
    if there:
        return None
    sentence = f"this kernel has no {module}, which is for {need.purpose}"
    return Finding(ID, module, missing, sentence, "see DRIVER-01 and STACK-01")


def _gets_past(line: ModprobeLine, need: _Need) -> bool:
    """Whether the kernel's own asking is not stopped by ``line``."""
    return line.command == "blacklist" and not need.by_alias


def _loaded(view: View, need: _Need, loader: str) -> Finding:
    module = need.module
    if loader:
        sentence = f"{module} is loaded, at boot by {loader}"
        return Finding(ID, module, PASS, sentence)
    if need.asked_for:
        sentence = f"{module} is loaded; the kernel loads it when it is first used"
        return Finding(ID, module, PASS, sentence)
    if module in view.policy.host.modules:
        sentence = f"{module} is loaded; the policy names it, and MODULE-02 says more"
        return Finding(ID, module, SKIP, sentence)
    if has_rdma_core(view) is None:
        line = line_for_rdma_core(view, module)
        sentence = ""
        if line:
            sentence = (
                f"{module} is loaded; rdma-core, if it is installed, does it at boot "
                f"({place_of(line)})"
            )
        elif not view.facts.modules.load_lines:
            sentence = f"{module} is loaded; what loads it at boot cannot be told"
        if sentence:
            return Finding(ID, module, SKIP, sentence)
    sentence = f"{module} is loaded, but nothing was found that loads it at boot"
    return Finding(ID, module, WARN, sentence, _policy_line(module))


def _policy_line(module: str) -> str:
    return f"policy.yaml, host: modules: [{module}]"


def _policy_needs(view: View, need: _Need) -> bool:
    """Whether the policy names interfaces that are not there without the module."""
    return need in _FOR_INFINIBAND and any(
        rule.link_layer in (None, INFINIBAND) for rule in view.policy.host.interfaces
    )


RULE = Rule(
    id=ID,
    title="modules that the hardware needs",
    what=(
        "Every RDMA device needs ib_uverbs, rdma_ucm and rpcrdma, an InfiniBand port "
        "also ib_ipoib and ib_umad. rdma-core loads them: udev marks the device, and "
        "systemd loads /etc/rdma/modules/rdma.conf, and infiniband.conf, opa.conf, "
        "roce.conf or iwarp.conf, whichever fits. Only what that does not bring is "
        "worth a line of one's own."
    ),
    why=(
        "Without ib_ipoib there is no ib0. The others the kernel also loads by itself, "
        "when a program or a mount first asks, so a line in modules-load.d for them is "
        "superfluous. What rdma-core does not bring: Soft-RoCE (rdma_rxe, whose links "
        "are gone after a boot anyway) and soft iWARP, drivers that it does not know, "
        "lists that somebody edited, and everything on a host without rdma-core."
    ),
    fix=(
        "Install rdma-core. For the rest name the module in policy.yaml under host: "
        "modules; plan then shows the file in /etc/modules-load.d."
    ),
    sources=(
        "rdma-core kernel-boot/rdma-description.rules, kernel-boot/modules, "
        "Documentation/udev.md",
        "Linux net/sunrpc/xprt.c, drivers/infiniband/core/device.c (module aliases)",
        "modules-load.d(5)",
    ),
    decide=decide,
)

RULES = (RULE,)
