# SPDX-License-Identifier: GPL-2.0-or-later
"""Change the stage of a conversion: after a failure, to revert or resume, at its end.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.engine_sdk_tools.conversion.baseline import as_at_first
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
from ovirt_rdma.engine_sdk_tools.conversion.steps import ConversionStep
from ovirt_rdma.engine_sdk_tools.model import Engine


def failed(state: ConversionState, step: ConversionStep, why: str) -> ConversionState:
    """Return the state after ``step``, of a host or domain, has failed.

    A conversion is rolled back: rolling on the hosts in progress, offline on all. An
    unchanged host stays so. A failure on the way back is recorded, and the other hosts
    continue.
    """
    subject = step.subject
    host = None if step.of_domain else state.host(subject)
    if state.stage == CONVERTING:
        state = replace(state, stage=UNDOING, why=why, doing="")
        if state.mode == OFFLINE:
            return _all_back(state)
        names = [h.name for h in state.hosts if _is_rolled_back(h)]
        state = state.with_hosts(names, goal=BACK, stage=TODO)
        return state.with_host(subject, why=why) if host else state
    reasons = state.why
    if host is not None:
        state = state.with_host(subject, stage=FAILED, why=why)
    if why not in reasons:
        reasons = f"{reasons.rstrip('.')}; {why}" if reasons else why
    if host is None:
        # No host can continue without the domain.
        return replace(state, why=reasons, doing="", stage=STOPPED)
    return replace(state, why=reasons, doing="")


def reverting(state: ConversionState) -> ConversionState:
    """Return the state at the start of a revert, or when one is resumed.

    Unchanged hosts do not take part.
    """
    if state.stage == REVERTING:
        return state
    state = replace(as_at_first(state), stage=REVERTING, why="", doing="")
    if state.mode == OFFLINE:
        return _all_back(state)
    names = [h.name for h in state.hosts if h.touched and not _is_back(h)]
    others = [h.name for h in state.hosts if h.name not in names]
    state = state.with_hosts(others, goal=BACK, stage=DONE)
    return state.with_hosts(names, goal=BACK, stage=TODO, why="", left_out=False)


def renamed(state: ConversionState, engine: Engine) -> ConversionState:
    """Return the state with the present names of hosts and domains."""
    hosts = {host.id: host.name for host in engine.hosts}
    domains = {domain.id: domain.name for domain in engine.domains}
    return replace(
        state,
        hosts=tuple(replace(h, name=hosts.get(h.id, h.name)) for h in state.hosts),
        former=tuple(replace(h, name=hosts.get(h.id, h.name)) for h in state.former),
        domains=tuple(
            replace(d, name=domains.get(d.id, d.name)) for d in state.domains
        ),
    )


def resumed(state: ConversionState) -> ConversionState:
    """Return the state of a stopped conversion that is resumed with the rest."""
    if state.stage != STOPPED:
        return state
    again = [h.name for h in state.hosts if h.goal == BACK or h.stage == FAILED]
    state = state.with_hosts(again, goal=FORWARD, stage=TODO, why="")
    for domain in state.domains:
        state = state.with_domain(domain.name, stage=TODO)
    return replace(state, stage=CONVERTING, why="")


def finished(state: ConversionState) -> ConversionState:
    """Return the state when nothing remains to be done."""
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


def _is_rolled_back(host: HostRecord) -> bool:
    if host.stage in OVER:
        return False
    return host.stage in IN_PLAY or host.touched


def _is_back(host: HostRecord) -> bool:
    return host.goal == BACK and host.stage in (DONE, LEFT)


def _all_back(state: ConversionState) -> ConversionState:
    """Return the state of an offline conversion on its way back.

    If a domain was active again, it may be mounted with the new options and has to be
    deactivated once more; otherwise it only has to be activated.
    """
    mounted = any(d.touched for d in state.domains)
    names = [h.name for h in state.hosts]
    state = state.with_hosts(names, goal=BACK, stage=TODO, why="", left_out=False)
    for domain in state.domains:
        stage = TODO if mounted else LEAVING
        state = state.with_domain(domain.name, stage=stage)
    return state
