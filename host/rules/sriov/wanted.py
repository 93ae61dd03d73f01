# SPDX-License-Identifier: GPL-2.0-or-later
"""Join adapters, their VFs and the policy's rules for VFs; derive GUIDs. Pure.

The GUIDs of a VF are the first 64 bits of SHA-256 over five lines: ``ovirt_rdma VF
1``, the host's id in VDSM, the node GUID of the physical function's RDMA
device, the number of the VF from 0, and ``node`` or ``port N``. In the first byte the
bit for groups is 0, and the bit for locally administered is 1 (EUI-64). So they are the
same after each boot, and no other host and no other adapter has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import (
    Adapter,
    Guid,
    RdmaDevice,
)
from ovirt_rdma.host.facts.functions import (
    VirtualFunction,
)
from ovirt_rdma.host.policy.model import VfRule, vf_rule_for
from ovirt_rdma.host.rules.pci_ids import MLX4
from ovirt_rdma.host.rules.view import View, once_per_view

NO_GUID = "0000:0000:0000:0000"
_GROUP, _LOCAL = 0x01, 0x02


@dataclass(frozen=True)
class Pf:
    """A physical function: its adapter, RDMA device, VFs and the policy's rule.

    ``made`` is the number of VFs that the plan makes; 0 if there are some already, or
    if it cannot make them.
    """

    adapter: Adapter
    device: RdmaDevice
    rule: Optional[VfRule]
    made: int = 0

    @property
    def name(self) -> str:
        """Its RDMA device's name."""
        return self.device.name

    @property
    def is_mlx4(self) -> bool:
        """Whether its driver is mlx4."""
        return self.adapter.driver == MLX4

    @property
    def is_infiniband(self) -> bool:
        """Whether a port of it is InfiniBand, so that its VFs need GUIDs."""
        return any(port.is_infiniband for port in self.device.ports)

    @property
    def vfs(self) -> tuple[VirtualFunction, ...]:
        """Its VFs, those that the plan makes too."""
        if not self.made:
            return self.adapter.virtual_functions
        return tuple(VirtualFunction(n, "") for n in range(self.made))


@once_per_view
def pfs(view: View) -> tuple[Pf, ...]:
    """Return the physical functions that have VFs, or for which the policy wants some,
    by RDMA device.
    """
    return tuple(_pfs(view))


def _pfs(view: View) -> Iterator[Pf]:
    seen = set()
    for device in view.facts.rdma_devices:
        adapter = view.adapter(device)
        if adapter is None or adapter.physical_function is not None:
            continue
        rules = (vf_rule_for(view.policy.host, device, p) for p in device.ports)
        rule = next((rule for rule in rules if rule), None)
        if adapter.pci.address in seen or not (rule or adapter.virtual_functions):
            continue
        seen.add(adapter.pci.address)
        made = rule.count if rule and not adapter.vfs else 0
        pf = Pf(adapter, device, rule)
        yield pf if no_number(pf) else Pf(adapter, device, rule, made)


def no_number(pf: Pf) -> str:
    """Return why the number of VFs cannot become what the policy wants, and what to do;
    empty if it can, or is that.
    """
    rule, adapter = pf.rule, pf.adapter
    if rule is None or adapter.vfs == rule.count:
        return ""
    address = adapter.pci.address
    if pf.is_mlx4:
        return (
            "mlx4 makes VFs only when it is loaded: write module_options: "
            f"{{mlx4_core: {{num_vfs: {rule.count}, probe_vf: {rule.count}}}}}, and "
            "reboot"
        )
    if adapter.max_vfs is None or rule.count > adapter.max_vfs:
        most = adapter.max_vfs or 0
        return (
            f"its firmware allows {most}: mstconfig -d {address} set SRIOV_EN=1 "
            f"NUM_OF_VFS={rule.count}, then power the host off and on"
        )
    if adapter.vfs:
        return (
            f"it has {adapter.vfs}, and the kernel changes that only by removing them "
            "all: revert ours with ovirt-rdma-host revert, others with echo 0 > "
            f"/sys/bus/pci/devices/{address}/sriov_numvfs"
        )
    return ""


def derived_guids(host_uuid: str, pf: Pf, vf: int) -> tuple[str, ...]:
    """Return the GUIDs of VF number ``vf`` in the order in which they are set: for mlx4
    that of each port, else the node's and the port's.
    """
    if pf.is_mlx4:
        parts = [f"port {port.number}" for port in pf.device.ports]
    else:
        parts = ["node", "port 1"]
    return tuple(_derived(host_uuid, pf.device.node_guid, vf, part) for part in parts)


def _derived(host_uuid: str, node_guid: str, vf: int, part: str) -> str:
    lines = ("ovirt_rdma VF 1", host_uuid, node_guid, str(vf), part)
    digest = bytearray(hashlib.sha256("\n".join(lines).encode()).digest()[:8])
    digest[0] = digest[0] & ~_GROUP | _LOCAL
    return Guid(digest.hex()).in_groups


def present_guids(pf: Pf, vf: VirtualFunction) -> tuple[str, ...]:
    """Return the GUIDs that ``vf`` has now, in the same order; empty if unknown."""
    guids = [port.guid for port in vf.ports]
    if not pf.is_mlx4:
        guids.insert(0, vf.node_guid)
    return tuple(guid for guid in guids if guid) if guids and all(guids) else ()
