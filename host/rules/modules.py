# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about kernel modules and their options. Pure.

MODULE-01 checks the modules that this hardware needs, and what loads them. MODULE-02
loads the modules of the policy, now and at every boot: one step writes our file, and
each module that is not loaded is one step. Our file does not list a module that
something else loads at boot.

MODOPT-01 reports options that the kernel's own drivers no longer have. They are from
MLNX_OFED and kernels before 4.0, and old guides still name them. The kernel logs
"unknown parameter ... ignored" and loads the module. The names were compared with the
parameters of the modules of Debian's Linux 6.1 (mlx4_core: port_type_array, num_vfs,
probe_vf, log_mtts_per_seg and others, none of these).

MODOPT-02 sets the options of the policy. One step writes all of them to one file of
ours. An option that another file sets to another value is refused: file names would
decide which line takes effect.

rdma-core loads modules by hardware: udev tags each RDMA device with its capabilities,
by the driver of its bus device, and systemd then loads the lists
/etc/rdma/modules/NAME.conf: ``rdma`` for any device. See rdma-core's
75-rdma-description.rules and 90-rdma-ulp-modules.rules, versions 44 to 65. irdma (bus
drivers ice, i40e on EL9) and siw have no tag, and get the list ``rdma`` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import SOFT_ROCE, RdmaDevice
from ovirt_rdma.host.facts.model import (
    CONCERNED,
    LoadLine,
    ModprobeLine,
    Modules,
    module_name,
)
from ovirt_rdma.host.policy.model import INFINIBAND, ModuleOption
from ovirt_rdma.host.rules.base import (
    FAIL,
    FILE,
    LIVE,
    MODULE,
    PASS,
    REBOOT,
    WARN,
    About,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
    View,
)
from ovirt_rdma.host.system.files import (
    MODPROBE,
    MODULES_LOAD,
    foreign_reason,
    own_text,
)

NFS_MODULE = "rpcrdma"
# rpcrdma uses symbols of both (net/sunrpc/xprtrdma).
BASE_MODULES = ("ib_core", "rdma_cm")
# rdma-core's lists, /etc/rdma/modules/NAME.conf (kernel-boot/modules in rdma-core).
RDMA_LISTS = "/etc/rdma/modules/"
_DOES_NOTHING = ("true", "false", ":")


def is_loaded(modules: Modules, name: str) -> bool:
    """Whether the module is loaded or built in."""
    return module_name(name) in modules.loaded


def is_available(modules: Modules, name: str) -> Optional[bool]:
    """Whether the running kernel has the module; None if unknown."""
    if is_loaded(modules, name):
        return True
    if modules.available is None:
        return None
    return module_name(name) in modules.available


def blocking_line(modules: Modules, name: str) -> Optional[ModprobeLine]:
    """Return the modprobe.d(5) line that prevents udev and modules-load from loading a
    module: ``blacklist``, or an ``install`` command that does nothing.
    """
    for line in modules.modprobe_lines:
        words = line.text.split()
        nothing = bool(words) and words[0].rpartition("/")[2] in _DOES_NOTHING
        if line.module == module_name(name) and (
            line.command == "blacklist" or (line.command == "install" and nothing)
        ):
            return line
    return None


def place_of(line: Union[ModprobeLine, LoadLine]) -> str:
    """Return ``FILE:LINE``."""
    return f"{line.file}:{line.line}"


def file_of(modules: Modules, name: str) -> Optional[str]:
    """Return the module's file below /lib/modules/RELEASE; None if unknown."""
    wanted = module_name(name)
    return next((file.path for file in modules.files if file.name == wanted), None)


def is_of_the_kernel(path: str) -> bool:
    """Whether a module's file is the kernel's own, not ``extra/`` or ``updates/``."""
    return path.startswith("kernel/")


