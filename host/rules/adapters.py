# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about adapters, their PCIe links and error counters, and the origin of RDMA
modules. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.facts.adapter_models import Model, model_of
from ovirt_rdma.host.facts.devices import Adapter, PciLink, is_passthrough
from ovirt_rdma.host.facts.model import PortActivity, PortError
from ovirt_rdma.host.facts.statistics import FATAL, LINK, PATH, of_kind
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP
from ovirt_rdma.host.rules.base import (
    FAIL,
    SKIP,
    WARN,
    About,
    Finding,
    Rule,
    View,
    each,
)
from ovirt_rdma.host.rules.modules import (
    INSTALL_STACK,
    NFS_MODULE,
    OTHER_KERNEL,
    base_files,
    file_of,
    is_available,
    is_loaded,
    is_of_the_kernel,
    mismatch,
    why_not_loaded,
)

GEN2 = "MLX4_CORE_GEN2"


def _functions(view: View) -> Iterator[Adapter]:
    """Yield the adapters and those known by netdevs only, without VFs of another."""
    adapters = {adapter.pci.address: adapter for adapter in view.facts.adapters}
    physical = {a.pci.address for a in view.facts.adapters if not a.physical_function}
    for netdev in view.facts.netdevs:
        if netdev.pci and model_of(netdev.pci):
            adapters.setdefault(netdev.pci.address, Adapter(netdev.pci, netdev.driver))
    for adapter in adapters.values():
        if adapter.physical_function not in physical:
            yield adapter


def _driver(view: View, about: About, adapter: Adapter) -> Finding:
    model, pci = model_of(adapter.pci), adapter.pci
    named = model.name if model else "an RDMA adapter"
    name = f"{named} ({pci.vendor[2:]}:{pci.device[2:]})"
    if is_passthrough(adapter.driver):
        return about.passes(f"{name} is reserved for a guest by {adapter.driver}")
    if adapter.driver:
        shown = f"{name} uses the driver {adapter.driver}"
        if model and adapter.driver == model.module and model.rdma_module:
            return _with_rdma(view, about, adapter, model, shown)
        return about.passes(shown)
    if adapter.physical_function:
        of = f"{name} of {adapter.physical_function}"
        return about.passes(f"{of} has no driver and is available for a guest")
    why, fix = _why_not(view, adapter, model)
    # If other adapters work, one without a driver may be unused: no failure.
    verdict = WARN if view.facts.rdma_devices else FAIL
    if model and model.is_nic:
        verdict = _verdict(view, pci.address, model)
    return about.finds(verdict, f"{name} has no driver: {why}", fix)


def _with_rdma(
    view: View, about: About, adapter: Adapter, model: Model, shown: str
) -> Finding:
    address, module = adapter.pci.address, model.rdma_module
    if _has_rdma_device(view, address):
        return about.passes(shown)
    why, fix = why_not_loaded(view, module)
    if is_loaded(view.facts.modules, module):
        why = f"{module} is loaded and made none"
        if adapter.auxiliary == ():
            why = f"{model.module} offers none to {module}"
        fix = (
            f"journalctl -k -g {address} shows the reason; RDMA may be off in the "
            f"firmware, or by devlink dev param show pci/{address} name enable_roce"
        )
    verdict = _verdict(view, address, model)
    return about.finds(verdict, f"{shown} and has no RDMA device: {why}", fix)


def _has_rdma_device(view: View, address: str) -> bool:
    """Whether a function has an RDMA device, or shares a bond's (RoCE LAG)."""
    own = {n.name for n in view.facts.netdevs if n.pci and n.pci.address == address}
    above = (view.netdev(upper) for name in own for upper in view.carriers(name))
    bonds = {upper.name for upper in above if upper and upper.driver == "bond"}
    return any(
        device.pci and device.pci.address == address
        for device in view.facts.rdma_devices
    ) or any(
        netdev.rdma_device and (netdev.name in own or bonds & {*netdev.uppers})
        for netdev in view.facts.netdevs
    )


def _verdict(view: View, address: str, model: Model) -> str:
    """Return how bad it is; most NICs are used as such, and then it is nothing."""
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
    return WARN if transports - {TCP} or not model.is_nic else SKIP


