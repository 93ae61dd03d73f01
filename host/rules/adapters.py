# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about adapters, their links, and the kernel and its RDMA modules. Pure.

DRIVER-01: adapters without a driver, and without the module that makes their RDMA
device. PCIE-01: an adapter's PCIe link against the speed of its ports. PORT-ERRORS-01:
the error counters of RDMA ports. LOCALITY-01: NUMA node, interrupts and CPU governor of
adapters, a report. STACK-01: the RDMA modules, rpcrdma included, are from one tree.
KERNEL-01: the configuration of the running kernel. KERNEL-02: modules that this kernel
has, in a package that is not installed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.adapter_models import (
    MLX4,
    MLX5,
    MTHCA,
    QIB,
    Model,
    model_of,
)
from ovirt_rdma.host.facts.devices import Adapter, PciLink
from ovirt_rdma.host.facts.infiniband import CONNECTED
from ovirt_rdma.host.facts.model import PortActivity, PortError, RdmaStack
from ovirt_rdma.host.facts.statistics import FATAL, LINK, PATH, of_kind
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP
from ovirt_rdma.host.rules.base import FAIL, SKIP, WARN, About, Finding, Rule, View
from ovirt_rdma.host.rules.modules import (
    INSTALL_STACK,
    NFS_MODULE,
    OTHER_KERNEL,
    base_files,
    file_of,
    is_available,
    is_in_a_package,
    is_loaded,
    is_of_the_kernel,
    mismatch,
    package_fix,
    why_not_loaded,
)

GEN2 = "MLX4_CORE_GEN2"
# These reserve a function for a guest, or for a program in user space.
_PASSTHROUGH = ("vfio-pci", "pci-stub", "xen-pciback", "uio_pci_generic", "igb_uio")
# Modules that the kernel of a distribution does not have, and the sentence about it
# (kernel configurations of EL8, EL9 and EL10).
_GONE = {
    (MLX4, "el10"): "EL10 removed mlx4, the driver of ConnectX-3 and older",
    (MTHCA, "el9"): "EL does not build ib_mthca",
    (MTHCA, "el10"): "EL does not build ib_mthca",
    (QIB, "el9"): "EL does not build ib_qib",
    (QIB, "el10"): "EL does not build ib_qib",
}


def _drivers(view: View) -> Iterator[Finding]:
    """Yield a finding for each adapter, which includes its virtual functions."""
    adapters = (*view.facts.adapters, *_only_netdevs(view))
    # If other adapters work, one without a driver may be unused: no failure.
    verdict = WARN if view.facts.rdma_devices else FAIL
    physical = {a.pci.address for a in adapters if a.physical_function is None}
    for adapter in adapters:
        if adapter.physical_function not in physical:
            yield _finding(view, adapter, verdict)


def _only_netdevs(view: View) -> Iterator[Adapter]:
    """Yield the functions that are known by their netdevs only."""
    known = {adapter.pci.address for adapter in view.facts.adapters}
    for netdev in view.facts.netdevs:
        if netdev.pci and netdev.pci.address not in known and model_of(netdev.pci):
            known.add(netdev.pci.address)
            yield Adapter(netdev.pci, netdev.driver)


def _finding(view: View, adapter: Adapter, verdict: str) -> Finding:
    model, about = model_of(adapter.pci), About(DRIVERS.id, adapter.pci.address)
    name = f"{model.name if model else 'an RDMA adapter'} (" + (
        f"{adapter.pci.vendor[2:]}:{adapter.pci.device[2:]})"
    )
    counted = _counted(view, adapter)
    if adapter.driver in _PASSTHROUGH:
        return about.passes(
            f"{name} is reserved for a guest by {adapter.driver}{counted}"
        )
    if adapter.driver:
        shown = f"{name} uses the driver {adapter.driver}{counted}"
        if model and adapter.driver == model.module and model.rdma_module:
            return _with_rdma(view, about, adapter, model, shown)
        return about.passes(shown)
    if adapter.physical_function:
        return about.passes(
            f"{name} of {adapter.physical_function} has no driver and is available for "
            "a guest"
        )
    why, fix = _why_not(view, adapter, model)
    if model and model.is_nic:
        verdict = _verdict(view, adapter.pci.address, model)
    return about.finds(verdict, f"{name} has no driver: {why}{counted}", fix)


