# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric sm enable`` and ``disable``: what they refuse, do, prove and undo."""

from __future__ import annotations

import pytest
from support.fakes.fake_processes import run_process
from support.host.subnet_managers import OWN, PORT, SETTINGS, UNIT, SubnetManagers

from ovirt_rdma.cli.host import fabric
from ovirt_rdma.host.fabric.decisions import STEP
from ovirt_rdma.host.services import opensm, package_scripts

pytestmark = pytest.mark.hypervisor

FILE = "/etc/rdma/partitions.conf"
OTHER, THIRD = "0x0002c90300fb1241", "0x0002c90300fb1251"
HOSTS = f"hosts: {{hv1: [{OWN}], hv2: [{OTHER}]}}"
POLICY = f"""\
version: 1
fabric:
  {HOSTS}
  subnet_managers: {{hv1: {{priority: 14}}, hv2: {{priority: 5}}}}
"""
STANDBY = POLICY.replace("14}", "2, standby: on}").replace(", hv2: {priority: 5}", "")


@pytest.fixture
def site(changeable, monkeypatch):
    """A host without a subnet manager, and a policy that names it."""
    monkeypatch.setattr(fabric, "START_TIMEOUT_S", 0.1)
    monkeypatch.setattr(opensm, "_POLL_S", 0.05)
    changeable.fabric = SubnetManagers(
        changeable.fake, changeable.root / FILE[1:], [OTHER, THIRD]
    )
    changeable.fake.write(f"{PORT}/state", "2: INIT")
    changeable.fake.write(f"{PORT}/lid", "0x0")
    changeable.follow(POLICY)
    return changeable


def sm(host, *words):
    return host("fabric", "sm", *words)


def settings(host):
    path = host.root / SETTINGS[1:]
    return path.read_text() if path.exists() else None


def assert_untouched(host):
    assert (settings(host), host.fake.units[UNIT]) == (None, "disabled")
    assert OWN not in host.fabric.managers
    assert host.fabric.calls == []
    assert host("history", "-o", "json").document["runs"] == []


def test_it_is_started_proven_and_kept_over_a_boot(site):
    result = sm(site, "enable")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"done     {STEP}  no opensm of ovirt-rdma -> master at mlx4_0/1 with priority "
        "14\n1 step done and verified.\n"
        "opensm is master at mlx4_0/1 with priority 14 (no subnet manager answers "
        "there).\n"
    )
    assert site.fake.units[UNIT] == "enabled"
    assert site.fabric.managers == {OWN: 14}
    assert settings(site).splitlines()[3:] == [
        f"guid {OWN}",
        "sm_priority 14",
        f"partition_config_file {FILE}",
        f"log_file /var/log/ovirt-rdma-opensm/{OWN}.log",
        "log_max_size 16",
    ]


def test_a_second_run_changes_nothing(site):
    sm(site, "enable")
    again = sm(site, "enable", "-o", "json")
    assert again.code == 0
    document = again.document
    assert (document["run"], document["proven"], document["steps"]) == (None, True, [])
    assert [one["state"] for one in document["ports"]] == ["master"]
    assert site.fabric.calls == ["try-restart", "enable"]
    assert len(site("history", "-o", "json").document["runs"]) == 1


def test_check_shows_ours(site):
    sm(site, "enable")
    shown = site("fabric", "check").out
    assert "mlx4_0/1  opensm of ovirt-rdma is running with priority 14" in shown
    assert site("status").code == 0


def test_disable_and_revert_leave_nothing(site):
    for way_back in (("fabric", "sm", "disable"), ("revert",)):
        assert sm(site, "enable").code == 0
        assert site(*way_back).code == 0
        assert (settings(site), site.fake.units[UNIT]) == (None, "disabled")
        assert site.fabric.managers == {}
    again = sm(site, "disable")
    assert (again.code, again.out) == (0, "there is no opensm of ovirt-rdma.\n")


def test_disable_says_if_nobody_is_left(site):
    sm(site, "enable")
    alone = sm(site, "disable")
    assert "No other subnet manager is known at mlx4_0/1: links stay" in alone.out
    site.fabric.run(OTHER, 5)
    sm(site, "enable")
    assert sm(site, "disable", "-o", "json").document["without_manager"] == []


def test_disable_leaves_what_apply_did(site):
    site.follow(POLICY + "  partitions: {storage: {pkey: 0x8001, members: [hv1]}}\n")
    assert site("fabric", "partitions", "apply").code == 0
    sm(site, "enable")
    assert sm(site, "disable").code == 0
    assert "storage" in (site.root / FILE[1:]).read_text()


