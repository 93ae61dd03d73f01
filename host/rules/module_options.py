# SPDX-License-Identifier: GPL-2.0-or-later
"""MODOPT-02: the module options that the policy wants.

They all go into one file of ours, so that is one step. An option that another file sets
to another value is refused: which line wins is then a matter of file names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.module_names import CONCERNED, module_name
from ovirt_rdma.host.own_files import MODPROBE
from ovirt_rdma.host.policy_host import ModuleOption
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.dead_options import is_dead
from ovirt_rdma.host.rules.modprobe import is_available, is_loaded
from ovirt_rdma.host.rules.option_values import (
    Setting,
    running_value,
    same_value,
    set_elsewhere,
)
from ovirt_rdma.host.rules.own_file_step import kept_lines, own_file_change
from ovirt_rdma.host.rules.rule import (
    FAIL,
    LIVE,
    PASS,
    REBOOT,
    SKIP,
    WARN,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.view import View

ID = "MODOPT-02"
# The subject of the step that writes our file.
BOOT = "boot"

_SOURCE = "modprobe.d(5); policy.yaml, host: module_options"
_INITRAMFS = (
    "if the module is in the initramfs (lsinitrd shows it), run dracut -f as well"
)


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each option of the policy, then the steps."""
    options = view.policy.host.module_options
    if not options:
        yield _without_policy(view)
        return
    lines, refusals, running = [], [], []
    for option in options:
        outcome = _here(view, option)
        if outcome:
            yield outcome
            continue
        elsewhere = set_elsewhere(view.facts.modules, option)
        if elsewhere and not same_value(elsewhere.value, option.value):
            yield _conflict(option, elsewhere)
            refusals.append(_refused(view, option, elsewhere))
            continue
        yield _finding(view, option, elsewhere)
        if elsewhere is None:
            lines.append(f"options {option.module} {option.name}={option.value}")
            if is_loaded(view.facts.modules, option.module):
                running.append(option.module)
    yield from _file_step(view, lines, running)
    yield from refusals


def _here(view: View, option: ModuleOption) -> Optional[Finding]:
    """Return the finding for an option that is not for this host, or None."""
    modules = view.facts.modules
    told = module_name(option.module) in CONCERNED
    if told and is_available(modules, option.module) is False:
        sentence = f"this kernel has no {option.module}, so {_text(option)} is left out"
        return Finding(ID, _subject(option), SKIP, sentence)
    if is_dead(view, option.module, option.name):
        sentence = f"{option.module} has no option {option.name}: it is left out"
        return Finding(ID, _subject(option), SKIP, sentence, "see MODOPT-01")
    return None


def _finding(view: View, option: ModuleOption, elsewhere: Optional[Setting]) -> Finding:
    modules, subject = view.facts.modules, _subject(option)
    now = running_value(modules, option)
    line = f"options {option.module} {option.name}={option.value}"
    ours = line in kept_lines(view.facts.software, MODPROBE)
    where = elsewhere.place if elsewhere else MODPROBE if ours else ""
    if not where:
        shown = f"{now}" if now is not None else "not set"
        sentence = f"{option.name} is {shown}, the policy wants {option.value}"
        if now is not None and same_value(now, option.value):
            sentence = f"{option.name} is {now}, but nothing sets it for the next boot"
        return Finding(ID, subject, WARN, sentence, "ovirt-rdma-host plan")
    if now is not None and not same_value(now, option.value):
        sentence = f"{where} sets {_text(option)}, but the running module has {now}"
        fix = f"reboot; {_INITRAMFS}"
        return Finding(ID, subject, WARN, sentence, fix)
    if now is None and is_loaded(modules, option.module):
        sentence = f"{where} sets {_text(option)}; the running module does not show it"
        fix = f"modinfo -p {option.module} lists the options that there are"
        return Finding(ID, subject, SKIP, sentence, fix)
    return Finding(ID, subject, PASS, f"{where} sets {_text(option)}")


def _conflict(option: ModuleOption, elsewhere: Setting) -> Finding:
    return Finding(
        ID,
        _subject(option),
        FAIL,
        f"{elsewhere.place} sets {option.name}={elsewhere.value}, the policy wants "
        f"{option.value}",
        f"take {option.name} out of {elsewhere.place}, or out of the policy",
    )


def _refused(view: View, option: ModuleOption, elsewhere: Setting) -> Step:
    return Step(
        rule=ID,
        subject=_subject(option),
        sentence=f"set {_text(option)}",
        before=elsewhere.value,
        after=option.value,
        effect=REBOOT if is_loaded(view.facts.modules, option.module) else LIVE,
        reason="the policy wants it",
        source=_SOURCE,
        undo="nothing is changed",
        refused=f"{elsewhere.place} sets {option.name}={elsewhere.value}",
    )


def _file_step(view: View, lines: list[str], running: list[str]) -> Iterator[Step]:
    found = own_file_change(view.facts.software, MODPROBE, lines)
    if found.change is None:
        return
    before = kept_lines(view.facts.software, MODPROBE)
    reason = "the policy wants these options"
    if running:
        names = ", ".join(dict.fromkeys(running))
        reason += f"; {names} is loaded and reads them when it is loaded: {_INITRAMFS}"
    change = found.change
    undo = "gets its earlier text" if change.before is not None else "is removed"
    yield Step(
        rule=ID,
        subject=BOOT,
        sentence=f"write {MODPROBE}" if lines else f"remove {MODPROBE}",
        before="; ".join(before) or "none",
        after="; ".join(lines) or "none",
        effect=REBOOT if running else LIVE,
        reason=reason,
        source=_SOURCE,
        undo=f"{MODPROBE} {undo}",
        changes=() if found.refused else (change,),
        refused=found.refused,
    )


def _without_policy(view: View) -> Finding:
    kept = kept_lines(view.facts.software, MODPROBE)
    if kept:
        sentence = f"{MODPROBE} still has: {'; '.join(kept)}"
        fix = f"ovirt-rdma-host revert {ID}/{BOOT}"
        return Finding(
            ID, HOST, WARN, f"{sentence}, which the policy no longer names", fix
        )
    return Finding(ID, HOST, SKIP, "the policy names no module options")


def _subject(option: ModuleOption) -> str:
    return f"{option.module}.{option.name}"


def _text(option: ModuleOption) -> str:
    return f"{option.module} {option.name}={option.value}"


RULE = Rule(
    id=ID,
    title="module options of the policy",
    what=(
        "The options that policy.yaml names under host: module_options should be in "
        "modprobe.d, and the running module should have them."
    ),
    why=(
        "A module reads its options when it is loaded, so a change shows with the next "
        "boot. Two files that set one option to different values leave it to their "
        "names which one wins; then the step is refused, with file and line. A module "
        "that is loaded from the initramfs reads the modprobe.d that was packed there."
    ),
    fix=(
        "ovirt-rdma-host plan shows /etc/modprobe.d/ovirt-rdma.conf as it would be, "
        "and apply writes it. It takes effect with a reboot, and with dracut -f before "
        "that if the module is in the initramfs. A line # mine in the file makes it "
        "yours."
    ),
    sources=(
        "modprobe.d(5), dracut(8), lsinitrd(1)",
        "Linux kernel/params.c, Documentation/admin-guide/kernel-parameters.rst",
    ),
    decide=decide,
)

RULES = (RULE,)
