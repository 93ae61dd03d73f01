# SPDX-License-Identifier: GPL-2.0-or-later
"""What is next in a rolling conversion, a revert of one, or a heal. Pure.

Host by host, or batch by batch: policy, maintenance, activation, proof; the SPM last.
The engine's row is changed last on the way forward, and first on the way back, so that
hosts without the add-on never meet options that they are not ready for. Where the row
decides (``by_row``), it is changed first on both ways.
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
from ovirt_rdma.engine_sdk_tools.conversion.observation import UP, View
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    FINISH,
    LOOK,
    ORDER,
    Step,
    fail_domain,
    look,
    mark_domain,
    set_row,
)
from ovirt_rdma.engine_sdk_tools.model import status_words

# What a host is not after it came up with its new mounts, unless something is wrong.
_ILL = ("non_operational", "non_responsive", "error", "down")


def rolling_step(state: ConversionState, view: View) -> Step:
    """Return the next step; FINISH where there is none."""
    forward = state.stage == CONVERTING
    rows_first = state.by_row or state.stage == REVERTING
    steps = [_hosts]
    if state.kind == CONVERT:
        first = [_rows] if rows_first else []
        steps = [*first, _hosts, *([_strangers, _rows] if forward else [])]
    for one in [_gone, *steps]:
        step = one(state, view)
        if step is not None:
            return step
    return Step(FINISH, state.title)


def _gone(state: ConversionState, view: View) -> Optional[Step]:
    """On the way back nothing is left to be done for a domain that is gone."""
    for domain in state.domains if state.undoes else ():
        if domain.stage != GONE and view.row(domain) is None:
            return mark_domain(domain, GONE)
    return None


def _rows(state: ConversionState, view: View) -> Optional[Step]:
    for domain in state.domains:
        row = view.row(domain)
        if row is None and domain.stage == GONE:
            continue
        if row is None:
            why = f"the storage connection of {domain.name} is gone"
            return fail_domain(domain, why)
        options = domain.options if state.undoes else domain.wanted
        if row.mount_options != options:
            return set_row(domain, options, force=True)
    return None


def _hosts(state: ConversionState, view: View) -> Optional[Step]:
    playing = _playing(state, view)
    if not any(host.stage in IN_PLAY for host in playing):
        ill = _ill(state, view)
        if ill is not None:
            return ill
    if not playing:
        return _away(state, view)
    steps = [host_step(state, host, view) for host in playing]
    first = min(steps, key=lambda step: ORDER.index(step.kind))
    if first.kind == LOOK:
        return look(*(state.host(s.subject) for s in steps if s.kind == LOOK))
    return first


def _playing(state: ConversionState, view: View) -> list[HostRecord]:
    """Return the hosts of the batch: those under way, and others that may start now."""
    goal = FORWARD if state.stage == CONVERTING else BACK
    mine = [h for h in state.hosts if h.goal == goal]
    playing = [h for h in mine if h.stage in IN_PLAY]
    # A revert stops at a host that did not come back from its maintenance: the next
    # would not either. One that is up, and cannot be asked or proven, is alone in that.
    stops = state.stage == REVERTING and any(
        h.stage == FAILED and not _is_up_now(h, view) for h in mine
    )
    # A batch goes together: none starts while others come back already.
    if stops or any(h.stage == LEAVING for h in playing):
        return playing
    waiting = [h for h in mine if h.stage not in (*OVER, *IN_PLAY) and view.is_up(h)]
    if state.undoes:
        # One that is away keeps none of the others from going back.
        waiting = [h for h in waiting if _is_up_now(h, view)] or waiting
    plain = [h for h in waiting if not _is_spm(h, view)]
    if plain or playing:
        return playing + plain[: max(state.batch - len(playing), 0)]
    return waiting[:1]


def _ill(state: ConversionState, view: View) -> Optional[Step]:
    """Nothing new is begun while a host is ill that came through it well."""
    if state.stage != CONVERTING:
        return None
    for host in state.hosts:
        found = view.host(host)
        if host.stage == DONE and host.touched and found and found.status in _ILL:
            return fail_domain(
                state.domains[0],
                f"{host.name} had come up well, and is {status_words(found.status)} "
                "now; the others are not begun",
            )
    return None


def _away(state: ConversionState, view: View) -> Optional[Step]:
    """Hosts that were in maintenance or down at the start: only their policy."""
    goal = FORWARD if state.stage == CONVERTING else BACK
    for host in state.hosts:
        if host.goal == goal and host.stage not in OVER and not view.is_up(host):
            return away_step(state, host, view)
    return None


def _strangers(state: ConversionState, view: View) -> Optional[Step]:
    known = {host.id for host in state.hosts}
    hosts = view.engine.hosts_of(state.data_center)
    new = [host.name for host in hosts if host.id not in known]
    if not new:
        return None
    return fail_domain(
        state.domains[0],
        f"{', '.join(new)} came into the data center meanwhile, and nobody has checked "
        "it; the engine's row stays as it was",
    )


def _is_up_now(host: HostRecord, view: View) -> bool:
    found = view.host(host)
    return found is not None and found.status == UP


def _is_spm(host: HostRecord, view: View) -> bool:
    found = view.host(host)
    return found is not None and found.spm == "spm"