def _with_rdma(
    view: View, about: About, adapter: Adapter, model: Model, shown: str
) -> Finding:
    """Return the finding about a function whose RDMA device another module makes."""
    if _has_rdma_device(view, adapter.pci.address):
        return about.passes(shown)
    address, module = adapter.pci.address, model.rdma_module
    why, fix = why_not_loaded(view, module)
    if is_loaded(view.facts.modules, module):
        why = f"{module} is loaded and made none"
        if adapter.auxiliary == ():
            why = f"{model.module} offers none to {module}"
        fix = _OFF.get(model.module, "{0} shows the reason").format(
            f"journalctl -k -g {address}", address
        )
    verdict = _verdict(view, address, model)
    return about.finds(verdict, f"{shown} and has no RDMA device: {why}", fix)


# Why a module that is loaded has made no RDMA device.
_OFF = {
    MLX5: "devlink dev param show pci/{1} name enable_roce should say true; {0} shows "
    "other reasons",
    "bnxt_en": "switch RDMA on in the adapter's own settings (firmware setup, or "
    "Broadcom's niccli), then reboot; {0} shows other reasons",
    "ice": "{0} shows the reason: the firmware has RDMA off (more than four ports), "
    "there are too few interrupt vectors, or the port is in a bond, which ends RDMA "
    "with this driver",
}


def _has_rdma_device(view: View, address: str) -> bool:
    """Whether the function has an RDMA device, or shares one: that of a bond is on one
    of its ports (RoCE LAG).
    """
    own = {n.name for n in view.facts.netdevs if n.pci and n.pci.address == address}
    bonds = {
        upper.name
        for name in own
        for upper in map(view.netdev, view.carriers(name))
        if upper and upper.driver == "bond"
    }
    return any(
        device.pci and device.pci.address == address
        for device in view.facts.rdma_devices
    ) or any(
        netdev.rdma_device and (netdev.name in own or bonds & {*netdev.uppers})
        for netdev in view.facts.netdevs
    )


def _verdict(view: View, address: str, model: Model) -> str:
    """Return how bad it is that a function has no RDMA device. Most NICs are used as
    such, and then it is nothing.
    """
    transports = {
        rule.transport
        for route, rule in view.wanted_routes
        for netdev in view.below(route.netdev or "")
        if netdev.pci and netdev.pci.address == address
    }
    if REQUIRE_RDMA in transports or (
        view.wants_nfs_over_rdma and not view.facts.rdma_devices
    ):
        return FAIL
    if transports - {TCP} or not model.is_nic:
        return WARN
    return SKIP


def _counted(view: View, adapter: Adapter) -> str:
    """Return a clause with the number of virtual functions of each driver.

    A host may have hundreds: one line each would hide the other findings.
    """
    drivers = Counter(
        function.driver or "no driver"
        for function in view.facts.adapters
        if function.physical_function == adapter.pci.address
    )
    counts = ", ".join(f"{number} {driver}" for driver, number in drivers.items())
    return f"; virtual functions: {counts}" if counts else ""


def _why_not(view: View, adapter: Adapter, model: Optional[Model]) -> tuple[str, str]:
    """Return why ``adapter`` has no driver, and the fix."""
    address, modules = adapter.pci.address, view.facts.modules
    if model is None:
        return (
            "its PCI id is unknown to this program",
            f"lspci -nnk -s {address} shows the model and the modules that support it",
        )
    module, without = model.module, None
    if is_available(modules, module) is False:
        without = _GONE.get((module, view.facts.software.distribution or ""))
        without = without or f"this kernel has no {module}"
    elif model.gen2 and _gen2_is_off(view):
        without = f"this kernel's {module} is built without {GEN2}"
    if without:
        return without, OTHER_KERNEL.format(module=module)
    if is_loaded(modules, module):
        return (
            f"{module} is loaded but has not claimed it",
            f"journalctl -k | grep -e {module} -e {address} shows the reason "
            "(firmware too old, or the probe failed)",
        )
    return why_not_loaded(view, module)


def _gen2_is_off(view: View) -> bool:
    """Whether mlx4_core does not support ConnectX and ConnectX-2.

    EL builds it without them; a known kernel configuration takes precedence over the
    distribution's name.
    """
    config = view.facts.software.kernel_config
    if config is not None:
        return any(option.name == GEN2 and option.value == "n" for option in config)
    return view.facts.software.distribution in ("el8", "el9")


DRIVERS = Rule("DRIVER-01", _drivers, "no RDMA adapter was found on the PCI bus")


