# SPDX-License-Identifier: GPL-2.0-or-later
"""KERNEL-02: modules that this kernel has, in a package that is not installed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.module_loading import (
    file_of,
    is_available,
    is_loaded,
    is_of_the_kernel,
)
from ovirt_rdma.host.rules.rdma_stack import wants_nfs_over_rdma
from ovirt_rdma.host.rules.view import View

ID = "KERNEL-02"
_MODULE = "m"


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each module that was built and is not there."""
    facts = view.facts
    config = facts.software.kernel_config
    needs = list(_needs(view))
    if config is None or facts.modules.available is None or not needs:
        sentence = (
            "the kernel's configuration or its list of modules is unknown"
            if needs
            else "nothing on this host needs RDMA modules"
        )
        yield Finding(ID, HOST, SKIP, sentence)
        return
    base = file_of(facts.modules, "ib_core")
    if base and not is_of_the_kernel(base):
        sentence = f"the RDMA modules are those of another stack ({base}): see STACK-01"
        yield Finding(ID, HOST, SKIP, sentence)
        return
    values = {option.name: option.value for option in config}
    missing = [
        (module, verdict)
        for symbol, module, verdict in needs
        if values.get(symbol) == _MODULE
        and is_available(facts.modules, module) is False
        and not is_loaded(facts.modules, module)
    ]
    for module, verdict in missing:
        yield Finding(
            ID,
            module,
            verdict,
            f"this kernel was built with {module}, and the package that has it is not "
            "installed",
            _fix(module, facts.software.distribution or "", facts.kernel_release),
        )
    if not missing:
        names = ", ".join(module for _, module, _ in needs)
        yield Finding(ID, HOST, PASS, f"this kernel's {names} are installed, if any")


def _needs(view: View) -> Iterator[tuple[str, str, str]]:
    """Yield symbols, their modules, and the verdict if the module is missing."""
    nfs = wants_nfs_over_rdma(view)
    devices = view.facts.rdma_devices
    if devices or nfs:
        yield "SUNRPC_XPRT_RDMA", "rpcrdma", FAIL if nfs else WARN
        yield "INFINIBAND_USER_ACCESS", "ib_uverbs", WARN
    if any(port.is_infiniband for device in devices for port in device.ports):
        yield "INFINIBAND_IPOIB", "ib_ipoib", FAIL


def _fix(module: str, distribution: str, release: str) -> str:
    if not distribution.startswith("el"):
        return "install the modules package of this kernel"
    return (
        f"dnf install kernel-modules-{release}; if {module} is still missing, "
        f"kernel-modules-extra-{release} (dnf provides '*/{module}.ko*' names the "
        "package)"
    )


RULE = Rule(ID, decide)

RULES = (RULE,)
