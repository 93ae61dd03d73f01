# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of a rolling conversion, its revert, or a heal. Pure.

Each host or batch gets its policy, goes to maintenance, is activated and proven; the
SPM is last. The engine's row is changed last on the way forward and first on the way
back, so that hosts without the add-on never get options that they are not ready for. If
the row decides (``by_row``), it is changed first in both directions.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.host_step import away_step, host_step
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERT,
    CONVERTING,
    DONE,
    FAILED,
    FORWARD,
    GONE,
    IN_PLAY,
    LEAVING,
    OVER,
    REVERTING,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import UP, Snapshot
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    FINISH,
    LOOK,
    ORDER,
    ConversionStep,
    fail_domain,
    look,
    mark_domain,
    set_row,
)
from ovirt_rdma.engine_sdk_tools.model import BROKEN, LACKS, host_is, status_words


def rolling_step(state: ConversionState, snapshot: Snapshot) -> ConversionStep:
    """Return the next step; FINISH if there is none."""
    forward = state.stage == CONVERTING
    rows_first = state.by_row or state.stage == REVERTING
    steps = [_hosts]
    if state.kind == CONVERT:
        first = [_rows] if rows_first else []
        steps = [*first, _hosts, *([_new_hosts, _rows] if forward else [])]
    for decide in [_gone, *steps]:
        step = decide(state, snapshot)
        if step is not None:
            return step
    return ConversionStep(FINISH, state.title)


def _gone(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """On the way back, mark a removed domain: there is nothing to do for it."""
    for domain in state.domains if state.undoes else ():
        if domain.stage != GONE and snapshot.row(domain) is None:
            return mark_domain(domain, GONE)
    return None


def _rows(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    for domain in state.domains:
        row = snapshot.row(domain)
        if row is None and domain.stage == GONE:
            continue
        if row is None:
            why = f"the storage connection of {domain.name} was removed"
            return fail_domain(domain, why)
        options = domain.options if state.undoes else domain.wanted
        if row.mount_options != options:
            return set_row(domain, options, force=True)
    return None


def _hosts(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    current = _current_hosts(state, snapshot)
    if not any(host.stage in IN_PLAY for host in current):
        broken = _broken(state, snapshot)
        if broken is not None:
            return broken
    if not current:
        return _away(state, snapshot)
    steps = [host_step(state, host, snapshot) for host in current]
    first = min(steps, key=lambda step: ORDER.index(step.kind))
    if first.kind == LOOK:
        return look(*(state.host(s.subject) for s in steps if s.kind == LOOK))
    return first


def _current_hosts(state: ConversionState, snapshot: Snapshot) -> list[HostRecord]:
    """Return the hosts of the batch: those in progress, and others that may start."""
    goal = FORWARD if state.stage == CONVERTING else BACK
    mine = [h for h in state.hosts if h.goal == goal]
    current = [h for h in mine if h.stage in IN_PLAY]
    # A revert stops at a host that did not come up after its maintenance: the next
    # would probably fail too. A host that is up but cannot be asked or proven does not
    # affect the others.
    stops = state.stage == REVERTING and any(
        h.stage == FAILED and not _is_up_now(h, snapshot) for h in mine
    )
    # A batch stays together: no host starts while others are being activated.
    if stops or any(h.stage == LEAVING for h in current):
        return current
    waiting = [
        h for h in mine if h.stage not in (*OVER, *IN_PLAY) and snapshot.is_up(h)
    ]
    if state.undoes:
        # A host that is not up does not delay the revert of the others.
        waiting = [h for h in waiting if _is_up_now(h, snapshot)] or waiting
    plain = [h for h in waiting if not _is_spm(h, snapshot)]
    if plain or current:
        return current + plain[: max(state.batch - len(current), 0)]
    return waiting[:1]


def _broken(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """Start no other host if a converted one is in trouble now."""
    if state.stage != CONVERTING:
        return None
    for host in state.hosts:
        present = snapshot.host(host)
        if (
            host.stage == DONE
            and host.touched
            and present
            and host_is(present.status, LACKS, BROKEN)
        ):
            return fail_domain(
                state.domains[0],
                f"{host.name} was converted and up, but is "
                f"{status_words(present.status)} now; the other hosts are not started",
            )
    return None


def _away(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    """Change only the policy of hosts that were in maintenance or down at the start."""
    goal = FORWARD if state.stage == CONVERTING else BACK
    for host in state.hosts:
        if host.goal == goal and host.stage not in OVER and not snapshot.is_up(host):
            return away_step(state, host, snapshot)
    return None


def _new_hosts(state: ConversionState, snapshot: Snapshot) -> Optional[ConversionStep]:
    known = {host.id for host in state.hosts}
    hosts = snapshot.engine.hosts_of(state.data_center)
    new = [host.name for host in hosts if host.id not in known]
    if not new:
        return None
    return fail_domain(
        state.domains[0],
        f"added to the data center since the conversion started, and not checked: "
        f"{', '.join(new)}; the engine's mount options are unchanged",
    )


def _is_up_now(host: HostRecord, snapshot: Snapshot) -> bool:
    present = snapshot.host(host)
    return present is not None and present.status == UP


def _is_spm(host: HostRecord, snapshot: Snapshot) -> bool:
    present = snapshot.host(host)
    return present is not None and present.spm == "spm"