def test_another_priority_is_a_new_start_and_disable_goes_back_to_none(site):
    sm(site, "enable")
    site.follow(POLICY.replace("14", "9"))
    assert sm(site, "enable").code == 0
    assert site.fabric.managers == {OWN: 9}
    assert site.fabric.calls == ["try-restart", "enable", "try-restart"]
    assert sm(site, "disable").code == 0
    assert (settings(site), site.fake.units[UNIT]) == (None, "disabled")
    assert site.fabric.managers == {}


def test_it_takes_over_from_one_that_the_policy_names(site):
    site.fabric.run(OTHER, 5)
    result = sm(site, "enable")
    assert result.code == 0
    said = " ".join(result.out.split())
    assert f"({OTHER} with priority 5 is the master there now)" in said
    assert site.fabric.chosen == [OWN, OTHER]


@pytest.mark.parametrize(
    ("own", "other", "state"),
    # At an equal priority the lower GUID, ours, is master.
    [(6, 5, "master"), (5, 5, "master"), (4, 5, "standby")],
)
def test_the_higher_priority_is_master(site, own, other, state):
    site.fabric.run(OTHER, other)
    site.follow(POLICY.replace("14", str(own)))
    document = sm(site, "enable", "-o", "json").document
    assert [one["state"] for one in document["ports"]] == [state]
    assert (document["proven"], document["outcome"]) == (True, "done")


def test_one_that_the_policy_does_not_name_keeps_the_fabric(site):
    for priority in (0, 15):
        site.fabric.run(THIRD, priority)
        sm(site, "enable").refused(
            4,
            f"the subnet manager of mlx4_0/1 is {THIRD} with priority {priority}, "
            "which the policy does not name",
            "fix: stop that one; or name its host",
        )
        assert_untouched(site)


def test_standby_stands_by(site):
    site.follow(STANDBY)
    sm(site, "enable").refused(4, "no subnet manager answers at mlx4_0/1")
    site.fabric.run(THIRD, 1)
    sm(site, "enable").refused(
        4, "would take over from", "fix: write a priority below 1 for hv1"
    )
    assert_untouched(site)
    site.fabric.run(THIRD, 3)
    result = sm(site, "enable")
    assert result.code == 0
    assert "opensm is standby at mlx4_0/1 with priority 2" in result.out
    # It takes over, which is what it is for, and that is no mistake.
    site.fabric.end(THIRD)
    assert sm(site, "enable").code == 0


@pytest.mark.parametrize(
    ("managers", "said"),
    [
        ("{hv2: {priority: 5}}", "the policy does not name"),
        ("{}", "the policy does not name"),
        (f"{{hv2: {{priority: 5}}, hv1: {{priority: 1, ports: [{OWN}]}}}}", ""),
        ("{hv9: {priority: 1}}", "the policy does not name"),
    ],
)
def test_only_where_the_policy_names_this_host(site, managers, said):
    site.follow(POLICY.replace("{hv1: {priority: 14}, hv2: {priority: 5}}", managers))
    result = sm(site, "enable")
    if said:
        result.refused(4, said, "fix: if no switch has a subnet manager")
        assert_untouched(site)
    else:
        assert result.code == 0


def test_a_host_is_known_by_its_name_without_guids(site):
    name = site("facts", "-o", "json").document["hostname"]
    text = POLICY.replace(HOSTS, "hosts: {}").replace(", hv2: {priority: 5}", "")
    for called in (name, name.partition(".")[0]):
        site.follow(text.replace("hv1", called))
        assert sm(site, "enable").code == 0


def no_opensm(site):
    (site.root / "usr/sbin/opensm").unlink()


def enabled_unit(site):
    site.fake.unit("opensm.service", "inactive", "enabled")
    site.fabric._systemctl = lambda argv: (
        site.fake._systemctl(argv) if "--value" in argv else site.fake._prepared(argv)
    )


def odd_partitions(site):
    site.fake.write(FILE, "Default=0x7fff : ALL=ful;")


def other_partitions(site):
    site.follow(POLICY + "  partitions: {storage: {pkey: 0x8001, members: [hv1]}}\n")


def another_port(site):
    name = site("facts", "-o", "json").document["hostname"]
    rule = f"{{{name}: {{priority: 1, ports: [0x5]}}}}"
    site.follow(f"version: 1\nfabric:\n  subnet_managers: {rule}\n")


def process(*words):
    return lambda site: run_process(site.fake.path, 77, "/usr/sbin/opensm", *words)


def file(path, text):
    return lambda site: site.fake.write(path, text)


