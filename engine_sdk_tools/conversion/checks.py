# SPDX-License-Identifier: GPL-2.0-or-later
"""What is against a conversion before it begins: every offender. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Engine, Host
from ovirt_rdma.engine_sdk_tools.refusals import Refused
from ovirt_rdma.host.policy import REQUIRE_RDMA
from ovirt_rdma.storage.engine_options import engine_problems

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
    rolling also where only one host is up.
    """

    to: str
    rolling: bool = False
    by_row: bool = False
    batch: int = 1
    rule: str = REQUIRE_RDMA
    allow_datacenter_down: bool = False


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
    status = domain.status or "in no known status"
    if request.rolling and status != "active":
        yield (
            f"{domain.name} is {status}: a rolling conversion needs it active; in "
            "maintenance it can be converted without --rolling"
        )
    elif status not in ("active", "maintenance"):
        yield f"{domain.name} is {status}; it has to be active or in maintenance"
    if not request.rolling and status == "active" and users:
        yield (
            f"{domain.name} is used by running virtual machines: {', '.join(users)}; "
            "stop them, move their disks, or use --rolling"
        )
    for problem in engine_problems(options):
        yield f"{domain.name}: {problem}"


def fleet_offenders(hosts: Sequence[Host], request: ConversionRequest) -> Iterator[str]:
    """Yield what is against it on the hosts together."""
    if not request.rolling:
        return
    up = [host for host in hosts if host.status == "up"]
    if not up:
        yield "no host of the data center is up"
    yield from evacuation_offenders(up, up, request.batch)
    if len(up) == 1 and not up[0].active_vms and not request.allow_datacenter_down:
        yield (
            f"{only_one(up[0])}; use --allow-datacenter-down if that may be, or leave "
            "out --rolling"
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
        machines = sum(host.active_vms for host in mine)
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
            "becomes non operational then"
        )
    blind = [h.name for h in hosts if h.status == "up" and h.name in mute]
    if blind:
        yield f"nothing can be proven on {', '.join(blind)}: no facts from there"
    away = [h.name for h in hosts if h.status != "up"]
    if away:
        yield (
            f"not up: {', '.join(away)}; they stay so, and are proven only when they "
            "come up (ovirt-rdma domain verify)"
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
