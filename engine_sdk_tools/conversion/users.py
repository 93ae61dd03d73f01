# SPDX-License-Identifier: GPL-2.0-or-later
"""Which virtual machines are in the way: what the engine can be asked beforehand.

Leases, inserted CDs, image transfers and tasks it tells only by refusing the
deactivation; that ends the conversion with its words, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ovirt_rdma.engine_sdk_tools.call import Read
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Host


class ReadsMany(Protocol):
    """What asking needs of a session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """See Session."""


def running_on(session: ReadsMany, domains: Sequence[Domain]) -> dict[str, list[str]]:
    """Return the names of running virtual machines with a disk on each domain."""
    reads = [
        Read(
            f"storagedomains/{domain.id}/vms",
            f"reading the virtual machines of {domain.name}",
        )
        for domain in domains
    ]
    found = {}
    for domain, vms in zip(domains, session.read_all(reads)):
        running = [] if isinstance(vms, Exception) else list(vms or ())
        found[domain.name] = [vm.name for vm in running if _runs(vm)]
    return found


def pinned_on(session: ReadsMany, hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Return the names of running virtual machines that may not leave their host, by
    the host's id. Passthrough devices pin a machine too, and the engine shows it so.
    """
    if not any(host.vms for host in hosts):
        return {}
    # A search that the engine does not understand gives an empty list, not an error.
    words = {"search": "status!=down"}
    read = Read("vms", "reading the running virtual machines", words=words)
    ids = {host.id for host in hosts}
    found: dict[str, list[str]] = {}
    for vm in session.read_all([read])[0]:
        policy = vm.placement_policy
        affinity = policy.affinity.value if policy and policy.affinity else None
        if affinity == "pinned" and vm.host is not None and vm.host.id in ids:
            found.setdefault(vm.host.id, []).append(vm.name)
    return found


def _runs(vm: Any) -> bool:
    # A word that the SDK does not know is no "down".
    return vm.status is None or vm.status.value != "down"
