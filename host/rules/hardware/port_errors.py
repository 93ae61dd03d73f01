# SPDX-License-Identifier: GPL-2.0-or-later
"""PORT-ERRORS-01: the error counters of RDMA ports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ovirt_rdma.host.facts.activity import PortActivity, PortError
from ovirt_rdma.host.facts.port_counters import FATAL, LINK, PATH, of_kind
from ovirt_rdma.host.rules.base import HOST, PASS, SKIP, WARN, Finding, Rule, no_device
from ovirt_rdma.host.rules.view import View

ID = "PORT-ERRORS-01"
# Errors of a link in an hour, and in all, from which they are no accident: a cable that
# is moved, a switch that restarts.
_PER_HOUR, _AT_LEAST = 10, 10
# IBTA 6.6: at most one wrong bit in 10^12.
_BIT_ERRORS = 1e-12
# Lost packets as a part of all; a queue pair repeats them, and latency suffers.
_LOST, _LOST_AT_LEAST = 0.001, 100


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each port that is ACTIVE."""
    activity = view.facts.activity
    rates = {
        (device.name, port.number): port.rate_mbps
        for device in view.facts.rdma_devices
        for port in device.ports
        if port.is_active
    }
    if not view.facts.rdma_devices:
        yield no_device(ID)
    elif activity is None or not rates:
        sentence = "no port is ACTIVE" if activity else "the counters were not read"
        yield Finding(ID, HOST, SKIP, sentence)
    else:
        for port in activity.ports:
            if (port.device, port.port) in rates:
                rate = rates[port.device, port.port] or 0
                hours = view.facts.uptime_s / 3600
                yield _judged(port, rate, hours, activity.seconds)


def _judged(port: PortActivity, rate: int, hours: float, seconds: float) -> Finding:
    subject = f"{port.device}/{port.port}"
    if not port.read:
        return Finding(ID, subject, SKIP, "the device shows no error counters")
    for sentence, fix in _worries(port, rate, hours, seconds):
        return Finding(ID, subject, WARN, sentence, fix)
    if not port.errors:
        return Finding(ID, subject, PASS, "its error counters are 0")
    shown = _shown(port.errors)
    if not hours:
        return Finding(
            ID,
            subject,
            SKIP,
            f"the time since boot is unknown, so many or few: {shown}",
        )
    return Finding(ID, subject, PASS, f"few errors: {shown}")


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

RULE = Rule(ID, decide)

RULES = (RULE,)
