# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about adapters and links, for all link layers. Pure.

PCIE-01: an adapter's PCIe link against the speed of its ports. PORT-ERRORS-01: the
error counters of RDMA ports. LOCALITY-01: NUMA node, interrupts and CPU governor of
adapters, a report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.facts.activity import PortActivity, PortError
from ovirt_rdma.host.facts.devices import Adapter, PciLink
from ovirt_rdma.host.facts.port_counters import FATAL, LINK, PATH, of_kind
from ovirt_rdma.host.rules.base import About, Finding, Rule
from ovirt_rdma.host.rules.view import View

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
RULES = (PCIE, PORT_ERRORS, LOCALITY)
