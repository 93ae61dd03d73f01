# SPDX-License-Identifier: GPL-2.0-or-later
"""STACK-01: out-of-tree RDMA modules. Pure.

Whether this host is meant to mount over RDMA. Pure.

STACK-01: RDMA modules that are not the kernel's own, and rpcrdma among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.model import Modules, RdmaStack
from ovirt_rdma.host.policy.model import TCP
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.module_loading import file_of, is_available, is_of_the_kernel
from ovirt_rdma.host.rules.view import View

_RDMA = "rdma"


def wants_nfs_over_rdma(view: View) -> bool:
    """Whether a rule of the policy says RDMA, or a mount uses it already."""
    return any(rule.transport != TCP for rule in view.policy.nfs.rules) or any(
        (mount.protocol or "").startswith(_RDMA) for mount in view.facts.nfs_mounts
    )


ID = "STACK-01"
NFS_MODULE = "rpcrdma"
# rpcrdma takes symbols of both (net/sunrpc/xprtrdma).
BASE_MODULES = ("ib_core", "rdma_cm")

_INSTALL = (
    "install the stack's own NFS over RDMA modules (MLNX_OFED: mlnxofedinstall "
    "--with-nfsrdma, package mlnx-nfsrdma), or remove the stack and use the "
    "distribution's"
)


def decide(view: View) -> Iterator[Finding]:
    """Give one finding for the host."""
    modules = view.facts.modules
    stacks = view.facts.software.stacks
    bases = _bases(modules)
    foreign = {n: p for n, p in bases.items() if not is_of_the_kernel(p)}
    rpcrdma = file_of(modules, NFS_MODULE)
    if not bases:
        yield _without_files(stacks)
    elif foreign and len(foreign) < len(bases):
        yield _mixed_bases(bases)
    elif foreign:
        yield _foreign_bases(view, _names(stacks), foreign, rpcrdma)
    elif misfit(modules):
        yield Finding(ID, HOST, _bad(view), misfit(modules), _INSTALL)
    elif stacks:
        yield Finding(
            ID,
            HOST,
            WARN,
            f"{_names(stacks)} is installed ({_evidence(stacks)}), but for this kernel "
            f"the modules are the distribution's ({next(iter(bases.values()))})",
            "rebuild the stack for this kernel, or remove it",
        )
    else:
        yield Finding(ID, HOST, PASS, _own(modules))


def misfit(modules: Modules) -> str:
    """Say, as a clause, that rpcrdma cannot be loaded because it and what it needs are
    from two trees, or nothing.
    """
    rpcrdma = file_of(modules, NFS_MODULE)
    base = next(iter(_bases(modules).values()), None)
    if rpcrdma is None or base is None:
        return ""
    if is_of_the_kernel(rpcrdma) == is_of_the_kernel(base):
        return ""
    return (
        f"rpcrdma ({rpcrdma}) is from another tree than {base}, so its symbols do not "
        "fit and it cannot be loaded"
    )


def _bases(modules: Modules) -> dict[str, str]:
    return {n: p for n in BASE_MODULES if (p := file_of(modules, n)) is not None}


def _own(modules: Modules) -> str:
    """Tell also of single drivers that are not the kernel's, as ELRepo has them."""
    foreign = [f.path for f in modules.files if not is_of_the_kernel(f.path)]
    if not foreign:
        return "the RDMA modules are the kernel's own"
    return f"the RDMA modules are the kernel's own but for {', '.join(foreign)}"


def _bad(view: View) -> str:
    """A stack without NFS over RDMA is no failure where nobody wants that."""
    return FAIL if wants_nfs_over_rdma(view) else WARN


def _without_files(stacks: tuple[RdmaStack, ...]) -> Finding:
    if stacks:
        return Finding(
            ID,
            HOST,
            WARN,
            f"{_names(stacks)} is installed ({_evidence(stacks)}), and where this "
            "kernel's ib_core comes from is not known",
            "modinfo -n ib_core rdma_cm rpcrdma should name files of one tree",
        )
    return Finding(ID, HOST, SKIP, "where the RDMA modules come from is not known")


def _mixed_bases(bases: dict[str, str]) -> Finding:
    files = ", ".join(bases.values())
    return Finding(
        ID,
        HOST,
        FAIL,
        f"the RDMA modules are from two trees: {files}",
        "reinstall or remove the out-of-tree stack, then depmod -a and dracut -f",
    )


def _foreign_bases(
    view: View, stack: str, foreign: dict[str, str], rpcrdma: Optional[str]
) -> Finding:
    base = next(iter(foreign.values()))
    if rpcrdma is None:
        if is_available(view.facts.modules, NFS_MODULE) is not False:
            sentence = f"the RDMA modules are {stack}'s ({base}); rpcrdma's file is not"
            fix = "modinfo -n rpcrdma should name a file of the same tree"
            return Finding(ID, HOST, WARN, f"{sentence} known", fix)
        sentence = f"the RDMA modules are {stack}'s ({base}), and rpcrdma is missing"
        return Finding(ID, HOST, _bad(view), sentence, _INSTALL)
    if is_of_the_kernel(rpcrdma):
        return Finding(ID, HOST, _bad(view), misfit(view.facts.modules), _INSTALL)
    sentence = f"the RDMA modules are {stack}'s ({base}), rpcrdma too ({rpcrdma})"
    return Finding(ID, HOST, PASS, sentence)


def _names(stacks: tuple[RdmaStack, ...]) -> str:
    """Return ``MLNX_OFED 5.8`` or ``an out-of-tree stack``."""
    named = [f"{s.name} {s.version}" if s.version else s.name for s in stacks]
    return " and ".join(named) or "an out-of-tree stack"


def _evidence(stacks: tuple[RdmaStack, ...]) -> str:
    return "; ".join(s.evidence for s in stacks if s.evidence) or "no more is known"


RULE = Rule(
    id=ID,
    title="RDMA stack that is not the distribution's",
    what=(
        "ib_core, rdma_cm and rpcrdma have to come from one tree: all the kernel's own "
        "(kernel/...), or all an out-of-tree stack's (extra/, updates/, "
        "weak-updates/)."
    ),
    why=(
        "MLNX_OFED and DOCA bring their own ib_core. The kernel's rpcrdma was built "
        "for the other one: its symbols disagree, modprobe fails, and mount.nfs only "
        "says that an incorrect mount option was specified. Their own rpcrdma is "
        "installed only on request."
    ),
    fix=(
        "Install the stack with its NFS over RDMA modules (MLNX_OFED: "
        "mlnxofedinstall --with-nfsrdma), or remove it: the distribution's drivers "
        "serve oVirt hosts well. After a kernel update, rebuild the stack for it."
    ),
    sources=(
        "modinfo -n, depmod.d(5)",
        "Linux net/sunrpc/xprtrdma",
        "NVIDIA MLNX_OFED documentation, mlnxofedinstall --with-nfsrdma",
    ),
    decide=decide,
)

RULES = (RULE,)
