# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide how each host is prepared, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.policy import (
    digest_without_drop_ins,
    status_part,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, with_own_bugs_caught
from ovirt_rdma.engine_sdk_tools.model import COMES, Engine, Host, host_is, status_words
from ovirt_rdma.engine_sdk_tools.preparation.model import (
    AUTO,
    DONE,
    LEFT_OUT,
    NOTHING,
    REINSTALL,
    SSH,
    HostRecord,
    PreparationState,
)
from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, REBOOT

# With these statuses the engine installs a host without maintenance before
# (UpdateHostValidator.statusSupportedForHostInstallation).
INSTALLABLE = ("maintenance", "non_operational", "install_failed", "installing_os")


@dataclass(frozen=True)
class PreparationRequest:
    """The request of the operator.

    ``policy`` is what hosts get, with its ``digest``; None: they keep theirs.
    ``again``: also hosts that need nothing. ``canary`` is a host's name. ``apply`` and
    ``mode`` are those variables of the role. ``reinstall``: whether a reinstall would
    run the role, so that what SSH has left can be done by one.
    """

    by: str = AUTO
    batch: int = 1
    reboot: str = AUTO
    canary: Optional[str] = None
    again: bool = False
    policy: Optional[Policy] = None
    digest: Optional[str] = None
    apply: bool = True
    mode: str = "vdsmd"
    reinstall: bool = True


@dataclass(frozen=True)
class Look:
    """What a host's report says about its preparation.

    ``known``: the host has reported. ``link_down``, ``reboot``: steps of its plan that
    interrupt a link, or take effect at the next boot. ``live``: others. ``reason`` says
    what it needs, "" if nothing.
    """

    known: bool
    reason: str = ""
    live: int = 0
    link_down: int = 0
    reboot: int = 0

    @property
    def disruptive(self) -> int:
        """The number of steps for which the host should be in maintenance."""
        return self.link_down + self.reboot


def look_at(report: HostReport, request: PreparationRequest) -> Look:
    """Return what ``report`` says, with the policy of ``request``."""
    return with_own_bugs_caught(report, lambda checked: _look_at(checked, request))


def _look_at(report: HostReport, request: PreparationRequest) -> Look:
    if report.status is None or report.facts is None:
        return Look(False, report.problem or "it did not report")
    policy = request.policy
    digest = digest_without_drop_ins(report)
    enabled = status_part(report.status, "enabled").get("mode") or "disabled"
    reasons = []
    if request.mode not in ("none", enabled):
        off = enabled == "disabled"
        other = "not enabled" if off else f"enabled with the mode {enabled}"
        reasons.append(f"the add-on is {other}")
    if request.digest is not None and digest != request.digest:
        reasons.append("its policy is another one" if digest else "no policy is loaded")
    counts: Mapping[str, int] = {}
    if policy is not None and request.apply:
        steps = decide(report.facts, policy).applicable
        counts = {
            effect: sum(step.effect == effect for step in steps)
            for effect in {step.effect for step in steps}
        }
        if steps:
            reasons.append(f"{len(steps)} steps of its plan are not applied")
    link_down, reboot = counts.get(LINK_DOWN, 0), counts.get(REBOOT, 0)
    live = sum(counts.values()) - link_down - reboot
    return Look(True, "; ".join(reasons), live, link_down, reboot)


def plan_preparation(
    engine: Engine,
    data_center: str,
    hosts: Sequence[Host],
    looks: Optional[Mapping[str, Look]],
    request: PreparationRequest,
    *,
    now: float,
    proven: Collection[str] = (),
) -> PreparationState:
    """Return the state at the start of the preparation of ``hosts``, which are of one
    data center. ``looks`` are by name; None: hosts cannot be asked. Then ``proven`` are
    the ids of those that an earlier run has prepared with the same policy.
    """

    def look_of(host: Host) -> Optional[Look]:
        if looks is not None:
            return looks[host.name]
        again = request.again or host.id not in proven
        return None if again else Look(True)

    center = next(c.name for c in engine.data_centers if c.id == data_center)
    found = [
        _record(host, look_of(host), request)
        for host in _in_order(hosts, request.canary)
    ]
    batches = _batches(found, request)
    return PreparationState(
        data_center,
        center,
        request.by,
        tuple(replace(one, batch=batches.get(one.name, 0)) for one in found),
        request.reboot,
        request.digest,
        looks is None,
        begun_at=now,
        changed_at=now,
    )


