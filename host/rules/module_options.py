# SPDX-License-Identifier: GPL-2.0-or-later
"""MODOPT-01 and MODOPT-02: check module options. Pure.

MODOPT-01 reports options that the kernel's own drivers no longer have. They are from
MLNX_OFED and kernels before 4.0, and old guides still name them. The kernel logs
"unknown parameter ... ignored" and loads the module. The names were compared with the
parameters of the modules of Debian's Linux 6.1 (mlx4_core: port_type_array, num_vfs,
probe_vf, log_mtts_per_seg and others, none of these).

MODOPT-02 sets the options of the policy. One step writes all of them to one file of
ours. An option that another file sets to another value is refused: file names would
decide which line takes effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.model import Modules
from ovirt_rdma.host.facts.module_names import CONCERNED, module_name
from ovirt_rdma.host.policy.model import ModuleOption
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
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
from ovirt_rdma.host.rules.module_loading import (
    file_of,
    is_available,
    is_loaded,
    is_of_the_kernel,
    own_file_change,
    own_lines,
    place_of,
)
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.own_files import MODPROBE

UNKNOWN_ID = "MODOPT-01"

_PORT_MTU = (
    "mlx4 supports 4096 by default today, and port_mtu in the policy changes it "
    "(mlx4_portN_mtu)"
)
_MEMORY = "mlx4_core sizes the table by the host's memory"
_RESOURCES = "mlx4_core's default is sufficient, and there is no replacement"
_ENHANCED = (
    "ConnectX-4 and later support datagram mode only; set the datagram MTU to 4092 "
    "instead"
)
_LRO = "GRO replaces it for every netdev (ethtool -k shows rx-gro)"

# (module, option): the replacement.
DEAD: dict[tuple[str, str], str] = {
    ("mlx4_core", "mtu_4k"): _PORT_MTU,
    ("mlx4_core", "set_4k_mtu"): _PORT_MTU,
    ("mlx4_core", "log_num_mtt"): _MEMORY,
    ("mlx4_core", "log_num_mpt"): _MEMORY,
    ("mlx4_core", "log_num_qp"): _RESOURCES,
    ("mlx4_core", "log_num_srq"): _RESOURCES,
    ("mlx4_core", "log_num_cq"): _RESOURCES,
    ("mlx4_core", "log_num_mcg"): _RESOURCES,
    ("mlx4_core", "log_rdmarc_per_qp"): _RESOURCES,
    ("ib_ipoib", "ipoib_enhanced"): _ENHANCED,
    ("ib_ipoib", "lro"): _LRO,
    ("ib_ipoib", "lro_max_aggr"): _LRO,
}

_NAME = re.compile(r"([\w-]+)(?:=|$)")


def is_dead(view: View, module: str, option: str) -> bool:
    """Whether the option has no effect on this host.

    It may have one if the loaded module shows it, or if the module's file is not the
    kernel's own (MLNX_OFED still has some of them).
    """
    module, option = module_name(module), option.replace("-", "_")
    if (module, option) not in DEAD:
        return False
    modules = view.facts.modules
    if any(
        module_name(p.module) == module and p.name == option for p in modules.parameters
    ):
        return False
    path = file_of(modules, module)
    return path is None or is_of_the_kernel(path)


def replacement(module: str, option: str) -> Optional[str]:
    """Return a clause about the replacement of a dead option."""
    return DEAD.get((module_name(module), option.replace("-", "_")))


def option_names(text: str) -> Iterator[str]:
    """Yield the names in the text of an ``options`` line: ``a=1 b``."""
    for word in text.split():
        match = _NAME.match(word)
        if match:
            yield match.group(1)


def decide_unknown(view: View) -> Iterator[Finding]:
    """Yield a finding for each dead option, or one if there are none."""
    reported = False
    for line in view.facts.modules.modprobe_lines:
        if line.command != "options" or line.file == MODPROBE:
            continue
        for name in option_names(line.text):
            if is_dead(view, line.module, name):
                reported = True
                yield _unknown_finding(line.module, name, place_of(line))
    for option in view.policy.host.module_options:
        if is_dead(view, option.module, option.name):
            reported = True
            yield _unknown_finding(option.module, option.name, "policy.yaml")
    if not reported:
        yield Finding(
            UNKNOWN_ID, HOST, PASS, "no module option without effect was found"
        )


def _unknown_finding(module: str, name: str, where: str) -> Finding:
    return Finding(
        UNKNOWN_ID,
        f"{module}.{name}",
        WARN,
        f"{where} sets {name}, which this kernel's {module} does not have; "
        f"{replacement(module, name)}",
        f"remove {name} from {where}",
    )


UNKNOWN_RULE = Rule(UNKNOWN_ID, decide_unknown)

UNKNOWN_RULES = (UNKNOWN_RULE,)


_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)", re.ASCII | re.IGNORECASE)
_TRUE, _FALSE = ("y", "1", "on", "yes"), ("n", "0", "off", "no")


@dataclass(frozen=True)
class Setting:
    """The value of an option in another file or on the kernel command line; ``place``
    is ``FILE:LINE``.
    """

    value: str
    place: str


def setting_elsewhere(modules: Modules, option: ModuleOption) -> Optional[Setting]:
    """Return the last line that sets the option and is not in our file.

    The kernel uses the last of several values (kernel/params.c).
    """
    setting = None
    for line in modules.modprobe_lines:
        if line.command != "options" or line.file == MODPROBE:
            continue
        if module_name(line.module) != module_name(option.module):
            continue
        for word in line.text.split():
            name, _, value = word.partition("=")
            if name.replace("-", "_") == option.name.replace("-", "_"):
                setting = Setting(value, place_of(line))
    return setting


def running_value(modules: Modules, option: ModuleOption) -> Optional[str]:
    """Return the loaded module's value of an option; None if it does not show one."""
    for parameter in modules.parameters:
        if module_name(parameter.module) == module_name(
            option.module
        ) and parameter.name == option.name.replace("-", "_"):
            return parameter.value
    return None


