# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a netdev: each kind of user, for each class of step, whoever asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_rdma.host.changes.gate import gate
from ovirt_rdma.host.changes.kinds.model import Refused
from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Netdev,
    PciIdentity,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts, OvirtNetwork
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy

pytestmark = pytest.mark.hypervisor

ADDRESS = "0000:41:00.0"


def netdev(name, type, driver, pci=None, port=None, **stacked) -> Netdev:
    device = "mlx4_0" if port else None
    return Netdev(
        name, type, 1500, "", "up", driver, pci, rdma_device=device, rdma_port=port,
        **stacked,
    )  # fmt: skip


def vpi_host() -> Facts:
    """An mlx4 adapter: InfiniBand on port 1, virtual machines on port 2."""
    pci = PciIdentity(ADDRESS, "0x15b3", "0x1003", "0x00")
    ports = (
        RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", max_mtu=4096),
        RdmaPort(2, "ACTIVE", "LinkUp", "Ethernet"),
    )
    adapter = Adapter(pci, "0x028000", "mlx4_core", port_types=("ib", "eth"))
    device = RdmaDevice("mlx4_0", "CA", "0", "mlx4_core", pci=pci, ports=ports)
    return Facts(
        "hv1",
        "5.14.0",
        1.0,
        adapters=(replace(adapter, port_mtus=(4096, 0)),),
        rdma_devices=(device,),
        netdevs=(
            netdev("ib0", 32, "mlx4_core", pci, port=1),
            netdev("eth3", 1, "mlx4_en", pci, port=2, uppers=("vmnet",)),
            netdev("vmnet", 1, "bridge", lowers=("eth3", "vnet0", "vnet1")),
            netdev("vnet0", 1, "tun", uppers=("vmnet",)),
            netdev("vnet1", 1, "tun", uppers=("vmnet",)),
        ),
        ovirt_networks=(OvirtNetwork("vmnet", "eth3", bridged=True),),
    )


@pytest.mark.parametrize("wanted", [{"port_mtu": 2048}, {"port_type": "eth"}])
def test_virtual_machines_on_the_other_port(wanted):
    rule = InterfaceRule(1, "interfaces 1", device="mlx4_0", port=1, **wanted)
    steps = decide(vpi_host(), Policy(host=HostPolicy(interfaces=(rule,)))).steps
    with pytest.raises(Refused) as refused:
        gate(steps)
    named = " ".join(map(str, refused.value.reasons))
    assert "vnet0" in named and "vnet1" in named and "vmnet" in named
