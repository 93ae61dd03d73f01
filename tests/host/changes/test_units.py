# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the systemd units and udev rules that the package installs."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ovirt_rdma.cli.host.daemon import tasks
from ovirt_rdma.cli.host.main import unit_parser
from ovirt_rdma.host.daemon.loop import GRACE_S, LONGEST_TURN_S
from ovirt_rdma.host.paths import (
    DAEMON_UNIT,
    ENABLED,
    HOOKS,
    JOURNAL,
    OPENSM,
    OPENSM_SETTINGS_FILE,
    OPENSM_UNIT,
    POLICY_JSON,
)

pytestmark = pytest.mark.hypervisor

TOP = Path(__file__).resolve().parents[3]
SYSTEMD = TOP / "host/systemd"
RULES = TOP / "host/udev/92-ovirt-rdma.rules"
UNITS = sorted(SYSTEMD.glob("*.service"))
COMMAND = "/usr/bin/ovirt-rdma-host"
OPENSM_SERVICE = "ovirt-rdma-opensm@.service"
# The programs of the units, which this machine does not have.
OURS = re.compile(f"{COMMAND}|{OPENSM}")


def keys(unit, section):
    """Return a unit's keys; both values if a key is there twice."""
    found = {}
    inside = None
    for line in (SYSTEMD / unit).read_text().splitlines():
        if line.startswith("["):
            inside = line.strip("[]")
        elif inside == section and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)