def same_value(one: str, other: str) -> bool:
    """Whether two texts mean the same value: ``0x10`` is 16, and Y is 1."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> tuple[str, ...]:
    return tuple(_plain_word(word.strip().lower()) for word in text.split(","))


def _plain_word(word: str) -> str:
    word = word.strip("\"'")
    if word in _TRUE:
        return "1"
    if word in _FALSE:
        return "0"
    if _NUMBER.fullmatch(word):
        return str(int(word, 16) if "x" in word else int(word))
    return word


ID = "MODOPT-02"
# The subject of the step that writes our file.
BOOT = "boot"

_SOURCE = "modprobe.d(5); policy.yaml, host: module_options"
_INITRAMFS = "if the module is in the initramfs (lsinitrd shows it), run dracut -f too"


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each option of the policy, then the steps."""
    options = view.policy.host.module_options
    if not options:
        yield _without_policy(view)
        return
    lines, refusals, running = [], [], []
    for option in options:
        skipped = _not_for_this_host(view, option)
        if skipped:
            yield skipped
            continue
        elsewhere = setting_elsewhere(view.facts.modules, option)
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


def _not_for_this_host(view: View, option: ModuleOption) -> Optional[Finding]:
    """Return the finding for an option that is not for this host; None if it is."""
    modules = view.facts.modules
    in_facts = module_name(option.module) in CONCERNED
    if in_facts and is_available(modules, option.module) is False:
        sentence = f"this kernel has no {option.module}, so {_text(option)} is ignored"
        return Finding(ID, _subject(option), SKIP, sentence)
    if is_dead(view, option.module, option.name):
        sentence = f"{option.module} has no option {option.name}, so it is ignored"
        return Finding(ID, _subject(option), SKIP, sentence, "see MODOPT-01")
    return None


def _finding(view: View, option: ModuleOption, elsewhere: Optional[Setting]) -> Finding:
    modules, subject = view.facts.modules, _subject(option)
    now = running_value(modules, option)
    line = f"options {option.module} {option.name}={option.value}"
    ours = line in own_lines(view.facts.software, MODPROBE)
    where = elsewhere.place if elsewhere else MODPROBE if ours else ""
    if not where:
        shown = f"{now}" if now is not None else "not set"
        sentence = f"{option.name} is {shown}, the policy requires {option.value}"
        if now is not None and same_value(now, option.value):
            sentence = f"{option.name} is {now}, but nothing sets it at the next boot"
        return Finding(ID, subject, WARN, sentence, "ovirt-rdma-host plan")
    if now is not None and not same_value(now, option.value):
        sentence = f"{where} sets {_text(option)}, but the running module has {now}"
        fix = f"reboot; {_INITRAMFS}"
        return Finding(ID, subject, WARN, sentence, fix)
    if now is None and is_loaded(modules, option.module):
        sentence = f"{where} sets {_text(option)}; the running module does not show it"
        fix = f"modinfo -p {option.module} lists the available options"
        return Finding(ID, subject, SKIP, sentence, fix)
    return Finding(ID, subject, PASS, f"{where} sets {_text(option)}")


def _conflict(option: ModuleOption, elsewhere: Setting) -> Finding:
    return Finding(
        ID,
        _subject(option),
        FAIL,
        f"{elsewhere.place} sets {option.name}={elsewhere.value}, the policy requires "
        f"{option.value}",
        f"remove {option.name} from {elsewhere.place}, or from the policy",
    )


def _refused(view: View, option: ModuleOption, elsewhere: Setting) -> Step:
    return Step(
        rule=ID,
        subject=_subject(option),
        sentence=f"set {_text(option)}",
        before=elsewhere.value,
        after=option.value,
        effect=REBOOT if is_loaded(view.facts.modules, option.module) else LIVE,
        reason="the policy requires it",
        source=_SOURCE,
        undo="nothing is changed",
        refused=Sentence(
            "module-option-set-elsewhere",
            f"{elsewhere.place} sets {option.name}={elsewhere.value}",
        ),
    )


def _file_step(view: View, lines: list[str], running: list[str]) -> Iterator[Step]:
    file = own_file_change(view.facts.software, MODPROBE, lines)
    if file.change is None:
        return
    before = own_lines(view.facts.software, MODPROBE)
    reason = "the policy requires these options"
    if running:
        names = ", ".join(dict.fromkeys(running))
        reason += f"; {names} is loaded, and reads them only at load: {_INITRAMFS}"
    undo = "is restored" if file.change.before is not None else "is removed"
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
        changes=() if file.refused else (file.change,),
        refused=file.refused,
    )


def _without_policy(view: View) -> Finding:
    kept = own_lines(view.facts.software, MODPROBE)
    if kept:
        text = "; ".join(kept)
        sentence = f"the policy no longer has these options of {MODPROBE}: {text}"
        fix = f"ovirt-rdma-host revert {ID}/{BOOT}"
        return Finding(ID, HOST, WARN, sentence, fix)
    return Finding(ID, HOST, SKIP, "the policy names no module options")


def _subject(option: ModuleOption) -> str:
    return f"{option.module}.{option.name}"


def _text(option: ModuleOption) -> str:
    return f"{option.module} {option.name}={option.value}"


RULE = Rule(ID, decide)

RULES = (RULE,)