def _stack(view: View) -> Iterator[Finding]:
    """Yield one finding for the host."""
    modules, stacks = view.facts.modules, view.facts.software.stacks
    about = About(STACK.id)
    bases = base_files(modules)
    foreign = [path for path in bases.values() if not is_of_the_kernel(path)]
    evidence = "; ".join(s.evidence for s in stacks if s.evidence) or "no details"
    installed = f"{_names(stacks)} is installed ({evidence})"
    # Without NFS over RDMA a stack is only worth a warning if nothing needs it.
    bad = FAIL if view.wants_nfs_over_rdma else WARN
    rpcrdma = file_of(modules, NFS_MODULE)
    if foreign and len(foreign) < len(bases):
        # Those that are loaded match, but may have been replaced on disk since.
        together = all(is_loaded(modules, name) for name in bases)
        yield about.finds(
            WARN if together else FAIL,
            f"the RDMA modules are from two trees: {', '.join(bases.values())}",
            "reinstall or remove the out-of-tree stack, then: depmod -a; dracut -f",
        )
    elif bases and mismatch(modules):
        yield about.finds(bad, mismatch(modules), INSTALL_STACK)
    elif foreign:
        yield _foreign(view, about, foreign[0], bad)
    elif bases and stacks:
        yield about.warns(
            f"{installed}, but this kernel's modules are the distribution's "
            f"({next(iter(bases.values()))})",
            "rebuild the stack for this kernel, or remove it",
        )
    elif bases and rpcrdma and not is_of_the_kernel(rpcrdma):
        shown = f"rpcrdma is from another package ({rpcrdma})"
        if is_loaded(modules, NFS_MODULE):
            yield about.passes(
                f"the RDMA modules are the kernel's own, and {shown}: it is loaded, so "
                "they match"
            )
        else:
            yield about.skips(
                f"{shown}; if it matches the kernel's RDMA modules is known when it is "
                "loaded",
                f"modprobe {NFS_MODULE}",
            )
    elif bases:
        # Single drivers may be others, such as ELRepo's.
        others = [f.path for f in modules.files if not is_of_the_kernel(f.path)]
        sentence = "the RDMA modules are the kernel's own"
        yield about.passes(
            f"{sentence}, except {', '.join(others)}" if others else sentence
        )
    elif stacks:
        yield about.warns(
            f"{installed}, and the origin of this kernel's ib_core is unknown",
            "modinfo -n ib_core rdma_cm rpcrdma should show files of one tree",
        )


def _foreign(view: View, about: About, base: str, bad: str) -> Finding:
    """Return the finding for modules that are all from a vendor's stack."""
    stack, rpcrdma = (
        _names(view.facts.software.stacks),
        file_of(view.facts.modules, NFS_MODULE),
    )
    if rpcrdma is not None:
        own = is_of_the_kernel(rpcrdma)
        loaded = " is the kernel's own, and loaded: they match" if own else ""
        return about.passes(
            f"the RDMA modules are from {stack} ({base}), and rpcrdma ({rpcrdma})"
            f"{loaded or ' too'}"
        )
    shown = f"the RDMA modules are from {stack} ({base}), and"
    if is_available(view.facts.modules, NFS_MODULE) is not False:
        return about.warns(
            f"{shown} the origin of rpcrdma is unknown",
            "modinfo -n rpcrdma should show a file of the same tree",
        )
    return about.finds(bad, f"{shown} rpcrdma is missing", INSTALL_STACK)


def _names(stacks: tuple[RdmaStack, ...]) -> str:
    """Return ``MLNX_OFED 5.8`` or ``an out-of-tree stack``."""
    named = [f"{s.name} {s.version}" if s.version else s.name for s in stacks]
    return " and ".join(named) or "an out-of-tree stack"


@dataclass(frozen=True)
class _Need:
    """A symbol, the module that it builds (empty: part of another module), the effect
    if it is missing, and the verdict then.
    """

    symbol: str
    module: str
    effect: str
    verdict: str


