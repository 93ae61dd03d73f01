# SPDX-License-Identifier: GPL-2.0-or-later
"""Test whole conversions on the double's world, killed at every step."""

from __future__ import annotations

import contextlib

import pytest
from engine_double import sample_world
from hypothesis import given, settings
from hypothesis import strategies as st
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
from support.engine.policy_files import joined, split

from ovirt_rdma.engine_sdk_tools.api.request import DENIED, EngineProblem, wire_form
from ovirt_rdma.engine_sdk_tools.conversion.model import BACK, ConversionRequest, Stage
from ovirt_rdma.engine_sdk_tools.conversion.plan import exit_code, plan_resume

pytestmark = pytest.mark.engine

REQUESTS = {"offline": OFFLINE, "rolling": ROLLING, "by row": BY_ROW, "batch": BATCH}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_convert_and_revert(request_):
    site = site_of(addon=not request_.by_row)
    before = everything(site)
    plan = planned(site, request_)
    state = run(site, plan.state)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    assert site.world.connection_of("data1").mount_options == "proto=rdma,port=20049"
    assert {h.status for h in site.world.hosts.values()} == {"up"}
    assert site.world.domain("data1").status == "active"
    shown = [wire_form(s.call) for s in plan.steps if s.call]
    assert [wire_form(call) for call in site.calls] == shown
    # Again: nothing to do.
    assert planned(site, request_).steps == ()
    # Back to TCP, and exactly to the state before.
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert not changed(site, before)


def points(site: Site, start: int = 0):
    """Return where to interrupt: before each act, and at changes whose answer is lost.

    A kill after an act equals one before the next. Nothing changes while hosts are
    asked.
    """
    acts = site.acts[start:]
    found = [(number, False) for number, act in enumerate(acts) if act != "look"]
    found += [(n, True) for n, act in enumerate(acts) if act.startswith("perform")]
    return found


class Tried:
    """Where conversions were interrupted; ``whole`` is a complete one."""

    def __init__(self, whole: Site, start: int = 0, calls: int = 0):
        acts = list(enumerate(whole.acts))[start:]
        self.acts = [one for one in acts if one[1] != "look"]
        # One answer can be lost per request to the engine.
        self.calls = len(whole.calls) - calls
        self.killed, self.lost = [], []

    def add(self, site: Site):
        (self.lost if site.lose else self.killed).append(site.cut)

    def check_all(self):
        """Check that no point is missing, even by a mistake in this test."""
        assert self.killed == self.acts
        assert self.lost == [a for a in self.acts if a[1].startswith("perform")]
        assert len(self.lost) == self.calls > 0


def cut_off(request_, point, start: int = 0):
    """Return a site that is interrupted at a point, counted from the act ``start``."""
    site = site_of(addon=not request_.by_row)
    number, lost = point
    site.kill_at, site.lose = start + number, lost
    return site


# Every point, once: they are run on one Python, with the whole runs (make lab-test).
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_cut_off_anywhere_and_gone_on_with_or_reverted(request_):
    whole = site_of(addon=not request_.by_row)
    before = everything(whole)
    convert(whole, request_)
    for go_on in (True, False):
        tried = Tried(whole)
        for point in points(whole):
            site = cut_off(request_, point)
            try:
                state = convert(site, request_)
                tried.add(site)
            except Killed:
                tried.add(site)
                if site.stored is None:
                    continue  # nothing was started
                assert site.stored.stage in {*Stage.UNDER_WAY, Stage.CONVERTED}
                state = resume(site) if go_on else None
            site.alive()
            where = (point, whole.acts[point[0]])
            if go_on:
                assert state.stage == Stage.CONVERTED, (where, state.why)
                assert set(transports(site).values()) == {"rdma"}, where
                assert not [h for h in site.world.hosts.values() if h.status != "up"]
                continue
            # From any point, back to the state before.
            state = revert(site)
            assert state.stage == Stage.REVERTED, (where, state.why)
            assert not changed(site, before), where
        tried.check_all()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_revert_cut_off_anywhere_and_gone_on_with(request_):
    whole = site_of(addon=not request_.by_row)
    before = everything(whole)
    convert(whole, request_)
    start = len(whole.acts)
    calls = len(whole.calls)
    revert(whole)
    tried = Tried(whole, start, calls)
    for point in points(whole, start):
        site = cut_off(request_, point, start)
        convert(site, request_)
        try:
            state = revert(site)
            tried.add(site)
        except Killed:
            tried.add(site)
            site.alive()
            state = revert(site)
        where = (point, whole.acts[start + point[0]])
        assert state.stage == Stage.REVERTED, (where, state.why)
        assert not changed(site, before), where
    tried.check_all()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("bad", ["host01", "host02", "host03"])
