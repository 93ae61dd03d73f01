# SPDX-License-Identifier: GPL-2.0-or-later
"""Test conversions on an engine with delays, refusals and hosts that fail.

A run waits for temporary states and late events. What cannot work is refused before the
first host goes to maintenance.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.conversion_runs import (
    BATCH,
    BY_ROW,
    EXPORT,
    OFFLINE,
    ROLLING,
    after,
    changed,
    convert,
    everything,
    planned,
    reports,
    resume,
    revert,
    run,
    site_of,
    transports,
)
from support.engine.conversion_site import Killed, Site, engine_of
from support.engine.engine_command_line import Notes
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.request import Call, wire_form
from ovirt_rdma.engine_sdk_tools.conversion.fleet import pinned_on
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest, Stage
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    plan_convert,
    plan_resume,
    plan_revert,
)
from ovirt_rdma.engine_sdk_tools.job import OtherRun
from ovirt_rdma.engine_sdk_tools.model import ChecksFailed
from ovirt_rdma.host.errors import Sentence

pytestmark = pytest.mark.engine


def lose_event_13(site: Site) -> None:
    log = site.world.log
    record = log.record
    log.record = lambda code, *a, **k: code != 13 and record(code, *a, **k)


def away(site: Site) -> list[str]:
    return [h.name for h in site.world.hosts.values() if h.status != "up"]


# -- up comes before the storage is connected


@pytest.mark.parametrize("reads", [1, 3, 12])
@pytest.mark.parametrize("request_", [ROLLING, BATCH, BY_ROW])
def test_up_is_believed_when_the_storage_is_connected(request_, reads):
    site = site_of(addon=not request_.by_row)
    site.world.connecting_reads = reads
    before = everything(site)
    state = convert(site, request_)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    assert revert(site).stage == Stage.REVERTED
    site.world.settle()
    assert not changed(site, before)


def test_a_run_that_is_cut_off_while_a_host_connects_its_storage():
    """The next run finds the host up, but without the mount."""
    whole = site_of()
    convert(whole)
    site = site_of()
    site.world.connecting_reads = 9
    site.kill_at, site.after = whole.acts.index("perform activating host02"), True
    with pytest.raises(Killed):
        convert(site)
    there = site.world.host("host02")
    while there.status != "up":
        site.world.transitions.advance(there.id)
    assert EXPORT not in there.mounts
    state = resume(site)
    assert state.stage == Stage.CONVERTED, state.why


@pytest.mark.parametrize("reads", [1, 3, 12])
def test_no_host_can_mount(reads):
    """One host at a time; the first one fails."""
    site = site_of(hosts=4, addon=False)
    site.world.connecting_reads = reads
    before = everything(site)
    state = planned(site, BY_ROW).state
    most = []
    perform = site.perform

    def count_those_away(call, **more):
        perform(call, **more)
        most.append(len(away(site)))

    site.perform = count_those_away
    for host in site.world.hosts.values():
        host.rdma_ready = False
    state = run(site, state)
    assert state.stage == Stage.ROLLED_BACK, state.why
    assert max(most) == 1
    assert "non-operational" in state.why
    site.world.settle()
    assert not changed(site, before)


def test_the_engine_never_says_that_the_storage_is_connected():
    """Its event is lost: in the end the mounts are checked."""
    site = site_of()
    lose_event_13(site)
    assert convert(site).stage == Stage.CONVERTED


# -- temporary states


def test_when_it_is_done_the_data_center_is_at_rest():
    """While the SPM moves, the status of the domains is unknown, and a revert would be
    refused.
    """
    site = site_of()
    assert convert(site).stage == Stage.CONVERTED
    assert site.world.data_center("dc1").status == "up"
    assert {domain.status for domain in site.world.domains.values()} == {"active"}


def test_a_data_center_that_does_not_come_to_rest_is_a_note():
    site = site_of()
    state = planned(site).state
    notes = Notes()
    centre = site.world.data_center("dc1")

    def contends():
        site.world.transitions.stop(centre.id)
        centre.status = "contend"

    site.meanwhile["perform setting the mount options"] = contends
    state = run(site, state, notes)
    assert state.stage == Stage.CONVERTED
    assert "waiting for the data center to have an SPM" in notes.notes[-1]
    assert "contend" in notes.notes[-1]


def test_spm_that_cannot_be_stopped_for_a_while():
    site = site_of()
    site.world.host("host01").spm_stop_fails = 9
    notes = Notes()
    state = run(site, planned(site).state, notes)
    assert state.stage == Stage.CONVERTED, state.why
    (first, *_) = [one for one in notes.notes if "had no effect" in one]
    assert "SPM did not stop" in first
    assert "1800 s" in first


def test_spm_that_cannot_be_stopped_at_all():
    site = site_of()
    site.world.host("host01").spm_stop_fails = 10_000
    began = site.now
    state = convert(site)
    assert state.stage == Stage.STOPPED
    assert "SPM did not stop" in state.why
    assert 1800 <= site.now - began < 6000
    assert not away(site)
    site.world.host("host01").spm_stop_fails = 0
    assert resume(site).stage == Stage.CONVERTED


def test_a_machine_that_no_host_can_take_now():
    """The answer has no reason; the host goes to maintenance as soon as it can."""
    site = site_of()
    there = site.world.host("host02")
    there.vms, there.unscheduled_vms = ["vm1", "vm2"], ["vm1"]
    notes = Notes()
    state = planned(site).state
    perform = site.perform

    def and_make_room(call, **more):
        try:
            perform(call, **more)
        finally:
            if (call.subject, call.method) == ("host02", "deactivate"):
                there.unscheduled_vms = []

    site.perform = and_make_room
    state = run(site, state, notes)
    assert state.stage == Stage.CONVERTED, state.why
    assert any("moving host02 to maintenance failed" in one for one in notes.notes)


@pytest.mark.parametrize("how", ["unscheduled_vms", "stuck_vms", "manual_vms"])
def test_a_machine_that_never_leaves(how):
    site = site_of()
    before = everything(site)
    there = site.world.host("host02")
    there.vms = ["vm1"]
    setattr(there, how, ["vm1"])
    if how == "manual_vms":
        # It leaves once and comes back: only then the engine cannot move it.
        there.stuck_vms = ["vm1"]
    began = site.now
    state = convert(site)
    assert state.stage == Stage.ROLLED_BACK
    assert "host02 is not evacuated" in state.why
    assert "gives no reason" not in state.why
    assert 1500 <= site.now - began < 6 * 3600
    site.world.settle()
    assert there.status == "up"
    there.vms = []
    assert not changed(site, before)


def test_a_long_evacuation_goes_on_as_long_as_machines_leave():
    site = site_of()
    there = site.world.host("host02")
    there.vms = [f"vm{n}" for n in range(8)]
    there.stuck_vms = list(there.vms)
    site.world.retry_reads = 20  # 20 minutes, by the site's clock
    sleep = site.sleep

    def and_let_one_go(seconds):
        sleep(seconds)
        if int(site.now) % 1200 < seconds and there.stuck_vms:
            there.stuck_vms.pop()

    site.sleep = and_let_one_go
    state = convert(site)
    assert state.stage == Stage.CONVERTED, state.why


# -- refused before the first host goes


def refused(site: Site, request=ROLLING, **more) -> Sentence:
    """Return the reason of the refusal, the first of several."""
    engine = engine_of(site)
    domains = [d for d in engine.domains if d.name == "data1"]
    with pytest.raises(ChecksFailed) as caught:
        plan_convert(engine, domains, reports(site), request, **more)
    assert not site.calls
    assert len(caught.value.reasons) == len(caught.value.sentences)
    return caught.value.reasons[0]


def test_pinned_machines():
    site = site_of()
    there = site.world.host("host02")
    there.vms, there.pinned_vms = ["vm1", "vm2"], ["vm2"]
    pinned = pinned_on(site, engine_of(site).hosts)
    assert pinned == {there.id: ["vm2"]}
    reason = refused(site, pinned=pinned)
    assert reason.id == "host-vms-pinned"
    assert reason.startswith("host02 ")
    assert "vm2" in reason
    assert "--without host02" in reason


def test_a_cluster_upgrade_under_way():
    site = site_of()
    site.world.cluster("cl1").upgrade_in_progress = True
    reason = refused(site)
    assert reason.id == "cluster-upgrade-running"
    assert "cl1" in reason
    # Offline, no host goes to maintenance.
    assert planned(site, OFFLINE).steps


def test_a_path_with_a_colon():
    """The engine shows it truncated; only the hosts have the whole path."""
    site = site_of()
    site.world.connection_of("data1").path = "/exports/data1:2"
    for host in site.world.hosts.values():
        host.mounts[f"{EXPORT}:2"] = host.mounts.pop(EXPORT)
    reason = refused(site)
    assert reason.id == "domain-path-truncated"
    assert f"{EXPORT}:2" in reason


# -- hosts that are left out


def without(*names: str, rolling: bool = True) -> ConversionRequest:
    return ConversionRequest("rdma", rolling=rolling, without=names)


def down(site: Site, name: str) -> None:
    there = site.world.host(name)
    there.status, there.reachable, there.mounts = "down", False, {}


def back(site: Site, name: str) -> None:
    """Activate a repaired host: it mounts by its own policy, or by the engine's row."""
    there = site.world.host(name)
    there.reachable, there.status = True, "maintenance"
    service = f"hosts/{there.id}"
    site.perform(Call(service, "activate", "activating it manually"))
    site.calls.pop()
    site.world.settle()


