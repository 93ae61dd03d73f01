# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a second conversion to the same transport, for hosts that are new or were down.

A revert restores the baseline, the state before the first one.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from engine_double import new_id
from hypothesis import given
from hypothesis import strategies as st
from support.engine.conversion_runs import (
    BY_ROW,
    EXPORT,
    OFFLINE,
    ROLLING,
    changed,
    convert,
    everything,
    planned,
    resume,
    revert,
    run,
    site_of,
    transports,
)
from support.engine.conversion_site import Killed, engine_of
from support.engine.engine_command_line import Notes

from ovirt_rdma.engine_sdk_tools.conversion.model import Stage
from ovirt_rdma.engine_sdk_tools.conversion.plan import is_converted, plan_resume

pytestmark = pytest.mark.engine

OTHER = "nfs2.example.com:/o"
REQUESTS = {"offline": OFFLINE, "rolling": ROLLING, "by row": BY_ROW}
ALL = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)


def without_host03(request_, **words):
    """Return a site on which host03 is added after a first conversion, over TCP."""
    site = site_of(addon=not request_.by_row, **words)
    before = everything(site)
    late = site.world.hosts.pop(site.world.host("host03").id)
    return site, before, late


def comes(site, late, transport="tcp"):
    site.world.hosts[late.id] = late
    late.mounts = {EXPORT: transport, OTHER: "tcp"}


def goes_back(site, before):
    """Revert: all is as it was before."""
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert not changed(site, before)


def again(site, request_, *names):
    """Convert with the record of the conversion before."""
    return run(site, planned(site, request_, *names, earlier=[site.stored]).state)


def test_a_host_that_was_down_and_came_up():
    """The first conversion left it unchanged; the row decides."""
    site = site_of(addon=False)
    before = everything(site)
    there = site.world.host("host02")
    there.status, there.mounts = "down", {}
    assert convert(site, BY_ROW).stage == Stage.CONVERTED
    there.status, there.mounts = "up", {EXPORT: "tcp", OTHER: "tcp"}
    assert again(site, BY_ROW).stage == Stage.CONVERTED
    goes_back(site, before)


def test_a_host_that_came_up_over_the_new_row_by_itself_is_reverted_too():
    """Neither conversion moved it, unlike another host."""
    site, before, late = without_host03(BY_ROW, hosts=4)
    other = site.world.hosts.pop(site.world.host("host04").id)
    assert convert(site, BY_ROW).stage == Stage.CONVERTED
    comes(site, late, "rdma")
    comes(site, other)
    assert again(site, BY_ROW).stage == Stage.CONVERTED
    goes_back(site, before)


@ALL
def test_again_and_again(request_):
    site, before, late = without_host03(request_, hosts=4)
    other = site.world.hosts.pop(site.world.host("host04").id)
    assert convert(site, request_).stage == Stage.CONVERTED
    for one in (late, other):
        comes(site, one)
        calls = len(site.calls)
        assert again(site, request_).stage == Stage.CONVERTED
        assert set(transports(site).values()) == {"rdma"}
        if request_.rolling:
            # The other hosts need no change.
            assert {c.subject for c in site.calls[calls:]} == {one.name, "cl1"}
    goes_back(site, before)


@ALL
def test_the_second_one_fails_and_the_first_stands(request_):
    site, before, late = without_host03(request_)
    assert convert(site, request_).stage == Stage.CONVERTED
    comes(site, late)
    state = planned(site, request_, earlier=[site.stored]).state
    late.rdma_ready = False
    state = run(site, state)
    assert "host03" in state.why
    assert [transports(site)[n] for n in ("host01", "host02")] == ["rdma", "rdma"]
    late.rdma_ready = True
    goes_back(site, before)


