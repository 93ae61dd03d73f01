# SPDX-License-Identifier: GPL-2.0-or-later
"""What a plan rests on: the values of the host for which its steps were decided. Pure.

A saved plan carries them, so that a reviewer sees what was true, and a later run that
it is true no more. What a change itself replaces stands in the change (``before``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts import Adapter, Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.policy_host import partition_read
from ovirt_rdma.host.rules.ipoib_children import in_order, table_entry
from ovirt_rdma.host.rules.rule import Step
from ovirt_rdma.host.rules.view import Interface, View

# The feature that the rules about TSO look at.
_TSO = ("tx-tcp-segmentation", "tx-tcp6-segmentation")


@dataclass(frozen=True)
class Value:
    """A value by its place in the facts: ``netdevs.ib0.mtu``, ``2044``.

    None where the host has none, or does not tell.
    """

    name: str
    value: Optional[str]


def values_read(view: View, steps: Iterable[Step]) -> tuple[Value, ...]:
    """Return what ``steps`` rest on: the state of what each is about, and of what is
    behind that.

    No address and no counter is among them: those change while nothing changes.
    """
    found: dict[str, Optional[str]] = {}
    steps = list(steps)
    # Looked up for each step; a host may have thousands of P_Key children.
    interfaces = {one.name: one for one in view.interfaces} if steps else {}
    planned = {one.name: one for one in in_order(view) if one.planned} if steps else {}
    adapters = {one.pci.address: one for one in view.facts.adapters}
    modules = view.facts.modules
    known_modules = {*modules.loaded, *(modules.available or ())}
    for step in steps:
        subject = step.subject
        found.update(_of_netdev(view.netdev(subject)))
        found.update(_of_interface(interfaces.get(subject)))
        found.update(_of_planned(view, planned.get(subject)))
        found.update(_of_device_or_port(view, subject))
        found.update(_of_adapter(adapters.get(subject)))
        if subject in known_modules:
            found[f"modules.{subject}.loaded"] = _text(subject in modules.loaded)
    return tuple(Value(name, value) for name, value in found.items())


_Pairs = Iterator[tuple[str, Optional[str]]]


def _of_device_or_port(view: View, subject: str) -> _Pairs:
    name, _, number = subject.partition("/")
    device = view.device(name)
    if device is not None:
        yield from _of_device(device)
        for port in device.ports:
            if not number or str(port.number) == number:
                yield from _of_port(device, port)


def _of_netdev(netdev: Optional[Netdev]) -> _Pairs:
    if netdev is None:
        return
    place = f"netdevs.{netdev.name}"
    yield f"{place}.driver", netdev.driver
    yield f"{place}.mtu", _text(netdev.mtu)
    if netdev.ipoib:
        yield f"{place}.ipoib.mode", netdev.ipoib.mode
        yield f"{place}.ipoib.pkey", netdev.ipoib.pkey
        yield f"{place}.ipoib.parent", netdev.ipoib.parent
    for offload in netdev.offloads:
        if offload.name in _TSO:
            yield f"{place}.offloads.{offload.name}", "on" if offload.on else "off"


def _of_interface(interface: Optional[Interface]) -> _Pairs:
    if interface is None:
        return
    yield from _of_device(interface.device)
    yield from _of_port(interface.device, interface.port)
    yield from _of_adapter(interface.adapter)
    network = interface.network
    yield f"ovirt_networks.{interface.name}", network.name if network else None
    yield f"ovirt_networks.{interface.name}.mtu", _text(network and network.mtu)


def _of_planned(view: View, child: Optional[Interface]) -> _Pairs:
    """Yield what a P_Key child that the plan makes rests on: parent and partition."""
    if child is None or child.netdev.ipoib is None:
        return
    yield from _of_netdev(view.netdev(child.parent or ""))
    yield from _of_device(child.device)
    yield from _of_port(child.device, child.port)
    pkey = partition_read(child.netdev.ipoib.pkey)
    if pkey is not None:
        place = f"rdma_devices.{child.device.name}.ports.{child.port.number}"
        yield f"{place}.pkeys.0x{pkey:04x}", table_entry(child.port, pkey)


def _of_device(device: RdmaDevice) -> _Pairs:
    place = f"rdma_devices.{device.name}"
    yield f"{place}.driver", device.driver
    yield f"{place}.firmware", device.firmware
    yield f"{place}.hw_rev", device.hw_rev


def _of_port(device: RdmaDevice, port: RdmaPort) -> _Pairs:
    place = f"rdma_devices.{device.name}.ports.{port.number}"
    yield f"{place}.guid", port.guid
    yield f"{place}.link_layer", port.link_layer
    yield f"{place}.state", port.state
    yield f"{place}.max_mtu", _text(port.max_mtu)
    yield f"{place}.active_mtu", _text(port.active_mtu)


def _of_adapter(adapter: Optional[Adapter]) -> _Pairs:
    if adapter is None:
        return
    place = f"adapters.{adapter.pci.address}"
    yield f"{place}.device", adapter.pci.device
    yield f"{place}.revision", adapter.pci.revision
    yield f"{place}.driver", adapter.driver
    for number, kind in enumerate(adapter.port_types, 1):
        yield f"{place}.port_types.{number}", kind
    for number, mtu in enumerate(adapter.port_mtus, 1):
        yield f"{place}.port_mtus.{number}", _text(mtu)


def _text(value: object) -> Optional[str]:
    return None if value is None else str(value).lower()
