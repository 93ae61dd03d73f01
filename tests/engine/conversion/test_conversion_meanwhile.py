# SPDX-License-Identifier: GPL-2.0-or-later
"""Test conversions while hosts and domains are added, removed or fail, and while others
change them too.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double import SimCluster, SimDataCenter, new_id
from support.engine.conversion_runs import (
    BATCH,
    EXPORT,
    OFFLINE,
    ROLLING,
    StepCounter,
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
from support.engine.conversion_site import Killed, digest_of, engine_of
from support.engine.policy_files import joined, split
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.request import CONFLICT, EngineProblem
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest, Stage
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    plan_convert,
    plan_revert,
    sentence,
)
from ovirt_rdma.engine_sdk_tools.model import status_words

pytestmark = pytest.mark.engine

BOTH = pytest.mark.parametrize("request_", [OFFLINE, ROLLING], ids=["offline", "roll"])


@BOTH
def test_a_host_that_is_removed_meanwhile(request_):
    site = site_of()
    gone = site.world.host("host02").id
    site.meanwhile["look"] = lambda: site.world.hosts.pop(gone)
    state = convert(site, request_)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    assert state.host("host02").why == "it is no longer in the engine"


@BOTH
def test_a_host_with_the_name_of_the_domain(request_):
    site = site_of()
    site.world.host("host02").name = "data1"
    before = everything(site)
    assert convert(site, request_).stage == Stage.CONVERTED
    assert set(transports(site).values()) == {"rdma"}
    assert revert(site).stage == Stage.REVERTED
    assert not changed(site, before)


@BOTH
def test_hosts_and_domains_that_were_renamed_since(request_):
    site = site_of()
    before = everything(site)
    state = convert(site, request_)
    assert state.stage == Stage.CONVERTED
    site.world.domain("data1").name = "fast1"
    site.world.host("host02").name = "node2"
    state = revert(site)
    assert (state.stage, state.title) == (Stage.REVERTED, "fast1")
    assert site.world.host("node2").mounts[EXPORT] == "tcp"
    assert site.world.host("node2").policy_text == ""
    assert site.world.connection_of("fast1").mount_options == ""
    assert before["data1"] == site.world.domain("fast1").status


def away(site, name="host03"):
    there = site.world.host(name)
    there.status, there.mounts = "maintenance", {}
    return there


def comes_up(there):
    there.status = "up"
    there.mounts = {EXPORT: "tcp", "nfs2.example.com:/o": "tcp"}


@BOTH
def test_a_host_that_somebody_activates_meanwhile_is_converted_too(request_):
    site = site_of()
    there = away(site)
    site.meanwhile["push"] = lambda: comes_up(there)
    state = convert(site, request_)
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    assert state.host("host03").stage == Stage.DONE
    assert revert(site).stage == Stage.REVERTED
    assert set(transports(site).values()) == {"tcp"}
    assert there.status == "up"


def test_a_host_that_was_left_in_maintenance_and_came_up_is_reverted_too():
    site = site_of()
    there = away(site)
    assert convert(site).host("host03").stage == Stage.LEFT
    comes_up(there)
    there.mounts[EXPORT] = "rdma"
    assert revert(site).stage == Stage.REVERTED
    assert set(transports(site).values()) == {"tcp"}


def test_what_a_host_said_before_anothers_trip_is_asked_again():
    """Nobody loses what he writes while another host is on its way."""
    site = site_of(hosts=4)
    engine = engine_of(site)
    domains = [domain for domain in engine.domains if domain.name == "data1"]
    plan = plan_convert(engine, domains, reports(site), ROLLING)
    there = site.world.host("host04")

    def edited():
        # host03 is not the next one any more.
        away(site)
        file, drop_ins = split(there.policy_text)
        there.policy_text = joined(f"{file or 'version: 1'}\n# edited\n", drop_ins)

    site.meanwhile["look"] = edited
    state = run(site, plan.state, observed=plan.observed)
    assert state.host("host02").stage == Stage.DONE
    assert "# edited" in there.policy_text


@pytest.mark.parametrize("status", ["non_operational", "non_responsive", "down"])
def test_no_host_is_begun_while_a_converted_one_is_ill(status):
    site = site_of()
    ill = site.world.host("host02")

    def falls():
        ill.status = status

    site.meanwhile["perform moving host03"] = falls
    state = convert(site)
    assert state.stage == Stage.STOPPED
    assert state.why.startswith("host02 ")
    assert f"is {status_words(status)} now" in state.why
    # host03 was in progress and was converted; the SPM was not started.
    assert transports(site)["host01"] == "tcp"
    assert site.world.connection_of("data1").mount_options in (None, "")
    ill.status = "up"
    assert resume(site).stage == Stage.CONVERTED


def test_a_host_that_nothing_was_changed_of_is_not_moved_when_it_fails():
    site = site_of()
    state = planned(site).state
    site.world.host("host02").status = "non_operational"
    state = run(site, state)
    assert state.stage == Stage.ROLLED_BACK
    assert "host02 is non-operational" in state.why
    assert not site.calls
    assert state.host("host02").stage != Stage.FAILED


def test_somebody_activates_the_host_first():
    """The engine's own recovery can do that."""
    site = site_of()
    there = site.world.host("host02")

    def up():
        there.status = "up"
        there.mounts = {EXPORT: "rdma", "nfs2.example.com:/o": "tcp"}

    site.meanwhile["perform activating host02"] = up
    state = convert(site)
    assert state.stage == Stage.CONVERTED, state.why


