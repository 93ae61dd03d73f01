# SPDX-License-Identifier: GPL-2.0-or-later
"""DRIVER-01: an adapter that no driver of this kernel drives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.devices import Adapter
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.module_loading import (
    blocking_line,
    is_available,
    is_loaded,
    place_of,
)
from ovirt_rdma.host.rules.pci_ids import MLX4, MTHCA, QIB, Model, model_of
from ovirt_rdma.host.rules.view import View

ID = "DRIVER-01"
GEN2 = "MLX4_CORE_GEN2"

# These hold a function for a guest, or for a program in user space.
_PASSED_ON = ("vfio-pci", "pci-stub", "xen-pciback", "uio_pci_generic", "igb_uio")

_OTHER_KERNEL = (
    "use another adapter, or an out-of-tree build of {module} for this kernel (ELRepo "
    "has some; modinfo -F alias {module} shows the PCI ids that a build takes)"
)
# Distributions whose kernels lack a module, and how it reads there
# (kernel configurations of EL8, EL9 and EL10).
_GONE = {
    (MLX4, "el10"): "EL10 has dropped mlx4, so ConnectX-3 and older have no driver",
    (MTHCA, "el9"): "EL does not build ib_mthca",
    (MTHCA, "el10"): "EL does not build ib_mthca",
    (QIB, "el9"): "EL does not build ib_qib",
    (QIB, "el10"): "EL does not build ib_qib",
}


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each adapter; virtual functions are counted with theirs."""
    adapters = view.facts.adapters
    if not adapters:
        yield Finding(ID, HOST, SKIP, "no RDMA adapter was found on the PCI bus")
    # A card that nobody needs is no reason to fail a host whose other ones work.
    verdict = WARN if view.facts.rdma_devices else FAIL
    there = {one.pci.address for one in adapters if one.physical_function is None}
    of: dict[str, list[Adapter]] = {}
    for adapter in adapters:
        if adapter.physical_function in there:
            of.setdefault(adapter.physical_function or "", []).append(adapter)
    for adapter in adapters:
        if adapter.physical_function not in there:
            yield _finding(view, adapter, verdict, of.get(adapter.pci.address, []))


def _finding(
    view: View, adapter: Adapter, verdict: str, functions: list[Adapter]
) -> Finding:
    model = model_of(adapter.pci)
    subject = adapter.pci.address
    what, counted = _what(adapter, model), _counted(functions)
    if adapter.driver in _PASSED_ON:
        sentence = f"{what} is held by {adapter.driver}, for a guest{counted}"
        return Finding(ID, subject, PASS, sentence)
    if adapter.driver:
        sentence = f"{what} is driven by {adapter.driver}{counted}"
        return Finding(ID, subject, PASS, sentence)
    if adapter.physical_function:
        sentence = (
            f"{what} of {adapter.physical_function} has no driver: free for a guest"
        )
        return Finding(ID, subject, PASS, sentence)
    why, fix = _why_not(view, adapter, model)
    return Finding(ID, subject, verdict, f"{what} has no driver: {why}{counted}", fix)


def _counted(functions: list[Adapter]) -> str:
    """Say who has the virtual functions: hundreds of lines would hide the rest."""
    if not functions:
        return ""
    drivers: dict[str, int] = {}
    for function in functions:
        driver = function.driver or "no driver"
        drivers[driver] = drivers.get(driver, 0) + 1
    told = ", ".join(f"{number} {driver}" for driver, number in drivers.items())
    return f"; virtual functions: {told}"


def _what(adapter: Adapter, model: Optional[Model]) -> str:
    ids = f"{adapter.pci.vendor[2:]}:{adapter.pci.device[2:]}"
    name = model.name if model else "an RDMA adapter"
    return f"{name} ({ids})"


def _why_not(view: View, adapter: Adapter, model: Optional[Model]) -> tuple[str, str]:
    """Return why no driver has taken ``adapter``, and what to do."""
    address = adapter.pci.address
    if model is None:
        return (
            "its PCI id is not one that this program knows",
            f"lspci -nnk -s {address} shows what it is and which modules claim it",
        )
    module = model.module
    gone = _why_not_driven(view, model)
    if gone:
        return gone, _OTHER_KERNEL.format(module=module)
    if is_loaded(view.facts.modules, module):
        return (
            f"{module} is loaded but has not taken it",
            f"journalctl -k | grep -e {module} -e {address} says why "
            "(firmware too old, or the probe failed)",
        )
    return _why_not_loaded(view, module)


def _why_not_driven(view: View, model: Model) -> str:
    """Say why this kernel cannot drive ``model``, or return "": it can."""
    module = model.module
    if is_available(view.facts.modules, module) is False:
        gone = _GONE.get((module, view.facts.software.distribution or ""))
        return gone or f"this kernel has no {module}"
    if model.gen2 and _gen2_is_off(view):
        return f"this kernel's {module} is built without {GEN2}"
    return ""


def _why_not_loaded(view: View, module: str) -> tuple[str, str]:
    line = blocking_line(view.facts.modules, module)
    if line:
        return (
            f"{place_of(line)} keeps {module} from being loaded ({line.command})",
            f"take that line away, then modprobe {module}",
        )
    if is_available(view.facts.modules, module) is None:
        return (
            f"{module} is not loaded, and whether this kernel has it cannot be told",
            f"modprobe {module}",
        )
    return f"{module} is there but not loaded", f"modprobe {module}"


def _gen2_is_off(view: View) -> bool:
    """Whether mlx4_core leaves ConnectX and ConnectX-2 alone.

    EL builds it so; a configuration that was read says more than the name.
    """
    config = view.facts.software.kernel_config
    if config is not None:
        return any(option.name == GEN2 and option.value == "n" for option in config)
    return view.facts.software.distribution in ("el8", "el9")


RULE = Rule(
    id=ID,
    title="adapter without a driver",
    what=(
        "Every RDMA adapter on the PCI bus should have a kernel driver. Functions that "
        "are held for guests (vfio-pci), and virtual functions that are left free, are "
        "in order."
    ),
    why=(
        "Without a driver there is no RDMA device, no ib0, and nothing in the logs. "
        "EL9 builds mlx4 without MLX4_CORE_GEN2, so ConnectX and ConnectX-2 (PCI "
        "15b3:6340 to 676e) are in lspci and nowhere else; EL10 has no mlx4 at all, so "
        "that ConnectX-3 is gone too. EL builds neither ib_qib (QLogic TrueScale) nor "
        "ib_mthca (InfiniHost). MLNX_OFED from 5.1 on does not drive ConnectX-3 "
        "either; 4.9 LTS was the last."
    ),
    fix=(
        "Where the module is there, load it, or take away the modprobe.d line that "
        "blocks it. Where the kernel has none, use an adapter that it drives "
        "(ConnectX-4 or later on EL10), or a kernel or out-of-tree module that drives "
        "this one, and answer for its updates yourself."
    ),
    sources=(
        "Linux drivers/net/ethernet/mellanox/mlx4/main.c, mlx4_pci_table",
        "kernel configurations of EL9 5.14 and EL10 6.12",
        "NVIDIA MLNX_OFED release notes 5.1",
        "modprobe.d(5)",
    ),
    decide=decide,
)

RULES = (RULE,)