@pytest.mark.parametrize("rolling", [True, False], ids=["rolling", "offline"])
def test_a_host_that_is_down_is_left_out_and_converted_later(rolling):
    site = site_of()
    before = everything(site)
    down(site, "host03")
    if rolling:
        reason = refused(site, without(rolling=rolling))
        assert reason.id == "host-readiness-unknown"
        assert "--without host03" in reason
    request = without("host03", rolling=rolling)
    plan = planned(site, request)
    assert any("host03 is left out" in warning for warning in plan.warnings)
    state = run(site, plan.state)
    assert state.stage == Stage.CONVERTED, state.why
    assert planned(site, request).steps == ()
    left = state.host("host03")
    assert (left.stage, left.left_out, left.touched) == (Stage.LEFT, True, False)
    assert site.world.host("host03").policy_text == ""
    back(site, "host03")
    assert set(transports(site).values()) == {"rdma"}
    (warning,) = plan_revert(state, engine_of(site), reports(site)).warnings
    assert warning.id == "hosts-not-converted"
    assert "host03" in warning
    # The same command gives it its policy, and has nothing else to do.
    plan = planned(site, without(rolling=rolling), earlier=[state])
    state = run(site, plan.state)
    assert state.stage == Stage.CONVERTED
    assert "require-rdma" in site.world.host("host03").policy_text
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    site.world.settle()
    assert {n for n in changed(site, before) if n != "host03"} == set()
    assert site.world.host("host03").policy_text == ""


