# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for virtual functions (SR-IOV) and for the link types of ports. Pure.

VFs that a virtual machine has are never changed: a finding names them.

The GUIDs of a VF are the first 64 bits of SHA-256 over five lines: ``ovirt_rdma VF
1``, the host's id in VDSM, the node GUID of the physical function's RDMA
device, the number of the VF from 0, and ``node`` or ``port N``. In the first byte the
bit for groups is 0, and the bit for locally administered is 1 (EUI-64). So they are the
same after each boot, and no other host and no other adapter has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.facts.adapter_models import MLX4, MLX5
from ovirt_rdma.host.facts.devices import (
    NO_GUID,
    Adapter,
    Guid,
    RdmaDevice,
    VirtualFunction,
)
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.policy.model import DERIVED, ENABLE, ETH, IB, VfRule, vf_rule_for
from ovirt_rdma.host.rules.base import (
    LINK_DOWN,
    LIVE,
    SYSFS,
    VF,
    About,
    Change,
    Finding,
    Outcome,
    Port,
    Rule,
    View,
    each,
    once_per_view,
)

# The numbers of mstconfig.
_LINK_TYPES = {IB: 1, ETH: 2}


def _port_type(view: View, about: About, place: Port) -> Iterator[Outcome]:
    device, port, adapter, rule = place.device, place.port, place.adapter, place.rule
    wanted = (rule.port_type if rule else None) or ""
    types = adapter.port_types if adapter else ()
    # ``ib``, ``eth`` or ``auto``, as mlx4 is set; other drivers do not show it.
    now = IB if port.is_infiniband else ETH
    if port.number <= len(types):
        now = types[port.number - 1].partition(" ")[0] or now
    if now == wanted:
        sentence = f"{place.name} has the type {wanted}: the policy requires it"
        yield about.passes(sentence)
        return
    refused, fix = _no_type(place, wanted)
    shown = f"{place.name} has the type {now}, but the policy requires {wanted}"
    yield about.fails(shown + (f": {refused}" if refused else ""), fix)
    if adapter is None or device.driver != MLX4:
        return
    address = adapter.pci.address
    target = f"/sys/bus/pci/devices/{address}/mlx4_port{port.number}"
    yield about.step(
        f"change {place.name} to {wanted}; all netdevs of {device.name} are removed "
        "and recreated",
        now,
        wanted,
        LINK_DOWN,
        changes=(Change(SYSFS, target, now, wanted),),
        refused=refused,
        users=() if refused else view.users.of_adapter(address, removed=True),
    )


def _no_type(place: Port, wanted: str) -> tuple[str, str]:
    """Return why it cannot be changed now, and the fix; both empty if it can."""
    device, adapter, number = place.device, place.adapter, place.port.number
    types, remove = adapter.port_types if adapter else (), "remove port_type for it"
    is_function = bool(adapter and adapter.physical_function)
    if is_function or device.driver not in (MLX4, MLX5):
        return "it is a virtual function, or its driver cannot change it", remove
    if device.driver == MLX5:
        # The first function of an adapter is for its first port.
        address = device.pci.address if device.pci else ""
        of = int(address[-1]) + 1 if address[-1:].isdigit() else number
        return (
            "mlx5 has it in its firmware",
            f"mstconfig -d {address or device.name} set LINK_TYPE_P{of}="
            f"{_LINK_TYPES[wanted]}, then power the host off and on",
        )
    if adapter and adapter.vfs:
        after = [one.partition(" ")[0] for one in types]
        after[number - 1 : number] = [wanted]
        # Of mlx4; 0 is the adapter's own default.
        array = ",".join(str(_LINK_TYPES.get(one, 0)) for one in after)
        return (
            f"mlx4 does not allow it while there are {adapter.vfs} VFs",
            f'module_options: {{mlx4_core: {{port_type_array: "{array}"}}}}, and a '
            "reboot",
        )
    if number > len(types):
        return "the driver does not show it (mlx4_portN)", remove
    if (number, wanted, *types[1:2]) == (1, ETH, IB):
        return (
            "mlx4 has no Ethernet port before an InfiniBand port",
            "write port_type: eth for port 2, apply that, then port 1",
        )
    return "", ""


PORT_TYPE = each(
    "PORT-TYPE-01",
    lambda view: (one for one in view.ports if one.rule and one.rule.port_type),
    _port_type,
    "the policy has no port_type for a port of this host",
)

_GROUP, _LOCAL = 0x01, 0x02


