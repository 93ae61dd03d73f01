# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the state of the additional cluster feature NFS_RDMA, and the next step for it.

Changes nothing: the feature is registered by SQL in the engine's database, and the
engine's own API can disable it again (docs/gate.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts.report import NAME
from ovirt_rdma.engine_sdk_tools.model import Cluster, Engine

FEATURE = "NFS_RDMA"
HOOK = "after_get_caps"
DOCS = "docs/gate.md"


@dataclass(frozen=True)
class FeatureFacts:
    """The engine's answers: ``registered`` has the ids of the features named NFS_RDMA,
    by cluster level; ``enabled`` tells by cluster id if one of them is enabled.

    None if the engine does not have the level, or no longer has the cluster.
    """

    registered: Mapping[str, Optional[tuple[str, ...]]]
    enabled: Mapping[str, Optional[bool]]


@dataclass(frozen=True)
class Gate:
    """The feature in one cluster.

    ``registered`` is None if the engine does not know the level, ``enabled`` if it no
    longer has the cluster. ``hooked`` are those of ``hosts`` that have the hook which
    reports the feature. ``next`` is the next step until the engine requires the feature
    of hosts, a sentence; "" if there is none.
    """

    cluster: str
    level: str
    registered: Optional[bool]
    enabled: Optional[bool]
    hooked: tuple[str, ...]
    hosts: tuple[str, ...]
    next: str

    @property
    def unhooked(self) -> tuple[str, ...]:
        """The hosts without the hook, which would become non-operational."""
        return tuple(host for host in self.hosts if host not in self.hooked)


def read_features(session: Session, engine: Engine) -> FeatureFacts:
    """Read the features of each cluster level in use, and those that are enabled."""
    levels = sorted({c.version for c in engine.clusters if c.version})
    reads = [
        Read(
            f"clusterlevels/{level}/clusterfeatures",
            f"reading the additional features of cluster level {level}",
        )
        for level in levels
    ]
    reads += [
        Read(
            f"clusters/{cluster.id}/enabledfeatures",
            f"reading the enabled features of cluster {cluster.name}",
        )
        for cluster in engine.clusters
    ]
    answers = session.read_all(reads)
    registered = {
        level: _ids(answer) for level, answer in zip(levels, answers[: len(levels)])
    }
    enabled: dict[str, Optional[bool]] = {}
    for cluster, answer in zip(engine.clusters, answers[len(levels) :]):
        ids = _ids(answer)
        enabled[cluster.id] = None if ids is None else bool(ids)
    return FeatureFacts(registered, enabled)


def gates(engine: Engine, features: FeatureFacts) -> tuple[Gate, ...]:
    """Return the gate of each cluster. ``engine`` is read with hooks. Pure."""
    return tuple(_gate(engine, cluster, features) for cluster in engine.clusters)


def _gate(engine: Engine, cluster: Cluster, features: FeatureFacts) -> Gate:
    level = cluster.version or ""
    ids = features.registered.get(level)
    registered = None if ids is None else bool(ids)
    enabled = features.enabled.get(cluster.id)
    hosts = [host for host in engine.hosts if host.cluster == cluster.id]
    hooked = tuple(
        host.name
        for host in hosts
        if any(hook.event == HOOK and hook.name == NAME for hook in host.hooks or ())
    )
    names = tuple(host.name for host in hosts)
    gate = Gate(cluster.name, level, registered, enabled, hooked, names, "")
    return Gate(cluster.name, level, registered, enabled, hooked, names, _next(gate))


def _next(gate: Gate) -> str:
    if gate.registered is None or gate.enabled is None:
        return _missing(gate)
    if not gate.registered:
        return f"register it for cluster level {gate.level} by SQL ({DOCS})"
    if gate.unhooked:
        missing = len(gate.unhooked)
        hosts = "1 host does" if missing == 1 else f"{missing} hosts do"
        without = f"{hosts} not have the hook installed"
        if gate.enabled:
            return f"{without} and will become non-operational: install ovirt-rdma-host"
        return f"{without}: install ovirt-rdma-host, then maintenance and activation"
    if not gate.enabled:
        return "enable it for the cluster in the administration portal"
    return ""


def _missing(gate: Gate) -> str:
    """Return a sentence on what the engine does not have: reading it gave 404."""
    if gate.registered is None:
        level = f"cluster level {gate.level}" if gate.level else "its cluster level"
        return f"this engine does not know {level}, and has no features for it"
    return "the engine no longer has this cluster: run the command again"


def _ids(answer: Any) -> Optional[tuple[str, ...]]:
    """Return the ids of the features named NFS_RDMA; None for a missing object."""
    if isinstance(answer, Exception):
        return None
    return tuple(feature.id for feature in answer if feature.name == FEATURE)
