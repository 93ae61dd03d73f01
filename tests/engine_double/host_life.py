# SPDX-License-Identifier: GPL-2.0-or-later
"""How a host's status goes on: into maintenance, up again, and through a reboot.

Facts/engine.md, sections 1.4, 2.5 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from engine_double.domain_life import give_up_spm, set_non_operational
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect_domains, disconnect_all
from engine_double.world import SimDomain, World

# What a host that comes up is held to, with (world, host, correlation id): gives the
# sentence for which it becomes non_operational, or "". Networks and features enter
# theirs.
ON_UP: list[Callable[[World, SimHost, Optional[str]], str]] = []
# Called when a host lost what was not saved.
ON_REBOOT: list[Callable[[World, SimHost], None]] = []


def begin_maintenance(
    world: World, host: SimHost, reason: str, correlation_id: Optional[str]
) -> None:
    about: dict[str, Any] = {"correlation_id": correlation_id, "host": host.id}
    was = host.status
    host.status = "preparing_for_maintenance"
    text = f"Host {host.name} is being switched to Maintenance mode"
    if reason:
        world.log.record(600, "normal", f"{text} (Reason: {reason}).", **about)
    else:
        world.log.record(620, "normal", f"{text}.", **about)
    migrated = [name for name in host.vms if name not in host.stuck_vms]

    def finish() -> None:
        others = [
            other
            for other in world.hosts.values()
            if other.cluster == host.cluster
            and other is not host
            and other.status == "up"
        ]
        for number, name in enumerate(migrated if others else []):
            if name in host.vms:
                host.vms.remove(name)
                others[number % len(others)].vms.append(name)
        if host.vms:
            text = f"Host {host.name} stays: not all virtual machines went away."
            world.log.record(602, "warning", text, **about)
            # It stays in preparing_for_maintenance and is tried again.
            world.transitions.begin(host.id, finish)
            return
        host.status = "maintenance"
        give_up_spm(world, host.id)
        if was != "down" and host.reachable:
            disconnect_all(world, host)
        text = f"Host {host.name} was switched to Maintenance mode."
        world.log.record(15, "normal", text, **about)

    world.transitions.begin(host.id, finish)


def begin_activation(
    world: World, host: SimHost, correlation_id: Optional[str]
) -> None:
    text = f"Activation of host {host.name} was initiated."
    world.log.record(16, "normal", text, correlation_id=correlation_id, host=host.id)
    host.status = "unassigned"
    world.transitions.begin(host.id, *_coming_up(world, host, correlation_id))


def _coming_up(
    world: World, host: SimHost, correlation_id: Optional[str]
) -> list[Callable[[], None]]:
    def initialize() -> None:
        if not host.reachable:
            host.status = "non_responsive"
            world.transitions.stop(host.id)
            return
        # Features are taken over only while the host is not Up: section 4.
        host.features = set(host.reported_features)
        host.status = "initializing"
        if not complies(world, host, correlation_id):
            world.transitions.stop(host.id)

    def up() -> None:
        domains = _to_connect(world, host)
        failed = connect_domains(world, host, domains, correlation_id)
        missed = [d for d in domains if d.id in failed and d.status == "active"]
        host.status = "up"
        set_non_operational(world, host.id, missed, correlation_id)
        if host.status != "up":
            return
        centre = world.data_center_of(host)
        if world.spm_of(centre) is None and world.data_centers[centre].status == "up":
            host.spm = True
        world.log.record(
            13,
            "normal",
            f"Status of host {host.name} was set to Up.",
            correlation_id=correlation_id,
            host=host.id,
        )

    return [initialize, up]


def complies(world: World, host: SimHost, correlation_id: Optional[str]) -> bool:
    """Hold a host to what its cluster wants; False: it is non_operational now."""
    for check in ON_UP:
        if check(world, host, correlation_id):
            host.status = "non_operational"
            give_up_spm(world, host.id)
            return False
    return True


def recover(world: World) -> None:
    """Activate what is non_operational, as AutoRecoveryManager does time and again."""
    with world.lock:
        for host in world.hosts.values():
            if host.status == "non_operational":
                begin_activation(world, host, None)


def _to_connect(world: World, host: SimHost) -> list[SimDomain]:
    centre = world.data_centers[world.data_center_of(host)]
    # InitVdsOnUpCommand.java: of such a data center nothing is connected.
    if centre.status in ("uninitialized", "maintenance"):
        return []
    connected = ("active", "unknown", "inactive")
    return [d for d in world.domains_of(centre.id) if d.status in connected]


def reboot(world: World, host: SimHost) -> None:
    """The host restarts by itself: VMs, mounts and what was not saved are gone.

    A host that was in maintenance comes back to it; another goes through
    non_responsive to up, mounting everything anew.
    """
    with world.lock:
        host.mounts.clear()
        host.vms.clear()
        for lose in ON_REBOOT:
            lose(world, host)
        if host.status in ("maintenance", "preparing_for_maintenance"):
            return
        host.status = "non_responsive"
        give_up_spm(world, host.id)

        def back() -> None:
            host.status = "unassigned"

        stages = _coming_up(world, host, None)
        world.transitions.begin(host.id, back, *stages)