@dataclass(frozen=True)
class _Pf:
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
        return self.device.name

    @property
    def address(self) -> str:
        return self.adapter.pci.address

    @property
    def is_mlx4(self) -> bool:
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
def pfs(view: View) -> tuple[_Pf, ...]:
    """Return the physical functions that have VFs, or should have some."""
    found: dict[str, _Pf] = {}
    for device in view.facts.rdma_devices:
        adapter = view.adapter(device)
        if adapter is None or adapter.physical_function is not None:
            continue
        rules = (vf_rule_for(view.policy.host, device, p) for p in device.ports)
        rule = next(filter(None, rules), None)
        if rule or adapter.virtual_functions:
            possible = rule and not adapter.vfs and not _no_number(adapter, rule)
            made = rule.count if rule and possible else 0
            found.setdefault(adapter.pci.address, _Pf(adapter, device, rule, made))
    return tuple(found.values())


def _no_number(adapter: Adapter, rule: VfRule) -> str:
    """Return why the number of VFs cannot become that of ``rule``; empty if it can."""
    address = adapter.pci.address
    if adapter.driver == MLX4:
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


def _derived_guids(host_uuid: str, pf: _Pf, vf: int) -> str:
    """Return the GUIDs of VF number ``vf`` in the order in which they are set: for mlx4
    that of each port, else the node's and the port's.
    """
    parts = ["node", "port 1"]
    if pf.is_mlx4:
        parts = [f"port {port.number}" for port in pf.device.ports]
    guids = []
    for part in parts:
        lines = ("ovirt_rdma VF 1", host_uuid, pf.device.node_guid, str(vf), part)
        digest = bytearray(hashlib.sha256("\n".join(lines).encode()).digest()[:8])
        digest[0] = digest[0] & ~_GROUP | _LOCAL
        guids.append(Guid(digest.hex()).in_groups)
    return "/".join(guids)


def _present_guids(pf: _Pf, vf: VirtualFunction) -> str:
    """Return the GUIDs that ``vf`` has now, in the same order; empty if unknown."""
    guids = [] if pf.is_mlx4 else [vf.node_guid]
    guids += [port.guid for port in vf.ports]
    return "/".join(guid or "" for guid in guids) if all(guids) else ""


_Values = dict[int, str]


def _number(view: View, about: About, pf: _Pf) -> Iterator[Outcome]:
    present, rule = pf.adapter.vfs or 0, pf.rule
    shown = f"{pf.name} has {present} VFs"
    if rule is None or present == rule.count:
        yield about.passes(f"{shown}, as the policy requires" if rule else shown)
        return
    refused = _no_number(pf.adapter, rule)
    yield about.fails(f"{shown}, but the policy requires {rule.count}", refused)
    interrupted = view.users.of_new_vfs(pf.address)
    yield about.step(
        f"make {rule.count} VFs of {pf.name}, without a driver on this host",
        str(present),
        str(rule.count),
        LIVE if interrupted is None else LINK_DOWN,
        undo="removes them; refused as long as a virtual machine has one",
        changes=(Change(VF, pf.address, str(present), str(rule.count), "number"),),
        refused=refused,
        users=interrupted or (),
    )


def _guids(view: View, about: About, pf: _Pf) -> Iterator[Outcome]:
    if not pf.is_infiniband:
        yield about.skips(f"{pf.name} has no InfiniBand port, so its VFs need no GUIDs")
        return
    derived = pf.rule is not None and pf.rule.guids == DERIVED
    host_uuid = view.facts.host_uuid
    if derived and host_uuid is None and pf.vfs:
        yield about.fails(
            f"the GUIDs of the VFs of {pf.name} cannot be derived: the host's id in "
            "VDSM could not be read",
            "run this as root",
        )
        return
    wanted = {
        vf.number: _derived_guids(host_uuid, pf, vf.number)
        for vf in pf.vfs
        if derived and host_uuid is not None
    }
    present = {vf.number: _present_guids(pf, vf) for vf in pf.vfs}
    unread = [number for number, guids in present.items() if not guids]
    if unread and not pf.made:
        yield _unread(pf, about, "GUIDs", unread)
        return
    without = [vf for vf in pf.vfs if NO_GUID in present[vf.number]]
    # Those without any driver are nobody's yet.
    used = [vf.number for vf in without if vf.driver and vf.number not in wanted]
    if used:
        yield about.warns(
            f"{_named(used)} of {pf.name} without a GUID: the subnet manager cannot "
            "configure such a port, which never becomes ACTIVE",
            "virtual_functions in the policy assigns GUIDs; or set node_guid and "
            "port_guid with ip-link(8), then bind the VF to its driver again",
        )
    elif not wanted:
        yield about.passes(f"the VFs of {pf.name} that are used have GUIDs")
    yield from _twice(pf, present)
    if wanted:
        yield from _outcomes(
            *(view, about, pf, "guids"),
            present=present,
            wanted=wanted,
            sentence=f"set the GUIDs of the VFs of {pf.name}",
            reason="a VF without GUID never becomes ACTIVE, and one with another GUID "
            "at each boot is in no partition",
            rebinds=not pf.is_mlx4,
        )