def test_a_host_that_breaks_down_on_its_way_is_left_out_then():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")

    def breaks():
        there.reachable = False

    after(site, "host02", "deactivate", breaks)
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert state.host("host02").stage == Stage.FAILED
    del site.perform
    plan = plan_resume(state, engine_of(site), reports(site), ["host02"])
    state = run(site, plan.state)
    assert state.stage == Stage.CONVERTED, state.why
    assert state.host("host02").left_out
    assert transports(site)["host03"] == transports(site)["host01"] == "rdma"
    # It is back: the same command includes it.
    there.reachable = True
    plan = plan_revert(state, engine_of(site), reports(site))
    assert any(step.subject == "host02" for step in plan.steps)


@pytest.mark.parametrize(
    "cut", ["perform moving host02", "wait waiting for host02 to be in"]
)
def test_a_host_that_was_begun_is_not_left_out(cut):
    """It would stay in maintenance, with the new policy."""
    site = site_of()
    site.meanwhile[cut] = site.die
    with pytest.raises(Killed):
        run(site, planned(site).state)
    site.alive()
    with pytest.raises(ChecksFailed) as raised:
        plan_resume(site.stored, engine_of(site), reports(site), ["host02"])
    (reason,) = raised.value.reasons
    assert reason.id == "host-begun-left-out"
    assert "omit --without host02" in reason
    assert resume(site).stage == Stage.CONVERTED


def test_a_host_in_use_that_is_left_out_is_no_reason_to_begin_again():
    site = site_of()
    before = dict(site.world.host("host02").mounts)
    state = run(site, planned(site, without("host02")).state)
    assert state.stage == Stage.CONVERTED
    assert site.world.host("host02").mounts == before
    assert planned(site, without("host02")).steps == ()
    assert planned(site).steps


