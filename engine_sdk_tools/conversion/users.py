# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a domain that is to go down: what the engine can be asked beforehand.

Leases, inserted CDs, image transfers and tasks it tells only by refusing the
deactivation; that ends the conversion with its words, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ovirt_rdma.engine_sdk_tools.call import Read
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain


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


def _runs(vm: Any) -> bool:
    # A word that the SDK does not know is no "down".
    return vm.status is None or vm.status.value != "down"