def _unread(pf: _Pf, about: About, what: str, numbers: list[int]) -> Finding:
    return about.skips(
        f"the {what} of {_named(numbers)} of {pf.name} are unknown: the kernel or ip "
        "shows them in part only",
        "look at that port alone, with ip link show dev; or take a newer iproute2",
    )


def _twice(pf: _Pf, present: _Values) -> Iterator[Finding]:
    owners: dict[str, list[str]] = {}
    for number, guids in present.items():
        for guid in {*guids.split("/")} - {"", NO_GUID}:
            owners.setdefault(guid, []).append(str(number))
    for guid, numbers in owners.items():
        if len(numbers) > 1:
            yield About(GUIDS.id, f"{pf.name}/{guid}").fails(
                f"VFs {', '.join(numbers)} of {pf.name} have the same GUID {guid}",
                "guids: derived in the policy gives each its own",
            )


def _links(view: View, about: About, pf: _Pf) -> Iterator[Outcome]:
    rule = pf.rule
    if rule is None or (rule.link_state is None and not rule.pkeys):
        yield about.skips(
            f"the policy sets neither link state nor P_Keys of VFs of {pf.name}"
        )
        return
    if rule.link_state is not None and pf.is_mlx4:
        why = "mlx4 has no link state of its own for a VF"
        yield _not_there(pf, about, "link_state", why)
    elif rule.link_state is not None:
        present = {vf.number: vf.link_state or "" for vf in pf.vfs}
        unread = [number for number, state in present.items() if not state]
        if unread and not pf.made:
            yield _unread(pf, about, "link states", unread)
            return
        yield from _outcomes(
            *(view, about, pf, "link-states"),
            present=present,
            wanted=dict.fromkeys(present, rule.link_state),
            sentence=f"set the link state of the VFs of {pf.name} to {rule.link_state}",
            reason="the policy requires it",
        )
    if rule.pkeys and not pf.is_mlx4:
        why = (
            f"{pf.adapter.driver} gives each VF its own P_Key table, which the subnet "
            "manager fills: write the VFs' port GUIDs in its partitions"
        )
        yield _not_there(pf, about, "pkeys", why)
    elif rule.pkeys:
        yield from _pkeys(view, about, pf, rule.pkeys)


def _not_there(pf: _Pf, about: About, key: str, why: str) -> Finding:
    sentence = f"{key} is not possible for the VFs of {pf.name}: {why}"
    return about.fails(sentence, f"remove {key} from the policy")


def _pkeys(
    view: View, about: About, pf: _Pf, pkeys: tuple[str, ...]
) -> Iterator[Outcome]:
    """Yield outcomes for mlx4's table, which has places in the port's own table. That
    of an Ethernet port cannot be written (add_port() in
    drivers/infiniband/hw/mlx4/sysfs.c).
    """
    tables: dict[int, str] = {}
    for port in filter(lambda port: port.is_infiniband, pf.device.ports):
        places = {partition_of(p.value): p.index for p in reversed(port.pkeys)}
        missing = [p for p in pkeys if partition_of(p) not in places]
        if missing:
            subject = f"{pf.name}/{port.number}"
            yield About(about.rule, subject).fails(
                f"{subject} is not in {', '.join(missing)}, so its VFs cannot be",
                "add the port to the partition in the subnet manager",
            )
            return
        indexes = ",".join(str(places[partition_of(p)]) for p in pkeys)
        tables[port.number] = f"{port.number}:{indexes}"
    present = {
        vf.number: "/".join(
            f"{port.number}:{','.join(map(str, port.pkey_indexes))}"
            for port in vf.ports
            if port.number in tables
        )
        for vf in pf.vfs
    }
    yield from _outcomes(
        *(view, about, pf, "pkeys"),
        present=present,
        wanted=dict.fromkeys(present, "/".join(tables.values())),
        sentence=f"give the VFs of {pf.name} the P_Keys {', '.join(pkeys)}",
        reason="mlx4 shows a VF only those entries of the port's P_Key table that it "
        "is given",
    )