def test_a_host_that_is_not_ready_after_all(request_, bad):
    """The first failure ends it; that host returns to its state before."""
    site = site_of(addon=not request_.by_row)
    before = everything(site)
    state = planned(site, request_).state
    site.world.host(bad).rdma_ready = False
    old = site.world.host(bad).policy_text
    state = run(site, state)
    there = site.world.host(bad)
    assert (there.status, there.policy_text) == ("up", old)
    assert there.mounts[EXPORT] == "tcp"
    assert bad in state.why
    if request_ is OFFLINE:
        assert state.stage == Stage.ROLLED_BACK
        assert not changed(site, before)
        return
    done = [h.name for h in state.hosts if h.goal != BACK and h.stage == Stage.DONE]
    assert state.stage == (Stage.STOPPED if done else Stage.ROLLED_BACK)
    assert all(transports(site)[name] == "rdma" for name in done)
    assert site.world.connection_of("data1").mount_options in (None, "")
    assert {h.status for h in site.world.hosts.values()} == {"up"}
    # After the repair the same command does the rest, or revert undoes everything.
    there.rdma_ready = True
    state = run(site, plan_resume(state, engine_of(site), reports(site)).state)
    if done:
        assert state.stage == Stage.CONVERTED


def test_a_host_whose_machines_do_not_go_away():
    site = site_of()
    site.world.host("host02").vms = ["vm1"]
    site.world.host("host02").stuck_vms = ["vm1"]
    state = convert(site)
    assert "host02 is not evacuated: 1 virtual machine stayed on it" in state.why
    assert "Migration failed (VM: vm1" in state.why
    there = site.world.host("host02")
    assert (there.status, there.policy_text, there.vms) == ("up", "", ["vm1"])
    assert state.stage == Stage.ROLLED_BACK


def test_the_spm_is_last_and_a_batch_goes_together():
    site = site_of(hosts=5)
    convert(site, BATCH)
    order = [c.subject for c in site.calls if c.method == "deactivate"]
    assert order == ["host02", "host03", "host04", "host05", "host01"]
    pairs = [(c.method, c.subject) for c in site.calls][1:5]
    assert [m for m, _ in pairs] == ["deactivate"] * 2 + ["activate"] * 2


def test_no_domain_is_converted_without_its_hosts():
    site = site_of()
    state = convert(site, ConversionRequest("rdma", rolling=True, batch=0))
    assert [host.stage for host in state.hosts] == [Stage.DONE] * 3


def test_a_host_in_maintenance_gets_the_policy_and_stays():
    site = site_of()
    there = site.world.host("host03")
    there.status, there.mounts = "maintenance", {}
    state = convert(site)
    assert state.stage == Stage.CONVERTED
    assert there.status == "maintenance"
    assert "require-rdma" in (there.policy_text or "")
    assert state.host("host03").stage == Stage.LEFT
    revert(site)
    assert there.policy_text == ""


def test_the_deactivation_is_refused():
    site = site_of()
    before = everything(site)
    site.world.domain("data1").leases = ["vm7"]
    state = convert(site, OFFLINE)
    assert state.stage == Stage.ROLLED_BACK
    assert "vm7" in state.why
    assert not changed(site, before)


def test_options_of_one_domain_go_back_if_those_of_the_other_are_refused():
    """On hosts that mount both over RDMA already: no host is changed."""
    site = site_of(domains=("data1", "data2"))
    convert(site, ROLLING, "data1", "data2")
    for row in site.world.connections.values():
        row.mount_options = None
    before = everything(site)
    state = planned(site, ROLLING, "data1", "data2").state
    perform = site.perform

    def refused(call, **more):
        if call.subject == "data2":
            raise EngineProblem("id", call.doing, "it is denied", DENIED)
        return perform(call, **more)

    site.perform = refused
    state = run(site, state)
    assert not any(host.touched for host in state.hosts)
    assert not changed(site, before)
    # The first change was made: the engine has not refused that.
    assert (state.stage, exit_code(state)) == (Stage.ROLLED_BACK, 6)


