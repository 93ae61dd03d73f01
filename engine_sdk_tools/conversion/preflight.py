# SPDX-License-Identifier: GPL-2.0-or-later
"""What is against a conversion before it begins: every offender. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    Domain,
    Engine,
    Host,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.policy.model import REQUIRE_RDMA
from ovirt_rdma.storage.mount_options import engine_problems

_HOSTED_ENGINE = (
    "by hand: on every hosted-engine host 'hosted-engine --set-shared-config "
    "mnt_options proto=rdma,port=20049 --type=he_local', on one of them also with "
    "--type=he_shared; the same options in the engine's storage connection (PUT with "
    "force=true); then host by host, that with the engine's virtual machine last: "
    "global maintenance, move the machine away, reboot"
)


@dataclass(frozen=True)
class ConversionRequest:
    """What the operator wants. ``by_row``: with the engine's options alone, without
    the add-on on the hosts. ``rule`` is the transport of the policies' rule.
    ``allow_datacenter_down``: offline also where no other domain can be the master,
    rolling also where only one host is up. ``without`` are the names of hosts that are
    left as they are.
    """

    to: str
    rolling: bool = False
    by_row: bool = False
    batch: int = 1
    rule: str = REQUIRE_RDMA
    allow_datacenter_down: bool = False
    without: tuple[str, ...] = ()


def refusals(
    engine: Engine, domains: Sequence[Domain], request: ConversionRequest
) -> Iterator[tuple[str, str]]:
    """Yield why a domain cannot be converted so at all, and what to do instead."""
    for domain in domains:
        if domain.hosted_engine:
            yield (
                f"{domain.name} is the hosted engine's domain: its agent mounts it "
                "before the engine runs, and the engine never lets go of it",
                _HOSTED_ENGINE,
            )
        elif domain.storage_type != "nfs" or domain.connection is None:
            yield (
                f"{domain.name} is of type {domain.storage_type}, not nfs: "
                "ovirt-rdma changes NFS domains only, and the engine does not change "
                "a domain's type",
                "create an NFS domain and move the disks to it",
            )
        elif domain.data_center is None:
            yield (
                f"{domain.name} is attached to no data center: no host mounts it",
                "attach it first, or create it anew with 'ovirt-rdma domain create'",
            )
        others = {d.data_center for d in engine.domains if d.id == domain.id}
        if domain.data_center and others - {domain.data_center, None}:
            yield (
                f"{domain.name} is attached to {len(others)} data centers, which share "
                "its one storage connection",
                "detach it from the others first",
            )
    centers = {d.data_center for d in domains if d.data_center}
    if len(centers) > 1:
        yield "the domains are in several data centers", "convert them one by one"
    if not request.rolling and len(centers) == 1 and not request.allow_datacenter_down:
        names = _last_ones(engine, domains)
        if names:
            yield (
                f"no other data domain than {names} is active: its maintenance takes "
                "the whole data center down",
                "use --rolling, or --allow-datacenter-down",
            )


def check_kinds(
    engine: Engine, domains: Sequence[Domain], request: ConversionRequest
) -> None:
    """Raise Refused with all of :func:`refusals`."""
    against = list(refusals(engine, domains, request))
    if against:
        fixes = dict.fromkeys(fix for _, fix in against)
        raise Refused([sentence for sentence, _ in against], "; ".join(fixes))


def _last_ones(engine: Engine, domains: Sequence[Domain]) -> str:
    going = {d.id for d in domains}
    (center,) = {d.data_center for d in domains if d.data_center}
    active = [
        d
        for d in engine.domains
        if d.data_center == center and d.type == "data" and d.status == "active"
    ]
    masters = [d for d in domains if d.master and d.status == "active"]
    others = [d for d in active if d.id not in going]
    if others or not masters:
        return ""
    return ", ".join(d.name for d in active)


def domain_offenders(
    domain: Domain, request: ConversionRequest, options: str, users: Sequence[str]
) -> Iterator[str]:
    """Yield what is against the domain's state; ``users`` are virtual machines that
    run on it.
    """
    status = domain.status
    if request.rolling and status != "active":
        yield (
            f"{domain.name} is {status_words(status)}: a rolling conversion needs it "
            "active; in maintenance it can be converted without --rolling"
        )
    elif status not in ("active", "maintenance"):
        yield (
            f"{domain.name} is {status_words(status)}; it has to be active or in "
            "maintenance"
        )
    if not request.rolling and status == "active" and users:
        yield (
            f"{domain.name} is used by running virtual machines: {', '.join(users)}; "
            "stop them, move their disks, or use --rolling"
        )
    for problem in engine_problems(options):
        yield f"{domain.name}: {problem}"


def fleet_offenders(
    hosts: Sequence[Host],
    request: ConversionRequest,
    clusters: Sequence[Cluster] = (),
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
) -> Iterator[str]:
    """Yield what is against it on the hosts together. ``clusters`` are theirs;
    ``pinned`` are the names of running virtual machines that may not leave their host,
    by the host's id.
    """
    yield from without_offenders(hosts, request)
    if not request.rolling:
        return
    up = [host for host in hosts if host.status == "up"]
    going = [host for host in up if host.name not in request.without]
    if not going:
        yield "no host of the data center is up" + " besides" * bool(up)
    yield from upgrade_offenders(clusters, going)
    yield from pinned_offenders(going, pinned or {})
    yield from evacuation_offenders(up, going, request.batch)
    if len(up) == 1 and going and not up[0].vms and not request.allow_datacenter_down:
        yield (
            f"{only_one(up[0])}; use --allow-datacenter-down if that may be, or leave "
            "out --rolling"
        )


def without_offenders(
    hosts: Sequence[Host], request: ConversionRequest
) -> Iterator[str]:
    """Yield which of the hosts to be left out cannot be."""
    known = {host.name: host for host in hosts}
    for name in request.without:
        if name not in known:
            yield f"there is no host {name} in the data center to go without"
        elif not request.rolling and known[name].status == "up":
            yield (
                f"{name} is up, and mounts the domain with the other hosts: without "
                "--rolling, only hosts that are not up can be left out"
            )


def upgrade_offenders(
    clusters: Sequence[Cluster], going: Sequence[Host]
) -> Iterator[str]:
    """Yield the clusters of hosts that go through maintenance which are being upgraded:
    two programs would take hosts away at once.
    """
    mine = {host.cluster for host in going}
    for cluster in clusters:
        if cluster.id in mine and cluster.upgrade_in_progress:
            yield (
                f"cluster {cluster.name} is being upgraded, which moves its hosts to "
                "maintenance too; wait until that has ended (if none is under way, "
                "end it: POST /ovirt-engine/api/clusters/"
                f"{cluster.id}/upgrade with upgrade_action finish)"
            )


def pinned_offenders(
    going: Sequence[Host], pinned: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the hosts that cannot go to maintenance for virtual machines which may not
    leave them (MaintenanceNumberOfVdssCommand.java:335: MigrationSupport).
    """
    for host in going:
        names = pinned.get(host.id, ())
        if names:
            yield (
                f"{host.name} has running virtual machines that are pinned to it: "
                f"{', '.join(names)}; stop them, or leave the host out (--without "
                f"{host.name})"
            )


