# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_processes import VDSM, run_process
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host import __version__
from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    STARTED,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def installed(host):
    """``host`` with the files of the package and the folders of the system."""
    for path in (LAUNCHER, DROPIN_SOURCE, STOCK_VDSMD):
        file = under(host.root, path)
        file.parent.mkdir(parents=True)
        file.write_text("packaged\n")
    under(host.root, "/etc/ovirt-rdma").mkdir(parents=True)
    under(host.root, "/etc/systemd/system").mkdir(parents=True)
    FakeRoot(host.root)
    return host


def vdsmd(host, script):
    run_process(host.root, 700, "/usr/bin/python3", script, user=VDSM)


def test_enable_twice_and_disable_twice(installed):
    first = installed("enable")
    assert (first.code, first.err) == (0, "")
    lines = first.out.splitlines()
    assert all(line.startswith("done: ") for line in lines[:-1])
    assert f"done: write {ENABLED}" in lines
    assert lines[-1] == "Now enabled."
    assert installed("enable").out == "Nothing to do: already enabled.\n"
    assert installed("disable").out.endswith("Now disabled.\n")
    assert installed("disable").out == "Nothing to do: already disabled.\n"


def test_the_running_vdsmd_is_mentioned(installed):
    vdsmd(installed, STOCK_VDSMD)
    assert installed("enable").out.endswith(
        "The running vdsmd has not been restarted yet.\n"
        "fix: systemctl restart vdsmd (running VMs and mounts stay)\n"
    )


def test_documents(installed):
    document = installed("enable", "-o", "json").document
    assert list(document.items())[:2] == [("schema_version", 1), ("kind", "enable")]
    assert document["changed"]
    assert document["steps"][-1]["id"] == "write-marker"
    document = installed("disable", "-o", "json").document
    assert (document["kind"], document["restart_needed"]) == ("disable", False)


def test_refusals(host):
    host("enable").refused(
        4, f"{LAUNCHER} is missing", "fix: install the package ovirt-rdma-host again"
    )
    other = under(host.root, ENABLED)
    other.parent.mkdir(parents=True)
    other.write_text("of somebody else\n")
    host("disable").refused(4, f"{ENABLED} exists already")
    assert other.read_text() == "of somebody else\n"


def test_a_step_that_fails(installed):
    under(installed.root, "/etc/systemd/system").rmdir()
    under(installed.root, "/etc/systemd").rmdir()
    under(installed.root, "/etc/systemd").write_text("no folder")
    installed("enable").refused(1, "cannot link ")


def test_status_of_a_host_without_anything(host):
    result = host("status")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == """\
enabled   no
package   not installed
running   vdsmd is not running
policy    none loaded
changes   nothing to revert
degraded  unknown: /proc/self/mountstats cannot be read: No such file or directory
"""
    )


def test_status_says_what_to_do(installed):
    installed("enable")
    vdsmd(installed, STOCK_VDSMD)
    assert (
        installed("status").out
        == f"""\
enabled   yes, mode vdsmd
package   complete, version {__version__}
running   stock vdsmd (process 700)
policy    none loaded
changes   nothing to revert
degraded  none
Enabled, but the running vdsmd is stock.
fix: systemctl restart vdsmd; if it stays stock, the launcher has logged why: \
journalctl -t vdsmd
No policy is loaded, so NFS mounts are stock.
fix: ovirt-rdma-host policy load
"""
    )


def test_status_of_a_host_in_order(installed):
    policy = under(installed.root, "/etc/ovirt-rdma/policy.yaml")
    policy.write_text("version: 1\nnfs: {rules: [{server: nas, transport: tcp}]}\n")
    installed("policy", "load")
    installed("enable")
    vdsmd(installed, LAUNCHER)
    under(installed.root, STARTED).parent.mkdir(parents=True)
    under(installed.root, STARTED).write_text(f"700 launcher {__version__}\n")
    lines = installed("status").out.splitlines()
    assert lines[2] == f"running   the launcher (process 700), version {__version__}"
    assert lines[3].startswith(f"policy    1 NFS rule from {policy}, loaded ")
    assert lines[4:] == ["changes   nothing to revert", "degraded  none"]


def test_status_of_a_half_installed_package_and_a_broken_policy(installed):
    installed("enable")
    under(installed.root, LAUNCHER).unlink()
    stored = under(installed.root, "/var/lib/ovirt-rdma/policy.json")
    stored.parent.mkdir(parents=True)
    stored.write_text("{")
    shown = installed("status")
    assert shown.code == 3
    assert "package   incomplete, missing: launcher\n" in shown.out
    assert "the stored policy is invalid" in shown.out
    assert "fix: load the policy again: ovirt-rdma-host policy load\n" in shown.out
    again = "install the package ovirt-rdma-host again"
    assert f"{LAUNCHER} is missing.\nfix: {again}\n" in shown.out


def test_status_tells_of_a_vdsm_conf_that_goes_around_the_policy(installed):
    installed("enable")
    conf = under(installed.root, "/etc/vdsm/vdsm.conf")
    conf.parent.mkdir()
    conf.write_text("[irs]\nnfs_mount_options = soft,nosharecache,vers=3\n")
    assert installed("status").out.endswith(
        "vdsm.conf sets the deprecated nfs_mount_options (soft,nosharecache,vers=3): "
        "if the engine sends no NFS version, timeout or retransmissions, VDSM mounts "
        "with these options only, and ignores the policy.\n"
        "fix: remove it (grep -r nfs_mount_options /etc/vdsm /run/vdsm /usr/lib/vdsm), "
        "restart vdsmd, and set the NFS version in the storage connection\n"
    )


def test_status_document(installed):
    installed("enable")
    document = installed("status", "-o", "json").document
    assert list(document)[:2] == ["schema_version", "kind"]
    assert document["kind"] == "status"
    assert document["enabled"]["mode"] == "vdsmd"
    assert document["advice"][0]["fix"] == "ovirt-rdma-host policy load"
    assert under(installed.root, DROPIN_LINK).is_symlink()


VM = "{name: vm, server: 10.0.0.1, path: /vm, transport: require-rdma}"
ISO = "{name: iso, server: 10.0.0.1, path: /iso, transport: tcp}"


@pytest.fixture
def site(installed):
    """``installed`` with a policy of one export, loaded."""
    write_policy(installed, VM)
    assert installed("policy", "load").code == 0
    return installed


def write_policy(host, *rules):
    path = under(host.root, "/etc/ovirt-rdma/policy.yaml")
    path.write_text(f"version: 1\nnfs: {{rules: [{', '.join(rules)}]}}\n")


@pytest.mark.parametrize(
    "words", [("enable",), ("disable",), ("policy", "load")], ids=" ".join
)
def test_another_run_that_is_changing_the_host(site, words):
    stored = under(site.root, "/var/lib/ovirt-rdma/policy.json")
    before = stored.read_text()
    write_policy(site, ISO)
    with one_run(site.root):
        site(*words).refused(
            75, "another run of ovirt-rdma-host is changing this host", "fix: wait"
        )
        for reading in (("status",), ("policy", "check"), ("policy", "show")):
            assert site(*reading).code == 0
    assert stored.read_text() == before
    assert not under(site.root, ENABLED).exists()
    assert site(*words).code == 0
