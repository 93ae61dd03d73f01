# SPDX-License-Identifier: GPL-2.0-or-later
"""UNIT-01, POLICY-01, VDSM-01, FACTS-01 and DAEMON-01."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from support.fakes.fake_hosts import connectx3_ib
from support.host.rule_cases import (
    RDMA_CORE_UNITS,
    ethernet,
    facts,
    findings,
    host_policy,
    ib_device,
    interface_rule,
    ipoib,
    option,
    roce_device,
)

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.model import Software, Unit
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.policy.block import BlockPolicy, IserTarget
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules import host as host_rules
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
)

OPENIBD = Unit("openibd.service", "loaded", "active", "enabled")


HW, RDMA, *MORE = RDMA_CORE_UNITS
IDLE = tuple(replace(unit, active="inactive") for unit in RDMA_CORE_UNITS)
NOT_FOUND = Unit("rdma-load-modules@rdma.service", "not-found", "inactive")
# Nothing would start the list of Omni-Path, and the others are not ours.
OTHERS = (
    Unit("rdma-load-modules@opa.service", "loaded", "inactive"),
    Unit("openibd.service", "not-found", "inactive"),
    Unit("vdsmd.service", "loaded", "failed"),
)
INACTIVE = "the host has an RDMA device, but these are inactive: rdma-hw.target"
SEVERAL = ", ".join(unit.name for unit in IDLE)
BY_OPENIBD = "openibd loads the RDMA modules on this host"


@pytest.mark.parametrize(
    ("units", "subject", "verdict", "words"),
    [
        (RDMA_CORE_UNITS, "host", "PASS", "no unit of rdma-core has failed"),
        ((), "host", "SKIP", "unknown"),
        (
            (HW, replace(RDMA, active="failed"), *MORE),
            RDMA.name,
            "WARN",
            "/etc/rdma/modules/rdma.conf may name a missing module",
        ),
        (
            (*RDMA_CORE_UNITS, OPENIBD),
            OPENIBD.name,
            "WARN",
            f"{BY_OPENIBD}, and rdma-core's units do too |",
        ),
        (
            (IDLE[0], RDMA, *MORE),
            HW.name,
            "WARN",
            f"{INACTIVE} | systemctl start rdma-hw.target",
        ),
        (
            IDLE,
            HW.name,
            "WARN",
            f"these are inactive: {SEVERAL} | systemctl start rdma-hw.target ",
        ),
        # Unknown is not missing.
        (
            (OPENIBD,),
            OPENIBD.name,
            "WARN",
            f"{BY_OPENIBD} | with the distribution's drivers: systemctl disable --now "
            "openibd",
        ),
        # They are no matter where openibd loads the modules.
        ((*IDLE, OPENIBD), OPENIBD.name, "WARN", BY_OPENIBD),
        ((*RDMA_CORE_UNITS, *OTHERS), "host", "PASS", ""),
        ((NOT_FOUND,), "host", "SKIP", "not installed"),
    ],
)
def test_units(units, subject, verdict, words):
    host = facts(rdma_devices=(ib_device(),), software={"units": units})
    found = findings(host_rules.UNITS, host)
    assert list(found) == [subject]
    assert found[subject][0] == verdict
    assert words in found[subject][1]


def test_idle_units_without_a_device():
    host = facts(software={"units": IDLE})
    assert findings(host_rules.UNITS, host)["host"][0] == "SKIP"


# POLICY-01

HOST = facts(
    rdma_devices=(ib_device(), roce_device()),
    netdevs=(ipoib("ib0"), ethernet("ens1")),
)


NOT_HERE = "names no port of this host: no"
PORTS = (
    "| nothing to fix if the rule is for other hosts; ports here: mlx4_0/1 "
    "(InfiniBand, 0002:c903:00fb:1231, 0000:04:00.0), mlx5_0/1 (Ethernet, no GUID, "
    "0000:3b:00.0)"
)
NEAR_GUID = "0002:c903:00fb:1213"


@pytest.mark.parametrize(
    ("rule", "verdict", "words"),
    [
        ({"link_layer": "infiniband"}, "PASS", "names ib0"),
        ({"device": "mlx*"}, "PASS", "names ib0, ens1"),
        ({"device": "mlx4_1"}, "WARN", f"{NOT_HERE} device mlx4_1 {PORTS}"),
        ({"guid": NEAR_GUID}, "WARN", f"{NOT_HERE} guid {NEAR_GUID} {PORTS}"),
        ({"pci": "0000:40:00.0"}, "WARN", f"{NOT_HERE} pci 0000:40:00.0 {PORTS}"),
        ({"port": 2}, "WARN", f"{NOT_HERE} port 2 {PORTS}"),
        (
            {"device": "mlx4_0", "link_layer": "ethernet"},
            "WARN",
            f"{NOT_HERE} port matches all of its keys {PORTS}",
        ),
        ({"pkey": "0x8001"}, "WARN", "no netdev there has 0x8001"),
    ],
)
def test_interface_rule(judged, rule, verdict, words):
    policy = host_policy(interfaces=(interface_rule(**rule),))
    judged(host_rules.NAMES, HOST, policy, "interface 1", verdict, words)


def test_nothing_is_done_by_a_near_name():
    rule = interface_rule(device="mlx4_1", mtu=4092, transport_mode="connected")
    assert decide(HOST, host_policy(interfaces=(rule,))).steps == ()


def test_no_device_at_all():
    policy = host_policy(interfaces=(interface_rule(device="mlx4_0"),))
    found = findings(host_rules.NAMES, facts(), policy)["interface 1"]
    assert "it has no RDMA device" in found[1]


def test_rule_after_another_has_no_effect():
    rules = (interface_rule(1, link_layer="infiniband"),)
    rules += (interface_rule(2, name="storage", device="mlx4_0"),)
    found = findings(host_rules.NAMES, HOST, host_policy(interfaces=rules))
    assert found["interface 1"][0] == "PASS"
    assert found["storage"][0] == "WARN"
    sentence = "interface 'storage' has no effect: interface 1 names ib0"
    assert sentence in found["storage"][1]


def test_port_without_a_netdev():
    policy = host_policy(interfaces=(interface_rule(device="mlx4_0"),))
    found = findings(host_rules.NAMES, facts(rdma_devices=(ib_device(),)), policy)
    sentence = "interface 1 names mlx4_0/1, which has no netdev"
    assert sentence in found["interface 1"][1]


def test_rule_for_a_child_that_is_planned():
    policy = host_policy(
        interfaces=(
            interface_rule(1, pkey="0x8001", mtu=2044),
            interface_rule(2, device="mlx4_0", pkey_children=("0x8001",)),
        )
    )
    assert findings(host_rules.NAMES, HOST, policy)["interface 1"][0] == "PASS"


@pytest.mark.parametrize(
    ("parts", "subject", "words"),
    [
        ({"modules": ("nvme_rmda",)}, "nvme_rmda", "; did you mean nvme_rdma?"),
        ({"module_options": (option("mlx_core a=1"),)}, "mlx_core", "mlx4_core"),
    ],
)
def test_module_name_with_a_slip(parts, subject, words):
    host = facts(modules={"available": ("nvme_rdma", "mlx4_core")})
    found = findings(host_rules.NAMES, host, host_policy(**parts))
    assert found[subject][0] == "WARN"
    assert words in found[subject][1]


def test_modules_that_are_none_of_ours_or_not_here():
    host = facts(modules={"available": ("nvme_rdma", "rdma_cm")})
    rule = interface_rule(device="x")
    policy = host_policy(modules=("8021q", "rdma_rxe"), interfaces=(rule,))
    assert list(findings(host_rules.NAMES, host, policy)) == ["interface 1"]


def test_policy_without_a_host_part():
    assert findings(host_rules.NAMES, HOST)["host"][0] == "SKIP"


# VDSM-01


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("4.50.1.1", "PASS"),
        ("4.50.5.1", "PASS"),
        ("4.60", "PASS"),
        ("4.50.1.1-1.el9", "PASS"),
        ("4.50.1", "WARN"),
        ("4.50.0.13", "WARN"),
        ("4.40.100.2", "WARN"),
        (None, "SKIP"),
        ("master", "SKIP"),
        ("", "SKIP"),
    ],
)
def test_vdsm(version, verdict):
    host = replace(HOST, software=replace(HOST.software, vdsm_version=version))
    assert findings(host_rules.VDSM, host)["host"][0] == verdict


def test_old_vdsm_fails_where_the_policy_uses_ipoib(judged):
    host = replace(HOST, software=replace(HOST.software, vdsm_version="4.50.0.13"))
    policy = host_policy(interfaces=(interface_rule(device="mlx4_0"),))
    judged(
        host_rules.VDSM,
        host,
        policy,
        "host",
        "FAIL",
        "VDSM 4.50.0.13 does not report ib0",
    )


def test_any_vdsm_without_ipoib():
    host = facts(software={"vdsm_version": "4.40"})
    assert findings(host_rules.VDSM, host)["host"][0] == "SKIP"


# FACTS-01


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        ("/sys/x cannot be read: Permission denied", "run it as root"),
        ("/sys/x reads '', not a GID", "see the driver's messages: journalctl -k"),
        (
            "/etc/modprobe.d/a.conf line 2 is ignored by modprobe: no module",
            "look at the file, and correct it: ls -l /etc/modprobe.d/a.conf",
        ),
        ("netdev ib0 disappeared during the read", "run it again"),
        ("ip -j addr was not run: /x is not this host's root", "run it on that host"),
        ("ip -j route get ::1 shows no route", "see what it says: ip -j route get ::1"),
        ("ip -j $(reboot) failed: x", "see what it says: ip -j '$(reboot)'"),
        ("the netdev that nvme0 (nvme) uses is unknown", "look at it on the host"),
    ],
)
def test_what_could_not_be_read(problem, fix):
    assert fix in _fixes(facts(problems=(problem,)))[problem]


SLOW = "see which service or driver holds it up: journalctl -b -n 50"


@pytest.mark.parametrize(
    ("failure", "fix"),
    [
        (CommandTimeout("no answer within 5 s"), SLOW),
        (CommandFailed("not run, because it has timed out before"), SLOW),
        (CommandFailed("exit status 1", 1), "see what it says: {command}"),
        (NotInstalled("No such file or directory"), "install the tool: dnf install"),
    ],
)
def test_each_tool_that_fails_has_its_own_next_step(tmp_path, failure, fix):
    connectx3_ib(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)

    def fails(argv):
        raise failure

    found = _fixes(HostReader(tmp_path, fails).facts())
    tools = set()
    for sentence, text in found.items():
        command, failed, _ = sentence.partition(" failed: ")
        tool = command.split()[0]
        if failed:
            tools.add(tool)
            assert text.startswith(fix.format(command=shlex.join(command.split()))), (
                sentence
            )
            assert "look at" not in text, sentence
    optional = set() if isinstance(failure, NotInstalled) else {"systemctl"}
    assert tools >= {"ip", "ethtool", "rdma", *optional}


def _fixes(host):
    found = list(host_rules.UNREAD.decide(_view(host)))
    assert {one.verdict for one in found} == {"WARN"}
    return {one.sentence: one.fix for one in found}


def test_very_many_problems_are_counted():
    host = facts(problems=tuple(f"/sys/{n} cannot be read" for n in range(100)))
    found = list(host_rules.UNREAD.decide(_view(host)))
    assert len(found) == 21
    assert found[-1].sentence.startswith("80 more ")
    assert found[-1].fix == "ovirt-rdma-host facts shows them"


def test_everything_read():
    assert findings(host_rules.UNREAD, facts())["host"][0] == "PASS"


def _view(host):
    return View(host, Policy())


# DAEMON-01

HEALTH = Policy(nfs=NfsPolicy((), 10))
METRICS = host_policy(metrics_folder="/var/lib/node_exporter/textfiles")
FOLLOW = host_policy(interfaces=(interface_rule(device="mlx4_0", partitions="follow"),))


PATHS = Policy(
    nfs=NfsPolicy((NfsRule(1, "vms", "nas", paths=("10.0.1.5", "10.0.2.5")),))
)
TARGET = IserTarget(1, "lun", portal="10.0.0.1", iqn="iqn.2016-06.org:data")


LOOKED_AT = "the mounts should be looked at every 10 s"
WRITTEN = "the metrics should be written into /var/lib/node_exporter/textfiles"


def daemon(active="inactive", load="loaded"):
    return Unit(DAEMON_UNIT, load, active, "static")


@pytest.mark.parametrize(
    ("policy", "units", "verdict", "words"),
    [
        (Policy(), (), "SKIP", "the policy has no health_interval, metrics_folder, "),
        (Policy(), (daemon("active"),), "SKIP", "the policy has no health_interval"),
        (HEALTH, (), "SKIP", "it is unknown"),
        (HEALTH, (daemon("active"),), "PASS", "looked at every 10 s"),
        (METRICS, (daemon("active"),), "PASS", "into /var/lib/node_exporter/textfiles"),
        # The role of Ansible checks right after `enable`.
        (METRICS, (daemon("activating"),), "PASS", "is running"),
        (
            HEALTH,
            (daemon(),),
            "FAIL",
            f"is not running (loaded, inactive), but {LOOKED_AT} | "
            "ovirt-rdma-host enable; ",
        ),
        (
            HEALTH,
            (daemon("failed"),),
            "FAIL",
            f"is not running (loaded, failed), but {LOOKED_AT} | journalctl -b -u ",
        ),
        (
            METRICS,
            (daemon(load="not-found"),),
            "FAIL",
            f"is not running (not-found, inactive), but {WRITTEN} | install the "
            "package ovirt-rdma-host again",
        ),
        (
            FOLLOW,
            (daemon(),),
            "FAIL",
            "but the children of ib0 should follow the P_Key table | ",
        ),
        (
            PATHS,
            (daemon(),),
            "FAIL",
            "but connections of rule 'vms' should move when a path fails | ",
        ),
        (PATHS, (daemon("active"),), "PASS", "should move when a path fails"),
        (
            Policy(block=BlockPolicy(iser=(TARGET,))),
            (daemon(),),
            "FAIL",
            "but logins to block storage that fail should be repeated | ",
        ),
        (
            Policy(block=BlockPolicy(rescan_interval=600)),
            (daemon(),),
            "FAIL",
            "but LUNs should be rescanned every 600 s | ",
        ),
    ],
)
def test_daemon(policy, units, verdict, words):
    host = replace(HOST, software=Software(units=units))
    found = findings(host_rules.DAEMON, host, policy)
    assert list(found) == ["host"]
    said, text = found["host"]
    assert said == verdict
    assert words in text
    assert text.endswith(" | ") == (verdict != "FAIL")


def test_a_host_whose_netdevs_no_rule_with_follow_names_needs_no_daemon():
    bare = facts(software={"units": (daemon(),)})
    assert findings(host_rules.DAEMON, bare, FOLLOW)["host"][0] == "SKIP"
