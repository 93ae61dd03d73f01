# SPDX-License-Identifier: GPL-2.0-or-later
"""Check engine, domains and hosts before a conversion; yield every objection. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    Domain,
    Engine,
    Host,
    domain_status,
)
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import engine_problems
from ovirt_rdma.host.policy.model import REQUIRE_RDMA

_HOSTED_ENGINE = (
    "convert it manually: run 'hosted-engine --set-shared-config mnt_options "
    "proto=rdma,port=20049 --type=he_local' on every hosted-engine host, and on one of "
    "them also with --type=he_shared; set the same options in the engine's storage "
    "connection (PUT with force=true); then, host by host, the one with the engine's "
    "virtual machine last: enable global maintenance, migrate that machine away, "
    "reboot the host"
)


@dataclass(frozen=True)
class ConversionRequest:
    """The operator's request.

    - ``by_row``: use the engine's mount options only, without the add-on on the hosts.
    - ``rule``: the transport in the rule of the policies.
    - ``allow_datacenter_down``: convert offline even if no other domain can be the
      master, and rolling even if only one host is up.
    - ``without``: names of hosts to leave unchanged.
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
) -> Iterator[tuple[Sentence, str]]:
    """Yield why a domain cannot be converted at all, with the fix."""
    for domain in domains:
        if domain.hosted_engine:
            yield (
                Sentence(
                    "domain-of-hosted-engine",
                    f"{domain.name} is the hosted engine's domain: its agent mounts it "
                    "before the engine starts, and the engine never unmounts it",
                ),
                _HOSTED_ENGINE,
            )
        elif domain.storage_type != "nfs" or domain.connection is None:
            yield (
                Sentence(
                    "domain-not-nfs",
                    f"{domain.name} is of type {domain.storage_type}, not nfs: "
                    "ovirt-rdma converts NFS domains only, and the engine cannot "
                    "change the type of a domain",
                ),
                "create an NFS domain and move the disks to it",
            )
        elif domain.data_center is None:
            yield (
                _not_attached(domain),
                "attach it first, or create a new one (domain create)",
            )
        centers_of_domain = {d.data_center for d in engine.domains if d.id == domain.id}
        if domain.data_center and centers_of_domain - {domain.data_center, None}:
            yield (
                Sentence(
                    "domain-in-several-data-centers",
                    f"{domain.name} is attached to {len(centers_of_domain)} data "
                    "centers, which share its storage connection",
                ),
                "detach it from the others first",
            )
    centers = {d.data_center for d in domains if d.data_center}
    if len(centers) > 1:
        yield (
            Sentence(
                "domains-of-several-data-centers",
                "the domains are in several data centers",
            ),
            "convert the domains of each data center separately",
        )
    if not request.rolling and len(centers) == 1 and not request.allow_datacenter_down:
        names = _last_active(engine, domains)
        if names:
            yield (
                Sentence(
                    "domain-last-active",
                    f"no data domain other than {names} is active: its maintenance "
                    "takes the whole data center down",
                ),
                "use --rolling, or --allow-datacenter-down",
            )


def check_domains(
    engine: Engine, domains: Sequence[Domain], request: ConversionRequest
) -> None:
    """Raise Refused with all of :func:`refusals`."""
    refused = list(refusals(engine, domains, request))
    if refused:
        fixes = dict.fromkeys(fix for _, fix in refused)
        raise Refused([sentence for sentence, _ in refused], "; ".join(fixes))


def data_center_of(domain: Domain) -> str:
    """Return the data center of a domain, by id. Raises Refused if it is in none."""
    if domain.data_center is None:
        raise Refused([_not_attached(domain)], "attach it first")
    return domain.data_center


def _not_attached(domain: Domain) -> Sentence:
    return Sentence(
        "domain-not-attached",
        f"{domain.name} is not attached to a data center, so no host mounts it",
    )


def _last_active(engine: Engine, domains: Sequence[Domain]) -> str:
    """Return the names of the active data domains if all of them go to maintenance."""
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
    engine: Engine,
    domain: Domain,
    request: ConversionRequest,
    options: str,
    users: Sequence[str],
) -> Iterator[Sentence]:
    """Yield objections to the domain's status, users and new mount ``options``.

    ``users`` are the running virtual machines with a disk on it.
    """
    status = domain.status
    if request.rolling and status != "active":
        yield Sentence(
            "domain-not-active",
            f"{domain.name} is {domain_status(engine, domain)}: for a rolling "
            "conversion it has to be active; in maintenance it can be converted "
            "without --rolling",
        )
    elif status not in ("active", "maintenance"):
        yield Sentence(
            "domain-not-active",
            f"{domain.name} is {domain_status(engine, domain)}; it has to be active or "
            "in maintenance",
        )
    if not request.rolling and status == "active" and users:
        yield Sentence(
            "domain-in-use",
            f"{domain.name} is in use by running virtual machines: "
            f"{', '.join(users)}; stop them, move their disks, or use --rolling",
        )
    for problem in engine_problems(options):
        yield Sentence("mount-options-refused", f"{domain.name}: {problem}")


def fleet_offenders(
    hosts: Sequence[Host],
    request: ConversionRequest,
    clusters: Sequence[Cluster] = (),
    pinned: Optional[Mapping[str, Sequence[str]]] = None,
) -> Iterator[Sentence]:
    """Yield objections to the hosts as a whole.

    ``clusters`` are those of the hosts; ``pinned`` are the names of running virtual
    machines that must not leave their host, by the host's id.
    """
    yield from without_offenders(hosts, request)
    if not request.rolling:
        return
    up = [host for host in hosts if host.status == "up"]
    going = [host for host in up if host.name not in request.without]
    if not going:
        other = "other " if up else ""
        yield Sentence("no-host-up", f"no {other}host of the data center is up")
    yield from upgrade_offenders(clusters, going)
    yield from pinned_offenders(going, pinned or {})
    yield from evacuation_offenders(up, going, request.batch)
    if len(up) == 1 and going and not up[0].vms and not request.allow_datacenter_down:
        yield Sentence(
            "host-only-one-up",
            f"{only_one(up[0])}; add --allow-datacenter-down if that is acceptable, or "
            "omit --rolling",
        )