def _why_not(view: View, adapter: Adapter, model: Optional[Model]) -> tuple[str, str]:
    """Return why ``adapter`` has no driver, and the fix."""
    address, software = adapter.pci.address, view.facts.software
    if model is None:
        return (
            "its PCI id is unknown to this program",
            f"lspci -nnk -s {address} shows the model and the modules that support it",
        )
    module, config = model.module, software.kernel_config
    # EL builds it without them; a known configuration takes precedence.
    gen2_is_off = software.distribution in ("el8", "el9")
    if config is not None:
        gen2_is_off = any(one.name == GEN2 and one.value == "n" for one in config)
    available = is_available(view.facts.modules, module)
    if available is not False and model.gen2 and gen2_is_off:
        without = f"this kernel's {module} is built without {GEN2}"
        return without, OTHER_KERNEL.format(module=module)
    if is_loaded(view.facts.modules, module):
        return (
            f"{module} is loaded but has not claimed it",
            f"journalctl -k | grep -e {module} -e {address} shows the reason "
            "(firmware too old, or the probe failed)",
        )
    return why_not_loaded(view, module)


DRIVERS = each(
    "DRIVER-01",
    _functions,
    _driver,
    "no RDMA adapter was found on the PCI bus",
    subject="pci.address",
)


def _stack(view: View) -> Iterator[Finding]:
    modules, stacks = view.facts.modules, view.facts.software.stacks
    about, bases = About(STACK.id), base_files(modules)
    first = next(iter(bases.values()), "")
    foreign = not is_of_the_kernel(first)
    named = (
        f"{' '.join(filter(None, (s.name, s.version)))} ({s.evidence})" for s in stacks
    )
    names = " and ".join(named) or "an out-of-tree stack"
    rpcrdma = file_of(modules, NFS_MODULE)
    # Without NFS over RDMA nothing needs it.
    bad = FAIL if view.wants_nfs_over_rdma else WARN
    if len({is_of_the_kernel(path) for path in bases.values()}) > 1:
        # Those that are loaded match, but may have been replaced on disk since.
        together = all(is_loaded(modules, name) for name in bases)
        yield about.finds(
            WARN if together else FAIL,
            f"the RDMA modules are from two trees: {', '.join(bases.values())}",
            "reinstall or remove the out-of-tree stack, then: depmod -a; dracut -f",
        )
    elif bases and mismatch(modules):
        yield about.finds(bad, mismatch(modules), INSTALL_STACK)
    elif bases and foreign:
        # NFSRDMA-01 says so if there is no rpcrdma.
        missing = is_available(modules, NFS_MODULE) is False
        say = about.passes if rpcrdma or missing else about.skips
        origin = rpcrdma or ("missing" if missing else "of unknown origin")
        yield say(f"the RDMA modules are from {names}: {first}; rpcrdma is {origin}")
    elif bases and stacks:
        yield about.warns(
            f"{names} is installed, but this kernel's modules are the distribution's "
            f"({first})",
            "rebuild the stack for this kernel, or remove it",
        )
    elif (
        bases
        and rpcrdma
        and not (is_of_the_kernel(rpcrdma) or is_loaded(modules, NFS_MODULE))
    ):
        yield about.skips(
            f"rpcrdma is from another package ({rpcrdma}); if it matches the kernel's "
            "RDMA modules is known when it is loaded",
            f"modprobe {NFS_MODULE}",
        )
    elif bases:
        # Single drivers may be others, such as ELRepo's, and what is loaded matches.
        others = [f.path for f in modules.files if not is_of_the_kernel(f.path)]
        some = f", except {', '.join(others)}" if others else ""
        yield about.passes(f"the RDMA modules are the kernel's own{some}")


STACK = Rule("STACK-01", _stack, "the origin of the RDMA modules is unknown")


# PCI Express Base Specification: 8b/10b encoding up to 5 GT/s, 128b/130b from 8 GT/s,
# and PAM4 flits of 242 bytes in 256 from 64 GT/s.
_8B_10B, _128B_130B, _FLIT = 8 / 10, 128 / 130, 242 / 256
_MOST_GTS = 1000


def _pcie(view: View, about: About, adapter: Adapter) -> Iterator[Finding]:
    rates = [
        place.port.data_rate_mbps or place.port.rate_mbps or 0
        for place in view.ports
        # The rate of a bond may be that of all its ports (mlx5's RoCE LAG).
        if place.adapter is adapter and "bond" not in place.device.name
        if place.port.is_active and not adapter.physical_function
    ]
    link, rate, together = adapter.pci_link, max(rates, default=0), sum(rates)
    speed = link and mbps(link.speed_gts, link.width)
    if not rates:
        return
    if link is None or not speed:
        yield about.skips("the kernel does not show its PCIe link")
        return
    shown = f"its PCIe link ({_named(link.speed_gts, link.width)}) carries {speed} Mb/s"
    if speed < rate:
        yield about.warns(f"{shown}, less than its port ({rate} Mb/s)", _cure(link))
    else:
        one = "one of its ports, not for " if speed < together else ""
        yield about.passes(f"{shown}, enough for {one}all together ({together} Mb/s)")


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
    could = [value for end in (card, slot) if (value := mbps(*end))]
    if could and min(could) > (mbps(link.speed_gts, link.width) or 0):
        return (
            "the link could be faster: seat the card again, check the slot's settings "
            "in the firmware, and look for PCIe errors: journalctl -k -g AER"
        )
    return (
        f"the card can have {_named(*card)}, and the slot has {_named(*slot)}: where "
        "the slot is less, put the card into another one"
    )