def vendors_client(modules: Modules) -> Optional[bool]:
    """Whether the NFS client is a vendor's (VAST, PowerScale): both of its modules are
    not the kernel's own. None if unknown. MLNX_OFED replaces rpcrdma only.
    """
    files = [file_of(modules, name) for name in ("nfs", "sunrpc")]
    if None in files:
        return None
    return not any(is_of_the_kernel(path) for path in files if path)


def base_files(modules: Modules) -> dict[str, str]:
    """Return the files of BASE_MODULES that are known."""
    return {n: p for n in BASE_MODULES if (p := file_of(modules, n)) is not None}


def mismatch(modules: Modules) -> str:
    """Return a clause if rpcrdma cannot be loaded because it and the modules that it
    needs are from different trees; empty if they match.
    """
    rpcrdma = file_of(modules, NFS_MODULE)
    base = next(iter(base_files(modules).values()), None)
    if rpcrdma is None or base is None:
        return ""
    if is_of_the_kernel(rpcrdma) == is_of_the_kernel(base):
        return ""
    return (
        f"rpcrdma ({rpcrdma}) cannot be loaded: it is from another tree than {base}, "
        "and their symbols do not match"
    )


EVERY_DEVICE = "rdma"
_LISTS_BY_DRIVER: dict[str, tuple[str, ...]] = {
    "ib_mthca": ("infiniband",),
    "ib_qib": ("infiniband",),
    "mlx4_core": ("infiniband", "roce"),
    "mlx5_core": ("infiniband", "roce"),
    "hfi1": ("opa",),
    "cxgb4": ("iwarp",),
    "i40e": ("iwarp",),
    "be2net": ("roce",),
    "bnxt_en": ("roce",),
    "hns": ("roce",),
    "qede": ("roce",),
    "vmw_pvrdma": ("roce",),
    "rdma_rxe": ("roce",),
}
OPENIBD = "openibd.service"


def lists_for(devices: Iterable[RdmaDevice]) -> tuple[str, ...]:
    """Return the names of the lists that rdma-core loads for these devices."""
    names: dict[str, None] = {}
    for device in devices:
        lists = (EVERY_DEVICE, *_LISTS_BY_DRIVER.get(device.driver or "", ()))
        names.update(dict.fromkeys(lists))
    return tuple(names)


def list_unit(name: str) -> str:
    """Return the unit that loads a list."""
    return f"rdma-load-modules@{name}.service"


def has_rdma_core(view: View) -> Optional[bool]:
    """Whether rdma-core's units are installed; None if unknown."""
    for unit in view.facts.software.units:
        if unit.name == list_unit(EVERY_DEVICE):
            return unit.load != "not-found"
    return True if view.facts.software.rdma_core else None


def openibd_runs(view: View) -> bool:
    """Whether openibd, which loads MLNX_OFED's modules, is active or enabled."""
    return any(
        unit.name == OPENIBD
        and unit.load == "loaded"
        and (unit.active == "active" or unit.enabled == "enabled")
        for unit in view.facts.software.units
    )


def _listed_by_rdma_core(view: View, module: str) -> str:
    """Return the place where rdma-core's lists for this hardware name a module."""
    files = {f"{RDMA_LISTS}{name}.conf" for name in lists_for(view.facts.rdma_devices)}
    lines = view.facts.modules.load_lines
    found = (one for one in lines if one.module == module and one.file in files)
    return next(map(place_of, found), "")


def _loader(view: View, module: str, *besides: str) -> str:
    """Return what loads a module at boot: ``/etc/modules-load.d/x.conf:2``,
    ``rdma-core (/etc/rdma/modules/rdma.conf:9)``; empty if nothing was found.

    rdma-core's lists depend on the hardware, and its units have to be installed. Files
    that start with one of ``besides`` do not count.
    """
    for line in view.facts.modules.load_lines:
        if line.module == module and not line.file.startswith((RDMA_LISTS, *besides)):
            return place_of(line)
    listed = _listed_by_rdma_core(view, module) if has_rdma_core(view) else ""
    return f"rdma-core ({listed})" if listed else ""


