# SPDX-License-Identifier: GPL-2.0-or-later
"""What rdma-core loads by itself for the hardware that is there. Pure.

udev marks each RDMA device with what it can do, by the driver of its bus device, and
systemd then loads the lists /etc/rdma/modules/NAME.conf: ``rdma`` for any device.
From rdma-core's 75-rdma-description.rules and 90-rdma-ulp-modules.rules, versions 44
to 65. irdma (bus drivers ice, i40e on EL9) and siw have no mark of their own, and get
the list ``rdma`` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ovirt_rdma.host.facts import LoadLine, RdmaDevice
from ovirt_rdma.host.rules.modprobe import (
    RDMA_LISTS,
    load_lines,
    loaded_at_boot_by,
    place_of,
)
from ovirt_rdma.host.rules.view import View

EVERY_DEVICE = "rdma"
_LISTS_BY_DRIVER: dict[str, tuple[str, ...]] = {
    "ib_mthca": ("infiniband",),
    "ib_qib": ("infiniband",),
    "mlx4_core": ("infiniband", "roce"),
    "mlx5_core": ("infiniband", "roce"),
    "hfi1": ("opa",),
    "cxgb4": ("iwarp",),
    "i40e": ("iwarp",),
    "be2net": ("roce",),
    "bnxt_en": ("roce",),
    "hns": ("roce",),
    "qede": ("roce",),
    "vmw_pvrdma": ("roce",),
    "rdma_rxe": ("roce",),
}
_NOT_FOUND = "not-found"
_LOADED = "loaded"
OPENIBD = "openibd.service"


def lists_for(devices: Iterable[RdmaDevice]) -> tuple[str, ...]:
    """Return the names of the lists that rdma-core loads for these devices."""
    names: list[str] = []
    for device in devices:
        lists = (EVERY_DEVICE, *_LISTS_BY_DRIVER.get(device.driver or "", ()))
        names += [name for name in lists if name not in names]
    return tuple(names)


def list_unit(name: str) -> str:
    """Return the unit that loads a list."""
    return f"rdma-load-modules@{name}.service"


def has_rdma_core(view: View) -> Optional[bool]:
    """Whether rdma-core's units are installed; None where that cannot be told."""
    for unit in view.facts.software.units:
        if unit.name == list_unit(EVERY_DEVICE):
            return unit.load != _NOT_FOUND
    return True if view.facts.software.rdma_core else None


def brought_by_rdma_core(view: View, module: str) -> Optional[LoadLine]:
    """Return the line of a list by which rdma-core loads a module on this host."""
    return line_for_rdma_core(view, module) if has_rdma_core(view) else None


def line_for_rdma_core(view: View, module: str) -> Optional[LoadLine]:
    """Return the line of a list by which rdma-core, if it is there, loads a module."""
    files = {f"{RDMA_LISTS}{name}.conf" for name in lists_for(view.facts.rdma_devices)}
    for line in load_lines(view.facts.modules, module):
        if line.file in files:
            return line
    return None


def openibd_runs(view: View) -> bool:
    """Whether MLNX_OFED's service, which loads its modules, is active or enabled."""
    return any(
        unit.name == OPENIBD
        and unit.load == _LOADED
        and (unit.active == "active" or unit.enabled == "enabled")
        for unit in view.facts.software.units
    )


def boot_loader(view: View, module: str) -> str:
    """Say what loads a module that RDMA devices need at boot:
    ``/etc/modules-load.d/x.conf:2``, ``rdma-core (/etc/rdma/modules/rdma.conf:9)``;
    empty where nothing was found. openibd loads what its own configuration says, and
    is named where nothing else is found.
    """
    line = loaded_at_boot_by(view.facts.modules, module)
    if line:
        return place_of(line)
    line = brought_by_rdma_core(view, module)
    if line:
        return f"rdma-core ({place_of(line)})"
    return "openibd (/etc/infiniband/openib.conf)" if openibd_runs(view) else ""