def test_what_was_only_set_back_offline_is_not_deactivated_by_a_revert():
    """The domains are active again, with the options from before."""
    site = site_of(domains=("data1", "data2"))
    before = everything(site)
    state = planned(site, OFFLINE, "data1", "data2").state
    perform = site.perform

    def refused(call, **more):
        if call.subject == "data2" and call.method == "update":
            raise EngineProblem("id", call.doing, "it is denied", DENIED)
        result = perform(call, **more)
        if (call.subject, call.method) == ("data2", "activate"):
            site.dead = True
            raise Killed
        return result

    site.perform = refused
    with pytest.raises(Killed):
        run(site, state)
    assert site.stored.stage == Stage.UNDOING
    site.perform = perform
    site.alive()
    site.calls.clear()
    assert revert(site).stage == Stage.REVERTED
    assert [call.doing for call in site.calls if call.method == "deactivate"] == []
    assert not changed(site, before)


def test_a_mount_that_stays_is_ended_before_the_row_is_changed():
    site = Site(sample_world(hosts=2, domains=("data1",), addon=True))
    request = ConversionRequest("rdma", allow_datacenter_down=True)
    state = convert(site, request)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    # host01 was SPM: the engine leaves the last master's mount there.
    assert [c.subject for c in site.calls if "hosts/" in c.path] == ["host01", "host01"]


@pytest.mark.parametrize("request_", [OFFLINE, ROLLING], ids=["offline", "rolling"])
def test_iso_and_export_domains(request_):
    site = site_of(iso=True, export=True)
    names = ("data1", "iso", "export")
    state = convert(site, request_, *names)
    assert state.stage == Stage.CONVERTED, state.why
    for name in names:
        export = EXPORT.replace("data1", name)
        assert set(transports(site, export).values()) == {"rdma"}


@pytest.mark.parametrize("fails", [False, True], ids=["revert", "rollback"])
def test_a_policy_that_somebody_changed_meanwhile_is_left(fails):
    """What the conversion has written there, and somebody has edited."""
    site = site_of()
    there = site.world.host("host02")
    state = planned(site).state

    def edited():
        file, drop_ins = split(there.policy_text)
        edits = {name: f"{text}# edited\n" for name, text in drop_ins.items()}
        there.policy_text = joined(file, edits)

    if fails:
        there.rdma_ready = False
        site.meanwhile["perform activating host02"] = edited
        state = run(site, state)
    else:
        run(site, state)
        edited()
        state = revert(site)
        assert site.world.host("host01").policy_text == ""
    assert "50-domain-data1.yaml on host02 was changed" in state.why
    assert "# edited" in there.policy_text


OTHERS = {
    "policy.yaml": lambda file, drop_ins: ("version: 1\n# edited\n", drop_ins),
    "a drop-in": lambda file, drop_ins: (file, {**drop_ins, "70-a.yaml": _OTHER}),
    "no policy.yaml": lambda file, drop_ins: (None, drop_ins),
}
_OTHER = "version: 1\nnfs: {rules: [{server: nas9, transport: tcp}]}\n"