# The subject of a step that writes a file of ours.
BOOT = "boot"


def own_lines(view: View, path: str) -> tuple[str, ...]:
    """Return the lines without comments of our file ``path``; none if it is missing."""
    for file in view.facts.software.own_files:
        if file.path == path and file.text and not foreign_reason(path, file.text):
            lines = (line.strip() for line in file.text.splitlines())
            return tuple(line for line in lines if line and not line.startswith("#"))
    return ()


def _file_step(
    view: View,
    rule: str,
    path: str,
    lines: Sequence[str],
    sentence: str,
    *,
    between: str,
    effect: str,
    reason: str,
    source: str,
) -> Iterator[Step]:
    """Yield the step that sets our file ``path`` to ``lines``, or removes it without
    lines; none if it is correct already.
    """
    present = next((f for f in view.facts.software.own_files if f.path == path), None)
    wanted = own_text(lines) if lines else None
    refused = foreign_reason(path, present.text) if present else ""
    if wanted is None and (present is None or refused):
        return
    if present and present.text == wanted:
        return
    change = Change(FILE, path, present.text if present else None, wanted)
    yield About(rule, BOOT).step(
        sentence,
        between.join(own_lines(view, path)) or "none",
        between.join(lines) or "none",
        effect,
        reason=reason,
        source=source,
        undo=f"{path} is {'removed' if change.before is None else 'restored'}",
        changes=() if refused else (change,),
        refused=refused,
    )


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
    _Need(NFS_MODULE, "NFS over RDMA", on_demand=True),
)
_FOR_INFINIBAND = (
    _Need("ib_ipoib", "IP over InfiniBand"),
    _Need("ib_umad", "ibstat and a subnet manager", on_demand=True, by_alias=True),
)


def _needed(view: View) -> Iterator[Finding]:
    """Yield a finding for each module that the hardware needs."""
    needs = list(_needs(view))
    if needs and has_rdma_core(view) is False and not openibd_runs(view):
        yield About(NEEDED.id).warns(
            "rdma-core is not installed, so nothing loads the RDMA modules for this "
            "hardware",
            "dnf install rdma-core",
        )
    for need in needs:
        loader = _loader(view, need.module)
        if not loader and openibd_runs(view):
            loader = "openibd (/etc/infiniband/openib.conf)"
        loaded = is_loaded(view.facts.modules, need.module)
        yield (_loaded if loaded else _not_loaded)(view, need, loader)


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
    if any(port.is_infiniband for device in devices for port in device.ports):
        yield from _FOR_INFINIBAND


def _not_loaded(view: View, need: _Need, loader: str) -> Finding:
    modules, module = view.facts.modules, need.module
    about = About(NEEDED.id, module)
    available = is_available(modules, module) is not False
    # Without it there are no interfaces that the policy may name.
    wanted = need in _FOR_INFINIBAND and any(
        rule.link_layer in (None, INFINIBAND) for rule in view.policy.host.interfaces
    )
    missing = FAIL if wanted else WARN
    if module == NFS_MODULE and (not available or mismatch(modules)):
        return about.skips(f"{module} cannot be loaded: see NFSRDMA-01")
    if not available:
        sentence = f"this kernel has no {module}, which is for {need.purpose}"
        return about.finds(missing, sentence, "see DRIVER-01 and STACK-01")
    line = blocking_line(modules, module)
    # The kernel's own request by name is not stopped by a blacklist.
    bypassed = line and line.command == "blacklist" and not need.by_alias
    if line and not (need.on_demand and bypassed):
        return about.finds(
            missing,
            f"{place_of(line)} prevents loading {module} ({line.command}), which is "
            f"for {need.purpose}",
            f"remove that line, then: modprobe {module}",
        )
    if need.on_demand:
        return about.passes(
            f"{module} is not loaded; the kernel loads it at first use ({need.purpose})"
        )
    sentence = f"{module}, which is for {need.purpose}, is not loaded"
    if loader:
        sentence += f", although {loader} lists it"
        return about.finds(missing, sentence, f"see UNIT-01; modprobe {module}")
    fix = _policy_line(module)
    if module in view.policy.host.modules:
        fix = "see MODULE-02: the policy names it"
    return about.finds(missing, sentence, fix)


