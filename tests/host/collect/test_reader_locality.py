# SPDX-License-Identifier: GPL-2.0-or-later
"""PCIe link, interrupts and settings of the host, with the kernel's odd texts too."""

from __future__ import annotations

import pytest
from support.golden.golden_traps import CARD_FOLDER, Mount, busy_host

from ovirt_rdma.host.collect.rdma import read_tuning
from ovirt_rdma.host.facts.devices import IrqCpus, PciLink, Tuning
from ovirt_rdma.host.system.tree import FileTree


@pytest.fixture
def host(tmp_path):
    return busy_host(tmp_path, Mount())


def adapter(host):
    (found,) = host.reader().facts().adapters
    return found


def test_link_slot_and_interrupts(host):
    found = adapter(host)
    assert found.pci_link == PciLink(8.0, 16, 16.0, 16, 8.0, 16)
    assert found.local_cpus == "0-15"
    assert found.interrupts == (IrqCpus("1", 2), IrqCpus("0", 1))


@pytest.mark.parametrize(
    "speed", ["Unknown", "Unknown speed", "fast", "-8.0 GT/s PCIe"]
)
def test_a_link_that_the_kernel_does_not_know(host, speed):
    host.write(f"{CARD_FOLDER}/current_link_speed", speed)
    host.write(f"{CARD_FOLDER}/current_link_width", "0")
    link = adapter(host).pci_link
    assert (link.speed_gts, link.width, link.most_width) == (None, None, 16)


@pytest.mark.parametrize("cpus", ["", "0-", "f,ffff", "0-3 8"])
def test_lists_of_cpus_that_are_none(host, cpus):
    host.write(f"{CARD_FOLDER}/local_cpulist", cpus)
    for number in (80, 81, 82):
        host.write(f"/proc/irq/{number}/effective_affinity_list", cpus)
    host.write("/proc/irq/82/smp_affinity_list", "0-3,8")
    found = adapter(host)
    assert found.local_cpus is None
    assert found.interrupts == (IrqCpus("0-3,8", 1),)


def test_a_virtual_function_has_none_of_it(host):
    host.link(f"{CARD_FOLDER}/physfn", "/sys/devices/pci0000:3a/0000:3a:00.0")
    found = adapter(host)
    assert (found.pci_link, found.local_cpus, found.interrupts) == (None, None, ())


@pytest.mark.parametrize(
    "nodes, number", [("0", 1), ("0-3", 4), ("0-1,4", 3), ("", None), ("x", None)]
)
def test_nodes(tmp_path, host, nodes, number):
    host.write("/sys/devices/system/node/online", nodes)
    host.write("/proc/sys/sunrpc/rdma_slot_table_entries", "-1")
    host.write("/sys/devices/system/cpu/cpufreq/policy9/scaling_governor", "powersave")
    host.write("/sys/devices/system/cpu/cpufreq/boost", "1")
    tuning = Tuning(number, ("performance", "powersave"), None)
    assert read_tuning(FileTree(tmp_path)) == tuning
