# SPDX-License-Identifier: GPL-2.0-or-later
"""Find InfiniBand GUIDs that two ports, adapters or virtual functions have. Pure.

A subnet manager knows nodes and ports by their GUIDs alone: opensm takes two nodes with
one GUID for a cable that was moved, asks again, and writes ``FATAL: duplicated guids``
(report_duplicated_guid() in opensm/osm_node_info_rcv.c). One of the two has no LID
then, or the other's. No single host can see that: here the reports of all hosts are
compared.

Derived GUIDs of VFs (:mod:`ovirt_rdma.host.rules.virtual_functions`) differ between
hosts. Equal ones are set by hand, by another program, or by a copy of an adapter's
firmware image with its GUIDs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, Cell
from ovirt_rdma.host.facts.devices import Adapter, Guid, RdmaDevice
from ovirt_rdma.host.facts.model import Facts

# A sentence for each of the first GUIDs; of more, only the number is shown.
_SHOWN = 3
_OF_VFS = (
    "guids: derived under virtual_functions in the policy of each of these hosts gives "
    "every VF GUIDs of its own; then on each: ovirt-rdma-host apply"
)
_OF_ADAPTERS = (
    "if both are one machine, remove one of them from the engine; else give one "
    "adapter other GUIDs by mstflint (sg), then power that host off and on"
)


@dataclass(frozen=True)
class GuidOwner:
    """Who has a GUID: ``what`` is ``mlx5_0``, ``mlx5_0/1`` (a port), or ``VF 3 of
    mlx5_0``; ``is_vf``: a virtual function, whose GUIDs its host sets.
    """

    host: str
    what: str
    is_vf: bool = False

    def __str__(self) -> str:
        return f"{self.what} on {self.host}"


# The GUIDs of one host, each with its owners.
Guids = Mapping[str, tuple[GuidOwner, ...]]


def guids_of(host: str, facts: Facts) -> Guids:
    """Return the GUIDs on InfiniBand of ``host``, its name in the engine.

    A PCI function counts once: its port may have the node's GUID, and a VF's GUIDs are
    known from its physical function and, on the host, from its own RDMA device. GUIDs
    of zeros are nobody's.
    """
    owners: dict[str, dict[str, GuidOwner]] = {}
    for place, guid, owner in _owned(host, facts):
        digits = guid.replace(":", "").lower()
        if Guid(digits).assigned:
            owners.setdefault(Guid(digits).in_groups, {}).setdefault(place, owner)
    return {guid: tuple(found.values()) for guid, found in owners.items()}


def _owned(host: str, facts: Facts) -> Iterator[tuple[str, str, GuidOwner]]:
    """Yield the place (a PCI address, or a device's name), a GUID and its owner."""
    by_address = {d.pci.address: d for d in facts.rdma_devices if d.pci}
    for adapter in facts.adapters:
        pf = by_address.get(adapter.pci.address)
        if pf is None or _is_infiniband(pf):
            yield from _of_vfs(host, adapter, pf.name if pf else adapter.pci.address)
    for device in facts.rdma_devices:
        if not _is_infiniband(device):
            continue
        place = device.pci.address if device.pci else device.name
        for port in device.ports:
            if port.is_infiniband and port.guid:
                yield place, port.guid, GuidOwner(host, f"{device.name}/{port.number}")
        yield place, device.node_guid, GuidOwner(host, device.name)


def _of_vfs(
    host: str, adapter: Adapter, pf: str
) -> Iterator[tuple[str, str, GuidOwner]]:
    for vf in adapter.virtual_functions:
        owner = GuidOwner(host, f"VF {vf.number} of {pf}", is_vf=True)
        for guid in (vf.node_guid, *(port.guid for port in vf.ports)):
            if guid:
                yield vf.address, guid, owner


def _is_infiniband(device: RdmaDevice) -> bool:
    return any(port.is_infiniband for port in device.ports)


def shared_guids(hosts: Iterable[Guids]) -> dict[str, tuple[GuidOwner, ...]]:
    """Return the GUIDs that have several owners, on one host or on several."""
    owners: dict[str, list[GuidOwner]] = {}
    for guids in hosts:
        for guid, found in guids.items():
            owners.setdefault(guid, []).extend(found)
    return {guid: tuple(found) for guid, found in owners.items() if len(found) > 1}


def with_shared_guids(
    cell: Cell, host: str, shared: Mapping[str, tuple[GuidOwner, ...]]
) -> Cell:
    """Return ``cell``, that of the host's RDMA ports, as FAIL if the host has some of
    the ``shared`` GUIDs; what it says by itself is kept.
    """
    own = {
        guid: owners
        for guid, owners in shared.items()
        if any(owner.host == host for owner in owners)
    }
    if not own:
        return cell
    sentences = [
        f"{' and '.join(map(str, owners))} have the same GUID {guid}"
        for guid, owners in own.items()
    ]
    texts = sentences[:_SHOWN]
    if len(sentences) > len(texts):
        texts.append(f"{len(sentences) - len(texts)} more GUIDs are not unique")
    # Equal GUIDs of physical functions are of one machine, or of firmware.
    of_vfs = all(any(owner.is_vf for owner in owners) for owners in own.values())
    fixes = [_OF_VFS if of_vfs else _OF_ADAPTERS]
    if cell.verdict != OK:
        texts.insert(0, cell.sentence)
        fixes.insert(0, cell.fix)
    return replace(
        cell,
        verdict=FAIL,
        sentence="; ".join(filter(None, texts)),
        fix="; ".join(filter(None, fixes)),
    )