def _needs(view: View) -> Iterator[_Need]:
    facts, nfs = view.facts, view.wants_nfs_over_rdma
    models = [model_of(adapter.pci) for adapter in facts.adapters]
    if facts.rdma_devices or nfs or any(not (m and m.is_nic) for m in models):
        verdict = FAIL if nfs else WARN
        yield _Need("INFINIBAND", "ib_core", "no RDMA at all", FAIL)
        yield _Need("SUNRPC_XPRT_RDMA", NFS_MODULE, "no NFS over RDMA", verdict)
        yield _Need(
            "INFINIBAND_USER_ACCESS",
            "ib_uverbs",
            "no RDMA for programs such as the readiness check and rping",
            WARN,
        )
    if any(p.is_infiniband for d in facts.rdma_devices for p in d.ports):
        rules = view.policy.host.interfaces
        wanted = any(rule.transport_mode == CONNECTED for rule in rules)
        verdict = FAIL if wanted else WARN
        yield _Need("INFINIBAND_IPOIB", "ib_ipoib", "no IP over InfiniBand", FAIL)
        yield _Need("INFINIBAND_IPOIB_CM", "", "no connected mode for IPoIB", verdict)


def _configuration(view: View) -> Iterator[Finding]:
    """Yield a finding for each symbol that is off, or one if all are on."""
    about, config = About(CONFIGURATION.id), view.facts.software.kernel_config
    if config is None:
        yield about.skips(
            "no configuration of the running kernel was found",
            "provide one of /boot/config-RELEASE, /lib/modules/RELEASE/config and "
            "/proc/config.gz",
        )
        return
    # A symbol that is not in the configuration counts as not set.
    on = {option.name for option in config if option.value != "n"}
    needs = list(_needs(view))
    missing = [
        need
        for need in needs
        if need.symbol not in on
        # An out-of-tree build may provide the module.
        and not (need.module and is_available(view.facts.modules, need.module))
    ]
    for need in missing:
        yield About(CONFIGURATION.id, need.symbol).finds(
            need.verdict,
            f"this kernel is built without {need.symbol}: {need.effect}",
            "use the distribution's kernel, or one built with "
            f"CONFIG_{need.symbol}=m (y if it is not a module)",
        )
    if needs and not missing:
        text = ", ".join(need.symbol for need in needs)
        yield about.passes(f"this kernel has {text}")


_IN_PACKAGES = (NFS_MODULE, "ib_uverbs", "ib_ipoib")


def _packages(view: View) -> Iterator[Finding]:
    """Yield a finding for each module that was built and is not there."""
    facts, about = view.facts, About(PACKAGES.id)
    config = facts.software.kernel_config
    if not facts.rdma_devices and not view.wants_nfs_over_rdma:
        return
    if config is None or facts.modules.available is None:
        yield about.skips(
            "the kernel's configuration or its list of modules is unknown"
        )
        return
    base = file_of(facts.modules, "ib_core")
    if base and not is_of_the_kernel(base):
        yield about.skips(f"the RDMA modules are those of another stack ({base})")
        return
    needs = [need for need in _needs(view) if need.module in _IN_PACKAGES]
    missing = [need for need in needs if is_in_a_package(facts, need.module)]
    for need in missing:
        yield About(PACKAGES.id, need.module).finds(
            need.verdict,
            f"this kernel was built with {need.module}, and the package that has it is "
            "not installed",
            package_fix(facts, need.module),
        )
    if not missing:
        names = ", ".join(need.module for need in needs)
        yield about.passes(f"this kernel's {names} are installed, if any")


STACK = Rule("STACK-01", _stack, "the origin of the RDMA modules is unknown")
CONFIGURATION = Rule(
    "KERNEL-01", _configuration, "nothing on this host needs RDMA in the kernel"
)
PACKAGES = Rule("KERNEL-02", _packages, "nothing on this host needs RDMA modules")
KERNEL = (STACK, CONFIGURATION, PACKAGES)


# PCI Express Base Specification: 8b/10b encoding up to 5 GT/s, 128b/130b from 8 GT/s,
# and PAM4 flits of 242 bytes in 256 from 64 GT/s.
_8B_10B, _128B_130B, _FLIT = 8 / 10, 128 / 130, 242 / 256
_MOST_GTS = 1000


def _pcie(view: View) -> Iterator[Finding]:
    """Yield a finding for each adapter that has a port with a link."""
    for adapter in view.facts.adapters:
        rates = [
            port.data_rate_mbps or port.rate_mbps or 0
            for device in view.facts.rdma_devices
            if device.pci
            and device.pci.address == adapter.pci.address
            # The rate of a bond may be that of all its ports (mlx5's RoCE LAG).
            and "bond" not in device.name
            for port in device.ports
            if port.is_active
        ]
        if rates and not adapter.physical_function:
            about = About(PCIE.id, adapter.pci.address)
            yield _judged_link(about, adapter.pci_link, max(rates), sum(rates))