def test_hosts_that_were_left_out_are_taken_in_when_they_are_back():
    """One was down from the start, and one failed during its turn."""
    site = site_of(hosts=4)
    down(site, "host04")
    state = planned(site, without("host04")).state
    site.meanwhile["wait waiting for host02 to be in maintenance"] = lambda: down(
        site, "host02"
    )
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    spm = site.world.host("host01")
    spm.vms, spm.stuck_vms = ["vm1"], ["vm1"]
    plan = plan_resume(state, engine_of(site), reports(site), ["host02"])
    state = run(site, plan.state)
    assert state.stage == Stage.STOPPED
    assert [h.name for h in state.hosts if h.left_out] == ["host02", "host04"]
    spm.vms, spm.stuck_vms = [], []
    for name in ("host02", "host04"):
        back(site, name)
    state = resume(site)
    assert state.stage == Stage.CONVERTED, state.why
    assert not [h.name for h in state.hosts if h.left_out]
    for host in site.world.hosts.values():
        assert "require-rdma" in host.policy_text
    assert set(transports(site).values()) == {"rdma"}
    # The state before its turn is still known.
    assert revert(site).stage == Stage.REVERTED
    assert {host.policy_text for host in site.world.hosts.values()} == {""}


@pytest.mark.parametrize(
    ("hosts", "request_", "id"),
    [
        (3, without("host09"), "host-unknown"),
        (3, without("host02", rolling=False), "host-up-left-out"),
        (1, replace(without("host01"), allow_datacenter_down=True), "no-host-up"),
    ],
)
def test_who_cannot_be_left_out(hosts, request_, id):
    reason = refused(site_of(hosts=hosts), request_)
    assert reason.id == id
    assert id == "no-host-up" or request_.without[0] in reason


# -- found by a reviewer who knew the engine


def test_a_host_that_stops_responding_on_its_way_is_not_waited_for_for_hours():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")
    there.vms, there.stuck_vms = ["vm1"], ["vm1"]

    def breaks():
        site.world.transitions.stop(there.id)
        there.status, there.reachable = "non_responsive", False

    site.meanwhile["wait waiting for host02 to be in maintenance"] = breaks
    began = site.now
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    for text in ("host02 ", "non-responsive", "10 minutes"):
        assert text in state.why
    assert site.now - began < 3600


def test_in_a_batch_a_host_that_is_refused_is_no_other_ones():
    """host03 goes at the same time; the refusal of host02 is final nevertheless."""
    site = site_of(hosts=4)
    before = everything(site)
    state = planned(site, BATCH).state
    there = site.world.host("host02")
    there.vms, there.pinned_vms = ["vm1"], ["vm1"]
    state = run(site, state)
    assert state.stage == Stage.ROLLED_BACK, state.why
    assert "vm1" in state.why
    there.vms = []
    site.world.settle()
    for host in site.world.hosts.values():
        host.vms = []
    assert not changed(site, before)
    assert "host03" not in {call.subject for call in site.calls}


def test_the_reason_of_a_stuck_evacuation_is_not_a_strangers():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")
    there.vms, there.stuck_vms = ["vm1"], ["vm1"]

    def and_somebody_else(seconds):
        sleep(seconds)
        site.world.log.record(114, "error", "User bob@internal failed to log in.")

    sleep, site.sleep = site.sleep, and_somebody_else
    state = run(site, state)
    assert "bob" not in state.why
    assert "Migration failed (VM: vm1" in state.why


def test_an_image_transfer_is_waited_for_longer_and_named():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")

    def keeps():
        site.world.transitions.stop(there.id)

    after(site, "host02", "deactivate", keeps)
    began = site.now
    state = run(site, state)
    assert "no virtual machine" in state.why
    assert "image transfer" in state.why
    assert site.now - began >= 7200


def test_a_revert_does_not_stop_at_a_host_that_is_dead():
    site = site_of(hosts=4)
    assert convert(site).stage == Stage.CONVERTED
    down(site, "host02")
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "host02" in state.why
    others = {n: t for n, t in transports(site).items() if n != "host02"}
    assert set(others.values()) == {"tcp"}
    for name in others:
        assert site.world.host(name).policy_text == ""


def test_a_revert_where_another_machine_has_taken_over_and_gone_on():
    """Its record has one host only; the hosts' reports show the rest."""
    site = site_of()
    before = everything(site)
    site.kill_at, site.after = 7, True
    with pytest.raises(Killed):
        convert(site)
    here = site.stored
    assert sum(host.touched for host in here.hosts) == 1
    site.alive()
    assert run(site, planned(site).state).stage == Stage.CONVERTED
    site.stored = here
    assert revert(site).stage == Stage.REVERTED
    site.world.settle()
    assert not changed(site, before)