@ALL
def test_cut_off_anywhere_in_the_second_and_reverted_or_gone_on_with(request_):
    whole, _, late = without_host03(request_)
    convert(whole, request_)
    comes(whole, late)
    start = len(whole.acts)
    again(whole, request_)
    for number in range(start, len(whole.acts), 3):
        for go_on in (False, True):
            site, before, late = without_host03(request_)
            convert(site, request_)
            comes(site, late)
            site.kill_at = number
            with pytest.raises(Killed):
                again(site, request_)
            site.alive()
            if go_on and site.stored.stage not in (Stage.CONVERTED, Stage.STOPPED):
                told = [site._report(h.name) for h in site.world.hosts.values()]
                state = run(site, plan_resume(site.stored, engine_of(site), told).state)
                assert state.stage == Stage.CONVERTED, (number, state.why)
            state = revert(site)
            assert state.stage == Stage.REVERTED, (
                number,
                whole.acts[number],
                state.why,
            )
            if number > start:
                # Before its first record, host03 belongs to no conversion.
                assert not changed(site, before), (number, whole.acts[number])


def test_another_rule_the_second_time():
    site = site_of()
    before = everything(site)
    assert convert(site).stage == Stage.CONVERTED
    assert again(site, replace(ROLLING, rule="prefer-rdma")).stage == Stage.CONVERTED
    assert "prefer-rdma" in (site.world.host("host02").policy_text or "")
    goes_back(site, before)


def two_servers(**words):
    """Return a site with data2 on another server, so that its mounts do not affect the
    transport of others.
    """
    site = site_of(domains=("data1", "data2"), **words)
    row = site.world.connection_of("data2")
    old, row.address = row.export, "nfs3.example.com"
    for host in site.world.hosts.values():
        host.mounts[row.export] = host.mounts.pop(old)
    return site


def test_one_domain_more_the_second_time():
    site = two_servers()
    before = everything(site)
    assert convert(site, ROLLING, "data1").stage == Stage.CONVERTED
    state = again(site, ROLLING, "data1", "data2")
    assert state.stage == Stage.CONVERTED, state.why
    goes_back(site, before)


def test_two_that_were_converted_apart_and_then_together():
    site = two_servers()
    before = everything(site)
    late = site.world.hosts.pop(site.world.host("host03").id)
    apart = [convert(site, ROLLING, name) for name in ("data1", "data2")]
    site.world.hosts[late.id] = late
    plan = planned(site, ROLLING, "data1", "data2", earlier=apart[::-1])
    state = run(site, plan.state)
    assert state.stage == Stage.CONVERTED, state.why
    goes_back(site, before)


def test_a_policy_that_was_rewritten_by_hand_since_is_what_comes_back():
    site = site_of()
    assert convert(site).stage == Stage.CONVERTED
    theirs = "version: 1\n# edited\n"
    site.world.host("host02").policy_text = theirs
    assert again(site, ROLLING).stage == Stage.CONVERTED
    assert "require-rdma" in (site.world.host("host02").policy_text or "")
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert site.world.host("host02").policy_text == theirs
    assert site.world.host("host01").policy_text == ""


def test_a_row_that_was_set_back_by_hand_since_is_what_comes_back():
    site = site_of()
    site.world.connection_of("data1").mount_options = "soft"
    assert convert(site).stage == Stage.CONVERTED
    site.world.connection_of("data1").mount_options = "hard"
    assert again(site, ROLLING).stage == Stage.CONVERTED
    assert revert(site).stage == Stage.REVERTED
    assert site.world.connection_of("data1").mount_options == "hard"


def test_to_the_other_transport_and_a_revert_goes_back_to_the_first():
    site = site_of()
    site.world.connection_of("data1").mount_options = "soft"
    before = everything(site)
    convert(site)
    for to in ("tcp", "rdma", "tcp"):
        state = again(site, replace(ROLLING, to=to))
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"tcp"}
    assert "transport: tcp" in site.world.host("host02").policy_text
    goes_back(site, before)


def test_a_host_that_is_in_another_data_center_meanwhile():
    site = site_of()
    before = everything(site)
    convert(site)
    away = site.world.hosts.pop(site.world.host("host02").id)
    prefer = replace(ROLLING, rule="prefer-rdma")
    assert again(site, prefer).stage == Stage.CONVERTED
    assert again(site, ROLLING).stage == Stage.CONVERTED
    site.world.hosts[away.id] = away
    goes_back(site, before)


