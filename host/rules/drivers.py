# SPDX-License-Identifier: GPL-2.0-or-later
"""DRIVER-01: report adapters that have no driver. Pure."""

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


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each adapter, which includes its virtual functions."""
    adapters = view.facts.adapters
    if not adapters:
        yield Finding(ID, HOST, SKIP, "no RDMA adapter was found on the PCI bus")
    # If other adapters work, one without a driver may be unused: no failure.
    verdict = WARN if view.facts.rdma_devices else FAIL
    physical = {a.pci.address for a in adapters if a.physical_function is None}
    functions: dict[str, list[Adapter]] = {}
    for adapter in adapters:
        if adapter.physical_function in physical:
            functions.setdefault(adapter.physical_function or "", []).append(adapter)
    for adapter in adapters:
        if adapter.physical_function not in physical:
            virtual = functions.get(adapter.pci.address, [])
            yield _finding(view, adapter, verdict, virtual)


def _finding(
    view: View, adapter: Adapter, verdict: str, functions: list[Adapter]
) -> Finding:
    model = model_of(adapter.pci)
    subject = adapter.pci.address
    name, counted = _name(adapter, model), _counted(functions)
    if adapter.driver in _PASSTHROUGH:
        sentence = f"{name} is reserved for a guest by {adapter.driver}{counted}"
        return Finding(ID, subject, PASS, sentence)
    if adapter.driver:
        sentence = f"{name} uses the driver {adapter.driver}{counted}"
        return Finding(ID, subject, PASS, sentence)
    if adapter.physical_function:
        sentence = (
            f"{name} of {adapter.physical_function} has no driver and is available for "
            "a guest"
        )
        return Finding(ID, subject, PASS, sentence)
    why, fix = _why_not(view, adapter, model)
    return Finding(ID, subject, verdict, f"{name} has no driver: {why}{counted}", fix)


def _counted(functions: list[Adapter]) -> str:
    """Return a clause with the number of virtual functions of each driver.

    A host may have hundreds: one line each would hide the other findings.
    """
    if not functions:
        return ""
    drivers: dict[str, int] = {}
    for function in functions:
        driver = function.driver or "no driver"
        drivers[driver] = drivers.get(driver, 0) + 1
    counts = ", ".join(f"{number} {driver}" for driver, number in drivers.items())
    return f"; virtual functions: {counts}"


def _name(adapter: Adapter, model: Optional[Model]) -> str:
    ids = f"{adapter.pci.vendor[2:]}:{adapter.pci.device[2:]}"
    name = model.name if model else "an RDMA adapter"
    return f"{name} ({ids})"


def _why_not(view: View, adapter: Adapter, model: Optional[Model]) -> tuple[str, str]:
    """Return why ``adapter`` has no driver, and the fix."""
    address = adapter.pci.address
    if model is None:
        return (
            "its PCI id is unknown to this program",
            f"lspci -nnk -s {address} shows the model and the modules that support it",
        )
    module = model.module
    gone = _why_not_driven(view, model)
    if gone:
        return gone, _OTHER_KERNEL.format(module=module)
    if is_loaded(view.facts.modules, module):
        return (
            f"{module} is loaded but has not claimed it",
            f"journalctl -k | grep -e {module} -e {address} shows the reason "
            "(firmware too old, or the probe failed)",
        )
    return _why_not_loaded(view, module)


def _why_not_driven(view: View, model: Model) -> str:
    """Return why this kernel has no driver for ``model``; empty if it has one."""
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
            f"{place_of(line)} prevents loading {module} ({line.command})",
            f"remove that line, then: modprobe {module}",
        )
    if is_available(view.facts.modules, module) is None:
        return (
            f"{module} is not loaded, and it is unknown if this kernel has it",
            f"modprobe {module}",
        )
    return f"{module} is available but not loaded", f"modprobe {module}"


def _gen2_is_off(view: View) -> bool:
    """Whether mlx4_core does not support ConnectX and ConnectX-2.

    EL builds it without them; a known kernel configuration takes precedence over the
    distribution's name.
    """
    config = view.facts.software.kernel_config
    if config is not None:
        return any(option.name == GEN2 and option.value == "n" for option in config)
    return view.facts.software.distribution in ("el8", "el9")


RULE = Rule(ID, decide)

RULES = (RULE,)
