# SPDX-License-Identifier: GPL-2.0-or-later
"""LOCALITY-01: NUMA node, interrupts and CPU governor of adapters: a report. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.devices import Adapter
from ovirt_rdma.host.rules.base import HOST, PASS, SKIP, Finding, Rule, no_device
from ovirt_rdma.host.rules.view import View

ID = "LOCALITY-01"
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each PCI function with an RDMA device. None is bad."""
    tuning = view.facts.tuning
    devices = {d.pci.address for d in view.facts.rdma_devices if d.pci}
    adapters = [
        adapter
        for adapter in view.facts.adapters
        if adapter.pci.address in devices and not adapter.physical_function
    ]
    if not view.facts.rdma_devices:
        yield no_device(ID)
    elif tuning is None or not adapters:
        sentence = "nothing is known about processors, interrupts or NUMA nodes"
        yield Finding(ID, HOST, SKIP, sentence)
    else:
        for adapter in adapters:
            parts = [_node(adapter, tuning.numa_nodes), *_interrupts(adapter)]
            if tuning.governors:
                parts.append(f"governor {' and '.join(tuning.governors)}")
            sentence = "; ".join(part for part in parts if part)
            verdict = PASS if sentence else SKIP
            sentence = sentence or "the kernel shows neither node nor interrupts"
            yield Finding(ID, adapter.pci.address, verdict, sentence)


def _node(adapter: Adapter, nodes: Optional[int]) -> str:
    if adapter.numa_node is None or not nodes:
        return ""
    if nodes == 1:
        return "the only NUMA node"
    near = f" (CPUs {adapter.local_cpus})" if adapter.local_cpus else ""
    return f"NUMA node {adapter.numa_node} of {nodes}{near}"


def _interrupts(adapter: Adapter) -> Iterator[str]:
    total = sum(one.interrupts for one in adapter.interrupts)
    if not total:
        return
    far = 0
    if adapter.local_cpus:
        near = cpus_of(adapter.local_cpus)
        far = sum(
            one.interrupts
            for one in adapter.interrupts
            if not cpus_of(one.cpus) <= near
        )
    yield f"{total} interrupts on {len(adapter.interrupts)} sets of CPUs"
    if far:
        yield f"{far} of them on CPUs of other nodes"


def cpus_of(text: str) -> frozenset[int]:
    """Return the numbers of a list such as ``0-3,8``; other parts are left out."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match:
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


RULE = Rule(ID, decide)

RULES = (RULE,)
