# SPDX-License-Identifier: GPL-2.0-or-later
"""Save and load plans, with the values of the host on which they are based.

A plan is printed by ``plan -o json`` and saved by ``plan --out``; loading is as strict
as for facts files. The values let a reviewer see the host's state, and a later run
detect that it has changed. The value that a change replaces is in the change itself
(``before``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.devices import Adapter, Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.rules.base import Step
from ovirt_rdma.host.rules.infiniband.children import parents_first, table_entry
from ovirt_rdma.host.rules.view import Interface, View
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    Envelope,
    UnreadableJson,
    WrongRecord,
    WrongVersion,
    read_json,
)

# The features that the TSO rules read.
_TSO = ("tx-tcp-segmentation", "tx-tcp6-segmentation")


@dataclass(frozen=True)
class Value:
    """A value by its path in the facts: ``netdevs.ib0.mtu``, ``2044``.

    None where the host has no value, or it is unknown.
    """

    name: str
    value: Optional[str]


def values_read(view: View, steps: Iterable[Step]) -> tuple[Value, ...]:
    """Return the values on which ``steps`` are based: those of each step's subject and
    of its port, device and adapter. Pure.

    Addresses and counters are not among them, because they change all the time.
    """
    values: dict[str, Optional[str]] = {}
    steps = list(steps)
    # By name: a host may have thousands of P_Key children.
    interfaces = {i.name: i for i in view.interfaces} if steps else {}
    planned = {i.name: i for i in parents_first(view) if i.planned} if steps else {}
    adapters = {adapter.pci.address: adapter for adapter in view.facts.adapters}
    modules = view.facts.modules
    known_modules = {*modules.loaded, *(modules.available or ())}
    for step in steps:
        subject = step.subject
        values.update(_of_netdev(view.netdev(subject)))
        values.update(_of_interface(interfaces.get(subject)))
        values.update(_of_planned(view, planned.get(subject)))
        values.update(_of_device_or_port(view, subject))
        values.update(_of_adapter(adapters.get(subject)))
        if subject in known_modules:
            values[f"modules.{subject}.loaded"] = _text(subject in modules.loaded)
    return tuple(Value(name, value) for name, value in values.items())


_Pairs = Iterator[tuple[str, Optional[str]]]


def _of_device_or_port(view: View, subject: str) -> _Pairs:
    name, _, number = subject.partition("/")
    device = view.device(name)
    if device is not None:
        yield from _of_device(device)
        adapter = view.adapter(device)
        if adapter and adapter.max_vfs:
            yield from _of_adapter(adapter)
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
    """Yield the values for a P_Key child that the plan makes: parent and partition."""
    if child is None or child.netdev.ipoib is None:
        return
    yield from _of_netdev(view.netdev(child.parent or ""))
    yield from _of_device(child.device)
    yield from _of_port(child.device, child.port)
    pkey = partition_of(child.netdev.ipoib.pkey)
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
    for number, port_type in enumerate(adapter.port_types, 1):
        yield f"{place}.port_types.{number}", port_type
    for number, mtu in enumerate(adapter.port_mtus, 1):
        yield f"{place}.port_mtus.{number}", _text(mtu)
    if adapter.max_vfs is not None:
        yield f"{place}.vfs", _text(adapter.vfs)
    for vf in adapter.virtual_functions:
        yield f"{place}.virtual_functions.{vf.number}.driver", vf.driver


def _text(value: object) -> Optional[str]:
    return None if value is None else str(value).lower()


# Root will apply the plan, so nobody else may change it. It also names storage, which
# other users need not know.
FILE_MODE = 0o600

_MAKE = "ovirt-rdma-host plan --out FILE"
_FIX = f"regenerate it on the host that it describes: {_MAKE}"
PLAN = Envelope("plan", 1)


class PlanFileProblem(Problem):
    """The file is not a plan file of this schema version, or cannot be written."""


@dataclass(frozen=True)
class PlannedBy:
    """The policy that a plan follows: its source and its ``sha256:`` digest."""

    source: str
    digest: str


@dataclass(frozen=True)
class Plan:
    """The steps for one host, refused ones too, and the values on which they are based.

    ``made_at`` is ISO 8601 in UTC.
    """

    hostname: str
    kernel_release: str
    made_at: str
    policy: PlannedBy
    steps: tuple[Step, ...] = ()
    values: tuple[Value, ...] = ()


def to_json_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan as dicts, lists, strings and None, after ``schema_version`` and
    ``kind``; each step has its ``id`` first.
    """
    return PLAN.around(_content(plan))


def _content(plan: Plan) -> dict[str, Any]:
    steps = [{"id": step.id, **plain(step)} for step in plan.steps]
    return {**plain(plan), "steps": steps}


def from_json_dict(data: object, where: str) -> Plan:
    """Return the plan in ``data``, as :func:`to_json_dict` made it.

    ``where`` names the source in errors. Raises PlanFileProblem with the path of the
    key that is wrong.
    """
    ids: list[object] = []
    try:
        content = PLAN.content(data)
        if isinstance(content.get("steps"), list):
            content["steps"] = [_without_id(step, ids) for step in content["steps"]]
        plan = Records("the plan").read(Plan, content)
    except WrongVersion as wrong:
        raise PlanFileProblem("plan-file-version", f"{where}: {wrong}", _FIX) from None
    except WrongRecord as wrong:
        raise PlanFileProblem("plan-file-invalid", f"{where}: {wrong}", _FIX) from None
    for number, (step, step_id) in enumerate(zip(plan.steps, ids)):
        if step.id != step_id:
            raise PlanFileProblem(
                "plan-file-invalid",
                f"{where}: steps[{number}].id is {step_id!a}, not {step.id!a}",
                _FIX,
            )
    return plan


def load(path: Union[str, Path]) -> Plan:
    """Return the plan in a file.

    Raises PlanFileProblem where it cannot be read, is not JSON, or is not a plan.
    """
    where = f"plan file {path}"
    try:
        data = read_json(path)
    except UnreadableJson as error:
        fix = _FIX if error.is_file else f"give the name of a file from: {_MAKE}"
        raise PlanFileProblem(
            "plan-file-unreadable", f"{where}: {error}", fix
        ) from None
    return from_json_dict(data, where)


def save(plan: Plan, path: Path) -> None:
    """Write ``plan`` to ``path`` atomically; only its owner can read it.

    Only a plan file, of any version, or an empty file is replaced. Raises
    PlanFileProblem for any other file, and where the file cannot be written.
    """
    if not _may_replace(path):
        raise PlanFileProblem(
            "plan-file-exists",
            f"{path} exists and is not a plan file; it was not overwritten",
            "give the name of a new file, or of an older plan",
        )
    text = PLAN.text(_content(plan))
    try:
        write_atomically(path, text.encode("ascii"), FILE_MODE)
    except OSError as error:
        raise PlanFileProblem(
            "plan-file-not-written",
            f"{path}: the plan cannot be saved: {error.strerror or error}",
            "give the name of a file in a folder that you can write to",
        ) from None


def _may_replace(path: Path) -> bool:
    try:
        if not path.exists() and not path.is_symlink():
            return True
        if path.is_file() and not path.stat().st_size:
            return True  # as mktemp(1) makes it
        data = read_json(path) if path.is_file() else None
    except (OSError, UnreadableJson):
        return False
    return isinstance(data, dict) and data.get("kind") == PLAN.kind and "steps" in data


def _without_id(step: object, ids: list[object]) -> object:
    if not isinstance(step, dict):
        return step
    ids.append(step.get("id"))
    return {key: value for key, value in step.items() if key != "id"}