def _judged_link(
    about: About, link: Optional[PciLink], rate: int, together: int
) -> Finding:
    speed = link and mbps(link.speed_gts, link.width)
    if link is None or not speed:
        return about.skips("the kernel does not show its PCIe link")
    shown = f"its PCIe link ({_named(link.speed_gts, link.width)}) carries {speed} Mb/s"
    if speed < rate:
        return about.warns(f"{shown}, less than its port ({rate} Mb/s)", _cure(link))
    if speed < together:
        return about.passes(
            f"{shown}: enough for one of its ports, not for all together "
            f"({together} Mb/s)"
        )
    return about.passes(f"{shown}, enough for {together} Mb/s")


def mbps(speed_gts: Optional[float], width: Optional[int]) -> Optional[int]:
    """Return what a link carries in one direction after encoding, in Mb/s.

    Headers of packets take about a tenth more, which depends on settings and is left
    out, so that no sound link is blamed.
    """
    # A facts file may hold any number.
    if not speed_gts or not width or not 0 < speed_gts < _MOST_GTS:
        return None
    encoding = _8B_10B if speed_gts < 8 else _128B_130B if speed_gts < 64 else _FLIT
    return int(speed_gts * 1000 * encoding * width)


def _named(speed_gts: Optional[float], width: Optional[int]) -> str:
    return f"{speed_gts:g} GT/s x{width}" if speed_gts and width else "unknown"


def _cure(link: PciLink) -> str:
    card = (link.most_speed_gts, link.most_width)
    slot = (link.slot_speed_gts, link.slot_width)
    now = mbps(link.speed_gts, link.width) or 0
    could = [value for end in (card, slot) if (value := mbps(*end))]
    if could and min(could) > now:
        return (
            "the link could be faster: seat the card again, check the slot's settings "
            "in the firmware, and look for PCIe errors: journalctl -k -g AER"
        )
    if slot != (None, None) and (mbps(*slot) or 0) < (mbps(*card) or 0):
        return (
            f"the card can have {_named(*card)}, and the slot has {_named(*slot)}: put "
            "the card into another slot"
        )
    return "the card itself has no faster link: the port cannot be used in full"


# Errors of a link in an hour, and in all, from which they are no accident: a cable that
# is moved, a switch that restarts.
_PER_HOUR, _AT_LEAST = 10, 10
# IBTA 6.6: at most one wrong bit in 10^12.
_BIT_ERRORS = 1e-12
# Lost packets as a part of all; a queue pair repeats them, and latency suffers.
_LOST, _LOST_AT_LEAST = 0.001, 100


def _port_errors(view: View) -> Iterator[Finding]:
    """Yield a finding for each port that is ACTIVE."""
    activity = view.facts.activity
    rates = {
        (device.name, port.number): port.rate_mbps
        for device in view.facts.rdma_devices
        for port in device.ports
        if port.is_active
    }
    if activity is None or not rates:
        yield About(PORT_ERRORS.id).skips(
            "no port is ACTIVE" if activity else "the counters were not read"
        )
        return
    hours = view.facts.uptime_s / 3600
    for port in activity.ports:
        if (port.device, port.port) in rates:
            rate = rates[port.device, port.port] or 0
            yield _judged_errors(port, rate, hours, activity.seconds)


def _judged_errors(
    port: PortActivity, rate: int, hours: float, seconds: float
) -> Finding:
    about = About(PORT_ERRORS.id, f"{port.device}/{port.port}")
    if not port.read:
        return about.skips("the device shows no error counters")
    for sentence, fix in _worries(port, rate, hours, seconds):
        return about.warns(sentence, fix)
    if not port.errors:
        return about.passes("its error counters are 0")
    shown = _shown(port.errors)
    if not hours:
        return about.skips(f"the time since boot is unknown, so many or few: {shown}")
    return about.passes(f"few errors: {shown}")


