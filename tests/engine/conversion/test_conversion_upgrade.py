# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the upgrade flag of clusters, by which a conversion and oVirt's own role
cluster_upgrade keep off each other: set before the first host goes to maintenance,
cleared at the end, and never another program's.
"""

from __future__ import annotations

import pytest
from engine_double import clusters
from support.engine.conversion_runs import (
    OFFLINE,
    ROLLING,
    convert,
    planned,
    reports,
    revert,
    run,
    site_of,
)
from support.engine.conversion_site import Killed, engine_of

from ovirt_rdma.engine_sdk_tools.api.request import (
    DENIED,
    TIMEOUT,
    UNREACHABLE,
    EngineProblem,
    LostAnswer,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import Stage
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_revert
from ovirt_rdma.engine_sdk_tools.job import OtherRun

pytestmark = pytest.mark.engine


def flag(site) -> str:
    """Return whose the flag of the cluster is, "" for nobody's."""
    cluster = site.world.cluster("cl1")
    return cluster.upgrade_correlation_id if cluster.upgrade_in_progress else ""


def ours(site) -> str:
    return f"ovirt-rdma-{site.world.data_center('dc1').id}"


def is_upgraded_by_others(site) -> None:
    cluster = site.world.cluster("cl1")
    cluster.upgrade_in_progress, cluster.upgrade_correlation_id = True, "theirs"


def methods(site) -> list[str]:
    return [call.method for call in site.calls]


def seen_at(site, act: str) -> list[str]:
    """Return a list that gets the flag before the first act of this name."""
    seen: list[str] = []
    site.meanwhile[act] = lambda: seen.append(flag(site))
    return seen


def test_it_is_set_while_hosts_go_to_maintenance():
    site = site_of()
    first = seen_at(site, "perform moving host02 to maintenance")
    last = seen_at(site, "perform activating host01")
    assert convert(site).stage == Stage.CONVERTED
    assert first == last == [ours(site)]
    assert methods(site).count("upgrade") == 2
    assert (methods(site)[0], methods(site)[-1], flag(site)) == (
        "upgrade",
        "upgrade",
        "",
    )
    assert revert(site).stage == Stage.REVERTED
    assert methods(site).count("upgrade") == 4
    assert flag(site) == ""


def test_without_maintenance_of_hosts_it_is_not_set():
    site = site_of()
    assert convert(site, OFFLINE).stage == Stage.CONVERTED
    assert "upgrade" not in methods(site)


def test_a_restart_of_the_engine_clears_it_and_it_is_set_again():
    site = site_of()
    restart = lambda: clusters.restart(site.world)  # noqa: E731
    site.meanwhile["perform activating host02"] = restart
    later = seen_at(site, "perform moving host03 to maintenance")
    assert convert(site).stage == Stage.CONVERTED
    assert later == [ours(site)]
    assert methods(site).count("upgrade") == 3


def test_an_upgrade_that_has_begun_meanwhile_stops_a_conversion():
    site = site_of()
    state = planned(site).state

    def restart():
        clusters.restart(site.world)
        is_upgraded_by_others(site)

    site.meanwhile["perform activating host02"] = restart
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert "cluster cl1 is being upgraded" in state.why
    assert methods(site).count("deactivate") == 1
    assert flag(site) == "theirs"


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_two_that_begin_together(lost):
    """The other one is first: the engine refuses ours, and nothing was changed."""
    site = site_of(hosts=2)
    state = planned(site).state
    site.meanwhile["perform marking"] = lambda: is_upgraded_by_others(site)
    if lost:
        site.kill_at, site.lose = 3, True
    state = run(site, state)
    assert state.stage == Stage.ROLLED_BACK
    assert "cluster cl1 is being upgraded" in state.why
    assert "deactivate" not in methods(site)
    assert flag(site) == "theirs"


def test_a_revert_only_warns_of_an_upgrade():
    site = site_of()
    convert(site)
    is_upgraded_by_others(site)
    plan = plan_revert(site.stored, engine_of(site), reports(site))
    assert ["cluster cl1 is being upgraded" in text for text in plan.warnings] == [True]
    assert run(site, plan.state).stage == Stage.REVERTED
    assert flag(site) == "theirs"


