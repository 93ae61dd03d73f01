# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide how each host is prepared, in which order, and what counts as proof."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
import yaml
from support.engine.told_hosts import (
    engine,
    facts,
    host,
    report,
    rules,
    status,
)

from ovirt_rdma.engine_sdk_tools.conversion.next_step import Kind
from ovirt_rdma.engine_sdk_tools.fleet import preparation as plan
from ovirt_rdma.engine_sdk_tools.fleet.preparation import (
    DONE,
    ENTERING,
    FAILED,
    LEFT_OUT,
    NO_HARDWARE,
    NOTHING,
    REINSTALL,
    SSH,
    Look,
    PreparationRequest,
    finished,
    installation,
    look_at,
    next_step,
    other_policy,
    plan_preparation,
)
from ovirt_rdma.engine_sdk_tools.hosts import ansible
from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    Prepared,
    judged,
    with_outcome,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import HostOutcome
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, REBOOT

pytestmark = pytest.mark.hypervisor

READY = Look(True)
MISSING = Look(False, "the command is missing")
POLICY = Look(True, "its policy is another one")
LINK = Look(True, "2 steps", disruptive=1)
BOOT = Look(True, "1 step", disruptive=1, reboot=1)
SENTINEL = "ovirt-rdma: host is prepared (ovirt-rdma 0.9, policy sha256:abc)"


def planned(looks, *hosts, **request):
    its = engine(*hosts)
    center = its.data_centers[0].id
    wish = PreparationRequest(**request)
    return plan_preparation(its, center, hosts, looks, wish)


@pytest.mark.parametrize(
    ("look", "by", "way", "reboot"),
    [
        (READY, "auto", NOTHING, False),
        (READY, "reinstall", NOTHING, False),
        (POLICY, "auto", SSH, False),
        (MISSING, "auto", SSH, False),
        (LINK, "auto", REINSTALL, False),
        (BOOT, "auto", REINSTALL, True),
        (LINK, "ssh", SSH, False),
        (POLICY, "reinstall", REINSTALL, False),
        (MISSING, "reinstall", REINSTALL, True),
        (None, "auto", REINSTALL, True),
        (None, "ssh", SSH, False),
    ],
)
def test_the_way_of_a_host(look, by, way, reboot):
    looks = None if look is None else {"hv1": look}
    (record,) = planned(looks, host("hv1"), by=by).hosts
    assert (record.way, record.reboot) == (way, reboot)


def test_again_is_for_hosts_that_need_nothing():
    (record,) = planned({"hv1": READY}, host("hv1"), again=True).hosts
    assert record.way == SSH


@pytest.mark.parametrize(
    ("status_", "left_out"),
    [
        ("up", False),
        ("maintenance", False),
        ("non_operational", False),
        ("install_failed", False),
        ("unassigned", False),
        ("down", True),
        ("non_responsive", True),
        ("error", True),
    ],
)
def test_a_host_in_trouble_is_left_out(status_, left_out):
    one = host("hv1", status=status_)
    (record,) = planned({"hv1": LINK}, one).hosts
    assert (record.stage == LEFT_OUT) == left_out
    assert bool(record.problem) == left_out


def order(*hosts, **request):
    state = planned({one.name: POLICY for one in hosts}, *hosts, **request)
    return [(record.name, record.batch) for record in state.hosts]


def test_the_canary_goes_alone_and_the_spm_last():
    hosts = (
        host("hv1", spm="spm"),
        host("hv2", vms=3),
        host("hv3", vms=1),
        host("hv4", vms=2),
    )
    assert order(*hosts, batch=0) == order(*hosts, batch=1)
    assert order(*hosts, batch=2) == [("hv3", 0), ("hv2", 1), ("hv4", 1), ("hv1", 2)]
    assert order(*hosts, canary="hv4")[0] == ("hv4", 0)