def _drivers(view: View, about: About, pf: _Pf) -> Iterator[Outcome]:
    if pf.rule is None:
        yield about.skips(f"the policy has no rule for the VFs of {pf.name}")
        return
    driver = pf.adapter.driver or ""
    # The engine takes VFs for vNICs only with a netdev on the host; those of InfiniBand
    # are given to virtual machines as host devices, and need none.
    wanted = {
        vf.number: driver
        for vf in pf.vfs
        if not vf.driver and not (pf.is_infiniband and pf.rule.is_for_guest(vf.number))
    }
    present = {vf.number: vf.driver or "-" for vf in pf.vfs}
    yield from _outcomes(
        *(view, about, pf, "drivers"),
        present=present,
        wanted=wanted,
        sentence=f"bind {driver} to VFs of {pf.name} that stay on this host",
        reason="they were made without a driver, so that it sees their GUIDs",
    )


# A property of VFs in a change, and in a sentence.
_LABELS = {
    "guids": "GUIDs",
    "link-states": "link states",
    "pkeys": "P_Keys",
    "drivers": "drivers",
}


def _outcomes(
    view: View,
    about: About,
    pf: _Pf,
    name: str,
    *,
    present: _Values,
    wanted: _Values,
    sentence: str,
    rebinds: bool = False,
    **more: str,
) -> Iterator[Outcome]:
    """Yield the finding about the property ``name`` of the VFs of ``pf``, and the step
    that brings ``present`` to ``wanted``.

    ``rebinds``: the driver of a VF that changes is bound again.
    """
    guests = {vf.number for vf in pf.vfs if vf.in_virtual_machine}
    other = {n for n, value in wanted.items() if present.get(n) != value}
    left, change = sorted(other & guests), other - guests
    label = _LABELS[name]
    if left:
        yield About(about.rule, f"{pf.name}/{name}").warns(
            f"the {label} of {_named(left)} of {pf.name} are not those of the policy, "
            "but a virtual machine has them",
            "ovirt-rdma-host apply, after the virtual machine is shut down",
        )
    if not change:
        done = f"the {label} of the {'other ' if left else ''}VFs"
        yield about.passes(f"{done} of {pf.name} are as the policy requires")
        return
    counted = f"{len(change)} of {len(pf.vfs)} VFs"
    yield about.fails(
        f"the {label} of {counted} of {pf.name} are not those of the policy"
    )
    before = {} if pf.made else present
    bound = {vf.number: vf.driver for vf in pf.vfs if vf.number in change and vf.driver}
    again = bound if rebinds else {}
    # All but a link that is up then: mlx4 tells a VF's driver of new GUIDs and P_Keys,
    # and IPoIB drops its paths (ipoib_event, ulp/ipoib/ipoib_verbs.c).
    interrupted = {number for number in bound if wanted[number] != ENABLE}
    yield about.step(
        f"{sentence}; their drivers are bound again" if again else sentence,
        "none yet" if pf.made else f"{counted} differ",
        "as the policy requires",
        LINK_DOWN if interrupted else LIVE,
        undo="restores the earlier values",
        # One for each VF: a later run may change others, and each has its own value.
        # A driver first: if it is not bound again, the undo, which comes to it last,
        # knows it.
        changes=tuple(
            Change(VF, pf.address, _text(n, old), _text(n, new), of)
            for of, old, new in (("drivers", again, again), (name, before, wanted))
            for n in sorted(change)
            if n in new
        ),
        users=view.users.of_vfs(pf.address, interrupted),
        **more,
    )


def _text(number: int, values: _Values) -> Optional[str]:
    value = values.get(number)
    return f"{number}={value}" if value else None


def _named(numbers: Collection[int]) -> str:
    noun = "VF" if len(numbers) == 1 else "VFs"
    return f"{noun} {', '.join(map(str, numbers))}"


def _rule(rule: str, judge: Callable[[View, About, _Pf], Iterator[Outcome]]) -> Rule:
    none = "this host has no virtual functions, and the policy wants none"
    return each(rule, pfs, judge, none)


NUMBER = _rule("VF-01", _number)
GUIDS = _rule("VF-02", _guids)
LINKS = _rule("VF-03", _links)
DRIVERS = _rule("VF-04", _drivers)
# In the order in which VFs are made and set.
RULES = (NUMBER, GUIDS, LINKS, DRIVERS)
