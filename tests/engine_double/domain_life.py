# SPDX-License-Identifier: GPL-2.0-or-later
"""Move domains to their next status, with the effects on hosts.

Each behaviour below names its source in the engine.
"""

from __future__ import annotations

from typing import Any, Optional

from engine_double.behaviours import behaviour
from engine_double.host_life import set_non_operational
from engine_double.mounts import MountFailure, connect_domains, disconnect
from engine_double.spm import choose_spm
from engine_double.world import SimDomain, World

_ACTIVATE = "bll/storage/domain/ActivateStorageDomainCommand.java"
_REFRESH = "bll/storage/pool/RefreshPoolSingleAsyncOperation.java"
MASTER_ONLY = behaviour(
    "DOMAIN-01",
    "A host that cannot mount a domain that is attached or activated becomes "
    "non_operational at once only where that is the master; else it stays up.",
    f"{_REFRESH}:55-88",
    f"{_ACTIVATE}:170-193",
)
MONITORED = behaviour(
    "DOMAIN-02",
    "A host that is up and does not see an active data domain becomes non_operational "
    "after 5 minutes, with event 522 and a correlation id of the engine's own; a "
    "domain that no host sees becomes inactive.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:1544-1553",
    "vdsbroker/irsbroker/IrsProxyImpl.java:1716-1770",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:645",
)
_SD = "bll/storage/domain"
_DEACTIVATE = f"{_SD}/DeactivateStorageDomainCommand.java"
_WITH_UPDATE = f"{_SD}/DeactivateStorageDomainWithOvfUpdateCommand.java"
TWO_STEPS = behaviour(
    "ATTACH-04",
    "A domain that is deactivated is shown as locked for its OVF update, and as "
    "preparing_for_maintenance until no host uses it.",
    f"{_WITH_UPDATE}:76-87",
    f"{_DEACTIVATE}:311-320",
    "vdsbroker/irsbroker/IrsProxyImpl.java:427-448",
)
OVF_COUNTS = behaviour(
    "ATTACH-05",
    "Where the OVF update fails, the deactivation has failed, with event 969, unless "
    "it was forced.",
    f"{_WITH_UPDATE}:171-188",
)
HANDED_OVER = behaviour(
    "ATTACH-06",
    "Where the master is deactivated, another data domain becomes the master.",
    f"{_DEACTIVATE}:322-332",
)
LAST_MASTER = behaviour(
    "ATTACH-07",
    "With the last master its data center goes to maintenance, and the mount on the "
    "SPM host stays.",
    f"{_DEACTIVATE}:353-363",
    f"{_DEACTIVATE}:410-412",
)
NO_ID = behaviour(
    "ATTACH-08",
    "Event 1029, that a domain is in maintenance, has no correlation id; of the last "
    "master it is not written.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:448-453",
    f"{_DEACTIVATE}:415-424",
)
UNKNOWN = behaviour(
    "ATTACH-09",
    "When the engine restarts during the OVF update, the domain is unknown, with event "
    "1009, until its hosts have reported it.",
    f"{_WITH_UPDATE}:81",
    f"{_WITH_UPDATE}:171-174",
)
MASTER_LOCKED = behaviour(
    "ATTACH-10",
    "A master that is activated is shown as locked, another domain as activating.",
    f"{_ACTIVATE}:106-109",
)
SYNCHRONOUS = behaviour(
    "ATTACH-14",
    "The activation of a domain is answered when it is active; only other clients see "
    "it locked or activating meanwhile, as while it is attached.",
    f"{_ACTIVATE}:106-144",
    f"{_SD}/AttachStorageDomainToPoolCommand.java:219-224",
    "restapi/resource/BackendResource.java:178-192",
)


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
    """Mount on every Up host; return the failures by host id."""
    failures = {}
    for host in world.hosts_of(data_center):
        if host.status == "up":
            failed = connect_domains(world, host, [domain], correlation_id)
            if failed:
                failures[host.id] = failed[domain.id]
    return failures


def show(world: World, domain: SimDomain, status: str) -> None:
    """Show ``status`` to other clients while the client of the request waits."""
    world.transitions.stop(domain.id)
    domain.status = status
    if world.does(SYNCHRONOUS):
        world.let_others_look(domain.id)