def test_a_host_without_work_is_no_canary():
    hosts = (host("hv1"), host("hv2"))
    state = planned({"hv1": READY, "hv2": POLICY}, *hosts)
    assert {r.name: (r.way, r.batch) for r in state.hosts} == {
        "hv1": (NOTHING, 0),
        "hv2": (SSH, 0),
    }


def test_one_failure_ends_the_rollout_after_its_batch():
    hosts = tuple(host(f"hv{number}") for number in range(1, 5))
    state = planned({one.name: POLICY for one in hosts}, *hosts, batch=2)
    first, second, third, last = (record.name for record in state.hosts)
    statuses = {record.id: "up" for record in state.hosts}
    state = state.with_host(first, stage=DONE)
    assert next_step(state, statuses).names == (second, third)
    state = state.with_host(second, stage=FAILED)
    assert next_step(state, statuses).names == (third,)
    state = state.with_host(third, stage=DONE)
    assert next_step(state, statuses).kind == Kind.FINISH
    assert finished(state).stage == "stopped"
    assert state.host(last).stage == "todo"


def test_a_report_says_what_is_to_be_done():
    text = rules("prefer-rdma")
    policy = parse_policy(text, "p").policy
    digest = status(text)["policy"]["digest"]
    wish = PreparationRequest(policy=policy, digest=digest)
    assert (
        "another one"
        in look_at(
            report("hv1", facts=facts(), status=status(rules("tcp"))), wish
        ).reason
    )
    assert not look_at(report("hv1", problem="no answer"), wish).known
    keep = PreparationRequest()
    assert look_at(report("hv1", facts=facts(), status=status(text)), keep).reason == ""


def test_a_step_that_needs_a_restart_needs_a_maintenance(monkeypatch):
    effects = (LIVE, LINK_DOWN, REBOOT, REBOOT)
    steps = tuple(SimpleNamespace(effect=effect) for effect in effects)
    monkeypatch.setattr(plan, "decide", lambda *_: SimpleNamespace(applicable=steps))
    text = rules("prefer-rdma")
    wish = PreparationRequest(policy=parse_policy(text, "p").policy)
    look = look_at(report("hv1", facts=facts(), status=status(text)), wish)
    assert look == Look(True, "4 steps of its plan are not applied", 3, 2)


def step_of(state, **statuses):
    given = {record.id: statuses[record.name] for record in state.hosts}
    return next_step(state, given)


@pytest.mark.parametrize(
    ("found", "now", "kind"),
    [
        ("up", "maintenance", Kind.MARK),
        ("up", "installing", Kind.MARK),
        ("maintenance", "installing", Kind.MARK),
        ("maintenance", "maintenance", Kind.INSTALL),
        ("preparing_for_maintenance", "maintenance", Kind.INSTALL),
        ("up", "non_operational", Kind.INSTALL),
    ],
)
def test_a_host_that_somebody_else_has_moved_is_left_out(found, now, kind):
    """Else it would be reinstalled and activated while they work on it."""
    state = planned({"hv1": LINK}, host("hv1", status=found))
    step = step_of(state, hv1=now)
    assert step.kind == kind
    if kind == Kind.MARK:
        assert dict(step.marks)["stage"] == LEFT_OUT
        assert dict(step.marks)["fix"]
    moved = state.with_host("hv1", stage=ENTERING)
    if now == "maintenance":
        assert step_of(moved, hv1=now).kind == Kind.INSTALL  # we have moved it


def test_the_first_of_each_way_goes_alone():
    """A canary by SSH says nothing about a reinstallation."""
    hosts = tuple(host(f"hv{number}") for number in range(1, 5))
    looks = {"hv1": POLICY, "hv2": LINK, "hv3": LINK, "hv4": LINK}
    up = dict.fromkeys(looks, "up")
    state = planned(looks, *hosts, batch=3).with_host("hv1", stage=DONE)
    assert step_of(state, **up).names == ("hv2",)
    state = state.with_host("hv2", stage=ENTERING)
    assert step_of(state, **{**up, "hv2": "maintenance"}).names == ("hv2",)
    failed = state.with_host("hv2", stage=FAILED)
    assert step_of(failed, **up).kind == Kind.FINISH
    assert finished(failed).stage == "stopped"
    good = state.with_host("hv2", stage=DONE)
    assert step_of(good, **up).names == ("hv3",)
    entered = good.with_host("hv3", stage=ENTERING)
    now = {**up, "hv3": "preparing_for_maintenance"}
    assert (step_of(entered, **now).kind, step_of(entered, **now).names) == (
        Kind.ENTER,
        ("hv4",),
    )