def _worries(
    port: PortActivity, rate: int, hours: float, seconds: float
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, with a fix, the worst first."""
    lately = f"the last {seconds:.1f} s"
    link, path, fatal = (
        [error for error in port.errors if error.name in of_kind(kind)]
        for kind in (LINK, PATH, FATAL)
    )
    if any(error.grown for error in fatal):
        yield f"connections ended in {lately}: {_shown(fatal, True)}", _FATAL_FIX
    # One error in a look is allowed too: at 200 Gb/s the bits of 5 s have one.
    grown = [e for e in link if _is_much(e.name, e.grown, rate, seconds / 3600)]
    if grown:
        yield f"errors of the link grew in {lately}: {_shown(grown, True)}", _LINK_FIX
    lost = sum(error.grown for error in path)
    if lost >= _LOST_AT_LEAST and lost > _LOST * port.new_packets:
        yield f"packets were lost in {lately}: {_shown(path, True)}", _PATH_FIX
    many = [error for error in link if _is_much(error.name, error.value, rate, hours)]
    if many:
        came = "few" if any(error.grown for error in many) else "none"
        sentence = f"the link had many errors: {_shown(many)}; {came} came in {lately}"
        yield sentence, _LINK_FIX
    often = [error for error in fatal if _is_much(error.name, error.value, rate, hours)]
    if often:
        sentence = f"many connections ended: {_shown(often)}; none did in {lately}"
        yield sentence, _FATAL_FIX
    lost = sum(error.value for error in path)
    if port.packets and lost >= _LOST_AT_LEAST and lost > _LOST * port.packets:
        yield f"of {port.packets} packets many were lost: {_shown(path)}", _PATH_FIX


def _is_much(name: str, errors: int, rate_mbps: int, hours: float) -> bool:
    if errors <= _AT_LEAST or not hours:
        return False
    allowed: float = _PER_HOUR
    if name == "symbol_error":
        allowed = max(allowed, rate_mbps * 1e6 * 3600 * _BIT_ERRORS)
    return errors / hours > allowed


def _shown(errors: Sequence[PortError], grown: bool = False) -> str:
    return ", ".join(
        f"{error.name} {f'+{error.grown} to ' if grown and error.grown else ''}"
        f"{error.value}"
        for error in errors
    )


_LINK_FIX = (
    "clean or replace cable and transceiver, one end at a time; then see if the "
    "counters still grow"
)
_PATH_FIX = (
    "look for full buffers on the way (flow control, see ROCE-PFC-01; discards of the "
    "switch), for a second device with the same address, and for a slow receiver"
)
_FATAL_FIX = (
    "see that the servers behind this port are up and that their NFS service runs; "
    "then look for lost packets on the way (flow control, see ROCE-PFC-01; discards of "
    "the switch), and for a receiver that is too slow"
)

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def _locality(view: View) -> Iterator[Finding]:
    """Yield a finding for each PCI function with an RDMA device. None is bad."""
    tuning = view.facts.tuning
    if tuning is None:
        return
    devices = {d.pci.address for d in view.facts.rdma_devices if d.pci}
    for adapter in view.facts.adapters:
        if adapter.pci.address not in devices or adapter.physical_function:
            continue
        about = About(LOCALITY.id, adapter.pci.address)
        parts = [_node(adapter, tuning.numa_nodes), *_interrupts(adapter)]
        if tuning.governors:
            parts.append(f"governor {' and '.join(tuning.governors)}")
        sentence = "; ".join(filter(None, parts))
        if sentence:
            yield about.passes(sentence)
        else:
            yield about.skips("the kernel shows neither node nor interrupts")


def _node(adapter: Adapter, nodes: Optional[int]) -> str:
    if adapter.numa_node is None or not nodes:
        return ""
    if nodes == 1:
        return "the only NUMA node"
    near = f" (CPUs {adapter.local_cpus})" if adapter.local_cpus else ""
    return f"NUMA node {adapter.numa_node} of {nodes}{near}"


def _interrupts(adapter: Adapter) -> Iterator[str]:
    total = sum(one.interrupts for one in adapter.interrupts)
    if not total:
        return
    yield f"{total} interrupts on {len(adapter.interrupts)} sets of CPUs"
    near = cpus_of(adapter.local_cpus or "")
    far = [
        one.interrupts for one in adapter.interrupts if not cpus_of(one.cpus) <= near
    ]
    if adapter.local_cpus and far:
        yield f"{sum(far)} of them on CPUs of other nodes"


def cpus_of(text: str) -> frozenset[int]:
    """Return the numbers of a list such as ``0-3,8``; other parts are left out."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match:
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


PCIE = Rule(
    "PCIE-01", _pcie, "no ACTIVE port is on a PCIe adapter of this host", rdma=True
)
PORT_ERRORS = Rule(
    "PORT-ERRORS-01", _port_errors, "no counters of an ACTIVE port were read", rdma=True
)
LOCALITY = Rule(
    "LOCALITY-01",
    _locality,
    "nothing is known about processors, interrupts or NUMA nodes",
    rdma=True,
)
HARDWARE = (PCIE, PORT_ERRORS, LOCALITY)
