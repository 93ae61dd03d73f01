# SPDX-License-Identifier: GPL-2.0-or-later
"""``hosts prepare`` with the engine's double: batches, failures, the proof, and runs
that were interrupted.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from engine_double import AnswerLost, EngineDouble, sample_world
from engine_double.jobs import jobs_of
from engine_double.world import SimCluster, new_id
from support.engine.conversion_process import Site
from support.engine.engine_command_line import Clock, open_session
from support.engine.engine_door import run_role
from support.engine.policy_files import joined, split
from support.engine.told_hosts import rules

from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.fleet import preparation as plan
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.job import DataCenterLock
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import digest

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

POLICY = rules("prefer-rdma")
DIGEST = digest(parse_policy(POLICY, "p").policy)


class Fleet(Site):
    """The double with hosts, and the command here or in its own process."""

    def __init__(self, capsys, double, folder: Path) -> None:
        super().__init__(capsys, double, folder / "states")
        self.policy = folder / "policy.yaml"
        self.policy.write_text(POLICY)
        self.settings: dict[str, Any] = {}
        # The block in the engine's post-tasks file.
        self.world.more["post_tasks"] = self.hook

    def hook(self, host):
        return run_role(host, {"ovirt_rdma_policy_file": str(self.policy)})

    def run(self, *words, door=True):
        policy = {"ovirt_rdma_policy_file": str(self.policy)}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(deploy_hook, "policy_of_engine", lambda: policy)
            patched.setattr(
                deploy_hook, "read_settings", lambda collection: self.settings
            )
            if not door:
                patched.setattr(self, "door", None)
            return self.here("hosts", "prepare", *words)

    def killed(self, number: int, *words, applied: bool) -> None:
        super().killed(number, "hosts", "prepare", *words, applied=applied)

    def then(self, words):
        """Run another command of this verb, with its policy, or of another."""
        verb = self.run if words[0] == "hosts" else partial(self.here, *words[:2])
        found = verb(*words[2:], "-y")
        assert found.code == 0, found
        return found

    def is_open(self):
        """Whether a task of the engine shows a run as under way."""
        return any(job.status == "started" for job in jobs_of(self.world).values())

    def results(self, *words, code, door=True):
        found = self.run(*words, "-y", "-o", "json", door=door)
        assert found.code == code, found
        self.world.settle()
        (center,) = found.document["data_centers"]
        return {h["name"]: h for h in center["hosts"]}

    def is_prepared(self, *names: str) -> None:
        for host in self.world.hosts.values():
            if not names or host.name in names:
                shown = (host.name, host.addon, host.policy_text, host.status)
                assert shown == (host.name, True, POLICY, "up")


@pytest.fixture
def fleet(capsys, tmp_path):
    with EngineDouble(sample_world(hosts=4, domains=("data1",))) as double:
        yield Fleet(capsys, double, tmp_path)
        assert double.strict_errors == []


def test_by_ssh_no_host_leaves_its_work(fleet):
    found = fleet.results("--batch", "2", code=0)
    assert {h["stage"] for h in found.values()} == {"done"}
    fleet.is_prepared()
    assert fleet.acts == []  # neither maintenance nor installation
    names = [name for name, _ in fleet.door.prepared]
    # host01 is SPM: last.
    assert names == ["host02", "host03", "host04", "host01"]
    _, variables = fleet.door.prepared[0]
    assert variables["ovirt_rdma_live_only"] is True
    assert variables["ovirt_rdma_on_failure"] == "fail"
    assert variables["ovirt_rdma_restart_vdsmd"] is False
    assert all(DIGEST in h["sentinel"] for h in found.values())


def test_a_policy_in_the_settings_goes_before_the_file(fleet):
    fleet.settings = {"ovirt_rdma_policy": yaml.safe_load(POLICY)}
    fleet.policy.write_text(POLICY.replace("prefer", "require"))
    found = fleet.results("--batch", "4", code=0)
    assert all(DIGEST in h["sentinel"] for h in found.values())
    assert {h["way"] for h in fleet.results(code=0).values()} == {"nothing"}


def test_a_policy_that_is_a_template_is_refused(fleet):
    place = "/etc/ovirt-rdma/{{ of_my_site }}.yaml"
    fleet.settings = {"ovirt_rdma_policy_file": place}
    fleet.run("-y").refused(
        1, "the policy in /etc/ovirt-rdma/host-deploy.yml is a temp"
    )
    assert fleet.door.prepared == []


@pytest.mark.parametrize(
    ("value", "applies"),
    [
        ("false", False),
        ("No", False),
        (0, False),
        ("True", True),
        ("on", True),
        ("{{ of_my_site }}", True),
    ],
)
def test_whether_to_apply_is_read_as_ansible_reads_it(
    fleet, monkeypatch, value, applies
):
    """Else hosts would be reinstalled for steps that the role never applies."""
    seen = set()

    def look_at(report, request):
        seen.add(request.apply)
        return plan.Look(True)

    monkeypatch.setattr(plan, "look_at", look_at)
    fleet.settings = {"ovirt_rdma_apply": value}
    fleet.results(code=0)
    assert seen == {applies}


@pytest.fixture
def clusters(fleet):
    """The fleet with host03 in another cluster; each has a policy of its own."""
    (centre,) = {c.data_center for c in fleet.world.clusters.values() if c.data_center}
    other = SimCluster(new_id("cl2"), "cl2", centre)
    fleet.world.clusters[other.id] = other
    fleet.world.host("host03").cluster = other.id
    folder = fleet.policy.parent
    (folder / "cl1.yaml").write_text(POLICY)
    (folder / "cl2.yaml").write_text(POLICY.replace("prefer", "require"))
    place = str(folder / "{{ host_deploy_cluster_name }}.yaml")
    fleet.settings = {"ovirt_rdma_policy_file": place}

    def hook(host):
        file = folder / f"{fleet.world.clusters[host.cluster].name}.yaml"
        return run_role(host, {"ovirt_rdma_policy_file": str(file)})

    fleet.world.more["post_tasks"] = hook
    return fleet


def test_each_cluster_gets_its_own_policy(clusters):
    done = clusters.run("--by", "ssh", "--batch", "4", "-y", "-o", "json")
    assert done.code == 0, done
    assert [c["cluster"] for c in done.document["data_centers"]] == ["cl1", "cl2"]
    has = {h.name: "require" in h.policy_text for h in clusters.world.hosts.values()}
    assert has == {name: name == "host03" for name in has}
    again = clusters.run("--by", "ssh", "-y", "-o", "json").document
    ways = {h["way"] for c in again["data_centers"] for h in c["hosts"]}
    assert ways == {"nothing"}
    # One that is missing is no policy of another.
    (clusters.policy.parent / "cl2.yaml").unlink()
    assert clusters.run("host03", "-y").code == 1


def test_an_interrupted_run_of_a_cluster_gets_no_others_policy(clusters):
    clusters.killed(2, "host03", "--by", "reinstall", "-y", applied=True)
    found = clusters.run("-y")
    command = "ovirt-rdma hosts prepare host03 --by reinstall"
    assert f"cluster cl1: an earlier '{command}' was interrupted" in found.err
    assert f"fix: complete it first: {command}" in found.err
    assert clusters.door.prepared == []


def test_the_cluster_of_an_interrupted_run_goes_first(clusters):
    """Else the same command refuses the others because of it, and skips them."""
    words = ("--by", "reinstall", "-y")
    clusters.killed(0, "host03", *words, applied=True)
    found = clusters.run(*words, "-o", "json")
    assert found.code == 0, found
    assert [c["cluster"] for c in found.document["data_centers"]] == ["cl2", "cl1"]
    assert "continues the interrupted" in found.err
    has = {h.name: "require" in h.policy_text for h in clusters.world.hosts.values()}
    assert has == {name: name == "host03" for name in has}


def test_a_run_is_continued_with_the_canary_of_another_cluster(clusters):
    words = ("--by", "reinstall", "-y")
    clusters.killed(0, "host01", "host02", "host04", *words, applied=True)
    found = clusters.run(*words, "--canary", "host03", "-o", "json")
    assert found.code == 0, found
    assert [c["cluster"] for c in found.document["data_centers"]] == ["cl1", "cl2"]
    assert "continues the interrupted" in found.err


def test_a_failure_stops_the_next_data_center_too(capsys, tmp_path):
    world = sample_world(hosts=4, domains=("data1",), default_data_center=True)
    (other,) = (c.id for c in world.clusters.values() if c.name == "Default")
    homeless = SimCluster(new_id("cl9"), "cl9", None)
    world.clusters[homeless.id] = homeless
    world.host("host03").cluster, world.host("host04").cluster = other, homeless.id
    world.host("host02").more["role"] = {"fails": "no space is left"}
    with EngineDouble(world) as double:
        fleet = Fleet(capsys, double, tmp_path)
        found = fleet.run("-y")
    assert found.code == 1
    assert [name for name, _ in fleet.door.prepared] == ["host02"]
    assert "note: not started: Default" in found.err
    assert "host04 is left out: its cluster has no data center" in found.err


def test_a_failed_host_stops_the_next_batch_but_not_its_own(fleet):
    fleet.world.host("host03").more["role"] = {"fails": "it is broken"}
    found = fleet.results("--batch", "2", code=5)
    stages = {name: host["stage"] for name, host in found.items()}
    assert stages == {
        "host02": "done",
        "host03": "failed",
        "host04": "done",
        "host01": "todo",
    }
    # What was done is not repeated; what failed is tried again.
    fleet.world.host("host03").more["role"] = {}
    fleet.results(code=0)
    fleet.is_prepared()


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ({"no_sentinel": True}, "without"),
        ({"other_policy": "version: 1\n"}, "it has the policy"),
    ],
)
@pytest.mark.parametrize("by", ["ssh", "reinstall"])
def test_without_the_proof_a_host_has_failed(fleet, spoilt, words, by):
    """Even where Ansible and the engine report success."""
    fleet.world.host("host02").more["role"] = spoilt
    found = fleet.results("host02", "--by", by, code=1)
    assert found["host02"]["stage"] == "failed"
    assert words in found["host02"]["problem"]
    assert fleet.world.host("host02").status == "up"  # it is in use again


@pytest.mark.parametrize("by", ["ssh", "reinstall"])
def test_a_host_that_reports_another_policy_than_its_proof_has_failed(fleet, by):
    """Somebody loads another one right after the role."""
    host = fleet.world.host("host02")
    reports = fleet.door.reports

    def later(hosts, done=None):
        if host.addon:
            host.policy_text = joined("version: 1\n", {})
        return reports(hosts, done)

    fleet.door.reports = later
    found = fleet.results("host02", "--by", by, code=1)["host02"]
    assert found["stage"] == "failed"
    assert "the role has ended, but the host reports" in found["problem"]
    assert DIGEST in found["problem"]


def test_a_host_that_the_engine_calls_failed_has_failed(fleet, monkeypatch):
    """With the proof and the event of the end, as after a second installation by
    somebody else.
    """
    host, seen = fleet.world.host("host02"), []
    installation = plan.installation

    def read(name, events):
        found = installation(name, events)
        if found.ended and not seen:
            seen.append(found)
            host.status = "install_failed"
            return dataclasses.replace(found, ended=False)
        return found

    monkeypatch.setattr(plan, "installation", read)
    found = fleet.results("host02", "--by", "reinstall", code=1)["host02"]
    assert seen
    assert found["stage"] == "failed"
    assert "install" in found["problem"]


def test_a_run_whose_lock_is_taken_prepares_no_further_host(fleet):
    prepare = fleet.door.prepare

    def taken(hosts, variables, done=None):
        results = prepare(hosts, variables, done)
        for job in jobs_of(fleet.world).values():
            job.status, job.end_time = "failed", fleet.world.time()
        return results

    fleet.door.prepare = taken
    fleet.run("-y").refused(75, "another run has taken over")
    assert [name for name, _ in fleet.door.prepared] == ["host02"]


def test_a_host_without_hardware_has_not_failed(fleet):
    fleet.world.host("host02").more["role"] = {"no_hardware": True}
    for by in ("ssh", "reinstall"):
        found = fleet.results("host02", "--by", by, code=0)
        assert found["host02"]["stage"] == "no RDMA hardware"


def test_by_reinstall(fleet):
    found = fleet.results("--by", "reinstall", "--batch", "2", code=0)
    assert {h["stage"] for h in found.values()} == {"done"}
    fleet.is_prepared()
    ways = [act.rpartition("/")[2] for act in fleet.acts]
    assert ways[:3] == ["deactivate", "install", "activate"]
    assert ways.count("install") == 4
    assert fleet.door.prepared == []


def upgraded(world):
    cluster = world.cluster("cl1")
    cluster.upgrade_in_progress, cluster.upgrade_correlation_id = True, "ansible"


def pinned(world):
    host = world.host("host03")
    host.vms, host.pinned_vms = ["vm1"], ["vm1"]


def all_of_a_cluster(world):
    (center,) = {c.data_center for c in world.clusters.values() if c.data_center}
    other = SimCluster(new_id("cl2"), "cl2", center)
    world.clusters[other.id] = other
    for name in ("host03", "host04"):
        world.host(name).cluster = other.id
        world.host(name).vms = [f"vm-{name}"]


@pytest.mark.parametrize("last", ["-y", "--dry-run"])
@pytest.mark.parametrize(
    ("there", "why"),
    [
        (upgraded, "cluster cl1 is being upgraded"),
        (pinned, "host03 has running virtual machines that are pinned to it: vm1"),
        (all_of_a_cluster, "--batch 3 moves host03, host04 to maintenance at once"),
    ],
)
def test_hosts_that_cannot_go_to_maintenance_are_not_begun(fleet, there, why, last):
    there(fleet.world)
    words = ("--by", "reinstall", "--batch", "3", "--canary", "host02", last)
    fleet.run(*words).refused(3, why)
    assert fleet.acts == []
    # Nobody has to leave a host that stays at work.
    assert fleet.run("--by", "ssh", "--batch", "3", last).code == 0


def test_a_batch_that_leaves_its_canary_at_work_is_carried_out(fleet):
    for host in fleet.world.hosts.values():
        host.vms = [f"vm-{host.name}"]
    fleet.results("--by", "reinstall", "--batch", "3", code=0)
    fleet.is_prepared()


def test_the_only_host_of_a_data_center_goes_with_a_warning(fleet):
    for name in ("host02", "host03", "host04"):
        fleet.world.hosts.pop(fleet.world.host(name).id)
    done = fleet.run("--by", "reinstall", "-y")
    assert done.code == 0, done
    assert "warning: host01 is the only host that is up" in done.err


def test_what_a_reinstall_asks_for(fleet):
    fleet.results("host02", "--by", "reinstall", "--reboot", "no", code=0)
    sent = [r for r in fleet.double.requests if r.path.endswith("/install")]
    (body,) = [request.body for request in sent]
    text = body.decode() if isinstance(body, bytes) else body
    assert "<activate>false</activate>" in text
    assert "<reboot>false</reboot>" in text
    assert "<authentication_method>publickey</authentication_method>" in text
    assert "<override_iptables>false</override_iptables>" in text


@pytest.mark.parametrize(
    ("more", "words", "status"),
    [
        ({"install_fails": "Task x failed"}, "Task x failed", "install_failed"),
        ({"reboot_fails": True}, "could not install it", "install_failed"),
        ({"install_error": 0}, "the role has not run to its end", "up"),
        ({"engine_restarts": True}, "has not reported the end", "up"),
        ({"vdsm_silent": True}, "Network error", "non_responsive"),
    ],
)
def test_an_installation_that_fails(fleet, more, words, status):
    fleet.world.host("host02").more.update(more)
    found = fleet.results("--by", "reinstall", "--reboot", "yes", code=1)
    assert words in found["host02"]["problem"]
    assert fleet.world.host("host02").status == status
    assert {h["stage"] for n, h in found.items() if n != "host02"} == {"todo"}


def test_a_host_that_somebody_else_takes_meanwhile_is_theirs(fleet):
    """It is in maintenance because somebody works on it: it must not be activated."""
    theirs = fleet.world.host("host04")

    def hook(host):
        theirs.status = "maintenance"
        return fleet.hook(host)

    fleet.world.more["post_tasks"] = hook
    found = fleet.results("--by", "reinstall", code=5)
    assert found["host04"]["stage"] == "left out"
    assert "by somebody else" in found["host04"]["problem"]
    assert theirs.status == "maintenance"
    assert not any(theirs.id in act for act in fleet.acts)
    assert {h["stage"] for n, h in found.items() if n != "host04"} == {"done"}


def test_a_host_that_does_not_come_up_again(fleet):
    # It cannot mount its domain after the reinstallation.
    export = fleet.world.export("nfs1.example.com:/exports/data1")

    def hook(host):
        export.answers = False
        return fleet.hook(host)

    fleet.world.more["post_tasks"] = hook
    words = ("host02", "--by", "reinstall", "--reboot", "yes")
    found = fleet.results(*words, code=1)
    assert "non-operational" in found["host02"]["problem"]


def test_machines_that_stay_keep_the_host_at_work(fleet):
    host = fleet.world.host("host02")
    host.vms = host.unscheduled_vms = ["vm1"]
    found = fleet.results("host02", "--by", "reinstall", code=1)
    assert "not evacuated" in found["host02"]["problem"]
    assert (host.status, host.vms) == ("up", ["vm1"])


@pytest.mark.parametrize(("fails", "code"), [(9, 0), (10_000, 1)])
def test_an_spm_that_cannot_be_stopped_for_a_while_is_waited_for(fleet, fails, code):
    """As in a conversion: the engine answers 200, and the host stays up."""
    fleet.world.host("host01").spm_stop_fails = fails
    found = fleet.run("host01", "--by", "reinstall", "-y")
    fleet.world.settle()
    assert found.code == code, found
    assert "SPM did not stop" in found.err
    assert "retrying for up to 1800 s" in found.err
    assert ("SPM did not stop" in found.out) == bool(code)
    assert fleet.world.host("host01").status == "up"


def test_a_host_that_breaks_on_its_way_is_not_waited_for(fleet):
    """As in a conversion: with the same statuses, for the same time."""
    host = fleet.world.host("host02")
    host.vms = host.stuck_vms = ["vm1"]
    spring = fleet.double.traps.spring

    def breaks(method, path):
        coming = host.status == "preparing_for_maintenance"
        if coming and path == f"/hosts/{host.id}":
            fleet.world.transitions.stop(host.id)
            host.status = "install_failed"
        return spring(method, path)

    fleet.double.traps.spring = breaks
    found = fleet.results("host02", "--by", "reinstall", code=1)["host02"]
    assert "'install failed' for 10 minutes" in found["problem"]


def test_a_host_in_maintenance_stays_there(fleet):
    fleet.world.host("host02").status = "maintenance"
    found = fleet.results("host02", "--by", "reinstall", code=0)
    assert found["host02"]["stage"] == "done"
    assert fleet.world.host("host02").status == "maintenance"


def test_a_host_that_is_down_is_left_out_and_the_others_are_done(fleet):
    fleet.world.host("host03").status = "down"
    found = fleet.results("--batch", "4", code=5)
    assert found["host03"]["stage"] == "left out"
    assert {h["stage"] for n, h in found.items() if n != "host03"} == {"done"}


def test_without_access_the_engine_reinstalls_and_its_events_prove(fleet):
    found = fleet.results("--batch", "3", door=False, code=0)
    assert {h["way"] for h in found.values()} == {"reinstall"}
    assert all(DIGEST in h["sentinel"] for h in found.values())
    fleet.is_prepared()
    # What is proven is not reinstalled, and restarted, a second time.
    before = list(fleet.acts)
    found = fleet.results("--batch", "3", door=False, code=0)
    assert ({h["way"] for h in found.values()}, fleet.acts) == ({"nothing"}, before)
    dry = fleet.run("--again", "--dry-run", "-o", "json", door=False)
    (center,) = dry.document["data_centers"]
    assert {h["way"] for h in center["hosts"]} == {"reinstall"}


def test_the_dry_run_changes_nothing_and_says_what_the_run_does(fleet):
    words = ("--by", "reinstall", "--batch", "2")
    dry = fleet.run(*words, "--dry-run", "-o", "json")
    assert (dry.code, fleet.acts, fleet.door.prepared) == (0, [], [])
    (center,) = dry.document["data_centers"]
    planned = [s["path"] for s in center["steps"] if "path" in s]
    assert fleet.run(*words, "-y").code == 0
    assert [act.partition(" ")[2] for act in fleet.acts] == planned
    table = fleet.run(*words, "--again", "--dry-run")
    assert "Nothing was changed" in table.out


def test_the_table_names_the_proof(fleet):
    done = fleet.run("host02", "-y")
    assert done.code == 0
    assert "ovirt-rdma: host is prepared" in done.out
    assert "1 of 1 host prepared." in done.out


@pytest.mark.parametrize(
    ("number", "applied"), [(0, True), (1, True), (1, False), (2, True), (3, False)]
)
def test_killed_at_a_change_and_run_again(fleet, number, applied):
    """Changes 0 to 2 are maintenance, installation and activation of the canary."""
    words = ("host02", "host03", "--by", "reinstall")
    fleet.killed(number, *words, "-y", applied=applied)
    convert = ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y")
    fleet.here(*convert).refused(
        4, "host03 --by reinstall' was interrupted", "complete it first"
    )
    again = fleet.run(*words, "-y")
    assert again.code == 0, again
    assert "continues the interrupted" in again.err
    fleet.world.settle()
    fleet.is_prepared("host02", "host03")
    assert fleet.run(*words, "-y").code == 0
    installs = [act for act in fleet.acts if act.endswith("/install")]
    # An installation that began is not repeated.
    assert len(installs) == 2 + (not applied and number == 1)
    assert not fleet.is_open()


@pytest.mark.parametrize(
    "then",
    [
        ("domain", "convert", "data1", "--to", "rdma", "--rolling"),
        ("hosts", "prepare", "host02"),
        ("hosts", "prepare", "host01", "host03", "host04"),
    ],
    ids=["a conversion", "the same", "others"],
)
def test_cut_off_after_its_last_host_a_run_is_over(fleet, monkeypatch, then):
    """In the reading that follows: nothing of it keeps the next run off."""
    now = plan.with_hosts_now

    def cut(session, engine):
        (path,) = fleet.folder.glob("prepare-*.json")
        hosts = json.loads(path.read_text())["state"]["hosts"]
        if {host["stage"] for host in hosts} == {"done"}:
            raise KeyboardInterrupt
        return now(session, engine)

    words = ["--batch", "4"] if then[0] == "domain" else ["host02"]
    with monkeypatch.context() as patched:
        patched.setattr(plan, "with_hosts_now", cut)
        assert fleet.run(*words, "-y").code == 130
    assert fleet.is_open()
    fleet.then(then)
    assert not fleet.is_open()
    if then[0] == "hosts":
        fleet.is_prepared("host02", *then[2:])


@pytest.mark.parametrize("at", ["the start", "a later batch"])
@pytest.mark.parametrize(
    "then",
    [
        ("domain", "convert", "data1", "--to", "rdma", "--rolling"),
        ("hosts", "prepare", "host02", "--by", "ssh"),
        ("hosts", "prepare", "host02", "host04", "--by", "reinstall", "--again"),
    ],
    ids=["a conversion", "others", "the same"],
)
def test_cut_off_with_no_host_in_progress_keeps_nothing_off(
    fleet, monkeypatch, at, then
):
    assert fleet.run("--batch", "4", "-y").code == 0
    name = "read_engine" if at == "the start" else "with_hosts_now"
    true = getattr(plan, name)

    def cut(*given):
        (path,) = fleet.folder.glob("prepare-*.json")
        stages = [h["stage"] for h in json.loads(path.read_text())["state"]["hosts"]]
        if at == "the start" or stages == ["done", "todo"]:
            raise KeyboardInterrupt
        return true(*given)

    with monkeypatch.context() as patched:
        patched.setattr(plan, name, cut)
        words = ("host02", "host04", "--by", "reinstall", "--again", "-y")
        assert fleet.run(*words).code == 130
    before = len(fleet.acts)
    found = fleet.then(then)
    if "--again" in then:
        # What is done is not repeated.
        ways = [act.rpartition("/")[2] for act in fleet.acts[before:]]
        assert "continues the interrupted" in found.err
        assert ways.count("install") == (2 if at == "the start" else 1)
    assert not fleet.is_open()


@pytest.fixture
def cut_at_start(fleet, monkeypatch):
    """Cut a run off before it changes anything."""

    def cut(*words):
        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(plan, "read_engine", interrupt)
            assert fleet.run(*words, "-y").code == 130
        assert (fleet.acts, fleet.door.prepared) == ([], [])

    return cut


@pytest.mark.parametrize(
    ("first", "then", "installs"),
    [
        # Which host is first, and whether they restart.
        (("--reboot", "yes"), ("--reboot", "no"), {"host02": False, "host04": False}),
        ((), ("--reboot", "no"), {"host02": False, "host04": False}),
        (("--batch", "3"), ("--canary", "host04"), {"host04": True, "host02": True}),
    ],
)
def test_cut_off_at_the_start_a_run_has_the_options_of_the_next(
    fleet, cut_at_start, first, then, installs
):
    words = ("host02", "host04", "--by", "reinstall")
    cut_at_start(*words, *first)
    found = fleet.run(*words, *then, "-y")
    assert found.code == 0, found
    assert "continues the interrupted" not in found.err
    sent = [r for r in fleet.double.requests if r.path.endswith("/install")]
    names = {host.id: host.name for host in fleet.world.hosts.values()}
    bodies = {names[r.path.split("/")[-2]]: str(r.body) for r in sent}
    assert list(bodies) == list(installs)
    for name, reboot in installs.items():
        assert f"<reboot>{str(reboot).lower()}</reboot>" in bodies[name]


def test_cut_off_at_the_start_a_run_is_repeated_with_again(fleet, cut_at_start):
    """Else hosts that need nothing keep their old packages, and that is a success."""
    assert fleet.run("host02", "-y").code == 0
    fleet.door.prepared.clear()
    cut_at_start("host02", "host03")
    found = fleet.run("host02", "host03", "--again", "-y")
    assert found.code == 0, found
    assert {name for name, _ in fleet.door.prepared} == {"host02", "host03"}


def test_with_a_host_in_progress_other_options_are_refused(fleet):
    """The command that is named has all of those that were given."""
    given = "host02 host03 --by reinstall --batch 2 --again --reboot no"
    words = given.split()
    fleet.killed(0, *words, "-y", applied=True)
    fix = f"it first: ovirt-rdma hosts prepare {given}"
    for without in ("--batch 2", "--again", "--reboot no"):
        other = [word for word in words if word not in without.split()]
        fleet.run(*other, "-y").refused(4, fix)
    fleet.run(*words, "--canary", "host03", "-y").refused(4, fix)
    assert len(fleet.acts) == 1
    found = fleet.run(*words, "--canary", "host02", "-y")
    assert found.code == 0, found
    assert f"continues the interrupted 'ovirt-rdma hosts prepare {given}'" in found.err
    fleet.is_prepared("host02", "host03")


def test_a_host_that_was_removed_meanwhile_stops_no_other(fleet, cut_at_start):
    cut_at_start("host02", "host03", "host04")
    del fleet.world.hosts[fleet.world.host("host02").id]
    fleet.world.host("host03").name = "hv3"
    found = fleet.results("hv3", "host04", code=5)
    stages = {name: host["stage"] for name, host in found.items()}
    assert stages == {"host02": "left out", "hv3": "done", "host04": "done"}
    fleet.is_prepared("hv3", "host04")


def test_a_run_that_is_interrupted_twice_is_named_with_present_names(
    fleet, cut_at_start
):
    """Else the command that it names does not continue it."""
    cut_at_start("host02", "host03", "host04")
    fleet.world.host("host03").name = "hv3"
    other = fleet.world.host("host02")
    del fleet.world.hosts[other.id]
    fleet.double.requests.clear()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    fleet.door.prepare, prepare = interrupt, fleet.door.prepare
    found = fleet.run("hv3", "host04", "-y")
    assert found.code == 130
    assert "continue with 'ovirt-rdma hosts prepare hv3 host04'" in found.err
    fleet.door.prepare = prepare
    # Another host has the name of the one that was removed.
    fleet.world.host("hv3").name = "host02"
    found = fleet.run("host02", "host04", "-y")
    assert found.code == 0, found
    assert "continues the interrupted" in found.err
    fleet.is_prepared("host02", "host04")


def test_an_interrupted_run_is_continued_with_its_own_hosts_only(fleet):
    """Else others would be reinstalled than those that were named."""
    fleet.killed(0, "host02", "host04", "--by", "reinstall", "-y", applied=True)
    fix = "it first: ovirt-rdma hosts prepare host02 host04 --by reinstall"
    for words in (
        ("host03", "--by", "reinstall"),
        ("host02", "--by", "reinstall"),
        ("--by", "reinstall"),
        ("host02", "host04"),
    ):
        fleet.run(*words, "-y").refused(4, "host04 --by reinstall' was inter", fix)
    convert = ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y")
    fleet.here(*convert).refused(4, fix)
    assert (len(fleet.acts), fleet.door.prepared) == (1, [])
    # One that was removed meanwhile need not be named.
    del fleet.world.hosts[fleet.world.host("host04").id]
    again = fleet.run("host02", "--by", "reinstall", "-y")
    assert (again.code, "it is no longer in the engine" in again.out) == (5, True)
    fleet.is_prepared("host02")


def test_an_interrupted_run_is_named_with_present_names(fleet):
    """Else the command that the refusal names is refused too."""
    fleet.killed(0, "host02", "host04", "--by", "reinstall", "-y", applied=True)
    first, other = fleet.world.host("host02"), fleet.world.host("host04")
    first.name = "hv2"
    del fleet.world.hosts[other.id]
    command = "ovirt-rdma hosts prepare hv2 --by reinstall"
    others = ("host03", "--by", "ssh", "-y")
    fleet.run(*others).refused(4, f"fix: complete it first: {command}")
    # Without its hosts, it has ended.
    del fleet.world.hosts[first.id]
    found = fleet.run(*others)
    assert found.code == 0, found
    fleet.is_prepared("host03")


def test_with_nothing_to_do_the_run_of_another_machine_is_no_matter(fleet):
    assert fleet.run("host02", "-y").code == 0
    center = fleet.world.data_center("dc1").id
    with open_session(fleet.double, Clock()) as session:
        DataCenterLock(session, "another 1").claim(
            SimpleNamespace(job=None), "convert", [center]
        )
    fleet.run("-y").refused(75, "open task 'ovirt-rdma: convert")
    assert fleet.run("host02", "-y").code == 0


def test_a_policy_that_was_changed_meanwhile_is_no_failure(fleet):
    words = ("host02", "host03", "--by", "reinstall")
    fleet.killed(0, *words, "-y", applied=True)
    fleet.policy.write_text(f"# edited\n{POLICY.replace('prefer', 'require')}")
    again = fleet.run(*words, "-y")
    assert again.code == 0, again
    assert "the policy was changed meanwhile" in again.err
    assert fleet.world.host("host02").policy_text == fleet.policy.read_text()


@pytest.mark.parametrize("words", [("--by", "ssh"), ("--by", "reinstall"), ()])
def test_the_drop_ins_of_a_host_stay_and_are_no_other_policy(fleet, words):
    """A conversion has written them."""
    rule = "version: 1\nnfs:\n  rules:\n  - {server: nas, path: /x, transport: tcp}\n"
    for host in fleet.world.hosts.values():
        host.policy_text = joined("version: 1\n", {"50-data1.yaml": rule})
    found = fleet.results(*words, door=bool(words), code=0)
    assert all(DIGEST in one["sentinel"] for one in found.values())
    for host in fleet.world.hosts.values():
        assert split(host.policy_text) == (POLICY, {"50-data1.yaml": rule})


def test_an_answer_that_was_lost_is_looked_up(fleet):
    number = fleet.world.host("host02").id
    for action in ("deactivate", "install", "activate"):
        fleet.double.fail_next("POST", f"/hosts/{number}/{action}", AnswerLost())
    fleet.results("host02", "--by", "reinstall", code=0)
    fleet.is_prepared("host02")


def test_another_run_is_refused(fleet):
    with StateFolder(fleet.folder).only_run(fleet.world.data_center("dc1").id):
        fleet.run("-y").refused(75, "another run of ovirt-rdma", "wait until")


def test_a_broken_state_file_is_left_alone(fleet):
    fleet.results("host02", code=0)
    (path,) = fleet.folder.glob("prepare-*.json")
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "digest": "sha256:0"}))
    before = path.read_text()
    fleet.run("-y").refused(1, "its digest differs", "activate those by hand")
    assert path.read_text() == before


def test_a_wrong_canary_is_a_usage_error(fleet):
    fleet.run("host02", "--canary", "host03", "-y").refused(2, "host03")