@pytest.mark.parametrize("stage", [NO_HARDWARE, LEFT_OUT])
def test_a_canary_that_proves_nothing_is_followed_by_another(stage):
    hosts = tuple(host(f"hv{number}") for number in range(1, 5))
    looks = {one.name: POLICY for one in hosts}
    state = planned(looks, *hosts, batch=3).with_host("hv1", stage=stage)
    up = dict.fromkeys(looks, "up")
    assert step_of(state, **up).names == ("hv2",)
    assert step_of(state.with_host("hv2", stage=DONE), **up).names == ("hv3", "hv4")


def test_another_mode_is_something_to_do():
    text = rules("prefer-rdma")
    told = report("hv1", facts=facts(), status=status(text))
    mode = told.status["enabled"]["mode"]
    for wanted, to_do in ((mode, False), ("host", mode != "host"), ("none", False)):
        assert bool(look_at(told, PreparationRequest(mode=wanted)).reason) == to_do


@pytest.mark.parametrize(
    ("by", "reinstall", "after"),
    [
        ("auto", True, (REINSTALL, "todo", 0)),
        ("ssh", True, (SSH, DONE, 1)),
        # It would not run the role.
        ("auto", False, (SSH, DONE, 1)),
    ],
)
def test_what_ssh_leaves_for_a_maintenance(by, reinstall, after):
    state = planned({"hv1": POLICY}, host("hv1"), by=by)
    found = plan.after_role(state, state.hosts[0], LINK, reinstall=reinstall).hosts[0]
    assert (found.way, found.stage, found.left) == after


# -- the proof


def event(code, text=""):
    return SimpleNamespace(code=code, description=text)


STARTED, FINISHED, DONE_WELL = event(560), event(561), event(504)
OUR_LAST = event(559, f"Installing Host hv1. {SENTINEL}.")


def test_only_the_sentinel_proves():
    good = installation("hv1", [STARTED, OUR_LAST, FINISHED, DONE_WELL])
    assert (good.ended, good.result.problem) == (True, "")
    assert good.result.sentinel == SENTINEL
    bad = installation("hv1", [STARTED, FINISHED, DONE_WELL])
    assert "has not run to its end" in bad.result.problem
    assert "deploy-hook status" in bad.result.fix


@pytest.mark.parametrize(
    "last",
    [
        # A task of the administrator, a warning of the role, another event.
        event(559, f"Installing Host hv1. notice: {SENTINEL}."),
        event(554, f"Installing Host hv1. ovirt-rdma: attention: {SENTINEL}."),
        event(
            553, "Installing Host hv1. ovirt-rdma: host is not prepared: " + SENTINEL
        ),
        event(9999, f"Installing Host hv1. {SENTINEL}."),
        event(559, SENTINEL),
        event(559, "Installing Host hv1. ovirt-rdma: host is prepared."),
        event(559, f"Installing Host hv1. {SENTINEL} not at all."),
    ],
)
def test_nothing_that_looks_like_the_sentinel_proves(last):
    found = installation("hv1", [STARTED, last, FINISHED, DONE_WELL]).result
    assert (bool(found.problem), found.sentinel) == (True, "")


def test_a_text_about_missing_hardware_is_no_report_of_it():
    text = "Installing Host hv1. notice: ovirt-rdma: host has no RDMA hardware."
    found = installation("hv1", [STARTED, event(559, text), FINISHED, DONE_WELL])
    assert not found.result.no_hardware