def only_one(host: Host) -> str:
    """Say what it means that no other host is up."""
    return (
        f"{host.name} is the only host that is up: the data center is without "
        "storage while it is in maintenance"
    )


def evacuation_offenders(
    up: Sequence[Host], going: Sequence[Host], batch: int
) -> Iterator[str]:
    """Yield where virtual machines have nowhere to go, while hosts of ``going`` are in
    maintenance, ``batch`` at a time: they stay in their cluster. The SPM goes alone.
    """
    for cluster in dict.fromkeys(host.cluster for host in going):
        inside = [host for host in up if host.cluster == cluster]
        mine = [host for host in going if host.cluster == cluster]
        machines = sum(host.vms for host in mine)
        together = [host for host in mine if host.spm != "spm"] or mine
        if not machines:
            continue
        if len(inside) == 1:
            yield (
                f"{mine[0].name} is the only host of its cluster that is up, and its "
                f"{machines} virtual machines have nowhere to go"
            )
        elif min(batch, len(together)) >= len(inside):
            yield (
                f"--batch {batch} takes {', '.join(h.name for h in inside)} at once, "
                "all of their cluster that are up, and their "
                f"{machines} virtual machines have nowhere to go"
            )


def warnings(
    hosts: Sequence[Host],
    mute: Sequence[str],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[str]:
    """Yield what the operator should know before saying yes. Hosts that are ``mute``
    gave no facts.
    """
    if request.by_row and request.rolling:
        yield (
            "the engine's options are changed first: a host that reboots or is "
            "activated before its turn meets options that it may not be ready for, and "
            "becomes non-operational then"
        )
    blind = [h.name for h in hosts if h.status == "up" and h.name in mute]
    blind = [name for name in blind if name not in request.without]
    if blind:
        yield f"nothing can be proven on {', '.join(blind)}: no facts from there"
    out = [h for h in hosts if h.name in request.without]
    away = [h.name for h in hosts if h.status != "up" and h not in out]
    if away:
        yield (
            f"not up: {', '.join(away)}; they stay so, and are proven only when they "
            "come up (ovirt-rdma domain verify)"
        )
    for host in out:
        yield (
            f"{host.name} is left out and was not checked: when it is activated, it "
            f"mounts by its own policy, or else by the engine's options, over "
            f"{request.to.upper()}; then run this command again for it"
        )
    up = [h for h in hosts if h.status == "up"]
    if request.rolling and len(up) == 1:
        yield only_one(up[0])
    for domain in domains:
        if domain.type in ("iso", "export"):
            yield (
                f"{domain.name} is of type {domain.type}: the engine does not report a "
                "host that fails to mount it later"
            )
