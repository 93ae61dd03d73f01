# SPDX-License-Identifier: GPL-2.0-or-later
"""How a domain's status goes on, and what becomes of the hosts on the way.

Facts/engine.md, sections 1.4 and 1.5.
"""

from __future__ import annotations

from typing import Optional

from engine_double.mounts import MountFailure, connect_domains, disconnect
from engine_double.world import SimDomain, World


def record(
    world: World,
    code: int,
    severity: str,
    domain: SimDomain,
    said: str,
    correlation_id: Optional[str],
) -> None:
    """Write an event about a domain and its data center."""
    centre = world.data_centers.get(domain.data_center or "")
    text = f"Storage Domain {domain.name} ({centre.name if centre else '-'}) {said}."
    world.log.record(
        code,
        severity,
        text,
        correlation_id=correlation_id,
        domain=domain.id,
        data_center=domain.data_center,
    )


def connect_up_hosts(
    world: World,
    domain: SimDomain,
    data_center: Optional[str],
    correlation_id: Optional[str],
) -> dict[str, MountFailure]:
    """Mount on every Up host; gives the failures by host id."""
    failures = {}
    for host in world.hosts_of(data_center):
        if host.status == "up":
            failed = connect_domains(world, host, [domain], correlation_id)
            if failed:
                failures[host.id] = failed[domain.id]
    return failures


def begin_activation(
    world: World,
    domain: SimDomain,
    first: str,
    failures: dict[str, MountFailure],
    correlation_id: Optional[str],
) -> None:
    """Show the status ``first``, then active; the hosts of ``failures`` go down."""
    domain.status = first

    def active() -> None:
        domain.status = "active"
        centre = world.data_centers[domain.data_center or ""]
        if domain.master:
            centre.status = "up"
            if world.spm_of(centre.id) is None:
                up = [h for h in world.hosts_of(centre.id) if h.status == "up"]
                for host in up[:1]:
                    host.spm = True
        record(world, 966, "normal", domain, "was activated", correlation_id)
        for name in failures:
            set_non_operational(world, name, [domain], correlation_id)

    world.transitions.begin(domain.id, active)


def begin_deactivation(
    world: World, domain: SimDomain, forced: bool, correlation_id: Optional[str]
) -> None:
    """Locked for the OVF update, then until no host uses it, then maintenance."""
    previous = domain.status
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    domain.status = "locked"
    domain.ovf_update_runs = True

    def prepare() -> None:
        domain.ovf_update_runs = False
        if domain.ovf_update_fails and not forced:
            domain.status = previous
            world.transitions.stop(domain.id)
            said = "was not deactivated"
            record(world, 969, "error", domain, said, correlation_id)
            return
        domain.status = "preparing_for_maintenance"
        record(world, 968, "normal", domain, "is being deactivated", correlation_id)
        if domain.master:
            for other in others:
                if other.type == "data" and other.status == "active":
                    domain.master, other.master = False, True
                    break

    def finish() -> None:
        last_master = domain.master
        for host in world.hosts_of(domain.data_center):
            # The explicit disconnect of the SPM host is left out for the last
            # master, so its mount stays: section 1.5, flow A.
            if not (last_master and host.spm):
                disconnect(world, host, domain.connection)
        domain.status = "maintenance"
        if last_master:
            world.data_centers[domain.data_center or ""].status = "maintenance"
            for host in world.hosts_of(domain.data_center):
                host.spm = False
        said = "is in maintenance: no host uses it any more"
        record(world, 1029, "normal", domain, said, correlation_id)

    world.transitions.begin(domain.id, prepare, finish)


def lose_ovf_updates(world: World) -> None:
    """The engine restarts: what was being deactivated is active again (event 1009)."""
    for domain in world.domains.values():
        if domain.ovf_update_runs:
            domain.ovf_update_runs = False
            domain.status = "active"
            world.transitions.stop(domain.id)
            said = "was not deactivated: the engine restarted meanwhile"
            record(world, 1009, "warning", domain, said, None)


def set_non_operational(
    world: World, host_id: str, domains: list[SimDomain], correlation_id: Optional[str]
) -> None:
    """A host that does not see an active domain: event 522."""
    host = world.hosts[host_id]
    # Connect failures of these two are ignored: section 1.5.
    seen = [d for d in domains if d.type not in ("iso", "export")]
    if not seen or host.status == "non_operational":
        return
    host.status = "non_operational"
    world.transitions.stop(host.id)
    give_up_spm(world, host_id)
    names = ", ".join(d.name for d in seen)
    world.log.record(
        522,
        "warning",
        f"Host {host.name} does not see the Storage Domain(s) {names} of its data "
        "center and becomes Non-Operational.",
        correlation_id=correlation_id,
        host=host.id,
        domain=seen[0].id,
    )


def give_up_spm(world: World, host_id: str) -> None:
    """Another Up host of the data center becomes SPM, where there is one."""
    host = world.hosts[host_id]
    if not host.spm:
        return
    host.spm = False
    for other in world.hosts_of(world.data_center_of(host)):
        if other.status == "up" and other is not host:
            other.spm = True
            return
