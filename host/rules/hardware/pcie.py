# SPDX-License-Identifier: GPL-2.0-or-later
"""PCIE-01: an adapter's PCIe link against the speed of its ports. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.locality import PciLink
from ovirt_rdma.host.rules.base import PASS, SKIP, WARN, Finding, Rule, no_device
from ovirt_rdma.host.rules.view import View

ID = "PCIE-01"
# PCI Express Base Specification: 8b/10b encoding up to 5 GT/s, 128b/130b from 8 GT/s,
# and PAM4 flits of 242 bytes in 256 from 64 GT/s.
_8B_10B, _128B_130B, _FLIT = 8 / 10, 128 / 130, 242 / 256


_BOND = "bond"
_MOST_GTS = 1000


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each adapter that has a port with a link."""
    found = False
    for adapter in view.facts.adapters:
        rates = [
            port.data_rate_mbps or port.rate_mbps or 0
            for device in view.facts.rdma_devices
            if device.pci
            and device.pci.address == adapter.pci.address
            # The rate of a bond may be that of all its ports (mlx5's RoCE LAG).
            and _BOND not in device.name
            for port in device.ports
            if port.is_active
        ]
        if not rates or adapter.physical_function:
            continue
        found = True
        yield _judged(adapter.pci.address, adapter.pci_link, max(rates), sum(rates))
    if not found:
        if view.facts.rdma_devices:
            sentence = "no ACTIVE port is on a PCIe adapter of this host"
            yield Finding(ID, "host", SKIP, sentence)
        else:
            yield no_device(ID)


def _judged(subject: str, link: Optional[PciLink], rate: int, together: int) -> Finding:
    speed = link and mbps(link.speed_gts, link.width)
    if link is None or not speed:
        return Finding(ID, subject, SKIP, "the kernel does not show its PCIe link")
    shown = f"its PCIe link ({_named(link.speed_gts, link.width)}) carries {speed} Mb/s"
    if speed < rate:
        return Finding(
            ID, subject, WARN, f"{shown}, less than its port ({rate} Mb/s)", _cure(link)
        )
    if speed < together:
        return Finding(
            ID,
            subject,
            PASS,
            f"{shown}: enough for one of its ports, not for all together "
            f"({together} Mb/s)",
        )
    return Finding(ID, subject, PASS, f"{shown}, enough for {together} Mb/s")


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


RULE = Rule(ID, decide)

RULES = (RULE,)
