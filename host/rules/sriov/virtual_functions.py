# SPDX-License-Identifier: GPL-2.0-or-later
"""VF-01 to VF-04: number of VFs, their GUIDs, link state, P_Keys and drivers. Pure.

VFs that a virtual machine has (vfio-pci) are never changed: a finding names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.policy.model import DERIVED
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    LINK_DOWN,
    LIVE,
    PASS,
    SKIP,
    VF,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.sriov.wanted import (
    NO_GUID,
    Pf,
    derived_guids,
    no_number,
    pfs,
    present_guids,
)
from ovirt_rdma.host.rules.view import View

NUMBER_ID, GUID_ID, LINK_ID, DRIVER_ID = "VF-01", "VF-02", "VF-03", "VF-04"
_IOV = "Linux drivers/pci/iov.c, sriov_numvfs_store"
_MLX5 = "Linux drivers/infiniband/hw/mlx5/ib_virt.c"
_MLX4 = "Linux drivers/infiniband/hw/mlx4/sysfs.c"

_Values = dict[int, str]


def _of_each(
    rule: str, decide: Callable[[View, Pf], Iterator[Outcome]]
) -> Callable[[View], Iterator[Outcome]]:
    """Return the ``decide`` of a rule about each physical function."""

    def decide_all(view: View) -> Iterator[Outcome]:
        found = pfs(view)
        if not found:
            sentence = "this host has no virtual functions, and the policy wants none"
            yield Finding(rule, HOST, SKIP, sentence)
        for pf in found:
            yield from decide(view, pf)

    return decide_all


def _number(view: View, pf: Pf) -> Iterator[Outcome]:
    present = pf.adapter.vfs or 0
    if pf.rule is None:
        sentence = f"{pf.name} has {present} VFs; the policy has no rule for them"
        yield Finding(NUMBER_ID, pf.name, PASS, sentence)
        return
    wanted = pf.rule.count
    if present == wanted:
        sentence = f"{pf.name} has {wanted} VFs: the policy requires it"
        yield Finding(NUMBER_ID, pf.name, PASS, sentence)
        return
    refused = no_number(pf)
    shown = f"{pf.name} has {present} VFs, but the policy requires {wanted}"
    yield Finding(NUMBER_ID, pf.name, FAIL, shown, refused)
    change = Change(VF, pf.adapter.pci.address, str(present), str(wanted), "number")
    interrupted = view.users.of_new_vfs(pf.adapter.pci.address)
    yield Step(
        NUMBER_ID,
        pf.name,
        f"make {wanted} VFs of {pf.name}, without a driver on this host",
        str(present),
        str(wanted),
        LIVE if interrupted is None else LINK_DOWN,
        f"the policy requires it ({pf.rule.title})",
        _IOV,
        f"removes them; refused as long as a virtual machine has one ({present} again)",
        () if refused else (change,),
        refused=Sentence("vf-number-not-settable", refused) if refused else "",
        users=interrupted or (),
    )


def _guids(view: View, pf: Pf) -> Iterator[Outcome]:
    if not pf.is_infiniband:
        sentence = f"{pf.name} has no InfiniBand port, so its VFs need no GUIDs"
        yield Finding(GUID_ID, pf.name, SKIP, sentence)
        return
    derived = pf.rule is not None and pf.rule.guids == DERIVED
    host_uuid = view.facts.host_uuid
    if derived and host_uuid is None and pf.vfs:
        sentence = f"the GUIDs of the VFs of {pf.name} cannot be derived: {_NO_UUID}"
        yield Finding(GUID_ID, pf.name, FAIL, sentence, "run this as root")
        return
    wanted = {
        vf.number: "/".join(derived_guids(host_uuid, pf, vf.number))
        for vf in pf.vfs
        if derived and host_uuid is not None
    }
    present = {vf.number: "/".join(present_guids(pf, vf)) for vf in pf.vfs}
    without = [vf for vf in pf.vfs if NO_GUID in present_guids(pf, vf)]
    # Those without any driver are nobody's yet.
    used = [vf for vf in without if vf.driver and vf.number not in wanted]
    if used:
        yield Finding(
            GUID_ID,
            pf.name,
            WARN,
            f"{_named([vf.number for vf in used])} of {pf.name} without a GUID: the "
            "subnet manager cannot configure such a port, which never becomes ACTIVE",
            "virtual_functions in the policy assigns GUIDs; or set node_guid and "
            "port_guid with ip-link(8), then bind the VF to its driver again",
        )
    elif not wanted:
        missing = f"; {len(without)} have none, and no driver" if without else ""
        sentence = f"the VFs of {pf.name} that are used have GUIDs{missing}"
        yield Finding(GUID_ID, pf.name, PASS, sentence)
    yield from _twice(pf, present)
    if wanted:
        setting = _Setting(
            pf,
            "guids",
            f"set the GUIDs of the VFs of {pf.name}",
            "a VF without GUID never becomes ACTIVE, and one with another GUID at each "
            "boot is in no partition",
            _MLX4 if pf.is_mlx4 else _MLX5,
            rebinds=not pf.is_mlx4,
        )
        yield from _outcomes(view, GUID_ID, setting, present, wanted)


_NO_UUID = "the host's id in VDSM could not be read"


def _twice(pf: Pf, present: _Values) -> Iterator[Finding]:
    """Yield a finding for GUIDs that several VFs of ``pf`` have."""
    owners: dict[str, list[str]] = {}
    for number, guids in present.items():
        for guid in {*guids.split("/")} - {"", NO_GUID}:
            owners.setdefault(guid, []).append(str(number))
    for guid, numbers in owners.items():
        if len(numbers) > 1:
            yield Finding(
                GUID_ID,
                f"{pf.name}/{guid}",
                FAIL,
                f"VFs {', '.join(numbers)} of {pf.name} have the same GUID {guid}",
                "guids: derived in the policy gives each its own",
            )


def _links(view: View, pf: Pf) -> Iterator[Outcome]:
    rule = pf.rule
    if rule is None or (rule.link_state is None and not rule.pkeys):
        sentence = f"the policy sets neither link state nor P_Keys of VFs of {pf.name}"
        yield Finding(LINK_ID, pf.name, SKIP, sentence)
        return
    if rule.link_state is not None and pf.is_mlx4:
        yield _not_there(pf, "link_state", "mlx4 has no link state of its own for a VF")
    elif rule.link_state is not None:
        setting = _Setting(
            pf,
            "link-states",
            f"set the link state of the VFs of {pf.name} to {rule.link_state}",
            f"the policy requires it ({rule.title})",
            _MLX5,
        )
        present = {vf.number: vf.link_state or "" for vf in pf.vfs}
        wanted = dict.fromkeys(present, rule.link_state)
        yield from _outcomes(view, LINK_ID, setting, present, wanted)
    if rule.pkeys and not pf.is_mlx4:
        why = (
            f"{pf.adapter.driver} gives each VF its own P_Key table, which the subnet "
            "manager fills: write the VFs' port GUIDs in its partitions"
        )
        yield _not_there(pf, "pkeys", why)
    elif rule.pkeys:
        yield from _pkeys(view, pf, rule.pkeys)


def _not_there(pf: Pf, key: str, why: str) -> Finding:
    sentence = f"{key} is not possible for the VFs of {pf.name}: {why}"
    return Finding(LINK_ID, pf.name, FAIL, sentence, f"remove {key} from the policy")


def _pkeys(view: View, pf: Pf, pkeys: tuple[str, ...]) -> Iterator[Outcome]:
    """Yield outcomes for mlx4's table, which has places in the port's own table."""
    tables = []
    for port in pf.device.ports:
        if not port.is_infiniband:
            continue
        places = {partition_of(p.value): p.index for p in reversed(port.pkeys)}
        missing = [p for p in pkeys if partition_of(p) not in places]
        if missing:
            subject = f"{pf.name}/{port.number}"
            yield Finding(
                LINK_ID,
                subject,
                FAIL,
                f"{subject} is not in {', '.join(missing)}, so its VFs cannot be",
                "add the port to the partition in the subnet manager",
            )
            return
        indexes = ",".join(str(places[partition_of(p)]) for p in pkeys)
        tables.append(f"{port.number}:{indexes}")
    present = {
        vf.number: "/".join(
            f"{port.number}:{','.join(map(str, port.pkey_indexes))}"
            for port in vf.ports
        )
        for vf in pf.vfs
    }
    setting = _Setting(
        pf,
        "pkeys",
        f"give the VFs of {pf.name} the P_Keys {', '.join(pkeys)}",
        "mlx4 shows a VF only those entries of the port's P_Key table that it is given",
        _MLX4,
    )
    wanted = dict.fromkeys(present, "/".join(tables))
    yield from _outcomes(view, LINK_ID, setting, present, wanted)


def _drivers(view: View, pf: Pf) -> Iterator[Outcome]:
    if pf.rule is None:
        sentence = f"the policy has no rule for the VFs of {pf.name}"
        yield Finding(DRIVER_ID, pf.name, SKIP, sentence)
        return
    guests = [vf.number for vf in pf.vfs if vf.in_virtual_machine]
    if guests:
        sentence = f"virtual machines have {_named(guests)} of {pf.name}"
        yield Finding(DRIVER_ID, f"{pf.name}/guests", PASS, sentence)
    driver = pf.adapter.driver or ""
    present = {vf.number: vf.driver or "-" for vf in pf.vfs}
    # The engine takes VFs for vNICs only with a netdev on the host; those of InfiniBand
    # are given to virtual machines as host devices, and need none.
    wanted = {
        vf.number: driver
        for vf in pf.vfs
        if not vf.driver and not (pf.is_infiniband and pf.rule.is_for_guest(vf.number))
    }
    setting = _Setting(
        pf,
        "drivers",
        f"bind {driver} to VFs of {pf.name} that stay on this host",
        "they were made without a driver, so that it sees their GUIDs",
        _IOV,
    )
    yield from _outcomes(view, DRIVER_ID, setting, present, wanted)


@dataclass(frozen=True)
class _Setting:
    """A property of the VFs of ``pf``: its name in a change, and the step's texts.

    ``rebinds``: the driver of a VF that changes is bound again.
    """

    pf: Pf
    name: str
    sentence: str
    reason: str
    source: str
    rebinds: bool = False


def _outcomes(
    view: View, rule: str, setting: _Setting, present: _Values, wanted: _Values
) -> Iterator[Outcome]:
    """Yield the finding, and the step that brings ``present`` to ``wanted``."""
    pf = setting.pf
    guests = {vf.number for vf in pf.vfs if vf.in_virtual_machine}
    other = {n for n, value in wanted.items() if present.get(n) != value}
    left, change = sorted(other & guests), other - guests
    label = setting.name.replace("-", " ").replace("guids", "GUIDs")
    label = label.replace("pkeys", "P_Keys")
    if left:
        yield Finding(
            rule,
            f"{pf.name}/{setting.name}",
            WARN,
            f"the {label} of {_named(left)} of {pf.name} are not those of the policy, "
            "but a virtual machine has them",
            "ovirt-rdma-host apply, after the virtual machine is shut down",
        )
    if not change:
        done = f"the {label} of the other VFs" if left else f"the {label} of the VFs"
        sentence = f"{done} of {pf.name} are as the policy requires"
        yield Finding(rule, pf.name, PASS, sentence)
        return
    counted = f"{len(change)} of {len(pf.vfs)} VFs"
    sentence = f"the {label} of {counted} of {pf.name} are not those of the policy"
    yield Finding(rule, pf.name, FAIL, sentence)
    changed = Change(
        VF,
        pf.adapter.pci.address,
        None if pf.made else _text({number: present[number] for number in change}),
        _text({number: wanted[number] for number in change}),
        setting.name,
    )
    bound = {vf.number for vf in pf.vfs if vf.number in change and vf.driver}
    again = bound if setting.rebinds else set()
    yield Step(
        rule,
        pf.name,
        f"{setting.sentence}; their drivers are bound again"
        if again
        else (setting.sentence),
        "none yet" if pf.made else f"{counted} differ",
        "as the policy requires",
        LINK_DOWN if again else LIVE,
        setting.reason,
        setting.source,
        "restores the earlier values",
        (changed,),
        users=view.users.of_vfs(pf.adapter.pci.address, again),
    )


def _text(values: _Values) -> Optional[str]:
    return (
        " ".join(f"{n}={value}" for n, value in sorted(values.items()) if value) or None
    )


def _named(numbers: Collection[int]) -> str:
    """Return ``VF 3`` or ``VFs 3, 4``."""
    noun = "VF" if len(numbers) == 1 else "VFs"
    return f"{noun} {', '.join(map(str, numbers))}"


RULES = (
    Rule(NUMBER_ID, _of_each(NUMBER_ID, _number)),
    Rule(GUID_ID, _of_each(GUID_ID, _guids)),
    Rule(LINK_ID, _of_each(LINK_ID, _links)),
    Rule(DRIVER_ID, _of_each(DRIVER_ID, _drivers)),
)