def _loaded(view: View, need: _Need, loader: str) -> Finding:
    module = need.module
    about = About(NEEDED.id, module)
    if loader:
        return about.passes(f"{module} is loaded; {loader} loads it at boot")
    if need.on_demand:
        return about.passes(f"{module} is loaded; the kernel loads it at first use")
    if module in view.policy.host.modules:
        return about.skips(f"{module} is loaded; the policy names it: see MODULE-02")
    if has_rdma_core(view) is None:
        listed = _listed_by_rdma_core(view, module)
        if listed:
            return about.skips(
                f"{module} is loaded; rdma-core, if installed, loads it at boot "
                f"({listed})"
            )
        if not view.facts.modules.load_lines:
            return about.skips(
                f"{module} is loaded; it is unknown what loads it at boot"
            )
    sentence = f"{module} is loaded, but nothing loads it at boot"
    return about.warns(sentence, _policy_line(module))


def _policy_line(module: str) -> str:
    return f"policy.yaml, host: modules: [{module}]"


def _wanted(view: View) -> Iterator[Outcome]:
    """Yield a finding for each module of the policy, then the steps."""
    wanted = dict.fromkeys(map(module_name, view.policy.host.modules))
    kept = own_lines(view, MODULES_LOAD)
    if not wanted:
        if kept:
            yield About(WANTED.id).warns(
                f"{MODULES_LOAD} loads {', '.join(kept)}, which is no longer in the "
                "policy",
                "ovirt-rdma-host revert MODULE-02/boot",
            )
        return
    lines, steps = [], []
    for module in wanted:
        refused = _refusal(view, module)
        loader = _loader(view, module, MODULES_LOAD)
        if not refused and not loader:
            lines.append(module)
        if not is_loaded(view.facts.modules, module) and module in CONCERNED:
            steps.append(_load(module, refused))
        ours = MODULES_LOAD if module in kept else ""
        yield _wanted_finding(view, module, refused, loader or ours)
    yield from _file_step(
        view,
        WANTED.id,
        MODULES_LOAD,
        lines,
        f"load {', '.join(lines)} at every boot" if lines else "load no modules",
        between=", ",
        effect=LIVE,
        reason="the policy requires them, and nothing else on this host loads them",
        source=_MODULES_SOURCE,
    )
    yield from steps


_MODULES_SOURCE = "modules-load.d(5); policy.yaml, host: modules"


def _refusal(view: View, module: str) -> str:
    modules = view.facts.modules
    # The facts have these modules only.
    if module in CONCERNED and is_available(modules, module) is False:
        return Sentence("module-missing", f"this kernel has no {module}")
    line = blocking_line(modules, module)
    if line:
        return Sentence(
            "module-blocked",
            f"{place_of(line)} prevents it ({line.command} {module})",
        )
    return ""


def _wanted_finding(view: View, module: str, refused: str, loader: str) -> Finding:
    about, loaded = About(WANTED.id, module), is_loaded(view.facts.modules, module)
    if refused:
        return about.fails(
            f"{module} cannot be loaded at boot: {refused}",
            "remove what prevents it, or remove the module from the policy",
        )
    if module not in CONCERNED:
        sentence = f"it is unknown if {module} is loaded"
        return about.skips(sentence, f"lsmod | grep {module}")
    boot = f"{loader} loads it at boot" if loader else ""
    if loaded and boot:
        return about.passes(f"{module} is loaded; {boot}")
    sentence = f"{module} is not loaded, and nothing loads it at boot"
    if loaded:
        sentence = f"{module} is loaded, but nothing loads it at boot"
    elif boot:
        sentence = f"{module} is not loaded, but {boot}"
    return about.warns(sentence, "ovirt-rdma-host plan")


