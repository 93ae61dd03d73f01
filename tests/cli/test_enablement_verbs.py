# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    STOCK_VDSMD,
    under,
)


@pytest.fixture
def installed(host):
    """``host`` with the package's files and the system's folders."""
    for path in (LAUNCHER, DROPIN_SOURCE):
        file = under(host.root, path)
        file.parent.mkdir(parents=True)
        file.write_text("packaged\n")
    under(host.root, "/etc/ovirt-rdma").mkdir(parents=True)
    under(host.root, "/etc/systemd/system").mkdir(parents=True)
    return host


def vdsmd(host, script):
    path = under(host.root, "/proc/700/cmdline")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"/usr/bin/python3\0{script}\0")


def test_enable_twice_and_disable_twice(installed):
    first = installed("enable")
    assert (first.code, first.err) == (0, "")
    lines = first.out.splitlines()
    assert all(line.startswith("done: ") for line in lines[:-1])
    assert f"done: write {ENABLED}" in lines
    assert lines[-1] == "Now enabled."
    assert installed("enable").out == "Nothing to do: enabled already.\n"
    assert installed("disable").out.endswith("Now disabled.\n")
    assert installed("disable").out == "Nothing to do: disabled already.\n"


def test_the_running_vdsmd_is_mentioned(installed):
    vdsmd(installed, STOCK_VDSMD)
    assert installed("enable").out.endswith(
        "The running vdsmd is still the one from before.\n"
        "fix: systemctl restart vdsmd (running VMs and mounts stay)\n"
    )


def test_documents(installed):
    document = installed("enable", "-o", "json").document
    assert list(document)[:2] == ["schema_version", "kind"]
    assert (document["kind"], document["changed"]) == ("enable", True)
    assert document["steps"][-1]["id"] == "write-marker"
    document = installed("disable", "-o", "json").document
    assert (document["kind"], document["restart_needed"]) == ("disable", False)


def test_refusals(host):
    host("enable").refused(4, f"{LAUNCHER} is missing", "fix: install the package")
    other = under(host.root, ENABLED)
    other.parent.mkdir(parents=True)
    other.write_text("of somebody else\n")
    host("disable").refused(4, f"{ENABLED} is there already and is not ours")
    assert other.read_text() == "of somebody else\n"


def test_a_step_that_fails(installed):
    under(installed.root, "/etc/systemd/system").rmdir()
    under(installed.root, "/etc/systemd").rmdir()
    under(installed.root, "/etc/systemd").write_text("no folder")
    installed("enable").refused(1, "cannot make ")


def test_status_of_a_host_without_anything(host):
    result = host("status")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == """\
enabled  no
package  not installed
running  vdsmd does not run
policy   none loaded
"""
    )


def test_status_says_what_to_do(installed):
    installed("enable")
    vdsmd(installed, STOCK_VDSMD)
    assert (
        installed("status").out
        == """\
enabled  yes, mode vdsmd
package  complete
running  stock vdsmd (process 700)
policy   none loaded
Enabled, but the running vdsmd is stock.
fix: systemctl restart vdsmd; if it stays stock, the launcher has said why: \
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
    lines = installed("status").out.splitlines()
    assert lines[2] == "running  the launcher (process 700)"
    assert lines[3].startswith(f"policy   1 NFS rule from {policy}, loaded ")
    assert len(lines) == 4


def test_status_of_a_half_installed_package_and_a_broken_policy(installed):
    installed("enable")
    under(installed.root, LAUNCHER).unlink()
    stored = under(installed.root, "/var/lib/ovirt-rdma/policy.json")
    stored.parent.mkdir(parents=True)
    stored.write_text("{")
    shown = installed("status")
    assert shown.code == 0
    assert "package  incomplete, missing: launcher\n" in shown.out
    assert "the stored policy is broken" in shown.out
    assert "fix: load the policy again: ovirt-rdma-host policy load\n" in shown.out
    assert f"{LAUNCHER} is missing.\nfix: install ovirt-rdma-host" in shown.out


def test_status_tells_of_a_vdsm_conf_that_goes_around_the_policy(installed):
    installed("enable")
    conf = under(installed.root, "/etc/vdsm/vdsm.conf")
    conf.parent.mkdir()
    conf.write_text("[irs]\nnfs_mount_options = soft,nosharecache,vers=3\n")
    assert installed("status").out.endswith(
        "vdsm.conf sets the deprecated nfs_mount_options (soft,nosharecache,vers=3): "
        "where the engine sends no NFS version, timeout or retransmissions, VDSM "
        "mounts with these options alone, and no rule of the policy counts.\n"
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