def test_a_push_that_was_cut_off_before_the_load_is_made_good():
    """The old file is back, but the new policy is still loaded."""
    site = site_of()
    site.world.host("host02").rdma_ready = True
    state = planned(site).state
    site.world.host("host02").rdma_ready = False

    def back_but_not_loaded():
        there = site.world.host("host02")
        site.in_force["host02"], there.policy_text = there.policy_text, ""

    site.meanwhile["perform activating host02"] = back_but_not_loaded
    state = run(site, state)
    assert state.stage == Stage.ROLLED_BACK
    assert digest_of(site.in_force.get("host02", "")) == digest_of("")


def test_a_host_that_stays_away_is_named_with_the_reason():
    site = site_of()
    there = site.world.host("host02")

    def breaks():
        there.rdma_ready, there.reachable = False, False

    state = planned(site).state
    site.meanwhile["perform activating host02"] = breaks
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert state.host("host02").stage == Stage.FAILED
    assert "cannot be asked" in state.host("host02").why


def test_a_domain_that_is_removed_in_the_middle_does_not_keep_the_others_down():
    site = site_of(domains=("data1", "data2"))
    world = site.world

    def removed():
        gone = world.domain("data2")
        del world.domains[gone.id]
        row = world.connections.pop(gone.connection)
        for host in world.hosts.values():
            host.mounts.pop(row.export, None)

    site.meanwhile["perform setting the mount options of data1"] = removed
    state = convert(site, OFFLINE, "data1", "data2")
    assert state.stage == Stage.ROLLED_BACK, state.why
    assert "data2 or its connection was removed" in state.why
    assert world.domain("data1").status == "active"
    assert set(transports(site).values()) == {"tcp"}
    assert {h.policy_text for h in world.hosts.values()} == {""}


def test_an_offline_revert_that_is_refused_changes_nothing():
    site = site_of()
    assert convert(site, OFFLINE).stage == Stage.CONVERTED
    before = everything(site)
    site.world.domain("data1").leases = ["vm7"]
    state = revert(site)
    assert (state.stage, "vm7" in state.why) == (Stage.STOPPED, True)
    assert not changed(site, before)
    site.world.domain("data1").leases = []
    assert revert(site).stage == Stage.REVERTED


def to_another_data_center(site, name):
    world = site.world
    center = SimDataCenter(new_id("center 2"), "dc2")
    cluster = SimCluster(new_id("cluster 2"), "cl2", center.id)
    world.data_centers[center.id], world.clusters[cluster.id] = center, cluster
    there = world.host(name)
    there.cluster, there.mounts = cluster.id, {}
    return there


@BOTH
def test_a_host_that_is_in_another_data_center_now_gets_only_its_policy_back(request_):
    site = site_of()
    assert convert(site, request_).stage == Stage.CONVERTED
    there = to_another_data_center(site, "host02")
    calls = len(site.calls)
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert there.policy_text == ""
    assert {"host02", "cl2"}.isdisjoint(c.subject for c in site.calls[calls:])
    assert state.host("host02").why == "it is in another data center now"