# Errors of a link in an hour, and in all, from which they are no accident: a cable that
# is moved, a switch that restarts.
_PER_HOUR, _AT_LEAST = 10, 10
# IBTA 6.6: at most one wrong bit in 10^12.
_BIT_ERRORS = 1e-12
# Lost packets as a part of all; a queue pair repeats them, and latency suffers.
_LOST, _LOST_AT_LEAST = 0.001, 100
_PATH_FIX = (
    "look for full buffers on the way (flow control, see ROCE-PFC-01; discards of the "
    "switch), for a second device with the same address, and for a slow receiver"
)


_FIXES = {
    FATAL: "see that the servers behind this port are up and that their NFS service "
    f"runs; then {_PATH_FIX}",
    LINK: "clean or replace cable and transceiver, one end at a time; then see if the "
    "counters still grow",
    PATH: _PATH_FIX,
}
# The worst first.
_WHAT = {
    FATAL: "connections ended",
    LINK: "the link had errors",
    PATH: "packets were lost",
}


def _port_errors(view: View) -> Iterator[Finding]:
    activity, hours = view.facts.activity, view.facts.uptime_s / 3600
    places = [place for place in view.ports if place.port.is_active]
    if activity is None or not places:
        yield About(PORT_ERRORS.id).skips(
            "no port is ACTIVE" if activity else "the counters were not read"
        )
        return
    counted = {(port.device, port.port): port for port in activity.ports}
    for place in places:
        port = counted.get((place.device.name, place.port.number))
        if port is None:
            continue
        about, shown = About(PORT_ERRORS.id, place.name), _shown(port.errors)
        rate = place.port.rate_mbps or 0
        worst = next(_worries(port, rate, hours, activity.seconds), None)
        if not port.read:
            yield about.skips("the device shows no error counters")
        elif worst:
            yield about.warns(*worst)
        elif not port.errors:
            yield about.passes("its error counters are 0")
        elif not hours:
            sentence = "the time since boot is unknown, so many or few"
            yield about.skips(f"{sentence}: {shown}")
        else:
            yield about.passes(f"few errors: {shown}")


def _worries(
    port: PortActivity, rate: int, hours: float, seconds: float
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, with a fix, the worst first: now, then since boot."""
    for grown, when, hours_of, packets in (
        (True, f"in the last {seconds:.1f} s", seconds / 3600, port.new_packets),
        (False, "since boot", hours, port.packets),
    ):
        for kind, what in _WHAT.items():
            counted = {
                error: error.grown if grown else error.value
                for error in port.errors
                if error.name in of_kind(kind)
            }
            much = [
                error
                for error, count in counted.items()
                # One error in a look is allowed: at 200 Gb/s the bits of 5 s have one.
                if (count and grown and kind == FATAL)
                or (kind != PATH and _is_much(error.name, count, rate, hours_of))
            ]
            lost = sum(counted.values())
            if kind == PATH and packets is not None and lost >= _LOST_AT_LEAST:
                much = [*counted] if lost > _LOST * packets else []
            if much:
                yield f"{what} {when}: {_shown(much)}", _FIXES[kind]


def _is_much(name: str, errors: int, rate_mbps: int, hours: float) -> bool:
    if errors <= _AT_LEAST or not hours:
        return False
    allowed: float = _PER_HOUR
    if name == "symbol_error":
        allowed = max(allowed, rate_mbps * 1e6 * 3600 * _BIT_ERRORS)
    return errors / hours > allowed


def _shown(errors: Sequence[PortError]) -> str:
    return ", ".join(
        f"{one.name} {f'+{one.grown} to ' if one.grown else ''}{one.value}"
        for one in errors
    )


PCIE = each(
    "PCIE-01",
    lambda view: view.facts.adapters,
    _pcie,
    "no ACTIVE port is on a PCIe adapter of this host",
    rdma=True,
    subject="pci.address",
)
PORT_ERRORS = Rule(
    "PORT-ERRORS-01", _port_errors, "no counters of an ACTIVE port were read", rdma=True
)
HARDWARE = (PCIE, PORT_ERRORS)