def _load(module: str, refused: str) -> Step:
    return About(WANTED.id, module).step(
        f"load {module}",
        "not loaded",
        "loaded",
        LIVE,
        reason=f"the policy requires {module}",
        source=_MODULES_SOURCE,
        undo="the module stays loaded until the next boot",
        changes=() if refused else (Change(MODULE, module, None, "loaded"),),
        refused=refused,
    )


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


def _plain_name(option: str) -> str:
    return option.replace("-", "_")


def _is_dead(view: View, module: str, option: str) -> bool:
    """Whether the option has no effect on this host.

    It may have one if the loaded module shows it, or if the module's file is not the
    kernel's own (MLNX_OFED still has some of them).
    """
    modules = view.facts.modules
    path = file_of(modules, module)
    return (
        (module_name(module), _plain_name(option)) in DEAD
        and running_value(modules, module, option) is None
        and (path is None or is_of_the_kernel(path))
    )


def _unknown_options(view: View) -> Iterator[Finding]:
    """Yield a finding for each option without effect."""
    places = [
        (line.module, match[1], place_of(line))
        for line in view.facts.modules.modprobe_lines
        if line.command == "options" and line.file != MODPROBE
        for match in map(_NAME.match, line.text.split())
        if match
    ]
    options = view.policy.host.module_options
    places += [(option.module, option.name, "policy.yaml") for option in options]
    for module, name, where in places:
        if _is_dead(view, module, name):
            yield About(UNKNOWN.id, f"{module}.{name}").warns(
                f"{where} sets {name}, which this kernel's {module} does not have; "
                f"{DEAD[module_name(module), _plain_name(name)]}",
                f"remove {name} from {where}",
            )


_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)", re.ASCII | re.IGNORECASE)
_TRUE, _FALSE = ("y", "1", "on", "yes"), ("n", "0", "off", "no")


def _set_elsewhere(modules: Modules, option: ModuleOption) -> Optional[tuple[str, str]]:
    """Return value and place of the last line that sets the option and is not in our
    file: another file, or the kernel's command line.

    The kernel uses the last of several values (kernel/params.c).
    """
    setting = None
    for line in modules.modprobe_lines:
        if (
            line.command == "options"
            and line.file != MODPROBE
            and line.module == module_name(option.module)
        ):
            for word in line.text.split():
                name, _, value = word.partition("=")
                if _plain_name(name) == _plain_name(option.name):
                    setting = value, place_of(line)
    return setting


def running_value(modules: Modules, module: str, option: str) -> Optional[str]:
    """Return the loaded module's value of an option; None if it does not show one."""
    wanted = module_name(module), _plain_name(option)
    shown = (p.value for p in modules.parameters if (p.module, p.name) == wanted)
    return next(shown, None)


def same_value(one: str, other: str) -> bool:
    """Whether two texts mean the same value: ``0x10`` is 16, and Y is 1."""
    return [*map(_plain_word, one.split(","))] == [*map(_plain_word, other.split(","))]


def _plain_word(word: str) -> str:
    word = word.strip().lower().strip("\"'")
    if word in _TRUE:
        return "1"
    if word in _FALSE:
        return "0"
    if _NUMBER.fullmatch(word):
        return str(int(word, 16) if "x" in word else int(word))
    return word


_OPTIONS_SOURCE = "modprobe.d(5); policy.yaml, host: module_options"
_INITRAMFS = "if the module is in the initramfs (lsinitrd shows it), run dracut -f too"


