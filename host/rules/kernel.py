# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about the kernel and its RDMA modules as a whole. Pure.

STACK-01: the RDMA modules, rpcrdma included, are from one tree. KERNEL-01: the
configuration of the running kernel. KERNEL-02: modules that this kernel has, in a
package that is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ovirt_rdma.host.facts.ipoib import CONNECTED
from ovirt_rdma.host.facts.model import RdmaStack
from ovirt_rdma.host.rules.base import FAIL, WARN, About, Finding, Rule
from ovirt_rdma.host.rules.modules import (
    NFS_MODULE,
    base_files,
    file_of,
    is_available,
    is_loaded,
    is_of_the_kernel,
    mismatch,
)
from ovirt_rdma.host.rules.view import View

_INSTALL = (
    "install the stack's own NFS over RDMA modules (MLNX_OFED: mlnxofedinstall "
    "--with-nfsrdma, package mlnx-nfsrdma), or remove the stack and use the "
    "distribution's"
)


def _stack(view: View) -> Iterator[Finding]:
    """Yield one finding for the host."""
    modules, stacks = view.facts.modules, view.facts.software.stacks
    about = About(STACK.id)
    bases = base_files(modules)
    foreign = [path for path in bases.values() if not is_of_the_kernel(path)]
    evidence = "; ".join(s.evidence for s in stacks if s.evidence) or "no details"
    installed = f"{_names(stacks)} is installed ({evidence})"
    # Without NFS over RDMA a stack is only worth a warning if nothing needs it.
    bad = FAIL if view.wants_nfs_over_rdma else WARN
    if foreign and len(foreign) < len(bases):
        yield about.fails(
            f"the RDMA modules are from two trees: {', '.join(bases.values())}",
            "reinstall or remove the out-of-tree stack, then: depmod -a; dracut -f",
        )
    elif bases and mismatch(modules):
        yield about.finds(bad, mismatch(modules), _INSTALL)
    elif foreign:
        yield _foreign(view, about, foreign[0], bad)
    elif bases and stacks:
        yield about.warns(
            f"{installed}, but this kernel's modules are the distribution's "
            f"({next(iter(bases.values()))})",
            "rebuild the stack for this kernel, or remove it",
        )
    elif bases:
        # Single drivers may be others, such as ELRepo's.
        others = [f.path for f in modules.files if not is_of_the_kernel(f.path)]
        sentence = "the RDMA modules are the kernel's own"
        yield about.passes(
            f"{sentence}, except {', '.join(others)}" if others else sentence
        )
    elif stacks:
        yield about.warns(
            f"{installed}, and the origin of this kernel's ib_core is unknown",
            "modinfo -n ib_core rdma_cm rpcrdma should show files of one tree",
        )


def _foreign(view: View, about: About, base: str, bad: str) -> Finding:
    """Return the finding for modules that are all from a vendor's stack."""
    stack, rpcrdma = (
        _names(view.facts.software.stacks),
        file_of(view.facts.modules, NFS_MODULE),
    )
    if rpcrdma is not None:
        return about.passes(
            f"the RDMA modules and rpcrdma are from {stack} ({base}, {rpcrdma})"
        )
    shown = f"the RDMA modules are from {stack} ({base}), and"
    if is_available(view.facts.modules, NFS_MODULE) is not False:
        return about.warns(
            f"{shown} the origin of rpcrdma is unknown",
            "modinfo -n rpcrdma should show a file of the same tree",
        )
    return about.finds(bad, f"{shown} rpcrdma is missing", _INSTALL)


def _names(stacks: tuple[RdmaStack, ...]) -> str:
    """Return ``MLNX_OFED 5.8`` or ``an out-of-tree stack``."""
    named = [f"{s.name} {s.version}" if s.version else s.name for s in stacks]
    return " and ".join(named) or "an out-of-tree stack"


@dataclass(frozen=True)
class _Need:
    """A symbol, the module that it builds (empty: part of another module), the effect
    if it is missing, and the verdict then.
    """

    symbol: str
    module: str
    effect: str
    verdict: str


