# SPDX-License-Identifier: GPL-2.0-or-later
"""STACK-01: check that the RDMA modules, rpcrdma included, are from one tree. Pure.

``wants_nfs_over_rdma`` decides for this and other rules if NFS over RDMA is required.
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
    """Whether a rule of the policy requires RDMA, or a mount uses it already."""
    return any(rule.transport != TCP for rule in view.policy.nfs.rules) or any(
        (mount.protocol or "").startswith(_RDMA) for mount in view.facts.nfs_mounts
    )


ID = "STACK-01"
NFS_MODULE = "rpcrdma"
# rpcrdma uses symbols of both (net/sunrpc/xprtrdma).
BASE_MODULES = ("ib_core", "rdma_cm")

_INSTALL = (
    "install the stack's own NFS over RDMA modules (MLNX_OFED: mlnxofedinstall "
    "--with-nfsrdma, package mlnx-nfsrdma), or remove the stack and use the "
    "distribution's"
)


def decide(view: View) -> Iterator[Finding]:
    """Yield one finding for the host."""
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
    elif mismatch(modules):
        yield Finding(ID, HOST, _bad(view), mismatch(modules), _INSTALL)
    elif stacks:
        yield Finding(
            ID,
            HOST,
            WARN,
            f"{_names(stacks)} is installed ({_evidence(stacks)}), but this kernel's "
            f"modules are the distribution's ({next(iter(bases.values()))})",
            "rebuild the stack for this kernel, or remove it",
        )
    else:
        yield Finding(ID, HOST, PASS, _own(modules))


def mismatch(modules: Modules) -> str:
    """Return a clause if rpcrdma cannot be loaded because it and the modules that it
    needs are from different trees; empty if they match.
    """
    rpcrdma = file_of(modules, NFS_MODULE)
    base = next(iter(_bases(modules).values()), None)
    if rpcrdma is None or base is None:
        return ""
    if is_of_the_kernel(rpcrdma) == is_of_the_kernel(base):
        return ""
    return (
        f"rpcrdma ({rpcrdma}) cannot be loaded: it is from another tree than {base}, "
        "and their symbols do not match"
    )


def _bases(modules: Modules) -> dict[str, str]:
    return {n: p for n in BASE_MODULES if (p := file_of(modules, n)) is not None}


def _own(modules: Modules) -> str:
    """Return the sentence for the kernel's own stack, with single drivers that are not
    the kernel's, such as ELRepo's.
    """
    foreign = [f.path for f in modules.files if not is_of_the_kernel(f.path)]
    if not foreign:
        return "the RDMA modules are the kernel's own"
    return f"the RDMA modules are the kernel's own, except {', '.join(foreign)}"


def _bad(view: View) -> str:
    """Return the verdict for a stack without NFS over RDMA: WARN if it is not used."""
    return FAIL if wants_nfs_over_rdma(view) else WARN


def _without_files(stacks: tuple[RdmaStack, ...]) -> Finding:
    if stacks:
        return Finding(
            ID,
            HOST,
            WARN,
            f"{_names(stacks)} is installed ({_evidence(stacks)}), and the origin of "
            "this kernel's ib_core is unknown",
            "modinfo -n ib_core rdma_cm rpcrdma should show files of one tree",
        )
    return Finding(ID, HOST, SKIP, "the origin of the RDMA modules is unknown")


def _mixed_bases(bases: dict[str, str]) -> Finding:
    files = ", ".join(bases.values())
    return Finding(
        ID,
        HOST,
        FAIL,
        f"the RDMA modules are from two trees: {files}",
        "reinstall or remove the out-of-tree stack, then: depmod -a; dracut -f",
    )


def _foreign_bases(
    view: View, stack: str, foreign: dict[str, str], rpcrdma: Optional[str]
) -> Finding:
    base = next(iter(foreign.values()))
    if rpcrdma is None:
        if is_available(view.facts.modules, NFS_MODULE) is not False:
            sentence = f"the RDMA modules are from {stack} ({base}), and the origin of"
            fix = "modinfo -n rpcrdma should show a file of the same tree"
            return Finding(ID, HOST, WARN, f"{sentence} rpcrdma is unknown", fix)
        sentence = f"the RDMA modules are from {stack} ({base}), and rpcrdma is missing"
        return Finding(ID, HOST, _bad(view), sentence, _INSTALL)
    if is_of_the_kernel(rpcrdma):
        return Finding(ID, HOST, _bad(view), mismatch(view.facts.modules), _INSTALL)
    sentence = f"the RDMA modules and rpcrdma are from {stack} ({base}, {rpcrdma})"
    return Finding(ID, HOST, PASS, sentence)


def _names(stacks: tuple[RdmaStack, ...]) -> str:
    """Return ``MLNX_OFED 5.8`` or ``an out-of-tree stack``."""
    named = [f"{s.name} {s.version}" if s.version else s.name for s in stacks]
    return " and ".join(named) or "an out-of-tree stack"


def _evidence(stacks: tuple[RdmaStack, ...]) -> str:
    return "; ".join(s.evidence for s in stacks if s.evidence) or "no details"


RULE = Rule(ID, decide)

RULES = (RULE,)
