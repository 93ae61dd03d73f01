# SPDX-License-Identifier: GPL-2.0-or-later
"""What is next with one host, so that it mounts its storage anew. Pure.

Decided from its status and its own word; the record only tells whose maintenance it
is, and whether it has been through it.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.sight import Sight, View, unlike
from ovirt_rdma.engine_sdk_tools.conversion.state import (
    BACK,
    DONE,
    ENTERING,
    HEAL,
    IN_PLAY,
    LEAVING,
    LEFT,
    TODO,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.step import (
    Step,
    call_off,
    enter,
    fail,
    leave,
    look,
    mark,
    push,
    wait_in,
    wait_out,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import status_words

# What is noted of a host that nobody could ask.
NOT_PROVEN = "the engine says that it is up; it could not be asked for proof"
# That it connected its storage the engine says with an event: see View.arrived.
_NEVER_REPORTED = (
    "the engine shows it as up, and did not report that it connected its storage "
    "(event 13)"
)

# On the way to a status that says more.
_COMING = ("unassigned", "initializing", "connecting", "reboot", "kdumping", None)


# What it can be neither moved nor asked in; nothing of it is changed then.
_ILL = ("non_operational", "non_responsive", "down", "error", "install_failed")


def host_step(state: ConversionState, host: HostRecord, view: View) -> Step:  # noqa: PLR0911 - a row a status
    """Return the next step of a host that is to be up in the end."""
    found = view.host(host)
    if found is None:
        return mark(host, DONE, "it is no longer in the engine")
    sight = view.sights.get(host.name)
    back = host.goal == BACK
    if host.stage == TODO and not back and found.status in _ILL:
        return fail(host, _is(host, found.status))
    # It had its policy before it went.
    policy = None if host.stage in IN_PLAY else policy_step(host, sight)
    if policy is not None:
        return policy
    status = found.status
    if status == "up":
        return _up(state, host, view)
    if status == "preparing_for_maintenance":
        # On the way back an evacuation that does not end is called off.
        called_off = back and host.ours and host.stage == TODO
        if called_off:
            return call_off(host)
        if host.stage == LEAVING:
            return leave(host)
        return wait_in(host)
    if status == "maintenance":
        if host.stage in IN_PLAY or host.ours:
            return leave(host)
        return mark(host, LEFT, "somebody put it into maintenance")
    if status == "non_operational" and back and host.stage in (TODO, ENTERING):
        # Only maintenance ends what it has mounted of the new.
        return enter(host)
    if status in _COMING or (host.stage == LEAVING and status == "non_responsive"):
        return wait_out(host)
    return fail(host, _is(host, status))


def policy_step(host: HostRecord, sight: Optional[Sight]) -> Optional[Step]:
    """Return what is to do until the host has its policy; None where it has it."""
    if not host.push:
        return None
    if sight is None:
        return look(host)
    if sight.problem:
        return fail(host, f"{host.name} cannot be asked: {sight.problem}")
    back = host.goal == BACK
    policy = host.policy if back else host.wanted
    # What was in force before had another digest, or there was nothing to change.
    loaded = (sight.digest != host.digest) if back else (sight.digest == host.digest)
    if sight.policy == policy and (loaded or host.policy == host.wanted):
        return None
    if sight.policy not in (host.policy, host.wanted, *host.between):
        return fail(
            host,
            f"somebody changed policy.yaml on {host.name} since the conversion began; "
            "it is left as it is",
        )
    return push(host, policy)


def away_step(state: ConversionState, host: HostRecord, view: View) -> Step:
    """Return the next step of a host that was not up at the start, and is left so."""
    if view.host(host) is None:
        return mark(host, DONE, "it is no longer in the engine")
    policy = policy_step(host, view.sights.get(host.name))
    if policy is not None:
        return policy
    return mark(host, LEFT, f"it was {status_words(host.found)} and is left so")


def _up(state: ConversionState, host: HostRecord, view: View) -> Step:  # noqa: PLR0911 - a row a status
    been = host.stage == LEAVING
    if state.kind == HEAL and host.goal == BACK:
        # It cannot be worse than it was.
        return mark(host, DONE)
    if been and host.name not in view.arrived:
        return wait_out(host)
    sight = view.sights.get(host.name)
    if sight is None and not state.blind:
        return look(host)
    if sight is None or unproven(state, sight):
        return after_activation(host, view) if been else enter(host)
    if sight.problem:
        return fail(host, f"{host.name} cannot be asked: {sight.problem}")
    wrong = unlike(state, host, sight)
    if not wrong:
        return mark(host, DONE)
    if been:
        return fail(host, f"on {host.name} {'; '.join(wrong)}")
    return enter(host)


def after_activation(host: HostRecord, view: View) -> Step:
    """Return what is noted of a host that we activated and nobody can ask: the engine's
    word counts, if it is that the host has connected its storage.
    """
    if view.arrived.get(host.name):
        return mark(host, DONE, NOT_PROVEN)
    return fail(host, f"{host.name}: {_NEVER_REPORTED}")


def unproven(state: ConversionState, sight: Sight) -> bool:
    """Whether a host says nothing, and need not: the engine's row decides."""
    return bool(sight.problem) and state.by_row


def _is(host: HostRecord, status: Optional[str]) -> str:
    hint = ""
    if status == "non_operational":
        hint = (
            ": it could not connect all of its storage (vdsm.log there says why), or "
            "the engine restarted before it had told it to"
        )
    return f"{host.name} is {status_words(status)}{hint}"