def removed_and_added(site, name):
    """Reinstall a host: the engine has another one of its name then."""
    old = site.world.hosts.pop(site.world.host(name).id)
    new = replace(old, id=new_id(f"{name} again"), policy_text="", more={})
    comes(site, new)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_host_that_was_removed_and_added_under_its_name_is_another(interrupted):
    """Its trip is not over with the record of the one that was removed."""
    site = site_of(hosts=4)
    if interrupted:
        site.meanwhile["perform activating host02"] = site.die
        with pytest.raises(Killed):
            convert(site)
        removed_and_added(site, "host03")
        state = resume(site)
    else:
        convert(site)
        removed_and_added(site, "host03")
        state = again(site, ROLLING)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert set(transports(site).values()) == {"tcp"}
    whys = {host.name: host.why for host in state.hosts}
    assert whys["host03"] == ""
    assert whys["host03 (removed)"] == "it is no longer in the engine"


def test_a_host_that_the_second_one_had_not_reached_when_it_stopped():
    """Resumed, it is recorded again, and still has its first state."""
    site = site_of()
    before = everything(site)
    convert(site)
    prefer = replace(ROLLING, rule="prefer-rdma")
    state = planned(site, prefer, earlier=[site.stored]).state
    last = state.hosts[-1].name
    site.pushes_fail = {state.hosts[1].name}
    assert run(site, state).stage == Stage.STOPPED
    assert not site.stored.host(last).touched
    site.pushes_fail = set()
    assert resume(site).stage == Stage.CONVERTED
    goes_back(site, before)


RUNS = st.tuples(
    st.sampled_from(["rdma", "tcp"]),
    st.sampled_from([OFFLINE, ROLLING, replace(ROLLING, rule="prefer-rdma")]),
    st.none() | st.integers(0, 60),
    st.booleans(),
)


@given(runs=st.lists(RUNS, min_size=1, max_size=5))
def test_after_any_conversions_killed_or_not_a_revert_goes_back_to_the_first(runs):
    """Each may be killed, then resumed or reverted."""
    site = site_of(hosts=2)
    site.world.connection_of("data1").mount_options = "soft"
    site.world.host("host01").policy_text = "# ours\nversion: 1\n"
    before = everything(site)
    for to, request_, kill_after, go_on in runs:
        last = site.stored
        earlier = [last] if last is not None and is_converted(last) else []
        plan = planned(site, replace(request_, to=to), earlier=earlier)
        if not plan.steps:
            continue
        if kill_after is not None:
            site.kill_at = len(site.acts) + kill_after
        with contextlib.suppress(Killed):
            run(site, plan.state)
        site.alive()
        if site.stored is last:
            continue  # killed before its first record
        if site.stored.stage != Stage.CONVERTED:
            state = resume(site) if go_on else revert(site)
            assert state.stage == (Stage.CONVERTED if go_on else Stage.REVERTED), (
                state.why
            )
    if site.stored is not None and site.stored.stage != Stage.REVERTED:
        goes_back(site, before)


# -- a revert of a host whose machines stay


def test_a_revert_of_a_host_whose_machines_stay_needs_one_run_more():
    site = site_of()
    before = everything(site)
    assert convert(site).stage == Stage.CONVERTED
    there = site.world.host("host02")
    there.vms, there.stuck_vms = ["vm1"], ["vm1"]
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "host02 is not evacuated" in state.why
    there.vms, there.stuck_vms = [], []
    there.status = "preparing_for_maintenance"
    site.world.transitions.stop(there.id)
    goes_back(site, before)


def test_the_note_of_a_failure_is_one_sentence():
    ear = Notes()
    site = site_of()
    there = site.world.host("host02")
    there.vms, there.stuck_vms = ["vm1"], ["vm1"]
    run(site, planned(site).state, ear)
    *still, note = ear.notes
    assert {one.partition(", for ")[0] for one in still} == {
        "still waiting for host02 to be in maintenance"
    }
    assert note.endswith("(VM: vm1, Source: host02); the conversion is rolled back")
