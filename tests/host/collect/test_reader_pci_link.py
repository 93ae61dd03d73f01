# SPDX-License-Identifier: GPL-2.0-or-later
"""The PCIe link of an adapter, with the kernel's odd texts too."""

from __future__ import annotations

import pytest
from support.golden.golden_traps import CARD_FOLDER, Mount, busy_host

from ovirt_rdma.host.facts.devices import PciLink


@pytest.fixture
def host(tmp_path):
    return busy_host(tmp_path, Mount())


def adapter(host):
    (found,) = host.reader().facts().adapters
    return found


def test_link_and_slot(host):
    assert adapter(host).pci_link == PciLink(8.0, 16, 16.0, 16, 8.0, 16)


@pytest.mark.parametrize(
    "speed", ["Unknown", "Unknown speed", "fast", "-8.0 GT/s PCIe"]
)
def test_a_link_that_the_kernel_does_not_know(host, speed):
    host.write(f"{CARD_FOLDER}/current_link_speed", speed)
    host.write(f"{CARD_FOLDER}/current_link_width", "0")
    link = adapter(host).pci_link
    assert (link.speed_gts, link.width, link.most_width) == (None, None, 16)


def test_a_virtual_function_has_none(host):
    host.link(f"{CARD_FOLDER}/physfn", "/sys/devices/pci0000:3a/0000:3a:00.0")
    assert adapter(host).pci_link is None
