# SPDX-License-Identifier: GPL-2.0-or-later
"""MODULE-01 and MODULE-02: check that the required modules are loaded. Pure.

MODULE-01 checks the modules that this hardware needs, and what loads them. MODULE-02
loads the modules of the policy, now and at every boot: one step writes our file, and
each module that is not loaded is one step. Our file does not list a module that
something else loads at boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import SOFT_ROCE, RdmaDevice
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
    has_rdma_core,
    is_available,
    is_loaded,
    listed_line,
    load_lines,
    openibd_runs,
    own_file_change,
    own_lines,
    place_of,
    rdma_core_line,
)
from ovirt_rdma.host.rules.rdma_stack import NFS_MODULE, mismatch
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.own_files import MODULES_LOAD

WANTED_ID = "MODULE-02"
# The subject of the step that writes our file.
BOOT = "boot"

_SOURCE = "modules-load.d(5); policy.yaml, host: modules"


def decide_wanted(view: View) -> Iterator[Outcome]:
    """Yield a finding for each module of the policy, then the steps."""
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
        if not is_loaded(view.facts.modules, module) and _is_in_facts(module):
            steps.append(_load(module, refused))
        yield _wanted_finding(view, module, refused, loader)
    yield from _file_step(view, lines)
    yield from steps


def _is_in_facts(module: str) -> bool:
    """Whether the facts show if this module is loaded."""
    return module in CONCERNED


def _refusal(view: View, module: str) -> str:
    modules = view.facts.modules
    if _is_in_facts(module) and is_available(modules, module) is False:
        return Sentence("module-missing", f"this kernel has no {module}")
    line = blocking_line(modules, module)
    if line:
        return Sentence(
            "module-blocked",
            f"{place_of(line)} prevents it ({line.command} {module})",
        )
    return ""


def _other_loader(view: View, module: str) -> str:
    """Return what loads the module at boot, other than our own file; empty if none."""
    for line in load_lines(view.facts.modules, module):
        if line.file.startswith(("/etc/rdma/", MODULES_LOAD)):
            continue
        return place_of(line)
    line_of_list = rdma_core_line(view, module)
    return f"rdma-core ({place_of(line_of_list)})" if line_of_list else ""


def _wanted_finding(view: View, module: str, refused: str, loader: str) -> Finding:
    modules = view.facts.modules
    if refused:
        fix = "remove what prevents it, or remove the module from the policy"
        return Finding(
            WANTED_ID,
            module,
            FAIL,
            f"{module} cannot be loaded at boot: {refused}",
            fix,
        )
    if not _is_in_facts(module):
        sentence = f"it is unknown if {module} is loaded"
        return Finding(WANTED_ID, module, SKIP, sentence, f"lsmod | grep {module}")
    if not loader and module in own_lines(view.facts.software, MODULES_LOAD):
        loader = MODULES_LOAD
    boot = f"{loader} loads it at boot" if loader else ""
    if is_loaded(modules, module) and boot:
        return Finding(WANTED_ID, module, PASS, f"{module} is loaded; {boot}")
    sentence = f"{module} is not loaded, and nothing loads it at boot"
    if is_loaded(modules, module):
        sentence = f"{module} is loaded, but nothing loads it at boot"
    elif boot:
        sentence = f"{module} is not loaded, but {boot}"
    return Finding(WANTED_ID, module, WARN, sentence, "ovirt-rdma-host plan")


def _load(module: str, refused: str) -> Step:
    return Step(
        rule=WANTED_ID,
        subject=module,
        sentence=f"load {module}",
        before="not loaded",
        after="loaded",
        effect=LIVE,
        reason=f"the policy requires {module}",
        source=_SOURCE,
        undo="the module stays loaded until the next boot",
        changes=() if refused else (Change(MODULE, module, None, "loaded"),),
        refused=refused,
    )


def _file_step(view: View, lines: list[str]) -> Iterator[Step]:
    file = own_file_change(view.facts.software, MODULES_LOAD, lines)
    if file.change is None:
        return
    before = own_lines(view.facts.software, MODULES_LOAD)
    yield Step(
        rule=WANTED_ID,
        subject=BOOT,
        sentence=f"load {_list(lines)} at every boot" if lines else "load no modules",
        before=_list(before),
        after=_list(lines),
        effect=LIVE,
        reason="the policy requires them, and nothing else on this host loads them",
        source=_SOURCE,
        undo=_undo(file.change.before),
        changes=() if file.refused else (file.change,),
        refused=file.refused,
    )


def _undo(before: Optional[str]) -> str:
    if before is None:
        return f"{MODULES_LOAD} is removed"
    return f"{MODULES_LOAD} is restored"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _without_policy(view: View) -> Finding:
    kept = own_lines(view.facts.software, MODULES_LOAD)
    if kept:
        return Finding(
            WANTED_ID,
            HOST,
            WARN,
            f"{MODULES_LOAD} loads {_list(kept)}, which is no longer in the policy",
            f"ovirt-rdma-host revert {WANTED_ID}/{BOOT}",
        )
    return Finding(WANTED_ID, HOST, SKIP, "the policy names no modules")


WANTED_RULE = Rule(WANTED_ID, decide_wanted)

WANTED_RULES = (WANTED_RULE,)


ID = "MODULE-01"

# The part of a driver that creates the RDMA device; the other part drives the PCI
# function.
_COMPANIONS = {"mlx4_core": "mlx4_ib", "mlx5_core": "mlx5_ib"}


@dataclass(frozen=True)
class _Need:
    """A module and its purpose.

    ``on_demand``: the kernel loads it by itself at first use. ``by_alias``: it does so
    by an alias; a blacklist hides a module's aliases, not its name (modprobe.d(5)).
    """

    module: str
    purpose: str
    on_demand: bool = False
    by_alias: bool = False


# Aliases in Linux 6.1: net/sunrpc loads rpc<netid> for a mount; libibverbs, libibumad
# and librdmacm request rdma-client-uverbs, -umad and -rdma_cm.
_FOR_ALL = (
    _Need("ib_uverbs", "RDMA for programs", on_demand=True, by_alias=True),
    _Need("rdma_ucm", "RDMA CM for programs", on_demand=True, by_alias=True),
    _Need("rpcrdma", "NFS over RDMA", on_demand=True),
)
_FOR_INFINIBAND = (
    _Need("ib_ipoib", "IP over InfiniBand"),
    _Need("ib_umad", "ibstat and a subnet manager", on_demand=True, by_alias=True),
)


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each module that the hardware needs."""
    needs = list(_needs(view))
    if not needs:
        yield no_device(ID)
        return
    if has_rdma_core(view) is False and not openibd_runs(view):
        yield Finding(
            ID,
            HOST,
            WARN,
            "rdma-core is not installed, so nothing loads the RDMA modules for this "
            "hardware",
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
    if any(device.is_soft_roce for device in devices):
        yield _Need(SOFT_ROCE, "Soft-RoCE")
    if devices:
        yield from _FOR_ALL
    if _has_infiniband(devices):
        yield from _FOR_INFINIBAND


def _has_infiniband(devices: Iterable[RdmaDevice]) -> bool:
    return any(p.is_infiniband for d in devices for p in d.ports)


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
    if line and not (need.on_demand and _is_bypassed(line, need)):
        sentence = (
            f"{place_of(line)} prevents loading {module} ({line.command}), which is "
            f"for {need.purpose}"
        )
        fix = f"remove that line, then: modprobe {module}"
        return Finding(ID, module, missing, sentence, fix)
    if need.on_demand:
        sentence = (
            f"{module} is not loaded; the kernel loads it at first use ({need.purpose})"
        )
        return Finding(ID, module, PASS, sentence)
    sentence = f"{module}, which is for {need.purpose}, is not loaded"
    if loader:
        sentence += f", although {loader} lists it"
        return Finding(ID, module, missing, sentence, f"see UNIT-01; modprobe {module}")
    fix = _policy_line(module)
    if module in view.policy.host.modules:
        fix = "see MODULE-02: the policy names it"
    return Finding(ID, module, missing, sentence, fix)


def _cannot_be_loaded(modules: Modules, need: _Need, missing: str) -> Optional[Finding]:
    """Return the finding for a module that is missing, or does not match the others;
    None if it can be loaded. The effect on NFS is another rule's finding.
    """
    module = need.module
    available = is_available(modules, module) is not False
    if module == NFS_MODULE and (not available or mismatch(modules)):
        sentence = f"{module} cannot be loaded: see NFSRDMA-01"
        return Finding(ID, module, SKIP, sentence)
    if available:
        return None
    sentence = f"this kernel has no {module}, which is for {need.purpose}"
    return Finding(ID, module, missing, sentence, "see DRIVER-01 and STACK-01")


def _is_bypassed(line: ModprobeLine, need: _Need) -> bool:
    """Whether the kernel's own request loads the module in spite of ``line``."""
    return line.command == "blacklist" and not need.by_alias


def _loaded(view: View, need: _Need, loader: str) -> Finding:
    module = need.module
    if loader:
        sentence = f"{module} is loaded; {loader} loads it at boot"
        return Finding(ID, module, PASS, sentence)
    if need.on_demand:
        sentence = f"{module} is loaded; the kernel loads it at first use"
        return Finding(ID, module, PASS, sentence)
    if module in view.policy.host.modules:
        sentence = f"{module} is loaded; the policy names it: see MODULE-02"
        return Finding(ID, module, SKIP, sentence)
    if has_rdma_core(view) is None:
        line = listed_line(view, module)
        sentence = ""
        if line:
            sentence = (
                f"{module} is loaded; rdma-core, if installed, loads it at boot "
                f"({place_of(line)})"
            )
        elif not view.facts.modules.load_lines:
            sentence = f"{module} is loaded; it is unknown what loads it at boot"
        if sentence:
            return Finding(ID, module, SKIP, sentence)
    sentence = f"{module} is loaded, but nothing loads it at boot"
    return Finding(ID, module, WARN, sentence, _policy_line(module))


def _policy_line(module: str) -> str:
    return f"policy.yaml, host: modules: [{module}]"


def _policy_needs(view: View, need: _Need) -> bool:
    """Whether the policy names interfaces that do not exist without the module."""
    return need in _FOR_INFINIBAND and any(
        rule.link_layer in (None, INFINIBAND) for rule in view.policy.host.interfaces
    )


RULE = Rule(ID, decide)

RULES = (RULE,)
