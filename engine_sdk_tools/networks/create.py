# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out ``network create``, and roll it back if a part of it fails."""

from __future__ import annotations

from dataclasses import dataclass

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener, step
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.model import Cluster
from ovirt_rdma.engine_sdk_tools.networks.create_plan import HadMigration, NetworkPlan
from ovirt_rdma.engine_sdk_tools.undo import Undo, after_lost, undo
from ovirt_rdma.host.errors import Problem


@dataclass(frozen=True)
class NetworkMade:
    """The result: the network's ``id``, and the names of clusters it was added to."""

    id: str
    made: bool
    joined: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def create_network(
    session: EngineSession, plan: NetworkPlan, listener: Listener
) -> NetworkMade:
    """Carry out ``plan``.

    Raises Problem if a part failed. What was made by then is removed; the message names
    what could not be removed.
    """
    listener.plan((plan.name,), len(plan.calls))
    undoing: list[Undo] = []
    try:
        if plan.network is None:
            network = _made(session, plan, listener)
            undoing.append(_remove(network, plan.name))
        else:
            network = plan.network.id
        joined = []
        for cluster in plan.join:
            _step(session, plan.joining(network, cluster), listener)
            joined.append(cluster.name)
            # The last is undone first: the role is restored after the network is
            # out of the cluster.
            undoing += [
                _restore_role(h) for h in plan.had_migration if h.cluster == cluster
            ]
            undoing.append(_leave(network, cluster, plan.name))
        for cluster in plan.require:
            _step(session, plan.requiring(network, cluster), listener)
    except Problem as error:
        raise undo(session, undoing, listener).told(error) from error
    required = tuple(cluster.name for cluster in plan.require)
    return NetworkMade(network, plan.network is None, tuple(joined), required)


def _made(session: EngineSession, plan: NetworkPlan, listener: Listener) -> str:
    call = plan.make()
    with step(listener, call.doing, plan.name):
        try:
            return str(session.perform(call).id)
        except LostAnswer as lost:
            return after_lost(lost, lambda: _find(session, plan))


def _find(session: EngineSession, plan: NetworkPlan) -> str:
    """Return the id of the network of ``plan``, "" if the engine does not have it."""
    path = f"datacenters/{plan.data_center}/networks"
    for network in session.read(Read(path, "reading the networks")):
        if network.name == plan.name:
            return str(network.id)
    return ""


def _step(session: EngineSession, call: Call, listener: Listener) -> None:
    with step(listener, call.doing, call.subject):
        try:
            session.perform(call)
        except LostAnswer as lost:
            # The engine refuses both if repeated: read the result instead.
            after_lost(lost, lambda: _is_done(session, call))


def _is_done(session: EngineSession, call: Call) -> bool:
    cluster = call.path.split("/")[1]
    wanted = call.arguments["network"]
    network = wanted.id or call.path.split("/")[-1]
    path = f"clusters/{cluster}/networks"
    for row in session.read(Read(path, "reading the cluster's networks")):
        if row.id == network:
            return bool(row.required) == bool(wanted.required)
    return False


def _remove(network: str, name: str) -> Undo:
    doing = f"removing the network {name} again"
    call = Call(f"networks/{network}", "remove", doing, {}, name)
    return Undo(call, f"remove the network {name}")


def _leave(network: str, cluster: Cluster, name: str) -> Undo:
    doing = f"removing the network {name} from the cluster {cluster.name} again"
    path = f"clusters/{cluster.id}/networks/{network}"
    by_hand = f"remove the network {name} from the cluster {cluster.name}"
    return Undo(Call(path, "remove", doing, {}, name), by_hand)


def _restore_role(had: HadMigration) -> Undo:
    name, cluster = had.network.name, had.cluster
    doing = f"making {name} the migration network of {cluster.name} again"
    path = f"clusters/{cluster.id}/networks/{had.network.id}"
    usages = [types.NetworkUsage(word) for word in had.usages]
    body = {"network": types.Network(usages=usages)}
    by_hand = f"make {name} the migration network of {cluster.name}"
    return Undo(Call(path, "update", doing, body, name), by_hand)