@BOTH
def test_a_conversion_is_resumed_without_a_host_that_is_in_another_data_center(
    request_,
):
    site = site_of()
    site.meanwhile["push"] = site.die
    with pytest.raises(Killed):
        convert(site, request_)
    there = to_another_data_center(site, "host02")
    state = resume(site)
    assert state.stage == Stage.CONVERTED, state.why
    assert (there.status, there.policy_text) == ("up", "")
    assert {"host02", "cl2"}.isdisjoint(call.subject for call in site.calls)


def test_maintenance_that_a_run_began_is_ended_in_another_data_center_too():
    site = site_of()
    site.meanwhile["perform activating host02"] = site.die
    with pytest.raises(Killed):
        convert(site)
    there = to_another_data_center(site, "host02")
    site.alive()
    assert revert(site).stage == Stage.REVERTED
    site.world.settle()
    assert (there.status, there.policy_text) == ("up", "")


def to_maintenance(site, name="data1"):
    domain = site.world.domain(name)
    domain.status = "maintenance"
    for host in site.world.hosts.values():
        host.mounts.pop(site.world.connection_of(name).export)


def test_a_revert_moves_no_host_for_a_domain_in_maintenance():
    """It is mounted on none, and would not be after the maintenance of a host."""
    site = site_of()
    assert convert(site).stage == Stage.CONVERTED
    to_maintenance(site)
    site.calls.clear()
    state = revert(site)
    assert state.stage == Stage.REVERTED, state.why
    assert [(call.subject, call.method) for call in site.calls] == [("data1", "update")]
    assert {host.policy_text for host in site.world.hosts.values()} == {""}


def test_a_conversion_is_not_resumed_for_a_domain_in_maintenance():
    """No host would prove it."""
    site = site_of()
    site.kill_at = 9
    with pytest.raises(Killed):
        convert(site)
    site.alive()
    domain = site.world.domain("data1")
    domain.status = "maintenance"
    with problem("checks-failed", "data1 is in maintenance") as caught:
        resume(site)
    assert [reason.id for reason in caught.value.reasons] == ["domain-not-active"]
    # As while the SPM moves.
    domain.status = "unknown"
    assert resume(site).stage == Stage.CONVERTED


def test_a_domain_that_is_active_and_one_in_maintenance_are_converted_together():
    site = site_of(domains=("data1", "data2"))
    to_maintenance(site, "data2")
    before = everything(site)
    state = convert(site, OFFLINE, "data1", "data2")
    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site).values()) == {"rdma"}
    assert planned(site, OFFLINE, "data1", "data2").steps == ()
    assert revert(site).stage == Stage.REVERTED
    assert not changed(site, before)


def two_offline(site):
    return convert(site, OFFLINE, "data1", "data2")


def test_an_offline_revert_that_is_refused_half_way_activates_what_went_down():
    site = site_of(domains=("data1", "data2"))
    assert two_offline(site).stage == Stage.CONVERTED
    before = everything(site)
    master = next(d.name for d in site.stored.domains if d.master)
    site.world.domain(master).running_vms = ["vm7"]
    state = revert(site)
    assert (state.stage, "virtual machines" in state.why) == (Stage.STOPPED, True)
    assert [c.method for c in site.calls[-2:]] == ["deactivate", "activate"]
    assert not changed(site, before)
    site.world.domain(master).running_vms = []
    assert revert(site).stage == Stage.REVERTED


def test_an_offline_revert_of_a_domain_in_use_is_refused():
    site = site_of()
    assert convert(site, OFFLINE).stage == Stage.CONVERTED
    site.world.domain("data1").running_vms = ["vm7"]
    with problem("checks-failed", "data1 is in use", "vm7") as caught:
        plan_revert(site.stored, engine_of(site), reports(site), {"data1": ["vm7"]})
    assert [reason.id for reason in caught.value.reasons] == ["domain-in-use"]