NO = EngineProblem("engine-permission-denied", "it", "no", DENIED, code=403)


def fails(site, which, error=NO, times=99):
    """Raise ``error`` for so many requests for the flag that ``which`` names; return
    the list of those that are left.
    """
    perform, left = site.perform, [error] * times

    def failing(call, **words):
        if call.doing.startswith(which) and left:
            raise left.pop()
        return perform(call, **words)

    site.perform = failing
    return left


def test_a_user_who_may_not_set_it_converts_nothing():
    site = site_of()
    fails(site, "marking")
    state = convert(site)
    assert state.stage == Stage.ROLLED_BACK
    assert not site.calls
    assert {host.policy_text for host in site.world.hosts.values()} == {""}


def test_a_revert_needs_no_flag():
    site = site_of()
    convert(site)
    fails(site, "marking")
    assert revert(site).stage == Stage.REVERTED


def test_a_lost_answer_leaves_no_flag():
    """Here the engine has not got the request."""
    site = site_of()
    error = LostAnswer(EngineProblem("id", "it", "it is lost", TIMEOUT))
    left = fails(site, "ending the mark", error, times=1)
    assert convert(site).stage == Stage.CONVERTED
    assert left == []
    assert flag(site) == ""


@pytest.mark.parametrize(
    "error",
    [
        EngineProblem("id", "it", "there is no route", UNREACHABLE),
        OtherRun("conversion-lock-lost", "another run has taken over"),
    ],
    ids=["no engine", "no lock"],
)
def test_a_run_is_not_complete_before_it_is_cleared(error):
    """Otherwise no run would clear it: the next one would have nothing to do."""
    site = site_of()
    left = fails(site, "ending the mark", error)
    with pytest.raises(type(error)):
        convert(site)
    assert (site.stored.stage, flag(site)) == (Stage.CONVERTING, ours(site))
    left.clear()
    assert run(site, site.stored).stage == Stage.CONVERTED
    assert flag(site) == ""


def test_one_that_cannot_be_cleared_spoils_nothing():
    site = site_of()
    fails(site, "ending the mark")
    assert convert(site).stage == Stage.CONVERTED
    assert flag(site) == ours(site)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_clears_it(error):
    site = site_of()

    def interrupt():
        raise error

    site.meanwhile["perform activating host02"] = interrupt
    with pytest.raises(error):
        convert(site)
    assert flag(site) == ""


def test_a_conversion_that_stops_clears_it():
    site = site_of()
    state = planned(site).state
    site.pushes_fail = {"host03"}
    assert run(site, state).stage == Stage.STOPPED
    assert flag(site) == ""


class Lock:
    """A lock that is lost after the act ``last``."""

    def __init__(self, site, last):
        self.site, self.last = site, last

    def check(self):
        if any(act.startswith(self.last) for act in self.site.acts):
            raise OtherRun("conversion-lock-lost", "another run has taken over")


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_that_lost_its_lock_leaves_it_to_the_other(interrupted):
    site = site_of()
    state = planned(site, ROLLING).state
    lock = Lock(site, "wait waiting for host02 to be in maintenance")

    def interrupt():
        raise KeyboardInterrupt

    if interrupted:
        site.meanwhile["wait waiting for host02 to be in maintenance"] = interrupt
    with pytest.raises(KeyboardInterrupt if interrupted else OtherRun):
        run(site, state, lock=lock)
    assert flag(site) == ours(site)


def test_a_killed_run_leaves_it_and_the_next_one_clears_it():
    whole, site = site_of(), site_of()
    convert(whole)
    site.kill_at = whole.acts.index("perform activating host02")
    with pytest.raises(Killed):
        convert(site)
    assert flag(site) == ours(site)
    site.alive()
    # Before the checks of another conversion, it is no upgrade of others.
    assert planned(site).steps
    assert run(site, site.stored).stage == Stage.CONVERTED
    assert flag(site) == ""
