# SPDX-License-Identifier: GPL-2.0-or-later
"""Read what the engine has about virtual functions and the profiles of a network.

One round of requests in parallel: the vNIC profiles, the devices of each host that has
a NIC with SR-IOV, and the allowed networks and labels of each NIC whose virtual
functions may not have all networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.model import Host, Network
from ovirt_rdma.engine_sdk_tools.networks.passthrough import (
    HostDevice,
    SriovData,
    VnicProfile,
)


def read_sriov(
    session: EngineSession, network: Network, hosts: Sequence[Host]
) -> SriovData:
    """Return the data about ``network`` and ``hosts``, which were read with their NICs.

    Raises EngineProblem if the engine cannot be read; what was removed meanwhile is
    unknown.
    """
    sriov = [host for host in hosts if any(nic.vfs for nic in host.nics or ())]
    limited = [
        (host, nic)
        for host in sriov
        for nic in host.nics or ()
        if nic.vfs and not nic.vfs.all_networks
    ]
    reads = [Read("vnicprofiles", "reading the vNIC profiles")]
    reads += [
        Read(f"hosts/{host.id}/devices", f"reading the devices of {host.name}")
        for host in sriov
    ]
    for host, nic in limited:
        path, doing = f"hosts/{host.id}/nics/{nic.id}", f"of {nic.name} of {host.name}"
        reads += [
            Read(f"{path}/virtualfunctionallowednetworks", f"reading networks {doing}"),
            Read(f"{path}/virtualfunctionallowedlabels", f"reading labels {doing}"),
        ]
    labels = f"networks/{network.id}/networklabels"
    reads += [Read(labels, "reading the network's labels")] if limited else []
    answers = session.read_all(reads)
    profiles, *others = answers
    if isinstance(profiles, Exception):
        raise profiles
    own = {label.id for label in _list(answers[-1])} if limited else set()
    allowed = {}
    for at, (_, nic) in enumerate(limited):
        networks, names = others[len(sriov) + 2 * at : len(sriov) + 2 * at + 2]
        allowed[nic.id] = network.id in {one.id for one in _list(networks)} or bool(
            own & {one.id for one in _list(names)}
        )
    return SriovData(
        tuple(
            _profile(one)
            for one in profiles
            if one.network and one.network.id == network.id
        ),
        {
            host.id: None
            if isinstance(answer, Exception)
            else tuple(_device(one) for one in answer)
            for host, answer in zip(sriov, others)
        },
        allowed,
    )


def _list(answer: Any) -> list[Any]:
    return [] if isinstance(answer, Exception) else list(answer or ())


def _profile(profile: Any) -> VnicProfile:
    mode = profile.pass_through.mode if profile.pass_through else None
    enabled = getattr(mode, "value", mode) == "enabled"
    return VnicProfile(profile.id, profile.name, enabled, bool(profile.migratable))


def _device(device: Any) -> HostDevice:
    parent, pf = device.parent_device, device.physical_function
    return HostDevice(
        device.name or "",
        device.capability or "",
        parent.name if parent else None,
        pf.name if pf else None,
        device.iommu_group,
        device.vm.id if device.vm else None,
    )