@pytest.mark.parametrize("request_", [ROLLING, OFFLINE], ids=["rolling", "offline"])
@pytest.mark.parametrize("edit", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_what_others_change_in_other_files_stays(when, edit, request_):
    site = site_of()
    there = site.world.host("host02")

    def edited():
        there.policy_text = joined(*edit(*split(there.policy_text)))

    state = planned(site, request_).state
    if when == "before":
        edited()
    if when == "during":
        site.meanwhile["look"] = edited
    state = run(site, state)
    assert state.stage == Stage.CONVERTED, state.why
    if when == "after":
        edited()
    now = dict(split(there.policy_text).drop_ins)
    assert "require-rdma" in now.pop("50-domain-data1.yaml")
    kept = joined(split(there.policy_text).file, now)
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert there.policy_text == kept
    assert set(transports(site).values()) == {"tcp"}


@pytest.mark.parametrize("request_", [ROLLING, OFFLINE], ids=["rolling", "offline"])
def test_a_host_without_a_policy_file_gets_none(request_):
    site = site_of()
    there = site.world.host("host02")
    there.policy_text = None
    before = everything(site)
    assert convert(site, request_).stage == Stage.CONVERTED
    file, drop_ins = split(there.policy_text)
    assert (file, list(drop_ins)) == (None, ["50-domain-data1.yaml"])
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert not changed(site, before)


def test_an_edit_that_is_not_loaded_is_not_loaded_by_a_revert():
    site = site_of()
    convert(site)
    there = site.world.host("host02")
    site.in_force["host02"] = there.policy_text
    there.policy_text = joined(_OTHER, split(there.policy_text).drop_ins)
    before = there.policy_text
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "host02 was edited and is not loaded" in state.why
    assert there.policy_text == before
    # Loaded by its admin, it stays, and the rest is reverted.
    site.in_force.clear()
    assert revert(site).stage == Stage.REVERTED
    assert there.policy_text == _OTHER


def test_a_host_that_came_in_meanwhile():
    site = site_of(hosts=3)
    new = site.world.hosts.pop(site.world.host("host03").id)
    state = planned(site).state
    site.world.hosts[new.id] = new
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert "added to the data center" in state.why
    assert "host03" in state.why
    assert not site.world.connection_of("data1").mount_options
    # The same command checks and includes it.
    assert resume(site).stage == Stage.CONVERTED
    assert set(transports(site).values()) == {"rdma"}


def test_a_host_that_never_comes_up():
    site = site_of()
    state = planned(site).state
    there = site.world.host("host02")

    def breaks():
        there.reachable = False

    after(site, "host02", "deactivate", breaks)
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert "host02" in state.why
    assert state.host("host02").stage == Stage.FAILED
    assert transports(site)["host01"] == "tcp"
    # After the repair the conversion continues with it.
    del site.perform
    there.reachable, there.status = True, "up"
    there.mounts = dict(site.world.host("host01").mounts)
    assert resume(site).stage == Stage.CONVERTED


@given(st.data())
@settings(max_examples=12)
def test_whatever_happens_it_can_be_taken_back(data):
    """Hosts fail, runs are killed: in the end every host is reverted."""
    site = site_of(addon=True)
    request = data.draw(st.sampled_from([OFFLINE, ROLLING, BATCH]))
    before = everything(site)
    state = planned(site, request).state
    names = [host.name for host in site.world.hosts.values()]
    bad = data.draw(st.sets(st.sampled_from(names)))
    how = data.draw(st.sampled_from(["rdma", "push", "vms"]))
    for name in bad:
        there = site.world.host(name)
        if how == "rdma":
            there.rdma_ready = False
        elif how == "push":
            site.pushes_fail.add(name)
        else:
            there.vms, there.stuck_vms = ["vm"], ["vm"]
    for _ in range(data.draw(st.integers(0, 3))):
        if state.stage not in Stage.UNDER_WAY:
            break
        site.kill_at = len(site.acts) + data.draw(st.integers(0, 40))
        with contextlib.suppress(Killed):
            run(site, state)
        site.alive()
        state = site.stored or state
    state = run(site, state)
    assert state.stage in {Stage.CONVERTED, Stage.STOPPED, Stage.ROLLED_BACK}
    assert {h.status for h in site.world.hosts.values()} == {"up"}
    for name in bad:
        there = site.world.host(name)
        there.rdma_ready, there.vms, there.stuck_vms = True, [], []
    site.pushes_fail.clear()
    if state.stage != Stage.ROLLED_BACK:
        state = revert(site)
        assert state.stage == Stage.REVERTED, state.why
    for host in site.world.hosts.values():
        host.vms = []
    assert not changed(site, before)


def test_ipv6_sends_address_and_path():
    site = site_of()
    row = site.world.connection_of("data1")
    old = row.export
    row.address = "[fd00::1]"
    for host in site.world.hosts.values():
        host.mounts[row.export] = host.mounts.pop(old)
    state = convert(site)
    assert state.stage == Stage.CONVERTED, state.why
    row = site.world.connection_of("data1")
    assert row.mount_options == "proto=rdma6,port=20049"
    assert (row.address, row.path) == ("[fd00::1]", "/exports/data1")
    words = site.calls[-2].arguments
    sent = words["connection"]
    assert (sent.address, sent.path) == ("[fd00::1]", "/exports/data1")
    assert words["force"] is True
    assert "host" not in vars(sent) or sent.host is None
