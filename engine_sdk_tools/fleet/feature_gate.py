# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster's additional feature NFS_RDMA: what it would need, and what is set.

Only reads. Registering the feature takes SQL on the engine's database, and the engine's
own API forgets it again; docs/gate.md has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.hosts.hooks import NAME
from ovirt_rdma.engine_sdk_tools.model import Cluster, Engine

FEATURE = "NFS_RDMA"
HOOK = "after_get_caps"
DOCS = "docs/gate.md"


class ReadsAll(Protocol):
    """What reading needs of a session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Do ``reads`` in parallel; an exception stands for what is not there."""


@dataclass(frozen=True)
class FeatureFacts:
    """What the engine said: ``registered`` by cluster level, the ids of the features
    called NFS_RDMA; ``enabled`` by cluster id, whether it is among the enabled ones.

    None where the engine has no such level, or no such cluster any more.
    """

    registered: Mapping[str, Optional[tuple[str, ...]]]
    enabled: Mapping[str, Optional[bool]]


@dataclass(frozen=True)
class Gate:
    """The gate of a cluster.

    ``registered`` is None where the engine does not know the level, ``enabled`` where
    it does not know the cluster any more. ``hooked`` are its hosts that have the hook
    which reports the feature, of ``hosts``. ``next`` is what is missing before the
    engine holds hosts to it, as a sentence; "" for nothing.
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
        """The hosts that would become NonOperational."""
        return tuple(host for host in self.hosts if host not in self.hooked)


def read_features(session: ReadsAll, engine: Engine) -> FeatureFacts:
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
    found = features.registered.get(level)
    registered = None if found is None else bool(found)
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
        return _not_there(gate)
    if not gate.registered:
        return f"register it for cluster level {gate.level} by SQL ({DOCS})"
    if gate.unhooked:
        missing = len(gate.unhooked)
        hosts = "1 host has" if missing == 1 else f"{missing} hosts have"
        left = f"{hosts} not the hook that reports it"
        if gate.enabled:
            return f"{left} and will become non-operational: install ovirt-rdma-host"
        return f"{left}: install ovirt-rdma-host, then maintenance and activation"
    if not gate.enabled:
        return "enable it for the cluster in the administration portal"
    return ""


def _not_there(gate: Gate) -> str:
    """Say what the engine does not have: reading it gave 404."""
    if gate.registered is None:
        level = f"cluster level {gate.level}" if gate.level else "its cluster level"
        return f"this engine does not know {level}, and so no features for it"
    return "the engine does not have this cluster any more: look again"


def _ids(answer: Any) -> Optional[tuple[str, ...]]:
    """The ids of the features that are called NFS_RDMA; None where nothing is there."""
    if isinstance(answer, Exception):
        return None
    return tuple(one.id for one in answer if one.name == FEATURE)