def without_offenders(
    hosts: Sequence[Host], request: ConversionRequest
) -> Iterator[Sentence]:
    """Yield the hosts in ``without`` that cannot be left out."""
    known = {host.name: host for host in hosts}
    for name in request.without:
        if name not in known:
            yield Sentence(
                "host-unknown", f"--without {name}: the data center has no such host"
            )
        elif not request.rolling and known[name].status == "up":
            yield Sentence(
                "host-up-left-out",
                f"{name} is up and mounts the domain with the other hosts: without "
                "--rolling, only hosts that are not up can be left out",
            )


def upgrade_offenders(
    clusters: Sequence[Cluster], going: Sequence[Host]
) -> Iterator[Sentence]:
    """Yield the clusters of ``going`` that are being upgraded by others: two programs
    would move hosts to maintenance at the same time.
    """
    concerned = {host.cluster for host in going}
    for cluster in clusters:
        others = cluster.upgrade_in_progress and not cluster.is_ours
        if cluster.id in concerned and others:
            yield upgrade_running(cluster)


def upgrade_running(cluster: Cluster) -> Sentence:
    """Return the objection that another program upgrades ``cluster``."""
    return Sentence(
        "cluster-upgrade-running",
        f"cluster {cluster.name} is being upgraded, which also moves its hosts to "
        "maintenance; wait until the upgrade has ended (if none is running, "
        f"{end_of_upgrade(cluster)})",
    )


def end_of_upgrade(cluster: Cluster) -> str:
    """Return how to clear the engine's flag by hand."""
    return (
        f"end it: POST /ovirt-engine/api/clusters/{cluster.id}/upgrade with "
        "upgrade_action finish"
    )


def pinned_offenders(
    going: Sequence[Host], pinned: Mapping[str, Sequence[str]]
) -> Iterator[Sentence]:
    """Yield the hosts that cannot go to maintenance because virtual machines must not
    leave them (MaintenanceNumberOfVdssCommand.java:335: MigrationSupport).
    """
    for host in going:
        names = pinned.get(host.id, ())
        if names:
            yield Sentence(
                "host-vms-pinned",
                f"{host.name} has running virtual machines that are pinned to it: "
                f"{', '.join(names)}; stop them, or leave the host out (--without "
                f"{host.name})",
            )


def only_one(host: Host) -> Sentence:
    """Return the warning that no other host than ``host`` is up."""
    return Sentence(
        "host-only-one-up",
        f"{host.name} is the only host that is up: the data center has no storage "
        "while it is in maintenance",
    )


def evacuation_offenders(
    up: Sequence[Host], going: Sequence[Host], batch: int
) -> Iterator[Sentence]:
    """Yield the clusters in which no host is left for the virtual machines while hosts
    of ``going`` are in maintenance, ``batch`` at a time.

    Virtual machines stay in their cluster. The SPM goes to maintenance alone.
    """
    for cluster in dict.fromkeys(host.cluster for host in going):
        up_inside = [host for host in up if host.cluster == cluster]
        going_inside = [host for host in going if host.cluster == cluster]
        machines = sum(host.vms for host in going_inside)
        together = [host for host in going_inside if host.spm != "spm"] or going_inside
        if not machines:
            continue
        vms = f"{machines} virtual machine{'s' * (machines != 1)}"
        if len(up_inside) == 1:
            yield Sentence(
                "evacuation-impossible",
                f"{going_inside[0].name} is the only host of its cluster that is up, "
                f"so its {vms} cannot be migrated",
            )
        elif min(batch, len(together)) >= len(up_inside):
            yield Sentence(
                "evacuation-impossible",
                f"--batch {batch} moves {', '.join(h.name for h in up_inside)} to "
                "maintenance at once, which are all hosts of their cluster that are "
                f"up, so their {vms} cannot be migrated",
            )


def warnings(
    hosts: Sequence[Host],
    domains: Sequence[Domain],
    request: ConversionRequest,
) -> Iterator[Sentence]:
    """Yield warnings for the operator to read before the conversion."""
    if request.by_row and request.rolling:
        yield Sentence(
            "engine-options-changed-first",
            "the engine's mount options are changed first: a host that reboots or is "
            "activated before its turn may not be ready for them, and becomes "
            "non-operational then",
        )
    left_out = [h for h in hosts if h.name in request.without]
    away = [h.name for h in hosts if h.status != "up" and h not in left_out]
    if away:
        yield Sentence(
            "hosts-not-up",
            f"not up: {', '.join(away)}; their status is not changed, and their "
            "transport is unproven until they are up (ovirt-rdma domain verify)",
        )
    for host in left_out:
        yield Sentence(
            "host-left-out",
            f"{host.name} is left out and was not checked: when it is activated, it "
            "mounts by its own policy or, without a rule, by the engine's options, "
            f"over {request.to.upper()}; run this command again for it then",
        )
    up = [h for h in hosts if h.status == "up"]
    if request.rolling and len(up) == 1:
        yield only_one(up[0])
    for domain in domains:
        if domain.type in ("iso", "export"):
            yield Sentence(
                "domain-type-not-monitored",
                f"{domain.name} is of type {domain.type}: if a host fails to mount it "
                "later, the engine does not report it",
            )
