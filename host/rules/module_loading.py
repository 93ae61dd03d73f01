# SPDX-License-Identifier: GPL-2.0-or-later
"""Answer questions about modules for several rules. Pure.

The functions say if a module is loaded or available, what prevents loading it, what
loads it at boot, and which tree its file is from. ``own_file_change`` plans the change
of one of our configuration files: write, remove or keep.

rdma-core loads modules by hardware: udev tags each RDMA device with its capabilities,
by the driver of its bus device, and systemd then loads the lists
/etc/rdma/modules/NAME.conf: ``rdma`` for any device. See rdma-core's
75-rdma-description.rules and 90-rdma-ulp-modules.rules, versions 44 to 65. irdma (bus
drivers ice, i40e on EL9) and siw have no tag, and get the list ``rdma`` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.facts.devices import RdmaDevice
from ovirt_rdma.host.facts.model import LoadLine, ModprobeLine, Modules, Software
from ovirt_rdma.host.facts.module_names import module_name
from ovirt_rdma.host.rules.base import FILE, Change
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.own_files import foreign_reason, own_text

# rdma-core's lists, /etc/rdma/modules/NAME.conf (kernel-boot/modules in rdma-core).
RDMA_LISTS = "/etc/rdma/modules/"
_DOES_NOTHING = ("true", "false", ":")


def is_loaded(modules: Modules, name: str) -> bool:
    """Whether the module is loaded or built in."""
    return module_name(name) in modules.loaded


def is_available(modules: Modules, name: str) -> Optional[bool]:
    """Whether the running kernel has the module; None if unknown."""
    if is_loaded(modules, name):
        return True
    if modules.available is None:
        return None
    return module_name(name) in modules.available


def blocking_line(modules: Modules, name: str) -> Optional[ModprobeLine]:
    """Return the modprobe.d(5) line that prevents udev and modules-load from loading a
    module: ``blacklist``, or an ``install`` command that does nothing.
    """
    for line in modules.modprobe_lines:
        if module_name(line.module) != module_name(name):
            continue
        if line.command == "blacklist" or _installs_nothing(line):
            return line
    return None


def _installs_nothing(line: ModprobeLine) -> bool:
    words = line.text.split()
    return (
        line.command == "install"
        and bool(words)
        and words[0].rpartition("/")[2] in _DOES_NOTHING
    )


def place_of(line: Union[ModprobeLine, LoadLine]) -> str:
    """Return ``FILE:LINE``."""
    return f"{line.file}:{line.line}"


def load_lines(modules: Modules, name: str) -> Iterator[LoadLine]:
    """Yield the lines that name a module, with hyphens or underscores."""
    for line in modules.load_lines:
        if module_name(line.module) == module_name(name):
            yield line


def loaded_at_boot_by(modules: Modules, name: str) -> Optional[LoadLine]:
    """Return the modules-load.d(5) line that loads a module at every boot.

    rdma-core's lists do not count: they depend on the hardware.
    """
    for line in load_lines(modules, name):
        if not line.file.startswith(RDMA_LISTS):
            return line
    return None


def file_of(modules: Modules, name: str) -> Optional[str]:
    """Return the module's file below /lib/modules/RELEASE; None if unknown."""
    wanted = module_name(name)
    return next((f.path for f in modules.files if module_name(f.name) == wanted), None)


def is_of_the_kernel(path: str) -> bool:
    """Whether a module's file is the kernel's own, not ``extra/`` or ``updates/``."""
    return path.startswith("kernel/")


@dataclass(frozen=True)
class OwnFileChange:
    """The ``change`` of one of our files, None if the file is already correct;
    ``refused`` is the reason why it must not be written.
    """

    change: Optional[Change] = None
    refused: str = ""


def own_file_change(
    software: Software, path: str, lines: Sequence[str]
) -> OwnFileChange:
    """Return the change that sets ``path`` to ``lines``; no lines: removes the file."""
    present = next((file for file in software.own_files if file.path == path), None)
    wanted = own_text(lines) if lines else None
    if present is None:
        if wanted is None:
            return OwnFileChange()
        return OwnFileChange(Change(FILE, path, None, wanted))
    if present.text == wanted:
        return OwnFileChange()
    refused = foreign_reason(path, present.text)
    if refused and wanted is None:
        return OwnFileChange()
    return OwnFileChange(Change(FILE, path, present.text, wanted), refused)


def own_lines(software: Software, path: str) -> tuple[str, ...]:
    """Return the lines without comments of our file ``path``; none if it is missing."""
    present = next((file for file in software.own_files if file.path == path), None)
    if present is None or present.text is None or foreign_reason(path, present.text):
        return ()
    lines = (line.strip() for line in present.text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


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
    """Whether rdma-core's units are installed; None if unknown."""
    for unit in view.facts.software.units:
        if unit.name == list_unit(EVERY_DEVICE):
            return unit.load != _NOT_FOUND
    return True if view.facts.software.rdma_core else None


def rdma_core_line(view: View, module: str) -> Optional[LoadLine]:
    """Return the line of a list by which rdma-core loads a module on this host."""
    return listed_line(view, module) if has_rdma_core(view) else None


def listed_line(view: View, module: str) -> Optional[LoadLine]:
    """Return the line of a list by which rdma-core, if installed, loads a module."""
    files = {f"{RDMA_LISTS}{name}.conf" for name in lists_for(view.facts.rdma_devices)}
    for line in load_lines(view.facts.modules, module):
        if line.file in files:
            return line
    return None


def openibd_runs(view: View) -> bool:
    """Whether openibd, which loads MLNX_OFED's modules, is active or enabled."""
    return any(
        unit.name == OPENIBD
        and unit.load == _LOADED
        and (unit.active == "active" or unit.enabled == "enabled")
        for unit in view.facts.software.units
    )


def boot_loader(view: View, module: str) -> str:
    """Return what loads a module at boot: ``/etc/modules-load.d/x.conf:2``,
    ``rdma-core (/etc/rdma/modules/rdma.conf:9)``; empty if nothing was found.

    openibd loads the modules of its own configuration; it is returned if nothing else
    was found.
    """
    line = loaded_at_boot_by(view.facts.modules, module)
    if line:
        return place_of(line)
    line = rdma_core_line(view, module)
    if line:
        return f"rdma-core ({place_of(line)})"
    return "openibd (/etc/infiniband/openib.conf)" if openibd_runs(view) else ""