def test_after_a_row_that_is_refused_on_the_way_back_a_revert_completes():
    site = site_of()
    before, perform = everything(site), site.perform

    def killing(call, **more):
        perform(call, **more)
        if (call.subject, call.method) == ("data1", "update"):
            site.die()

    def refusing(call, **more):
        if (call.subject, call.method) == ("data1", "update"):
            raise EngineProblem("id", call.doing, "the row is refused", CONFLICT)
        return perform(call, **more)

    site.perform = killing
    with pytest.raises(Killed):
        convert(site, OFFLINE)
    site.alive()
    site.perform = refusing
    assert revert(site).stage == Stage.STOPPED
    site.perform = perform
    assert revert(site).stage == Stage.REVERTED
    assert not changed(site, before)


def test_a_domain_that_cannot_be_activated_keeps_no_other_one_down():
    site = site_of(domains=("data1", "data2"))
    perform = site.perform

    def refused(call, **more):
        if (call.subject, call.method) == ("data1", "activate"):
            raise EngineProblem("id", call.doing, "no host can mount it", CONFLICT)
        return perform(call, **more)

    site.perform = refused
    state = two_offline(site)
    site.world.settle()
    assert state.stage == Stage.STOPPED
    assert site.world.domain("data2").status == "active"
    assert "; data1 is in maintenance for this run" in sentence(state)
    # A revert is not refused for machines on the other one: it brings this one up.
    plan_revert(site.stored, engine_of(site), reports(site), {"data2": ["vm7"]})
    site.perform = perform
    assert revert(site).stage == Stage.REVERTED
    site.world.settle()
    assert site.world.domain("data1").status == "active"


def test_a_host_that_came_up_and_failed_is_not_activated_for_somebody_else():
    site = site_of()
    state = planned(site, replace(ROLLING, rule="prefer-rdma")).state
    there = site.world.host("host02")
    there.rdma_ready = False
    after(site, "host02", "activate", lambda: site.pushes_fail.add("host02"))
    state = run(site, state)
    assert state.stage == Stage.STOPPED
    assert there.status == "up"
    assert "in maintenance" not in sentence(state)
    site.pushes_fail.clear()
    away(site, "host02")
    assert revert(site).stage == Stage.REVERTED
    assert there.status == "maintenance"


def test_a_run_that_stops_names_the_host_that_is_still_in_maintenance():
    site = site_of()
    site.meanwhile["perform activating host02"] = site.die
    with pytest.raises(Killed):
        convert(site)
    site.alive()
    site.pushes_fail.add("host02")
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "; host02 is in maintenance for this run" in sentence(state)
    site.pushes_fail.clear()
    assert revert(site).stage == Stage.REVERTED
    site.world.settle()
    assert site.world.host("host02").status == "up"


# -- refused in advance


def second_cluster(site, *names):
    """Move hosts to a second cluster."""
    world = site.world
    (center,) = (c for c in world.data_centers.values() if c.name == "dc1")
    cluster = SimCluster(new_id("cluster 2"), "cl2", center.id)
    world.clusters[cluster.id] = cluster
    for name in names:
        world.host(name).cluster = cluster.id
        world.host(name).vms = ["vm1"]


@pytest.mark.parametrize(
    ("names", "request_", "named"),
    [
        (("host03",), ROLLING, ("host03 ", "1 virtual")),
        (("host02", "host03"), BATCH, ("--batch 2 ", "host02, host03", "2 virtual")),
        (("host02", "host03"), ROLLING, ()),
        (("host01", "host03"), BATCH, ()),
    ],
)
def test_machines_stay_in_their_cluster(names, request_, named):
    site = site_of()
    second_cluster(site, *names)
    if not named:
        assert convert(site, request_).stage == Stage.CONVERTED
        return
    with problem("checks-failed", *named) as caught:
        planned(site, request_)
    assert [reason.id for reason in caught.value.reasons] == ["evacuation-impossible"]


def test_the_only_host_that_is_up():
    site = site_of(hosts=1)
    with problem("checks-failed", "host01 ", "--allow-datacenter-down") as caught:
        planned(site)
    assert [reason.id for reason in caught.value.reasons] == ["host-only-one-up"]
    request = ConversionRequest("rdma", rolling=True, allow_datacenter_down=True)
    ids = [getattr(warning, "id", "") for warning in planned(site, request).warnings]
    assert "host-only-one-up" in ids
    assert convert(site, request).stage == Stage.CONVERTED
    assert transports(site) == {"host01": "rdma"}


