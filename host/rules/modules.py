# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about kernel modules and their options: what loads them at boot, and our files
in modules-load.d and modprobe.d. Pure.

rdma-core loads modules by hardware: udev tags each RDMA device with its capabilities,
by the driver of its bus device, and systemd then loads the lists
/etc/rdma/modules/NAME.conf: ``rdma`` for any device. See rdma-core's
75-rdma-description.rules and 90-rdma-ulp-modules.rules, versions 44 to 65. irdma (bus
drivers ice, i40e on EL9) and siw have no tag, and get the list ``rdma`` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional, Union

from ovirt_rdma.host.facts import adapter_models
from ovirt_rdma.host.facts.devices import SOFT_ROCE, RdmaDevice
from ovirt_rdma.host.facts.model import (
    CONCERNED,
    Facts,
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
    needs are from different trees; empty if they match, or nothing says that they do
    not. If it is loaded they match, wherever their files are. An NFS client of a vendor
    brings sunrpc and rpcrdma, built for the kernel's own ib_core.
    """
    rpcrdma, sunrpc = file_of(modules, NFS_MODULE), file_of(modules, "sunrpc")
    base = next(iter(base_files(modules).values()), None)
    if rpcrdma is None or base is None or is_loaded(modules, NFS_MODULE):
        return ""
    if is_of_the_kernel(rpcrdma) == is_of_the_kernel(base):
        return ""
    if sunrpc and is_of_the_kernel(base) and not is_of_the_kernel(sunrpc):
        return ""
    return (
        f"rpcrdma ({rpcrdma}) cannot be loaded: it is from another tree than {base}, "
        "and their symbols do not match"
    )


# The symbol of the kernel's configuration that builds a module.
_SYMBOLS = {
    NFS_MODULE: "SUNRPC_XPRT_RDMA",
    "ib_uverbs": "INFINIBAND_USER_ACCESS",
    "rdma_ucm": "INFINIBAND_USER_ACCESS",
    "ib_umad": "INFINIBAND_USER_MAD",
    "ib_ipoib": "INFINIBAND_IPOIB",
    **adapter_models.SYMBOLS,
}
INSTALL_STACK = (
    "install the stack's own NFS over RDMA modules (MLNX_OFED: mlnxofedinstall "
    "--with-nfsrdma, package mlnx-nfsrdma), or remove the stack and use the "
    "distribution's"
)
OTHER_KERNEL = (
    "use another adapter, or an out-of-tree build of {module} for this kernel (ELRepo "
    "has some; modinfo -F alias {module} shows the PCI ids that a build takes)"
)


def why_not_loaded(view: View, module: str) -> tuple[str, str]:
    """Return why a module that is not loaded is not, and the fix."""
    facts, load = view.facts, f"modprobe {module}"
    line = blocking_line(facts.modules, module)
    available = is_available(facts.modules, module)
    if available is False:
        return _why_missing(facts, module)
    if line:
        return (
            f"{place_of(line)} prevents loading {module} ({line.command})",
            f"remove that line, then: {load}",
        )
    if available is None:
        return f"{module} is not loaded, and it is unknown if this kernel has it", load
    return f"{module} is available but not loaded", load


def _why_missing(facts: Facts, module: str) -> tuple[str, str]:
    base, config = file_of(facts.modules, "ib_core"), facts.software.kernel_config
    why, symbol = f"this kernel has no {module}", _SYMBOLS.get(module_name(module))
    if base and not is_of_the_kernel(base):
        reinstall = f"reinstall the RDMA stack of {base} with {module}, or remove it"
        return why, INSTALL_STACK if module == NFS_MODULE else reinstall
    # The configuration lists what is off, too.
    values = {one.value for one in config or () if one.name == symbol}
    # The kernel decides about the packages, not the distribution (OLVM runs UEK on EL),
    # so the file is named: dnf(8), "Specifying File Provides".
    package = f"dnf install '*/{facts.kernel_release}/*/{module}.ko*'"
    if values & {"m", "y"}:
        why = f"this kernel was built with {module}, and the package that has it is not"
        return f"{why} installed", package
    if symbol and config is not None:
        why = f"this kernel is built without {module}"
    if symbol is None or module in adapter_models.SYMBOLS:
        return why, OTHER_KERNEL.format(module=module)
    if config is None:
        return why, package
    return why, f"use the distribution's kernel, or one built with CONFIG_{symbol}=m"


EVERY_DEVICE = "rdma"
# The drivers of bus devices for which rdma-core loads each list.
_DRIVERS = {
    "infiniband": "ib_mthca ib_qib mlx4_core mlx5_core",
    "roce": "mlx4_core mlx5_core be2net bnxt_en hns qede vmw_pvrdma rdma_rxe",
    "opa": "hfi1",
    "iwarp": "cxgb4 i40e",
}
OPENIBD = "openibd.service"


def lists_for(devices: Iterable[RdmaDevice]) -> tuple[str, ...]:
    """Return the names of the lists that rdma-core loads for these devices."""
    present = {device.driver for device in devices}
    lists = (name for name, text in _DRIVERS.items() if present & {*text.split()})
    return (EVERY_DEVICE, *lists) if present else ()


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


def _loader(view: View, module: str, *besides: str) -> str:
    """Return what loads a module at boot: ``/etc/modules-load.d/x.conf:2``,
    ``rdma-core (/etc/rdma/modules/rdma.conf:9)``; empty if nothing was found.

    rdma-core's lists depend on the hardware, and its units have to be installed. Files
    that start with one of ``besides`` do not count.
    """
    lists = {f"{RDMA_LISTS}{name}.conf" for name in lists_for(view.facts.rdma_devices)}
    lines = [one for one in view.facts.modules.load_lines if one.module == module]
    for line in lines:
        if not line.file.startswith((RDMA_LISTS, *besides)):
            return place_of(line)
    listed = [line for line in lines if line.file in lists and has_rdma_core(view)]
    return f"rdma-core ({place_of(listed[0])})" if listed else ""


# The subject of a step that writes a file of ours.
BOOT = "boot"


def own_lines(view: View, path: str) -> tuple[str, ...]:
    """Return the lines without comments of our file ``path``; none if it is missing."""
    file = view.own_file(path)
    if file is None or not file.text or foreign_reason(path, file.text):
        return ()
    lines = (line.strip() for line in file.text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


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
) -> Iterator[Step]:
    """Yield the step that sets our file to ``lines``, or removes it; or none."""
    file = view.own_file(path)
    before, after = file.text if file else None, own_text(lines) if lines else None
    refused = foreign_reason(path, before) if file else ""
    if (after is None and (file is None or refused)) or (file and before == after):
        return
    yield About(rule, BOOT).step(
        sentence,
        between.join(own_lines(view, path)) or "none",
        between.join(lines) or "none",
        effect,
        reason=reason,
        undo=f"{path} is {'removed' if before is None else 'restored'}",
        changes=(Change(FILE, path, before, after),),
        refused=refused,
    )


# Each module with its purpose, but rpcrdma (NFSRDMA-01). Aliases in Linux 6.1:
# libibverbs, libibumad and librdmacm request rdma-client-uverbs, -umad and -rdma_cm.
_FOR_ALL = {"ib_uverbs": "RDMA for programs", "rdma_ucm": "RDMA CM for programs"}
_FOR_INFINIBAND = {
    "ib_ipoib": "IP over InfiniBand",
    "ib_umad": "ibstat and a subnet manager",
}
# The kernel loads them by itself when they are first used.
_ON_DEMAND = ("ib_umad", *_FOR_ALL)


def _needed(view: View) -> Iterator[Finding]:
    devices, openibd = view.facts.rdma_devices, openibd_runs(view)
    needs: dict[str, str] = {}
    if any(device.is_soft_roce for device in devices):
        needs[SOFT_ROCE] = "Soft-RoCE"
    if devices:
        needs.update(_FOR_ALL)
    if any(port.is_infiniband for device in devices for port in device.ports):
        needs.update(_FOR_INFINIBAND)
    if needs and has_rdma_core(view) is False and not openibd:
        yield About(NEEDED.id).warns(
            "rdma-core is not installed, so nothing loads the RDMA modules for this "
            "hardware",
            "dnf install rdma-core",
        )
    for module, purpose in needs.items():
        loader = _loader(view, module)
        if not loader and openibd:
            loader = "openibd (/etc/infiniband/openib.conf)"
        judge = _loaded if is_loaded(view.facts.modules, module) else _not_loaded
        yield judge(view, About(NEEDED.id, module), purpose, loader)


def _loaded(view: View, about: About, _: str, loader: str) -> Finding:
    module, lines = about.subject, view.facts.modules.load_lines
    listed = any(line.module == module for line in lines)
    if loader:
        return about.passes(f"{module} is loaded; {loader} loads it at boot")
    if module in _ON_DEMAND:
        return about.passes(f"{module} is loaded; the kernel loads it at first use")
    if module in view.policy.host.modules:
        return about.skips(f"{module} is loaded; the policy names it: see MODULE-02")
    if has_rdma_core(view) is None and (listed or not lines):
        return about.skips(f"{module} is loaded; it is unknown what loads it at boot")
    sentence = f"{module} is loaded, but nothing loads it at boot"
    return about.warns(sentence, _policy_line(module))


def _not_loaded(view: View, about: About, purpose: str, loader: str) -> Finding:
    modules, module = view.facts.modules, about.subject
    known, (why, fix) = is_available(modules, module), why_not_loaded(view, module)
    if known is not False and not blocking_line(modules, module):
        why = f"{module} is not loaded"
        if module in _ON_DEMAND:
            at_use = f"the kernel loads it at first use ({purpose})"
            if known:
                return about.passes(f"{why}; {at_use}")
            return about.skips(f"{why}, and may be missing; {at_use}")
        if loader:
            why, fix = f"{why}, although {loader} lists it", f"see UNIT-01; {fix}"
        elif module in view.policy.host.modules:
            fix = "see MODULE-02: the policy names it"
        else:
            fix = _policy_line(module)
    # Without it there are no interfaces that the policy may name.
    wanted = module in _FOR_INFINIBAND and any(
        rule.link_layer in (None, INFINIBAND) for rule in view.policy.host.interfaces
    )
    return about.finds(FAIL if wanted else WARN, f"{why}; it is for {purpose}", fix)


def _policy_line(module: str) -> str:
    return f"policy.yaml, host: modules: [{module}]"


def _wanted(view: View) -> Iterator[Outcome]:
    wanted = dict.fromkeys(map(module_name, view.policy.host.modules))
    kept, lines = own_lines(view, MODULES_LOAD), []
    if not wanted and kept:
        yield _no_longer(WANTED.id, MODULES_LOAD, ", ".join(kept))
    for module in wanted:
        about, refused = About(WANTED.id, module), _refusal(view, module)
        loader = _loader(view, module, MODULES_LOAD)
        if not refused and not loader:
            lines.append(module)
        loaded = is_loaded(view.facts.modules, module)
        now = "is loaded" if loaded else "is not loaded"
        by = loader or (MODULES_LOAD if module in kept else "")
        if refused:
            yield about.fails(
                f"{module} cannot be loaded at boot: {refused}",
                "remove what prevents it, or remove the module from the policy",
            )
        elif module not in CONCERNED:
            sentence = f"it is unknown if {module} is loaded"
            yield about.skips(sentence, f"lsmod | grep {module}")
        elif loaded and by:
            yield about.passes(f"{module} {now}; {by} loads it at boot")
        else:
            boot = f"{by or 'nothing'} loads it at boot"
            yield about.warns(f"{module} {now}, and {boot}", "ovirt-rdma-host plan")
        if not loaded and module in CONCERNED:
            yield about.step(
                f"load {module}",
                "not loaded",
                "loaded",
                LIVE,
                reason=f"the policy requires {module}",
                undo="the module stays loaded until the next boot",
                changes=(Change(MODULE, module, None, "loaded"),),
                refused=refused,
            )
    if wanted:
        yield from _file_step(
            *(view, WANTED.id, MODULES_LOAD, lines),
            f"load {', '.join(lines)} at every boot" if lines else "load no modules",
            between=", ",
            effect=LIVE,
            reason="the policy requires them, and nothing else on this host loads them",
        )


def _no_longer(rule: str, path: str, text: str) -> Finding:
    return About(rule).warns(
        f"the policy no longer has what {path} sets: {text}",
        f"ovirt-rdma-host revert {rule}/{BOOT}",
    )


def _refusal(view: View, module: str) -> str:
    modules, line = view.facts.modules, blocking_line(view.facts.modules, module)
    available = is_available(modules, module)
    # The facts have these modules only.
    if module in CONCERNED and not available:
        if available is None:
            return f"it is unknown if this kernel has {module}"
        return f"this kernel has no {module}"
    return f"{place_of(line)} prevents it ({line.command} {module})" if line else ""


# The parameters of the kernel's own modules: module_param() in Linux 4.18 to 6.12. A
# module that is not here has many, and is not compared.
_WITHOUT = (
    "ib_cm iw_cm rdma_cm ib_uverbs rdma_ucm ib_umad mlx5_ib bnxt_re irdma ocrdma qedr "
    "hns_roce hns_roce_hw_v2 vmw_pvrdma efa erdma mana_ib siw rpcrdma"
)
_PARAMETERS = {
    **dict.fromkeys(_WITHOUT.split(), ""),
    "mlx4_core": "debug_level msi_x num_vfs probe_vf log_num_mgm_entry_size "
    "enable_64b_cqe_eqe enable_4k_uar log_num_mac log_num_vlan use_prio "
    "log_mtts_per_seg port_type_array internal_err_reset enable_qos",
    "mlx4_en": "udp_rss pfctx pfcrx inline_thold",
    "mlx4_ib": "sm_guid_assign",
    "mlx5_core": "debug_mask prof_sel",
    "ib_core": "send_queue_size recv_queue_size force_mr netns_mode",
    "ib_ipoib": "send_queue_size recv_queue_size max_nonsrq_conn_qp debug_level "
    "mcast_debug_level data_debug_level cm_data_debug_level",
    "ib_iser": "debug_level max_lun max_sectors always_register pi_enable pi_guard",
    "ib_isert": "debug_level sg_tablesize",
    "ib_srp": "srp_sg_tablesize cmd_sg_entries indirect_sg_entries allow_ext_sg "
    "prefer_fr reconnect_delay fast_io_fail_tmo dev_loss_tmo use_imm_data "
    "max_imm_data topspin_workarounds register_always never_register ch_count",
    "ib_srpt": "srp_max_req_size srpt_srq_size srpt_service_guid",
    "nvme_rdma": "register_always",
    "nvmet_rdma": "use_srq srq_size",
    "rdma_rxe": "add remove",
    "i40iw": "resource_profile max_rdma_vfs mpa_version push_mode debug",
    "sunrpc": "tcp_slot_table_entries tcp_max_slot_table_entries "
    "udp_slot_table_entries min_resvport max_resvport pool_mode "
    "svc_rpc_per_connection_limit auth_hashtable_size auth_max_cred_cachesize",
}

_OPTION = re.compile(r"([\w-]+)(?:=(.*)|$)", re.DOTALL)
# Quotes can enclose blanks: dyndbg="file x +p".
_WORDS = re.compile(r'(?:"[^"]*"?|[^\s"])+')


def _options_of_others(modules: Modules) -> Iterator[tuple[str, str, str, str]]:
    """Yield module, option, value and place of each option that is set by another file
    than ours, or by the kernel's command line.
    """
    for line in modules.modprobe_lines:
        if line.command == "options" and line.file != MODPROBE:
            for match in map(_OPTION.match, _WORDS.findall(line.text)):
                if match:
                    yield line.module, match[1], match[2] or "", place_of(line)


def _plain_name(option: str) -> str:
    return option.replace("-", "_")


# Every module takes them (kernel/module/main.c, unknown_module_param_cb).
_OF_ALL = ("dyndbg", "async_probe")


def _is_dead(view: View, module: str, option: str) -> Optional[bool]:
    """Whether the option has no effect on this host; None if that is unknown.

    It has one if the loaded module shows it, and may have one if the module's file is
    not the kernel's own (MLNX_OFED has many).
    """
    modules, name = view.facts.modules, module_name(module)
    path, known = file_of(modules, module), _PARAMETERS.get(name)
    if running_value(modules, module, option) is not None or option in _OF_ALL:
        return False
    if known is None or (path is not None and not is_of_the_kernel(path)):
        return None
    return _plain_name(option) not in known.split()


def _unknown_options(view: View) -> Iterator[Finding]:
    places = [
        (module, name, where)
        for module, name, _, where in _options_of_others(view.facts.modules)
    ]
    options = view.policy.host.module_options
    places += [(option.module, option.name, "policy.yaml") for option in options]
    well: list[str] = []
    for module, name, where in places:
        about = About(UNKNOWN.id, f"{module}.{name}")
        dead = _is_dead(view, module, name)
        if dead:
            yield about.warns(
                f"{where} sets {name}, which this kernel's {module} does not have",
                f"remove {name} from {where}; what there is instead: ovirt-rdma-host "
                f"explain {UNKNOWN.id}",
            )
        elif dead is None:
            yield about.skips(
                f"{where} sets {name}; it is unknown if {module} has that option",
                f"modinfo -p {module}",
            )
        else:
            well.append(about.subject)
    if well:
        names = ", ".join(dict.fromkeys(well))
        yield About(UNKNOWN.id).passes(f"the modules have these options: {names}")


_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)", re.ASCII | re.IGNORECASE)
_TRUE, _FALSE = ("y", "1", "on", "yes"), ("n", "0", "off", "no")


def _set_elsewhere(modules: Modules, option: ModuleOption) -> Optional[tuple[str, str]]:
    """Return value and place of the last line that sets the option and is not in our
    file: another file, or the kernel's command line.

    The kernel uses the last of several values (kernel/params.c).
    """
    wanted = module_name(option.module), _plain_name(option.name)
    found = [
        (value, place)
        for module, name, value, place in _options_of_others(modules)
        if (module, _plain_name(name)) == wanted
    ]
    return found[-1] if found else None


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


_INITRAMFS = "if the module is in the initramfs (lsinitrd shows it), run dracut -f too"


def _options(view: View) -> Iterator[Outcome]:
    modules, kept = view.facts.modules, own_lines(view, MODPROBE)
    options = view.policy.host.module_options
    if not options and kept:
        yield _no_longer(OPTIONS.id, MODPROBE, "; ".join(kept))
    lines, running = [], []
    for option in options:
        module, name = option.module, option.name
        about = About(OPTIONS.id, f"{module}.{name}")
        text = f"{module} {name}={option.value}"
        in_facts, loaded = module_name(module) in CONCERNED, is_loaded(modules, module)
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
            yield about.step(
                f"set {text}",
                value,
                option.value,
                REBOOT if loaded else LIVE,
                refused=f"{place} sets {name}={value}",
            )
        else:
            by = place or (MODPROBE if f"options {text}" in kept else "")
            yield _option_finding(about, view, option, by)
            if not place:
                lines.append(f"options {text}")
                running += [module] if loaded else []
    reason = "the policy requires these options"
    if running:
        names = ", ".join(dict.fromkeys(running))
        reason += f"; {names} is loaded, and reads them only at load: {_INITRAMFS}"
    if options:
        yield from _file_step(
            *(view, OPTIONS.id, MODPROBE, lines),
            f"write {MODPROBE}" if lines else f"remove {MODPROBE}",
            between="; ",
            effect=REBOOT if running else LIVE,
            reason=reason,
        )


def _option_finding(
    about: About, view: View, option: ModuleOption, where: str
) -> Finding:
    """Return the finding about an option, which ``where`` sets (empty: nothing)."""
    modules, text = view.facts.modules, f"{option.module} {option.name}={option.value}"
    now = running_value(modules, option.module, option.name)
    if not where:
        return about.warns(f"nothing sets {text}", "ovirt-rdma-host plan")
    if now is not None and not same_value(now, option.value):
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
    "MODOPT-01", _unknown_options, "no option of an RDMA or NFS module is set", PASS
)
OPTIONS = Rule("MODOPT-02", _options, "the policy names no module options")
RULES = (NEEDED, WANTED, UNKNOWN, OPTIONS)
