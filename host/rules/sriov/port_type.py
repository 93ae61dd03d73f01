# SPDX-License-Identifier: GPL-2.0-or-later
"""PORT-TYPE-01: InfiniBand or Ethernet, the type of a VPI adapter's port. Pure.

mlx4 changes it at once, through sysfs; mlx5 with its firmware only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Adapter, RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import ETH, IB, InterfaceRule, names_port
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LINK_DOWN,
    PASS,
    SKIP,
    SYSFS,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.pci_ids import MLX4, MLX5
from ovirt_rdma.host.rules.view import View

ID = "PORT-TYPE-01"
SOURCE = "Linux drivers/net/ethernet/mellanox/mlx4/main.c, set_port_type"
# The numbers of mstconfig.
_LINK_TYPES = {IB: 1, ETH: 2}


def decide(view: View) -> Iterator[Outcome]:
    """Yield outcomes for each port whose rule has a port_type."""
    none = True
    for device in view.facts.rdma_devices:
        for port in device.ports:
            rule = _rule(view, device, port)
            if rule and rule.port_type:
                none = False
                yield from _port(view, device, port, rule, rule.port_type)
    if none:
        sentence = "the policy has no port_type for a port of this host"
        yield Finding(ID, HOST, SKIP, sentence)


def _rule(view: View, device: RdmaDevice, port: RdmaPort) -> Optional[InterfaceRule]:
    rules = (r for r in view.policy.host.interfaces if names_port(r, device, port))
    return next((rule for rule in rules if rule.pkey is None), None)


def _port(
    view: View, device: RdmaDevice, port: RdmaPort, rule: InterfaceRule, wanted: str
) -> Iterator[Outcome]:
    subject = f"{device.name}/{port.number}"
    adapter = view.adapter(device)
    present = IB if port.is_infiniband else ETH
    setting = _setting(adapter, port) or present
    if setting == wanted:
        sentence = f"{subject} has the type {wanted}: the policy requires it"
        yield Finding(ID, subject, PASS, sentence)
        return
    shown = f"{subject} has the type {setting}, but the policy requires {wanted}"
    refused, fix = _refusal(adapter, device, port, wanted)
    yield Finding(ID, subject, FAIL, shown + (f": {refused}" if refused else ""), fix)
    if adapter is None or device.driver != MLX4:
        return
    address = adapter.pci.address
    target = f"/sys/bus/pci/devices/{address}/mlx4_port{port.number}"
    yield Step(
        ID,
        subject,
        f"change {subject} to {wanted}; all netdevs of {device.name} are removed and "
        "recreated",
        setting,
        wanted,
        LINK_DOWN,
        f"the policy requires it ({rule.title})",
        SOURCE,
        f"restores {setting}",
        () if refused else (Change(SYSFS, target, setting, wanted),),
        refused=Sentence("port-type-not-settable", refused) if refused else "",
        users=() if refused else view.users.of_adapter(address, removed=True),
    )


def _setting(adapter: Optional[Adapter], port: RdmaPort) -> Optional[str]:
    """Return ``ib``, ``eth`` or ``auto``, as mlx4 is set; None for other drivers."""
    types = adapter.port_types if adapter else ()
    return types[port.number - 1].split()[0] if port.number <= len(types) else None


def _refusal(
    adapter: Optional[Adapter], device: RdmaDevice, port: RdmaPort, wanted: str
) -> tuple[str, str]:
    """Return why it cannot be changed now, and the fix; both empty if it can."""
    # mstconfig takes the device's name too.
    address = device.pci.address if device.pci else device.name
    remove = "remove port_type for it"
    types = adapter.port_types if adapter else ()
    vfs = adapter.vfs if adapter else None
    # The first function of an adapter is for its first port.
    number = port.number
    if device.pci and address[-1].isdigit():
        number = int(address[-1]) + 1
    after = [*(one.split()[0] for one in types)]
    after[port.number - 1 : port.number] = [wanted]
    # Of mlx4; 0 is the adapter's own default.
    array = ",".join(str(_LINK_TYPES.get(one, 0)) for one in after)
    reasons = (
        (
            adapter is not None and adapter.physical_function is not None,
            "it is a virtual function",
            remove,
        ),
        (
            device.driver == MLX5,
            "mlx5 has it in its firmware",
            f"mstconfig -d {address} set LINK_TYPE_P{number}={_LINK_TYPES[wanted]}, "
            "then power the host off and on",
        ),
        (device.driver != MLX4, "its driver cannot change it", remove),
        (
            bool(vfs),
            f"mlx4 does not allow it while there are {vfs} VFs",
            f'module_options: {{mlx4_core: {{port_type_array: "{array}"}}}}, and a '
            "reboot",
        ),
        (
            port.number > len(types),
            "the driver does not show it (mlx4_portN)",
            remove,
        ),
        (
            (port.number, wanted, *types[1:2]) == (1, ETH, IB),
            "mlx4 has no Ethernet port before an InfiniBand port",
            "write port_type: eth for port 2, apply that, then port 1",
        ),
    )
    return next(((why, fix) for holds, why, fix in reasons if holds), ("", ""))


RULES = (Rule(ID, decide),)