def test_the_lock_is_looked_at_again_while_a_refusal_is_repeated():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")
    there.running_operations = ["a backup"]
    taken: list[float] = []

    class Lock:
        def check(self):
            if taken:
                raise OtherRun("conversion-lock-lost", "another run has taken over")

    def take_over(seconds):
        sleep(seconds)
        if there.running_operations:
            there.running_operations = []
            taken.append(site.now)

    sleep, site.sleep = site.sleep, take_over
    with pytest.raises(OtherRun):
        run(site, state, lock=Lock())
    assert there.status == "up"
    assert [call.method for call in site.calls] == ["upgrade"]


def test_nothing_is_left_out_of_what_is_taken_back():
    site = site_of()
    convert(site)
    site.kill_at = len(site.acts) + 3
    with pytest.raises(Killed):
        revert(site)
    with problem("refused", "data1") as caught:
        plan_resume(site.stored, engine_of(site), reports(site), ["host02"])
    assert [reason.id for reason in caught.value.reasons] == ["host-left-out-of-revert"]


def test_somebody_else_activates_a_host_right_before_us():
    """Their event, which counts, is older than the newest event that we read."""
    site = site_of(addon=False)
    site.world.log.record(30, "normal", "User admin logged in.")
    state = planned(site, BY_ROW).state
    there = site.world.host("host02")

    def somebody_else():
        back_up = Call(f"hosts/{there.id}", "activate", "by somebody else")
        site._send(wire_form(back_up), "by somebody else")
        site.world.settle()

    read = site.read

    def look(read_, **more):
        waited = "wait waiting for host02 to be in maintenance" in site.acts
        asks = read_.path == "events" and site.acts[-1] == "write"
        if asks and waited and there.status == "maintenance" and not done:
            done.append(True)
            somebody_else()
        return read(read_, **more)

    done: list[bool] = []
    site.read = look
    began = site.now
    state = run(site, state)
    assert state.stage == Stage.CONVERTED, state.why
    assert site.now - began < 1800


# -- domains that share the kernel's connection to their server

BOTH = ("data1", "data2")
EXPORTS = [EXPORT.replace("data1", name) for name in BOTH]


def shared(transport: str):
    """Return a site whose hosts have both domains of a server over ``transport``."""
    site = site_of(domains=BOTH)
    for host in site.world.hosts.values():
        host.mounts.update(dict.fromkeys(EXPORTS, transport))
    if transport == "rdma":
        for name in BOTH:
            row = site.world.connection_of(name)
            row.mount_options = "proto=rdma,port=20049"
    return site


@pytest.mark.parametrize("request_", [OFFLINE, ROLLING, BY_ROW])
@pytest.mark.parametrize(("start", "to"), [("tcp", "rdma"), ("rdma", "tcp")])
def test_one_alone_is_refused_and_both_together_are_converted(request_, start, to):
    site = shared(start)
    request = replace(request_, to=to)
    before = everything(site)

    with problem("checks-failed", EXPORTS[1], start.upper(), "data1") as caught:
        planned(site, request, "data1")

    ids = {reason.id for reason in caught.value.reasons}
    assert ids == {"server-connection-shared"}
    assert not changed(site, before)
    state = convert(site, request, *BOTH)
    assert state.stage == Stage.CONVERTED, state.why
    for export in EXPORTS:
        assert set(transports(site, export).values()) == {to}
    if request_.rolling:
        # Each host goes once.
        assert len([c for c in site.calls if c.method == "deactivate"]) == 3
    assert revert(site).stage == Stage.REVERTED
    for export in EXPORTS:
        assert set(transports(site, export).values()) == {start}


@pytest.mark.parametrize("to", ["rdma", "tcp"])
def test_one_alone_where_the_other_has_another_version(to):
    start = {"rdma": "tcp", "tcp": "rdma"}[to]
    site = shared(start)
    site.world.connection_of("data2").nfs_version = "v4_1"

    state = convert(site, replace(ROLLING, to=to), "data1")

    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site, EXPORTS[0]).values()) == {to}
    assert set(transports(site, EXPORTS[1]).values()) == {start}