def test_a_domain_of_two_data_centers():
    site = site_of(iso=True)
    engine = engine_of(site)
    (iso,) = (d for d in engine.domains if d.name == "iso")
    twice = replace(iso, data_center="another")
    engine = replace(engine, domains=(*engine.domains, twice))
    with problem("refused", "iso ", "2 data centers") as caught:
        plan_convert(engine, [iso], [], ROLLING)
    (reason,) = caught.value.reasons
    assert reason.id == "domain-in-several-data-centers"


def test_a_policy_that_is_on_the_disk_and_not_in_force():
    """It would be loaded with the rule, and decide for other exports too."""
    site = site_of()
    engine = engine_of(site)
    domain = next(d for d in engine.domains if d.name == "data1")
    draft = "version: 1\nnfs:\n  rules:\n    - {server: nas9, transport: tcp}\n"
    policy = {"loaded": False, "digest": None, "drop_ins": {}}
    told = [
        replace(one, status={**one.status, "policy": policy}, policy_text=draft)
        for one in reports(site)
    ]
    with problem("checks-failed") as caught:
        plan_convert(engine, [domain], told, ROLLING)
    assert {reason.id for reason in caught.value.reasons} == {"policy-not-loaded"}
    # One sentence for all of them.
    (line,) = str(caught.value).splitlines()
    assert line.startswith("host02, host03, host01: ")


@pytest.mark.parametrize("request_", [OFFLINE, ROLLING])
def test_a_host_whose_drop_ins_are_unknown_is_refused_before_any_change(request_):
    site = site_of()
    engine = engine_of(site)
    domain = next(d for d in engine.domains if d.name == "data1")
    told = reports(site)
    for one in told:
        del one.status["policy"]["drop_ins"]
    with problem("checks-failed") as caught:
        plan_convert(engine, [domain], told, request_)
    assert {reason.id for reason in caught.value.reasons} == {"policy-unknown"}


def test_a_conversion_leaves_the_admins_policy_as_it_is():
    site = site_of()
    rule = "{server: '*', transport: tcp}"
    theirs = f"# ours\nversion: 1\nnfs: {{rules: [{rule}]}}\n# end"
    for host in site.world.hosts.values():
        host.policy_text = theirs
    assert convert(site).stage == Stage.CONVERTED
    for host in site.world.hosts.values():
        file, drop_ins = split(host.policy_text)
        assert (file, list(drop_ins)) == (theirs, ["50-domain-data1.yaml"])
    assert revert(site).stage == Stage.REVERTED
    assert {host.policy_text for host in site.world.hosts.values()} == {theirs}


# -- other ways


@pytest.mark.parametrize("rolling", [True, False], ids=["rolling", "offline"])
def test_a_rule_that_allows_tcp_still_has_to_come_up_over_rdma(rolling):
    request = ConversionRequest("rdma", rolling=rolling, rule="prefer-rdma")
    site = site_of()
    before = everything(site)
    state = planned(site, request).state
    site.world.host("host02").rdma_ready = False
    state = run(site, state)
    assert (state.stage, "over TCP" in state.why) == (Stage.ROLLED_BACK, True)
    assert not changed(site, before)
    site.world.host("host02").rdma_ready = True
    assert convert(site, request).stage == Stage.CONVERTED
    assert set(transports(site).values()) == {"rdma"}
    for host in site.world.hosts.values():
        assert "transport: prefer-rdma" in (host.policy_text or "")


@pytest.mark.parametrize("request_", [OFFLINE, ROLLING, BATCH])
@pytest.mark.parametrize("fails", [False, True])
def test_as_much_is_told_as_was_announced(request_, fails):
    site, ear = site_of(), StepCounter()
    state = planned(site, request_).state
    if fails:
        site.world.host("host03").rdma_ready = False
    run(site, state, ear)
    assert 0.7 * ear.total <= ear.told <= ear.total


def test_what_a_revert_does_not_touch_is_said():
    site = site_of()
    convert(site)
    new = replace(site.world.host("host02"), id="new", name="host09")
    site.world.hosts["new"] = new
    (warning,) = plan_revert(site.stored, engine_of(site), []).warnings
    assert warning.id == "hosts-not-converted"
    assert "host09" in warning
