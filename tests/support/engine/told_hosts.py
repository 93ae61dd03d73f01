# SPDX-License-Identifier: GPL-2.0-or-later
"""Make reports of hosts for tests of the decisions on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
)
from ovirt_rdma.host import __version__
from ovirt_rdma.host.daemon.versions import Loaded, Versions
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import digest
from ovirt_rdma.host.system.json_codec import plain

FACTS = Path(__file__).parents[2] / "data" / "facts"
SERVER = "nfs1.example.com"


def rules(transport: str, path: str = "*", name: str = "nas") -> str:
    """Return a policy with one rule, as YAML."""
    return (
        "version: 1\nnfs:\n  rules:\n"
        f"  - name: {name}\n    server: {SERVER}\n    path: '{path}'\n"
        f"    transport: {transport}\n"
    )


def versions(
    digest: Optional[str] = None,
    program: str = "launcher",
    loaded: Optional[str] = __version__,
) -> Versions:
    """Return the versions of a host, where vdsmd and the daemon have ``loaded`` this
    version.
    """
    needed = None if loaded is None else loaded != __version__
    in_vdsmd = Loaded(4711, 1_700_000_000, loaded, needed)
    if program == "stock":
        in_vdsmd = replace(in_vdsmd, version="stock", restart_needed=False)
    return Versions(
        add_on=__version__,
        python="3.9.18",
        policy=digest,
        policy_loaded_at=digest and "2026-01-01T00:00:00+00:00",
        vdsmd=in_vdsmd,
        daemon=Loaded(815, 1_700_000_001, loaded, needed),
        vdsm="4.50.5.1",
        kernel="5.14.0-427.el9.x86_64",
    )


def status(
    policy: Optional[str] = None,
    *,
    mode: Optional[str] = "vdsmd",
    program: str = "launcher",
    problem: Optional[str] = None,
    loaded: Optional[str] = __version__,
) -> dict[str, Any]:
    """Return ``ovirt-rdma-host status -o json`` of a host with ``policy`` loaded, where
    vdsmd and the daemon have ``loaded`` this version.
    """
    its_digest = digest(parse_policy(policy, "p").policy) if policy else None
    return {
        "schema_version": 1,
        "kind": "status",
        "version": __version__,
        "enabled": {"mode": mode},
        "package": {"launcher": True, "dropin": True},
        "running": {"pid": 4711, "program": program},
        "versions": plain(versions(its_digest, program, loaded)),
        "policy": {
            "loaded": policy is not None and problem is None,
            "digest": its_digest,
            "problem": problem,
            "fix": "load it again" if problem else "",
            "drop_ins": {},
        },
    }


def mount(export: str, transport: str, **more: Any) -> NfsMount:
    """Return a mount of ``export``, as VDSM makes it and the kernel shows it."""
    sample = model.load(FACTS / "rxe-one-mount.json").nfs_mounts[0]
    place = export.replace("/", "_")
    return replace(
        sample,
        source=export,
        mountpoint=f"/rhev/data-center/mnt/{place}",
        protocol=transport,
        protocols=(transport,) * len(sample.protocols),
        **more,
    )


def facts(*mounts: NfsMount) -> Facts:
    """Return facts of a host with an ACTIVE Soft-RoCE port."""
    golden = model.load(FACTS / "rxe-one-mount.json")
    return replace(golden, nfs_mounts=mounts)


def host(name: str = "hv1", **more: Any) -> Host:
    """Return a host of the data center ``dc1`` that is up."""
    return replace(Host(f"id-{name}", name, f"{name}.example.com", "c1", "up"), **more)


def report(name: str = "hv1", **more: Any) -> HostReport:
    """Return a host's report."""
    return HostReport(name, **more)


def connection(
    name: str = "data1", options: str = "", **more: Any
) -> StorageConnection:
    """Return a storage connection of the engine."""
    row = StorageConnection(
        f"row-{name}", "nfs", SERVER, f"/exports/{name}", "v4_2", options
    )
    return replace(row, **more)


def domain(name: str = "data1", options: str = "", **more: Any) -> Domain:
    """Return an active NFS data domain of ``dc1``."""
    row = connection(name, options)
    made = Domain(f"id-{name}", name, "data", "nfs", "d1", "active", connection=row)
    return replace(made, **more)


def engine(*hosts: Host, domains: tuple[Domain, ...] = ()) -> Engine:
    """Return an engine with the data center ``dc1``, and one without hosts."""
    return Engine(
        "http://engine.example.com",
        data_centers=(DataCenter("d1", "dc1"), DataCenter("d2", "empty")),
        clusters=(Cluster("c1", "cl1", "d1", "4.7"),),
        hosts=hosts,
        domains=domains,
    )