def test_systemd_takes_the_units(tmp_path):
    for unit in UNITS:
        text = OURS.sub("/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            "--recursive-errors=no",
            *(str(tmp_path / unit.name) for unit in UNITS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Most exposed is 10. Those that change the host need its netdevs, /sys and modules.
MOST_EXPOSED = 5.0


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_calls_no_unit_exposed(tmp_path, unit):
    copy = tmp_path / unit.name.replace("@", "@ib0")
    copy.write_text(OURS.sub("/bin/true", unit.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Unknown" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot do without a running systemd")
    (exposed,) = re.findall(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    # The sum of what its tasks need: they ask servers as another user, look into
    # namespaces of others, and mount in one of their own.
    most = MOST_EXPOSED + 0.5 if unit.name == DAEMON_UNIT else MOST_EXPOSED
    assert float(exposed) < most


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_unit_waits_for_a_dead_server_or_hides_what_it_has_to_see(unit):
    service = keys(unit.name, "Service")
    assert service["NoNewPrivileges"] == ["yes"]
    # For these, systemd walks through all mounts below / or /home, also dead ones
    # (systemd issues 23652 and 42916), and removes mounts that may use a netdev.
    assert service["ProtectSystem"] in (["yes"], ["full"])
    assert not {"ProtectHome", "ReadOnlyPaths", "InaccessiblePaths"} & set(service)
    # For a network namespace, ib_core makes and removes a device of every adapter.
    assert "PrivateNetwork" not in service
    if unit.name == OPENSM_SERVICE:
        # All that opensm asks is in these devices, and it changes no other setting.
        assert service["DevicePolicy"] == ["closed"]
        assert service["DeviceAllow"] == ["char-infiniband_mad rw"]
        assert service["RestrictAddressFamilies"] == ["AF_UNIX"]
        assert service["CapabilityBoundingSet"] == [""]
        return
    # Sockets that a module makes when it is loaded could be restricted with the unit.
    assert "IPAddressDeny" not in service
    # It implies a list of devices, without those of verbs.
    assert not {"PrivateDevices", "ProtectClock"} & set(service)
    (families,) = service["RestrictAddressFamilies"]
    assert {"AF_UNIX", "AF_NETLINK", "AF_INET"} <= set(families.split())
    bounds = " ".join(service["CapabilityBoundingSet"]).split()
    assert {"CAP_NET_ADMIN", "CAP_SYS_MODULE"} <= set(bounds)
    asks = {"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_DAC_OVERRIDE"}
    # The daemon asks servers as another user, and writes into another one's folder.
    assert asks & set(bounds) == (asks if unit.name == DAEMON_UNIT else set())
    if unit.name != "ovirt-rdma-block.service":
        # They ask who uses a netdev, also in namespaces of others: proc(5), ptrace(2)
        # and setns(2). What is unknown counts as a user, and nothing would be set.
        assert {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE"} <= set(bounds)
        # A proof of an address that is killed takes its mount with it.
        made = "net mnt" if unit.name == DAEMON_UNIT else "net"
        assert service["RestrictNamespaces"] == [made]
    assert "@module" in service["SystemCallFilter"][0].split()


def test_no_unit_does_anything_before_the_operator_has():
    conditions = {
        unit.name: set(keys(unit.name, "Unit").get("ConditionPathExists", []))
        for unit in UNITS
    }
    assert conditions == {
        "ovirt-rdma-netdev@.service": {JOURNAL},
        "ovirt-rdma-recover.service": {JOURNAL},
        "ovirt-rdma-block.service": {ENABLED, POLICY_JSON},
        DAEMON_UNIT: {ENABLED},
        OPENSM_SERVICE: {OPENSM_SETTINGS_FILE.format("%I")},
    }


def test_metrics_of_the_boot_before_are_replaced_before_node_exporter_reads_them():
    unit = keys(DAEMON_UNIT, "Unit")
    assert set(unit["Before"][0].split()) == {
        "prometheus-node-exporter.service",
        "node_exporter.service",
    }
    # It must not wait for addresses, or for what starts after node_exporter.
    after = {"NetworkManager.service", "ovirt-rdma-recover.service"}
    assert set(unit["After"][0].split()) == after
    assert not {"Wants", "Requires"} & set(unit)
    assert any(task.is_early for task in tasks("/") if task.name == "metrics")


def test_systemd_watches_the_daemon_and_gives_its_processes_time_to_end():
    service = keys(DAEMON_UNIT, "Service")
    assert service["Type"] == ["notify"]
    assert int(service["WatchdogSec"][0]) > 2 * LONGEST_TURN_S
    assert int(service["TimeoutStopSec"][0]) > GRACE_S + 1
    # It ends by itself when the host is not enabled any more, and stays ended.
    assert service["Restart"] == ["on-failure"]


def test_the_preset_turns_every_unit_off_that_can_be_enabled():
    enable = {unit.name for unit in UNITS if keys(unit.name, "Install")}
    lines = (SYSTEMD / "90-ovirt-rdma.preset").read_text().splitlines()
    preset = dict(line.split()[::-1] for line in lines if not line.startswith("#"))
    assert set(preset) == enable
    assert preset == {OPENSM_SERVICE: "disable"}


def test_links_of_the_package_start_what_has_a_condition():
    links = {link.name: link.parent.name for link in SYSTEMD.glob("*.wants/*")}
    assert links == {
        "ovirt-rdma-recover.service": "multi-user.target.wants",
        "ovirt-rdma-block.service": "multi-user.target.wants",
        DAEMON_UNIT: "multi-user.target.wants",
    }
    for link in SYSTEMD.glob("*.wants/*"):
        assert link.resolve() == SYSTEMD / link.name
        assert keys(link.name, "Unit")["ConditionPathExists"]


def test_units_run_verbs_that_there_are():
    for unit in UNITS:
        if unit.name == OPENSM_SERVICE:
            continue
        for command in keys(unit.name, "Service").get("ExecStart", []):
            program, group, verb, *words = command.split()
            assert (program, group) == (COMMAND, "unit")
            assert verb in unit_parser().verbs
            assert words == (["%I"] if "@" in unit.name else [])


def test_the_unit_of_opensm_reads_what_enable_writes():
    (command,) = keys(OPENSM_SERVICE, "Service")["ExecStart"]
    assert command == f"{OPENSM} --config {OPENSM_SETTINGS_FILE.format('%I')}"
    guid = "0x0002c90300fb1231"
    assert OPENSM_SERVICE.replace("@", f"@{guid}") == OPENSM_UNIT.format(guid)


def test_units_are_named_by_the_udev_rules_as_they_are_called():
    text = RULES.read_text()
    named = set(re.findall(r"ovirt-rdma[-a-z]+@?\.service", text))
    assert named == {"ovirt-rdma-netdev@.service"}
    assert all((SYSTEMD / name).is_file() for name in named)


def test_udev_runs_nothing_of_ours():
    lines = [
        line
        for line in RULES.read_text().replace("\\\n", " ").splitlines()
        if line and not line.startswith("#")
    ]
    assert not any("RUN" in line or "ovirt-rdma-host" in line for line in lines)
    # Each jump has its label, further down.
    for number, line in enumerate(lines):
        for label in re.findall(r'GOTO="(\w+)"', line):
            assert f'LABEL="{label}"' in lines[number + 1 :]
    # A device without the tag has no unit that could want another.
    assert all("TAG+=" in line for line in lines if "SYSTEMD_WANTS" in line)


def test_the_rules_come_after_names_are_given_and_before_systemds_own():
    number = int(RULES.name[:2])
    assert 90 < number < 99  # 80-net-setup-link, 90-rdma-ulp-modules; 99-systemd


@pytest.mark.skipif(
    not shutil.which("systemd-escape"), reason="systemd-escape is not installed"
)
@pytest.mark.parametrize("name", ["ib0", "ib0.8001", "ib-0", "-x", "ib@0", "ü"])
def test_names_of_netdevs_survive_the_units_name(name):
    (template,) = re.findall(r"(systemd-escape.*?) \$name", RULES.read_text())
    unit = subprocess.run(
        [*template.split(), name], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert re.fullmatch(r"ovirt-rdma-netdev@[\w.:\\@-]+\.service", unit)
    back = subprocess.run(
        ["systemd-escape", "--unescape", "--instance", "--", unit],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert back == name


def test_the_units_parse():
    for unit in UNITS:
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(unit.read_text())
        assert parser.has_section("Unit")
        assert "man:ovirt-rdma-host(8)" in parser.get("Unit", "Documentation").split()


# static/usr/lib/systemd/system of VDSM's source, from v4.50.0.13 on. Version 4.40.34
# removed vdsm-network-init.service.
VDSMS = {
    "vdsm-network.service",
    "supervdsmd.service",
    "vdsmd.service",
}


def test_units_are_ordered_against_units_that_vdsm_has():
    for unit in UNITS:
        for key in ("Before", "After", "Wants", "Requires", "PartOf", "BindsTo"):
            for names in keys(unit.name, "Unit").get(key, ()):
                of_vdsm = {n for n in names.split() if "vdsm" in n}
                assert of_vdsm <= VDSMS, unit.name


def test_the_hooks_that_fapolicyd_is_asked_about_are_those_installed():
    found = sorted((TOP / "vdsm_hooks").glob("*/50_ovirt_rdma"))
    installed = tuple(
        f"/usr/libexec/vdsm/hooks/{path.parent.name}/{path.name}" for path in found
    )
    assert installed == HOOKS