def _needs(view: View) -> Iterator[_Need]:
    facts, nfs = view.facts, view.wants_nfs_over_rdma
    if facts.rdma_devices or facts.adapters or nfs:
        verdict = FAIL if nfs else WARN
        yield _Need("INFINIBAND", "ib_core", "no RDMA at all", FAIL)
        yield _Need("SUNRPC_XPRT_RDMA", NFS_MODULE, "no NFS over RDMA", verdict)
        yield _Need(
            "INFINIBAND_USER_ACCESS",
            "ib_uverbs",
            "no RDMA for programs such as the readiness check and rping",
            WARN,
        )
    if any(p.is_infiniband for d in facts.rdma_devices for p in d.ports):
        rules = view.policy.host.interfaces
        wanted = any(rule.transport_mode == CONNECTED for rule in rules)
        verdict = FAIL if wanted else WARN
        yield _Need("INFINIBAND_IPOIB", "ib_ipoib", "no IP over InfiniBand", FAIL)
        yield _Need("INFINIBAND_IPOIB_CM", "", "no connected mode for IPoIB", verdict)


def _configuration(view: View) -> Iterator[Finding]:
    """Yield a finding for each symbol that is off, or one if all are on."""
    about, config = About(CONFIGURATION.id), view.facts.software.kernel_config
    if config is None:
        yield about.skips(
            "no configuration of the running kernel was found",
            "provide one of /boot/config-RELEASE, /lib/modules/RELEASE/config and "
            "/proc/config.gz",
        )
        return
    # A symbol that is not in the configuration counts as not set.
    on = {option.name for option in config if option.value != "n"}
    needs = list(_needs(view))
    missing = [
        need
        for need in needs
        if need.symbol not in on
        # An out-of-tree build may provide the module.
        and not (need.module and is_available(view.facts.modules, need.module))
    ]
    for need in missing:
        yield About(CONFIGURATION.id, need.symbol).finds(
            need.verdict,
            f"this kernel is built without {need.symbol}: {need.effect}",
            "use the distribution's kernel, or one built with "
            f"CONFIG_{need.symbol}=m (y if it is not a module)",
        )
    if needs and not missing:
        text = ", ".join(need.symbol for need in needs)
        yield about.passes(f"this kernel has {text}")


_IN_PACKAGES = (NFS_MODULE, "ib_uverbs", "ib_ipoib")


def _packages(view: View) -> Iterator[Finding]:
    """Yield a finding for each module that was built and is not there."""
    facts, about = view.facts, About(PACKAGES.id)
    config = facts.software.kernel_config
    if not facts.rdma_devices and not view.wants_nfs_over_rdma:
        return
    if config is None or facts.modules.available is None:
        yield about.skips(
            "the kernel's configuration or its list of modules is unknown"
        )
        return
    base = file_of(facts.modules, "ib_core")
    if base and not is_of_the_kernel(base):
        yield about.skips(
            f"the RDMA modules are those of another stack ({base}): see STACK-01"
        )
        return
    built = {option.name for option in config if option.value == "m"}
    needs = [need for need in _needs(view) if need.module in _IN_PACKAGES]
    missing = [
        need
        for need in needs
        if need.symbol in built
        and is_available(facts.modules, need.module) is False
        and not is_loaded(facts.modules, need.module)
    ]
    for need in missing:
        yield About(PACKAGES.id, need.module).finds(
            need.verdict,
            f"this kernel was built with {need.module}, and the package that has it is "
            "not installed",
            _package_fix(view, need.module),
        )
    if not missing:
        names = ", ".join(need.module for need in needs)
        yield about.passes(f"this kernel's {names} are installed, if any")


def _package_fix(view: View, module: str) -> str:
    release = view.facts.kernel_release
    if not (view.facts.software.distribution or "").startswith("el"):
        return "install the modules package of this kernel"
    return (
        f"dnf install kernel-modules-{release}; if {module} is still missing, "
        f"kernel-modules-extra-{release} (dnf provides '*/{module}.ko*' names the "
        "package)"
    )


STACK = Rule("STACK-01", _stack, "the origin of the RDMA modules is unknown")
CONFIGURATION = Rule(
    "KERNEL-01", _configuration, "nothing on this host needs RDMA in the kernel"
)
PACKAGES = Rule("KERNEL-02", _packages, "nothing on this host needs RDMA modules")
RULES = (STACK, CONFIGURATION, PACKAGES)
