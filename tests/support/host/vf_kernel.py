# SPDX-License-Identifier: GPL-2.0-or-later
"""The virtual functions of a host in memory, as the kernel changes them; strict.

Linux drivers/pci/iov.c (sriov_numvfs_store: only from 0 and to 0, and it waits for the
driver of each VF that it removes), drivers/infiniband/hw/mlx5/ib_virt.c (GUIDs and link
states of existing VFs), drivers/pci/pci-driver.c (bind and unbind). The netdev and the
RDMA device of a VF that is bound are left out. Of the product it uses data types only.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ovirt_rdma.host.facts.devices import VfPort, VirtualFunction

_ZERO = "0000:0000:0000:0000"
_GUID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}\Z")
# The values that a new VF has, by property.
_NEW = {"guids": f"{_ZERO}/{_ZERO}", "link-states": "auto", "drivers": "-"}


def value_of(facts, change):
    """Return what is read of the VFs that ``change`` is about; None without any."""
    adapter = _adapter(facts, change)
    if change.name == "number":
        return str(adapter.vfs)
    about = _by_number(change.after)
    values = {
        vf.number: _value(vf, change.name)
        for vf in adapter.virtual_functions
        if vf.number in about
    }
    return " ".join(f"{n}={value}" for n, value in sorted(values.items())) or None


def is_gone(facts, change):
    """Whether no VF of those that ``change`` is about exists."""
    return change.name != "number" and value_of(facts, change) is None


def with_value(facts, change, value):
    """Return ``facts`` with ``value`` set; None: what a new VF has, or no VFs."""
    adapter = _adapter(facts, change)
    if change.name == "number":
        changed = _with_number(adapter, int(value or 0))
    else:
        about = _by_number(change.after)
        wanted = {**dict.fromkeys(about, _NEW[change.name]), **_by_number(value)}
        assert wanted.keys() == about.keys(), (change, value)
        vfs = tuple(
            _with(vf, change.name, wanted[vf.number]) if vf.number in wanted else vf
            for vf in adapter.virtual_functions
        )
        changed = replace(adapter, virtual_functions=vfs)
    others = tuple(changed if a is adapter else a for a in facts.adapters)
    return replace(facts, adapters=others)


def without_virtual_functions(facts):
    """Return ``facts`` as after a boot: the kernel makes no VFs itself."""
    adapters = tuple(
        a if a.vfs is None else replace(a, vfs=0, virtual_functions=())
        for a in facts.adapters
    )
    return replace(facts, adapters=adapters)


def _adapter(facts, change):
    (adapter,) = (a for a in facts.adapters if a.pci.address == change.target)
    return adapter


def _by_number(text):
    pairs = (entry.split("=", 1) for entry in (text or "").split())
    return {int(number): value for number, value in pairs}


def _value(vf, name):
    if name == "guids":
        return f"{vf.node_guid}/{vf.ports[0].guid}"
    return vf.link_state if name == "link-states" else vf.driver or "-"


def _with_number(adapter, wanted):
    assert not (adapter.vfs and wanted), "EBUSY"
    assert wanted <= adapter.max_vfs, "ERANGE"
    for vf in adapter.virtual_functions:
        assert vf.driver != "vfio-pci", "the kernel waits for the virtual machine"
    vfs = tuple(
        VirtualFunction(
            number,
            f"{adapter.pci.address[:-1]}{number + 1}",
            node_guid=_ZERO,
            link_state="auto",
            ports=(VfPort(1, _ZERO),),
        )
        for number in range(wanted)
    )
    return replace(adapter, vfs=wanted, virtual_functions=vfs)


def _with(vf, name, value):
    if _value(vf, name) == value:
        return vf
    assert vf.driver != "vfio-pci", f"a virtual machine has VF {vf.number}"
    if name == "link-states":
        assert value in ("auto", "enable", "disable")
        return replace(vf, link_state=value)
    if name == "drivers":
        assert value in ("-", "mlx5_core")
        return replace(vf, driver=None if value == "-" else value)
    assert name == "guids"
    node, port = value.split("/")
    assert _GUID.match(node) and _GUID.match(port)
    return replace(vf, node_guid=node, ports=(VfPort(1, port),))
