# SPDX-License-Identifier: GPL-2.0-or-later
"""Name InfiniBand and RoCE adapters; DRIVER-01: adapters without a driver. Pure.

The PCI ids of each module are from the kernel's tables (drivers/net/ethernet/mellanox/
mlx4/main.c and mlx5/core/main.c, drivers/infiniband/hw/{mthca,qib,hfi1}, Linux 6.1);
the names are from pci.ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.facts.devices import Adapter, PciIdentity
from ovirt_rdma.host.rules.base import FAIL, WARN, About, Finding, Rule
from ovirt_rdma.host.rules.modules import (
    blocking_line,
    is_available,
    is_loaded,
    place_of,
)
from ovirt_rdma.host.rules.view import View

MLX4, MLX5 = "mlx4_core", "mlx5_core"
MTHCA, QIB, HFI1 = "ib_mthca", "ib_qib", "hfi1"

# ConnectX and ConnectX-2 have the same ids; the PCI revision distinguishes them.
CONNECTX_OR_2 = "ConnectX or ConnectX-2"
_BY_REVISION = {"0xa0": "ConnectX (revision a0)", "0xb0": "ConnectX-2"}


@dataclass(frozen=True)
class Model:
    """The product ``name`` (``ConnectX-3 Pro``) and kernel ``module`` (``mlx4_core``).

    ``gen2``: mlx4_core supports it only if built with MLX4_CORE_GEN2.
    """

    name: str
    module: str
    gen2: bool = False


_MELLANOX = "0x15b3"
_GEN2 = "6340 634a 6354 6732 673c 6368 6750 6372 675a 6764 6746 676e 1002"
_TABLES = (
    (
        MLX4,
        _MELLANOX,
        {
            "1003": "ConnectX-3",
            "1004": "ConnectX-3 virtual function",
            "1007": "ConnectX-3 Pro",
        },
    ),
    (
        MLX5,
        _MELLANOX,
        {
            "1011": "Connect-IB",
            "1012": "Connect-IB virtual function",
            "1013": "ConnectX-4",
            "1014": "ConnectX-4 virtual function",
            "1015": "ConnectX-4 Lx",
            "1016": "ConnectX-4 Lx virtual function",
            "1017": "ConnectX-5",
            "1018": "ConnectX-5 virtual function",
            "1019": "ConnectX-5 Ex",
            "101a": "ConnectX-5 Ex virtual function",
            "101b": "ConnectX-6",
            "101c": "ConnectX-6 virtual function",
            "101d": "ConnectX-6 Dx",
            "101e": "ConnectX virtual function",
            "101f": "ConnectX-6 Lx",
            "1021": "ConnectX-7",
            "1023": "ConnectX-8",
            "a2d2": "BlueField (ConnectX-5)",
            "a2d3": "BlueField virtual function",
            "a2d6": "BlueField-2 (ConnectX-6 Dx)",
            "a2dc": "BlueField-3 (ConnectX-7)",
            "a2df": "BlueField-4",
        },
    ),
    (
        MTHCA,
        _MELLANOX,
        {
            "5a44": "InfiniHost",
            "6278": "InfiniHost III Ex",
            "6282": "InfiniHost III Ex",
            "6274": "InfiniHost III Lx",
            "5e8c": "InfiniHost III Lx",
        },
    ),
    (QIB, "0x1fc1", {"0010": "QLogic IBA6120"}),
    (
        QIB,
        "0x1077",
        {"7220": "QLogic IBA7220", "7322": "QLogic IBA7322 (TrueScale)"},
    ),
    (HFI1, "0x8086", {"24f0": "Omni-Path HFI 100", "24f1": "Omni-Path HFI 100"}),
)
MODELS: dict[tuple[str, str], Model] = {
    (vendor, f"0x{device}"): Model(name, module)
    for module, vendor, names in _TABLES
    for device, name in names.items()
}
for _device in _GEN2.split():
    MODELS[_MELLANOX, f"0x{_device}"] = Model(CONNECTX_OR_2, MLX4, gen2=True)


def model_of(pci: PciIdentity) -> Optional[Model]:
    """Return the model of a PCI function; None if its id is not in the tables.

    Of the ids that both have, revision 0xa0 is ConnectX and 0xb0 ConnectX-2.
    """
    model = MODELS.get((pci.vendor.lower(), pci.device.lower()))
    if model is None or not model.gen2:
        return model
    return replace(model, name=_BY_REVISION.get(pci.revision.lower(), model.name))


GEN2 = "MLX4_CORE_GEN2"
# These reserve a function for a guest, or for a program in user space.
_PASSTHROUGH = ("vfio-pci", "pci-stub", "xen-pciback", "uio_pci_generic", "igb_uio")
_OTHER_KERNEL = (
    "use another adapter, or an out-of-tree build of {module} for this kernel (ELRepo "
    "has some; modinfo -F alias {module} shows the PCI ids that a build takes)"
)
# Modules that the kernel of a distribution does not have, and the sentence about it
# (kernel configurations of EL8, EL9 and EL10).
_GONE = {
    (MLX4, "el10"): "EL10 removed mlx4, the driver of ConnectX-3 and older",
    (MTHCA, "el9"): "EL does not build ib_mthca",
    (MTHCA, "el10"): "EL does not build ib_mthca",
    (QIB, "el9"): "EL does not build ib_qib",
    (QIB, "el10"): "EL does not build ib_qib",
}


def _drivers(view: View) -> Iterator[Finding]:
    """Yield a finding for each adapter, which includes its virtual functions."""
    adapters = view.facts.adapters
    # If other adapters work, one without a driver may be unused: no failure.
    verdict = WARN if view.facts.rdma_devices else FAIL
    physical = {a.pci.address for a in adapters if a.physical_function is None}
    for adapter in adapters:
        if adapter.physical_function not in physical:
            yield _finding(view, adapter, verdict)


def _finding(view: View, adapter: Adapter, verdict: str) -> Finding:
    model, about = model_of(adapter.pci), About(DRIVERS.id, adapter.pci.address)
    name = f"{model.name if model else 'an RDMA adapter'} (" + (
        f"{adapter.pci.vendor[2:]}:{adapter.pci.device[2:]})"
    )
    counted = _counted(view, adapter)
    if adapter.driver in _PASSTHROUGH:
        return about.passes(
            f"{name} is reserved for a guest by {adapter.driver}{counted}"
        )
    if adapter.driver:
        return about.passes(f"{name} uses the driver {adapter.driver}{counted}")
    if adapter.physical_function:
        return about.passes(
            f"{name} of {adapter.physical_function} has no driver and is available for "
            "a guest"
        )
    why, fix = _why_not(view, adapter, model)
    return about.finds(verdict, f"{name} has no driver: {why}{counted}", fix)


def _counted(view: View, adapter: Adapter) -> str:
    """Return a clause with the number of virtual functions of each driver.

    A host may have hundreds: one line each would hide the other findings.
    """
    drivers = Counter(
        function.driver or "no driver"
        for function in view.facts.adapters
        if function.physical_function == adapter.pci.address
    )
    counts = ", ".join(f"{number} {driver}" for driver, number in drivers.items())
    return f"; virtual functions: {counts}" if counts else ""


def _why_not(view: View, adapter: Adapter, model: Optional[Model]) -> tuple[str, str]:
    """Return why ``adapter`` has no driver, and the fix."""
    address, modules = adapter.pci.address, view.facts.modules
    if model is None:
        return (
            "its PCI id is unknown to this program",
            f"lspci -nnk -s {address} shows the model and the modules that support it",
        )
    module = model.module
    load = f"modprobe {module}"
    without = None
    if is_available(modules, module) is False:
        without = _GONE.get((module, view.facts.software.distribution or ""))
        without = without or f"this kernel has no {module}"
    elif model.gen2 and _gen2_is_off(view):
        without = f"this kernel's {module} is built without {GEN2}"
    if without:
        return without, _OTHER_KERNEL.format(module=module)
    if is_loaded(modules, module):
        return (
            f"{module} is loaded but has not claimed it",
            f"journalctl -k | grep -e {module} -e {address} shows the reason "
            "(firmware too old, or the probe failed)",
        )
    line = blocking_line(modules, module)
    if line:
        return (
            f"{place_of(line)} prevents loading {module} ({line.command})",
            f"remove that line, then: {load}",
        )
    if is_available(modules, module) is None:
        unknown = f"{module} is not loaded, and it is unknown if this kernel has it"
        return unknown, load
    return f"{module} is available but not loaded", load


def _gen2_is_off(view: View) -> bool:
    """Whether mlx4_core does not support ConnectX and ConnectX-2.

    EL builds it without them; a known kernel configuration takes precedence over the
    distribution's name.
    """
    config = view.facts.software.kernel_config
    if config is not None:
        return any(option.name == GEN2 and option.value == "n" for option in config)
    return view.facts.software.distribution in ("el8", "el9")


DRIVERS = Rule("DRIVER-01", _drivers, "no RDMA adapter was found on the PCI bus")
RULES = (DRIVERS,)
