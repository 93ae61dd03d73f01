# SPDX-License-Identifier: GPL-2.0-or-later
"""Define a simulated host: the engine's data on it, and its real state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from engine_double.world import World


@dataclass
class SimNic:
    """A netdev that VDSM reports as a nic, or a bond of two.

    ``max_mtu`` is what the device can do. ``infiniband``: an IPoIB netdev, whose MAC
    has 20 bytes. ``ports`` are the names of a bond's nics, ``bond_mode`` its word.
    ``address``/``netmask``/``boot_protocol``: what the netdev has now.
    """

    id: str
    name: str
    mac: str
    mtu: int = 1500
    max_mtu: int = 9000
    speed_mbps: Optional[int] = 10000
    status: str = "up"
    infiniband: bool = False
    address: Optional[str] = None
    netmask: Optional[str] = None
    boot_protocol: str = "none"
    address_v6: Optional[str] = None
    netmask_v6: Optional[str] = None
    boot_protocol_v6: str = "none"
    ports: tuple[str, ...] = ()
    bond_mode: Optional[str] = None


@dataclass
class SimAttachment:
    """A logical network on a nic; ``addresses`` as (method, address, netmask).

    ``committed``: it outlives a reboot. ``actual`` has what of mtu, bridged and vlan is
    so on the host; what is not in it is as the nic or the network says.
    """

    id: str
    network: str
    nic: str
    addresses: list[tuple[str, Optional[str], Optional[str]]] = field(
        default_factory=list
    )
    properties: dict[str, str] = field(default_factory=dict)
    committed: bool = True
    actual: dict[str, Any] = field(default_factory=dict)


@dataclass
class SimHook:
    """A VDSM hook as getCaps reports it."""

    name: str
    event: str


@dataclass
class SimHost:
    """A host.

    What the engine knows: ``status``, ``spm``, ``features`` (supported additional
    features, as of the last refresh). What is so on the host: ``mounts`` (export to
    ``tcp`` or ``rdma``), ``addon`` (ovirt-rdma installed and enabled),
    ``stock_because`` (why its launcher started stock vdsmd), ``policy_text`` (its
    loaded policy as YAML, None for none), ``rdma_ready`` (its RDMA ports work),
    ``hooks`` and ``reported_features``. ``reachable``: the engine and SSH get to it.
    ``cut_off``: a network change cuts the engine off from it, so that the connectivity
    check fails.

    ``vms`` are all virtual machines on it, by name, and these are among them:
    ``stuck_vms`` (their migration begins and fails), ``unscheduled_vms`` (no other host
    can take them now), ``pinned_vms`` (they stay on their host), ``manual_vms``
    (migrated by people only, not by the engine of itself), ``inactive_vms`` (paused, or
    powering up).

    In the way of maintenance: ``hosted_engine_vm`` (the engine itself runs on it, as
    one of ``vms``, and wants another host of ``hosted_engine``), ``spm_contending``,
    ``running_operations`` (names of jobs' steps on it), ``spm_stop_fails`` (so many
    times SPM cannot be stopped). ``connecting``: it is up, and its storage is not
    connected yet. ``disconnecting``: it is in maintenance, and its storage is not
    disconnected yet.
    """

    id: str
    name: str
    address: str
    cluster: str
    status: str = "up"
    spm: bool = False
    mounts: dict[str, str] = field(default_factory=dict)
    addon: bool = False
    stock_because: str = ""
    policy_text: Optional[str] = None
    rdma_ready: bool = True
    reachable: bool = True
    cut_off: bool = False
    vms: list[str] = field(default_factory=list)
    stuck_vms: list[str] = field(default_factory=list)
    unscheduled_vms: list[str] = field(default_factory=list)
    pinned_vms: list[str] = field(default_factory=list)
    manual_vms: list[str] = field(default_factory=list)
    inactive_vms: list[str] = field(default_factory=list)
    hosted_engine_vm: str = ""
    spm_contending: bool = False
    running_operations: list[str] = field(default_factory=list)
    spm_stop_fails: int = 0
    connecting: bool = False
    disconnecting: bool = False
    hosted_engine: bool = False
    nics: list[SimNic] = field(default_factory=list)
    attachments: list[SimAttachment] = field(default_factory=list)
    hooks: list[SimHook] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    reported_features: set[str] = field(default_factory=set)
    fingerprint: Optional[str] = None
    public_key: Optional[str] = None
    port: int = 22
    memory: int = 64 << 30
    comment: str = ""
    external_status: str = "ok"
    more: dict[str, Any] = field(default_factory=dict)
    world: Optional[World] = field(default=None, repr=False, compare=False)

    def nic(self, name: str) -> SimNic:
        return next(nic for nic in self.nics if nic.name == name)

    def reboot(self) -> None:
        """Restart it, as a power cut does: mounts and uncommitted networks go."""
        from engine_double.host_life import reboot

        assert self.world is not None
        reboot(self.world, self)