def test_an_installation_without_an_end_proves_nothing():
    """The engine was restarted in the middle (ResourceManager.java:176-190)."""
    for events in ([STARTED], [STARTED, OUR_LAST]):
        found = installation("hv1", events)
        assert "has not reported the end" in found.result.problem
        assert found.result.sentinel == ""


def test_an_earlier_installation_proves_nothing():
    events = [STARTED, OUR_LAST, FINISHED, DONE_WELL, STARTED, FINISHED, DONE_WELL]
    assert installation("hv1", events).result.problem


def test_the_engines_failure_counts_more_than_the_sentinel():
    events = [STARTED, OUR_LAST, event(505, "Host hv1 installation failed. x.")]
    found = installation("hv1", events)
    assert "could not install it" in found.result.problem


def test_the_reason_of_the_role_is_shown():
    text = "Installing Host hv1. ovirt-rdma: host is not prepared: it is full; fix: x."
    found = installation("hv1", [STARTED, event(553, text), FINISHED, DONE_WELL])
    assert (found.result.problem, found.result.fix) == ("it is full", "x")


def test_the_policy_of_the_proof_is_compared():
    assert other_policy(SENTINEL, "sha256:abc") == ""
    assert other_policy(SENTINEL, None) == ""
    for other in ("sha256:def", "sha256:ab", "sha256:abcd"):
        assert f"sha256:abc, not {other}" in other_policy(SENTINEL, other)
    for silent in ("ovirt-rdma: host is prepared (ovirt-rdma 0.9, policy )", ""):
        assert "not sha256:abc" in other_policy(silent, "sha256:abc")


def test_the_role_says_what_is_required():
    roles = Path(__file__).parents[3] / "host_deploy/roles"
    variables = yaml.safe_load((roles / "prepare/vars/main.yml").read_text())
    said = jinja2.Template(
        f"{ansible.SENTINEL} {variables['ovirt_rdma_proof']}"
    ).render(
        ovirt_rdma_host={"version": "0.9"},
        ovirt_rdma_policy_result={"file_digest": "x:1"},
    )
    assert ansible.policy_proven(said) == "x:1"


def result(kind, task, **more):
    ignored = more.pop("ignore_errors", None)
    data = {"host": "a", "task": task, "res": more, "ignore_errors": ignored}
    return HostOutcome.of({"event": f"runner_on_{kind}", "event_data": data})


def said(text):
    return result("ok", text, msg=text.replace("[WARNING] ", ""))


def played(*events):
    found = Prepared("hv1")
    for one in events:
        found = with_outcome(found, one)
    return judged(found)


def test_over_ssh_the_sentinel_counts_too():
    assert played(result("ok", "a"), said(SENTINEL)).problem == ""
    # The name alone proves nothing: it may have the variables of another host.
    assert played(result("ok", SENTINEL)).problem
    assert played(said("ovirt-rdma: host is prepared, or not")).problem
    ended = played(result("ok", "a"))
    assert "ended after 'a' without its last task" in ended.problem
    failed = played(result("failed", "b", msg="it\nis bad; fix: repair it"))
    assert (failed.problem, failed.fix) == ("b: it is bad", "repair it")
    assert (
        played(result("failed", "b", ignore_errors=True), said(SENTINEL)).problem == ""
    )
    away = played(result("ok", "a"), result("unreachable", "b", msg="no route"))
    assert away.problem == "no route"


def test_no_hardware_is_no_failure_and_no_proof():
    text = "ovirt-rdma: host has no RDMA hardware, nothing was loaded"
    found = played(result("ok", text))
    assert (found.problem, found.no_hardware, found.sentinel) == ("", True, "")


def test_a_warning_of_the_role_is_passed_on():
    text = "ovirt-rdma: attention: [WARNING] vdsmd has to be restarted"
    done = result("ok", text, msg="vdsmd has to be restarted")
    assert played(done).warnings == ("vdsmd has to be restarted",)
