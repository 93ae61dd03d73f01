# SPDX-License-Identifier: GPL-2.0-or-later
"""How a conversion turns: by a failure, for a revert, to go on, at its end. Pure."""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.engine_sdk_tools.conversion.baseline import with_originals
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERTED,
    CONVERTING,
    DONE,
    FAILED,
    FORWARD,
    IN_PLAY,
    LEAVING,
    LEFT,
    OFFLINE,
    OVER,
    REVERTED,
    REVERTING,
    ROLLED_BACK,
    STOPPED,
    TODO,
    UNDOING,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import Step
from ovirt_rdma.engine_sdk_tools.model import Engine


def failed(state: ConversionState, step: Step, why: str) -> ConversionState:
    """Return the state after ``step``, of a host or domain, has failed.

    A conversion turns round: rolling for the hosts that are in play, offline for all.
    A host that nothing was changed of stays as it is. What fails on the way back is
    noted, and the others go on.
    """
    subject = step.subject
    whose = None if step.of_domain else state.host(subject)
    if state.stage == CONVERTING:
        state = replace(state, stage=UNDOING, why=why, doing="")
        if state.mode == OFFLINE:
            return _all_back(state)
        turned = [h.name for h in state.hosts if _turns(h)]
        state = state.with_hosts(turned, goal=BACK, stage=TODO)
        return state.with_host(subject, why=why) if whose else state
    told = state.why
    if whose is not None:
        state = state.with_host(subject, stage=FAILED, why=why)
    if why not in told:
        told = f"{told.rstrip('.')}; {why}" if told else why
    if whose is None:
        # Without its domain nothing can go on.
        return replace(state, why=told, doing="", stage=STOPPED)
    return replace(state, why=told, doing="")


def reverting(state: ConversionState) -> ConversionState:
    """Return the state at the begin of a revert, or where one goes on.

    Hosts that nothing was changed of stay out of it.
    """
    if state.stage == REVERTING:
        return state
    state = replace(with_originals(state), stage=REVERTING, why="", doing="")
    if state.mode == OFFLINE:
        return _all_back(state)
    names = [h.name for h in state.hosts if h.touched and not _is_back(h)]
    others = [h.name for h in state.hosts if h.name not in names]
    state = state.with_hosts(others, goal=BACK, stage=DONE)
    return state.with_hosts(names, goal=BACK, stage=TODO, why="", left_out=False)


def renamed(state: ConversionState, engine: Engine) -> ConversionState:
    """Return the state with the names that hosts and domains have now."""
    hosts = {host.id: host.name for host in engine.hosts}
    domains = {domain.id: domain.name for domain in engine.domains}
    return replace(
        state,
        hosts=tuple(replace(h, name=hosts.get(h.id, h.name)) for h in state.hosts),
        domains=tuple(
            replace(d, name=domains.get(d.id, d.name)) for d in state.domains
        ),
    )


def going_on(state: ConversionState) -> ConversionState:
    """Return the state of a conversion that stopped, as it tries the rest again."""
    if state.stage != STOPPED:
        return state
    again = [h.name for h in state.hosts if h.goal == BACK or h.stage == FAILED]
    state = state.with_hosts(again, goal=FORWARD, stage=TODO, why="")
    for domain in state.domains:
        state = state.with_domain(domain.name, stage=TODO)
    return replace(state, stage=CONVERTING, why="")


def finished(state: ConversionState) -> ConversionState:
    """Return the state when there is no more to do."""
    state = replace(state, doing="")
    if state.stage == CONVERTING:
        return replace(state, stage=CONVERTED)
    if any(h.stage == FAILED for h in state.hosts):
        return replace(state, stage=STOPPED)
    if state.stage == REVERTING:
        return replace(state, stage=REVERTED)
    some = any(h.goal == FORWARD and h.touched for h in state.hosts)
    over = state.mode == OFFLINE or not some
    return replace(state, stage=ROLLED_BACK if over else STOPPED)


def _turns(host: HostRecord) -> bool:
    if host.stage in OVER:
        return False
    return host.stage in IN_PLAY or host.touched


def _is_back(host: HostRecord) -> bool:
    return host.goal == BACK and host.stage in (DONE, LEFT)


def _all_back(state: ConversionState) -> ConversionState:
    """Offline: where a domain was active again, its mounts are the new ones, and it has
    to be deactivated once more; else it only has to be activated.
    """
    mounted = any(d.touched for d in state.domains)
    names = [h.name for h in state.hosts]
    state = state.with_hosts(names, goal=BACK, stage=TODO, why="", left_out=False)
    for domain in state.domains:
        stage = TODO if mounted else LEAVING
        state = state.with_domain(domain.name, stage=stage)
    return state
