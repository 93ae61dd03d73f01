# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the InfiniBand fabric: its parameters, and the build of its module."""

from __future__ import annotations

import re

import pytest

from lab import ib_fabric_build
from lab.infiniband import InfiniBand, PciFunction

pytestmark = pytest.mark.selftest


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        (InfiniBand(), {"hcas=2", "pkeys=0xffff", "tso=1", "active_mtu=4096"}),
        (InfiniBand(hca_mtu=2048), {"hca_mtu=2048", "active_mtu=2048"}),
        (InfiniBand(active_mtu=2048), {"hca_mtu=4096", "active_mtu=2048"}),
        (InfiniBand(pkeys=(0x7FFF, 0x8001)), {"pkeys=0x7fff,0x8001"}),
        (InfiniBand(tso=False, subnet_manager=False), {"tso=0", "subnet_manager=0"}),
        (InfiniBand(hca_type="InfiniPath"), {"hca_type=InfiniPath"}),
        (
            InfiniBand(pci=PciFunction(0x1077, 0x7322, 2, driver="ib_qib")),
            {"pci_vendor=4215", "pci_device=29474", "pci_revision=2", "driver=ib_qib"},
        ),
    ],
)
def test_what_the_module_is_told(fabric: InfiniBand, words: set[str]) -> None:
    assert words <= set(fabric.parameters())


def test_every_parameter_is_one_that_the_module_has() -> None:
    source = (ib_fabric_build.SOURCES / "main.c").read_text()
    known = re.findall(r"^module_param\w*\((\w+),", source, re.MULTILINE)
    told = [word.partition("=")[0] for word in InfiniBand(hca_type="x").parameters()]
    assert sorted(told) == sorted(known)


def test_every_source_is_built() -> None:
    kbuild = (ib_fabric_build.SOURCES / "Kbuild").read_text()
    sources = {path.stem for path in ib_fabric_build.SOURCES.glob("*.c")}
    assert set(re.findall(r"(\w+)\.o\b", kbuild)) == sources | {"ib_fabric"}