@pytest.mark.parametrize(
    ("prepare", "said", "fix"),
    [
        (no_opensm, "opensm is not installed", "install the package opensm"),
        (
            lambda site: site.fake.runner.programs.pop("sminfo"),
            "sminfo is not available here",
            "package infiniband-diags",
        ),
        (enabled_unit, "opensm.service is enabled", "systemctl disable --now opensm"),
        (
            process("-g", OWN),
            "another opensm (process 77) is running at mlx4_0/1",
            "end it where it was started: systemctl status 77",
        ),
        (
            process(),
            "another opensm (process 77) is running at a port that it does not name",
            "end it where it was started: systemctl status 77",
        ),
        (odd_partitions, f"{FILE} is invalid: {FILE}:1", "partitions validate"),
        (other_partitions, f"{FILE} is not as the policy says", "partitions apply"),
        (
            file(f"{PORT}/state", "1: DOWN"),
            "mlx4_0/1 has no link (DOWN",
            "connect its cable; see ovirt-rdma-host check: IB-PORT-01",
        ),
        (another_port, "is not an InfiniBand port of this host", "correct ports"),
        (file(SETTINGS, "guid 0x0"), "is not from ovirt-rdma", "move the file away"),
        (
            file(SETTINGS, "# ovirt-rdma revision 1\n# mine"),
            "has a line '# mine'",
            "move the file away",
        ),
        (
            lambda site: site.fake.units.pop(UNIT),
            f"systemd has no unit {UNIT}",
            "package ovirt-rdma-host",
        ),
    ],
)
def test_what_would_not_work_is_refused(site, prepare, said, fix):
    prepare(site)
    sm(site, "enable").refused(4, said, "Nothing was changed.", fix)
    assert OWN not in site.fabric.managers
    assert site.fabric.calls == []
    assert site("history", "-o", "json").document["runs"] == []


def test_all_reasons_are_said_at_once(site):
    no_opensm(site)
    odd_partitions(site)
    sm(site, "enable").refused(
        4,
        "opensm is not started:",
        "ovirt-rdma-host: opensm is not installed on this host\n",
        f"ovirt-rdma-host: {FILE} is invalid: {FILE}:1: ",
        "fix: install the package opensm; ovirt-rdma-host fabric partitions validate",
    )


def test_an_opensm_that_ends_is_rolled_back(site):
    site.fabric.dies = True
    result = sm(site, "enable")
    assert result.code == 6
    assert "opensm is not running at mlx4_0/1" in " ".join(result.out.split())
    assert (settings(site), site.fake.units[UNIT]) == (None, "disabled")


def test_a_second_master_is_rolled_back(site):
    site.fabric.run(OTHER, 15)
    site.fabric.stubborn = True
    result = sm(site, "enable")
    assert result.code == 6
    assert "several subnet managers are master" in " ".join(result.out.split())
    assert site.fabric.managers == {OTHER: 15}


def test_an_opensm_that_somebody_stopped_is_reported(site):
    sm(site, "enable")
    site.fabric._stop()
    result = sm(site, "enable")
    assert result.code == 3
    assert "opensm is not running at mlx4_0/1." in result.out
    assert f"systemctl restart {UNIT}" in " ".join(result.out.split())


def test_check_says_what_the_policy_and_the_host_disagree_on(site):
    def told():
        found = site("fabric", "check", "-o", "json").document["findings"]
        return [o for o in found if o["rule"] == "FABRIC-SM-02"]

    (idle,) = told()
    assert "no opensm of ovirt-rdma is running" in idle["sentence"]
    assert idle["verdict"] == "FAIL"
    assert idle["fix"] == "ovirt-rdma-host fabric sm enable"
    sm(site, "enable")
    assert [(o["subject"], o["verdict"]) for o in told()] == [("mlx4_0/1", "PASS")]
    site.follow(POLICY.replace("14", "13"))
    (other,) = told()
    assert other["sentence"].endswith("priority 14, and the policy says 13")
    site.follow("version: 1\n")
    (unnamed,) = told()
    assert unnamed["sentence"].endswith("and the policy does not name this host")
    assert unnamed["fix"] == "ovirt-rdma-host fabric sm disable"


def test_erasing_the_package_ends_it(site, monkeypatch):
    sm(site, "enable")
    notes = package_scripts.prepare_erase(site.root, site.fake.run)
    assert "opensm, which fabric sm enable had started, was ended" in str(notes)
    assert site.fabric.managers == {}
    assert (settings(site), site.fake.units[UNIT]) == (None, "disabled")
    assert not any("stay applied" in note.sentence for note in notes)


def test_erasing_without_one_says_nothing_of_it(site):
    notes = package_scripts.prepare_erase(site.root, site.fake.run)
    assert "opensm" not in str(notes)
    assert site.fabric.calls == []