def _options(view: View) -> Iterator[Outcome]:
    """Yield a finding for each option of the policy, then the steps."""
    modules, kept = view.facts.modules, own_lines(view, MODPROBE)
    if not view.policy.host.module_options:
        if kept:
            text = "; ".join(kept)
            yield About(OPTIONS.id).warns(
                f"the policy no longer has these options of {MODPROBE}: {text}",
                "ovirt-rdma-host revert MODOPT-02/boot",
            )
        return
    lines, refusals, running = [], [], []
    for option in view.policy.host.module_options:
        module, name = option.module, option.name
        about = About(OPTIONS.id, f"{module}.{name}")
        text = f"{module} {name}={option.value}"
        in_facts = module_name(module) in CONCERNED
        loaded = is_loaded(modules, module)
        value, place = _set_elsewhere(modules, option) or ("", "")
        if in_facts and is_available(modules, module) is False:
            yield about.skips(f"this kernel has no {module}, so {text} is ignored")
        elif _is_dead(view, module, name):
            sentence = f"{module} has no option {name}, so it is ignored"
            yield about.skips(sentence, "see MODOPT-01")
        elif place and not same_value(value, option.value):
            yield about.fails(
                f"{place} sets {name}={value}, the policy requires {option.value}",
                f"remove {name} from {place}, or from the policy",
            )
            refusals.append(
                about.step(
                    f"set {text}",
                    value,
                    option.value,
                    REBOOT if loaded else LIVE,
                    reason="the policy requires it",
                    source=_OPTIONS_SOURCE,
                    undo="nothing is changed",
                    refused=Sentence(
                        "module-option-set-elsewhere", f"{place} sets {name}={value}"
                    ),
                )
            )
        else:
            line = f"options {text}"
            ours = MODPROBE if line in kept else ""
            yield _option_finding(about, view, option, place or ours)
            if not place:
                lines.append(line)
                running += [module] if loaded else []
    reason = "the policy requires these options"
    if running:
        names = ", ".join(dict.fromkeys(running))
        reason += f"; {names} is loaded, and reads them only at load: {_INITRAMFS}"
    yield from _file_step(
        view,
        OPTIONS.id,
        MODPROBE,
        lines,
        f"write {MODPROBE}" if lines else f"remove {MODPROBE}",
        between="; ",
        effect=REBOOT if running else LIVE,
        reason=reason,
        source=_OPTIONS_SOURCE,
    )
    yield from refusals


def _option_finding(
    about: About, view: View, option: ModuleOption, where: str
) -> Finding:
    """Return the finding about an option that ``where`` sets to the policy's value; ""
    if nothing sets it.
    """
    modules, name = view.facts.modules, option.name
    now = running_value(modules, option.module, name)
    differs = now is not None and not same_value(now, option.value)
    text = f"{option.module} {name}={option.value}"
    if not where:
        shown = f"{now}" if now is not None else "not set"
        sentence = f"{name} is {shown}, the policy requires {option.value}"
        if now is not None and not differs:
            sentence = f"{name} is {now}, but nothing sets it at the next boot"
        return about.warns(sentence, "ovirt-rdma-host plan")
    if differs:
        sentence = f"{where} sets {text}, but the running module has {now}"
        return about.warns(sentence, f"reboot; {_INITRAMFS}")
    if now is None and is_loaded(modules, option.module):
        return about.skips(
            f"{where} sets {text}; the running module does not show it",
            f"modinfo -p {option.module} lists the available options",
        )
    return about.passes(f"{where} sets {text}")


NEEDED = Rule("MODULE-01", _needed)
WANTED = Rule("MODULE-02", _wanted, "the policy names no modules")
UNKNOWN = Rule(
    "MODOPT-01", _unknown_options, "no module option without effect was found", PASS
)
OPTIONS = Rule("MODOPT-02", _options, "the policy names no module options")
RULES = (NEEDED, WANTED, UNKNOWN, OPTIONS)