def _record(
    host: Host, look: Optional[Look], request: PreparationRequest
) -> HostRecord:
    way, reason = _way(look, request)
    reboot = request.reboot == "yes" or (
        request.reboot == AUTO and (look is None or not look.known or look.reboot > 0)
    )
    # Somebody moves it to maintenance: it stays there.
    found = host.status if host.status != "preparing_for_maintenance" else "maintenance"
    record = HostRecord(
        host.id, host.name, found, way, reason, reboot and way == REINSTALL
    )
    if way == NOTHING:
        return replace(record, stage=DONE)
    up_or_coming = host.status == "up" or host_is(host.status, COMES)
    able = up_or_coming or host.status in INSTALLABLE
    if way == SSH:
        # SSH works in any status, but a host in trouble is not touched.
        able = up_or_coming or host.status == "maintenance"
    if not able:
        problem = f"{host.name} is {status_words(host.status)}"
        fix = "bring it up, then run the same command again"
        return replace(record, stage=LEFT_OUT, problem=problem, fix=fix)
    return record


def _way(look: Optional[Look], request: PreparationRequest) -> tuple[str, str]:
    if look is None:
        return (
            (SSH, "")
            if request.by == SSH
            else (REINSTALL, "it was not asked what it needs")
        )
    if look.known and not look.reason and not request.again:
        return NOTHING, "it is prepared"
    if request.by != AUTO:
        return request.by, look.reason
    if look.known and look.disruptive:
        return REINSTALL, _needs_maintenance(look)
    return SSH, look.reason


def _needs_maintenance(look: Look) -> str:
    steps = f"{look.disruptive} step{'s' * (look.disruptive != 1)} of its plan"
    return f"{steps} take a link down, or need a restart"


def after_ssh(
    state: PreparationState, record: HostRecord, look: Look, *, reinstall: bool = True
) -> PreparationState:
    """Return the state after the report of a host that was prepared by SSH: with AUTO,
    what is left for a maintenance is done by a reinstall, if that runs the role.
    """
    disruptive = state.by == AUTO and look.disruptive
    if disruptive and reinstall and record.found == "up":
        return state.with_host(
            record.name,
            way=REINSTALL,
            reason=_needs_maintenance(look),
            reboot=state.reboot == "yes" or (state.reboot == AUTO and look.reboot > 0),
            stage="todo",
            sentinel="",
        )
    return state.with_host(record.name, stage=DONE, left=look.disruptive)


def _in_order(hosts: Sequence[Host], canary: Optional[str]) -> list[Host]:
    """Return the canary first: a host that is up, with few virtual machines; and the
    SPM and the hosts of the hosted engine last, because moving these takes longest.
    """

    def weight(host: Host) -> tuple[bool, bool, bool, bool, int]:
        return (
            host.name != canary,
            host.status != "up",
            host.spm == "spm",
            host.hosted_engine,
            host.vms if canary is None else 0,
        )

    first = min(hosts, key=weight, default=None)
    rest = [host for host in hosts if host is not first]
    rest.sort(key=lambda host: (host.spm == "spm", host.hosted_engine))
    return [first, *rest] if first is not None else []


def _batches(
    records: Sequence[HostRecord], request: PreparationRequest
) -> dict[str, int]:
    """Return the number of each host's batch: the canary's is 0."""
    mine = [one for one in records if one.way != NOTHING and one.stage != LEFT_OUT]
    return {
        one.name: 0 if number == 0 else 1 + (number - 1) // request.batch
        for number, one in enumerate(mine)
    }
