# SPDX-License-Identifier: GPL-2.0-or-later
"""KERNEL-01: check the configuration of the running kernel. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ovirt_rdma.host.facts.ipoib import CONNECTED
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.module_loading import is_available
from ovirt_rdma.host.rules.rdma_stack import wants_nfs_over_rdma
from ovirt_rdma.host.rules.view import View

ID = "KERNEL-01"
_OFF = "n"


@dataclass(frozen=True)
class _Need:
    """A symbol, the module that it builds (empty: part of another module), the effect
    if it is missing, and the verdict then.
    """

    symbol: str
    module: str
    effect: str
    verdict: str


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each symbol that is off, or one if all are on."""
    config = view.facts.software.kernel_config
    if config is None:
        yield Finding(
            ID,
            HOST,
            SKIP,
            "no configuration of the running kernel was found",
            "provide one of /boot/config-RELEASE, /lib/modules/RELEASE/config and "
            "/proc/config.gz",
        )
        return
    # A symbol that is not in the configuration counts as not set.
    values = {option.name: option.value for option in config}
    needs = list(_needs(view))
    if not needs:
        yield Finding(ID, HOST, SKIP, "nothing on this host needs RDMA in the kernel")
        return
    missing = [
        need
        for need in needs
        if values.get(need.symbol, _OFF) == _OFF and not _from_elsewhere(view, need)
    ]
    for need in missing:
        yield Finding(
            ID,
            need.symbol,
            need.verdict,
            f"this kernel is built without {need.symbol}: {need.effect}",
            "use the distribution's kernel, or one built with "
            f"CONFIG_{need.symbol}=m (y if it is not a module)",
        )
    if not missing:
        text = ", ".join(need.symbol for need in needs)
        yield Finding(ID, HOST, PASS, f"this kernel has {text}")


def _needs(view: View) -> Iterator[_Need]:
    facts = view.facts
    nfs = wants_nfs_over_rdma(view)
    if facts.rdma_devices or facts.adapters or nfs:
        verdict = FAIL if nfs else WARN
        yield _Need("INFINIBAND", "ib_core", "no RDMA at all", FAIL)
        yield _Need("SUNRPC_XPRT_RDMA", "rpcrdma", "no NFS over RDMA", verdict)
        yield _Need(
            "INFINIBAND_USER_ACCESS",
            "ib_uverbs",
            "no RDMA for programs such as the readiness check and rping",
            WARN,
        )
    if any(p.is_infiniband for d in facts.rdma_devices for p in d.ports):
        yield _Need("INFINIBAND_IPOIB", "ib_ipoib", "no IP over InfiniBand", FAIL)
        wanted = any(
            rule.transport_mode == CONNECTED for rule in view.policy.host.interfaces
        )
        yield _Need(
            "INFINIBAND_IPOIB_CM",
            "",
            "no connected mode for IPoIB",
            FAIL if wanted else WARN,
        )


def _from_elsewhere(view: View, need: _Need) -> bool:
    """Whether an out-of-tree build provides the module that the kernel lacks."""
    if not need.module:
        return False
    return is_available(view.facts.modules, need.module) is True


RULE = Rule(ID, decide)

RULES = (RULE,)