def end_activation(
    world: World,
    domain: SimDomain,
    failures: dict[str, MountFailure],
    correlation_id: Optional[str],
    *,
    at_once: bool,
) -> None:
    """Make it active; for a master, hosts with ``failures`` go non-operational."""

    def active() -> None:
        domain.status = "active"
        centre = world.data_centers[domain.data_center or ""]
        if domain.master:
            centre.status = "up"
            choose_spm(world, centre.id)
        record(world, 966, "normal", domain, "was activated", correlation_id)
        if domain.master or not world.does(MASTER_ONLY):
            about = {"correlation_id": correlation_id, "domain": domain.id}
            for name in failures:
                _goes_down(world, name, domain, about)

    if at_once:
        active()
    else:
        world.transitions.begin(domain.id, active)


def _goes_down(
    world: World, host_id: str, domain: SimDomain, about: dict[str, Any]
) -> None:
    host = world.hosts[host_id]
    # Connect failures of these two are ignored:
    # bll/storage/pool/ConnectHostToStoragePoolServersCommand.java:97-98.
    if domain.type not in ("iso", "export") and host.status == "up":
        set_non_operational(world, host, domain.name, about)


def monitoring_times_out(world: World) -> None:
    """Do what the engine does StorageDomainFailureTimeoutInMinutes after a host that is
    up has lost a domain.
    """
    if not world.does(MONITORED):
        return
    for domain in world.domains.values():
        row = world.connections.get(domain.connection or "")
        if domain.status != "active" or domain.type in ("iso", "export") or not row:
            continue
        up = [h for h in world.hosts_of(domain.data_center) if h.status == "up"]
        blind = [h for h in up if row.export not in h.mounts and not h.connecting]
        about = {"correlation_id": world.own_correlation_id(), "domain": domain.id}
        if blind and len(blind) == len(up) and not domain.master:
            domain.status = "inactive"
            said = "was not seen by any host, and is inactive"
            record(world, 970, "warning", domain, said, about["correlation_id"])
            continue
        for host in blind:
            _goes_down(world, host.id, domain, about)


def begin_deactivation(
    world: World, domain: SimDomain, forced: bool, correlation_id: Optional[str]
) -> None:
    """Lock it for the OVF update and until no host uses it, then maintenance."""
    previous = domain.status
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    domain.status = "locked"
    domain.ovf_update_runs = True

    def prepare() -> None:
        domain.ovf_update_runs = False
        if domain.ovf_update_fails and not forced and world.does(OVF_COUNTS):
            domain.status = previous
            world.transitions.stop(domain.id)
            said = "was not deactivated"
            record(world, 969, "error", domain, said, correlation_id)
            return
        domain.status = "preparing_for_maintenance"
        record(world, 968, "normal", domain, "is being deactivated", correlation_id)
        if domain.master and world.does(HANDED_OVER):
            for other in others:
                if other.type == "data" and other.status == "active":
                    domain.master, other.master = False, True
                    break
        if not world.does(TWO_STEPS):
            finish()

    def finish() -> None:
        last_master = domain.master and world.does(LAST_MASTER)
        for host in world.hosts_of(domain.data_center):
            # The explicit disconnect of the SPM host is left out for the last master.
            if not (last_master and host.spm):
                disconnect(world, host, domain.connection)
        domain.status = "maintenance"
        world.transitions.stop(domain.id)
        if last_master:
            world.data_centers[domain.data_center or ""].status = "maintenance"
            for host in world.hosts_of(domain.data_center):
                host.spm = False
        said = "is in maintenance: no host uses it any more"
        if not world.does(NO_ID):
            record(world, 1029, "normal", domain, said, correlation_id)
        elif not last_master:
            record(world, 1029, "normal", domain, said, None)

    world.transitions.begin(domain.id, prepare, finish)


def lose_ovf_updates(world: World) -> None:
    """Record event 1009 for domains that were being deactivated at a restart."""
    for domain in world.domains.values():
        if domain.ovf_update_runs:
            domain.ovf_update_runs = False
            _shown_as_unknown(world, domain)
            said = "was not deactivated: the engine restarted meanwhile"
            record(world, 1009, "warning", domain, said, None)


def _shown_as_unknown(world: World, domain: SimDomain) -> None:
    """Wait until its hosts have reported the domain, which makes it active."""

    def seen() -> None:
        domain.status = "active"

    if world.does(UNKNOWN):
        domain.status = "unknown"
        world.transitions.begin(domain.id, seen)
    else:
        seen()
        world.transitions.stop(domain.id)
