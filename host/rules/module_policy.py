# SPDX-License-Identifier: GPL-2.0-or-later
"""MODULE-02: the modules that the policy wants loaded at every boot.

A module that something loads at boot already gets no line of ours. The file is one
step, and each module that is not loaded now is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.module_names import CONCERNED, module_name
from ovirt_rdma.host.own_files import MODULES_LOAD
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.autoload import brought_by_rdma_core
from ovirt_rdma.host.rules.modprobe import (
    blocking_line,
    is_available,
    is_loaded,
    load_lines,
    place_of,
)
from ovirt_rdma.host.rules.own_file_step import kept_lines, own_file_change
from ovirt_rdma.host.rules.rule import (
    FAIL,
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
)
from ovirt_rdma.host.rules.view import View

ID = "MODULE-02"
# The subject of the step that writes our file.
BOOT = "boot"

_SOURCE = "modules-load.d(5); policy.yaml, host: modules"


def decide(view: View) -> Iterator[Outcome]:
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
        yield _finding(view, module, refused, loader)
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


def _finding(view: View, module: str, refused: str, loader: str) -> Finding:
    modules = view.facts.modules
    if refused:
        fix = "take away what forbids it, or the module out of the policy"
        return Finding(
            ID, module, FAIL, f"{module} cannot be loaded at boot: {refused}", fix
        )
    if not _is_told(module):
        sentence = f"whether {module} is loaded is not among the facts"
        return Finding(ID, module, SKIP, sentence, f"lsmod | grep {module}")
    boot = f"loaded at boot by {loader}" if loader else ""
    if not boot and module in kept_lines(view.facts.software, MODULES_LOAD):
        boot = f"loaded at boot by {MODULES_LOAD}"
    if is_loaded(modules, module) and boot:
        return Finding(ID, module, PASS, f"{module} is loaded, and {boot}")
    now = "is loaded" if is_loaded(modules, module) else "is not loaded"
    then = boot or "nothing loads it at boot"
    return Finding(ID, module, WARN, f"{module} {now}, {then}", "ovirt-rdma-host plan")


def _load(module: str, refused: str) -> Step:
    return Step(
        rule=ID,
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
        rule=ID,
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
            ID,
            HOST,
            WARN,
            f"{MODULES_LOAD} still loads {_list(kept)}, which the policy no longer "
            "names",
            f"ovirt-rdma-host revert {ID}/{BOOT}",
        )
    return Finding(ID, HOST, SKIP, "the policy names no modules")


RULE = Rule(
    id=ID,
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
    decide=decide,
)

RULES = (RULE,)
