# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from host_fake_root import FakeRoot

from ovirt_rdma.cli import policy_verbs
from ovirt_rdma.host.enablement import disable
from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    LAUNCHER,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.run_lock import LockHeld, one_run


@pytest.fixture
def installed(host):
    """``host`` with the package's files and the system's folders."""
    for path in (LAUNCHER, DROPIN_SOURCE):
        file = under(host.root, path)
        file.parent.mkdir(parents=True)
        file.write_text("packaged\n")
    under(host.root, "/etc/ovirt-rdma").mkdir(parents=True)
    under(host.root, "/etc/systemd/system").mkdir(parents=True)
    FakeRoot(host.root)
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
    installed("enable").refused(1, "cannot link ")


def test_status_of_a_host_without_anything(host):
    result = host("status")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == """\
enabled   no
package   not installed
running   vdsmd does not run
policy    none loaded
changes   none held
degraded  not known: /proc/self/mountinfo cannot be read: No such file or directory
"""
    )


def test_status_says_what_to_do(installed):
    installed("enable")
    vdsmd(installed, STOCK_VDSMD)
    assert (
        installed("status").out
        == """\
enabled   yes, mode vdsmd
package   complete
running   stock vdsmd (process 700)
policy    none loaded
changes   none held
degraded  none
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
    assert lines[2] == "running   the launcher (process 700)"
    assert lines[3].startswith(f"policy    1 NFS rule from {policy}, loaded ")
    assert lines[4:] == ["changes   none held", "degraded  none"]


def test_status_of_a_half_installed_package_and_a_broken_policy(installed):
    installed("enable")
    under(installed.root, LAUNCHER).unlink()
    stored = under(installed.root, "/var/lib/ovirt-rdma/policy.json")
    stored.parent.mkdir(parents=True)
    stored.write_text("{")
    shown = installed("status")
    assert shown.code == 3
    assert "package   incomplete, missing: launcher\n" in shown.out
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


def test_mode_nfsmount_on_and_off(site):
    first = site("enable", "--mode", "nfsmount")
    assert (first.code, first.out) == (
        0,
        f"done: note in {FOLDER_NOTE} that {NFSMOUNT_DIRECTORY} is new\n"
        f"done: write {NFSMOUNT_FILE}\n"
        f"done: write {ENABLED}\n"
        "Now enabled.\n"
        "mount.nfs reads the file at each mount; vdsmd needs no restart.\n",
    )
    assert first.err == (
        "note: 10.0.0.1:/vm: a storage connection with proto=tcp is still mounted over "
        "TCP; one with tcp alone is mounted over RDMA\n"
    )
    again = site("enable", "--mode", "nfsmount")
    assert again.out.startswith("Nothing to do: enabled already.\n")
    site("enable").refused(
        4,
        "mode nfsmount is on, and only one mode can be",
        "fix: ovirt-rdma-host disable, then ovirt-rdma-host enable --mode vdsmd",
    )
    lines = site("status").out.splitlines()
    assert lines[0].split() == ["enabled", "yes,", "mode", "nfsmount"]
    assert (
        f"nfsmount  {NFSMOUNT_FILE}: as the policy says, 1 export; vdsmd needs no "
        "restart"
    ) in lines
    assert site("disable").out.endswith("Now disabled.\n")
    assert not under(site.root, NFSMOUNT_FILE).exists()


def test_a_vdsmd_of_mode_vdsmd_that_still_runs_has_to_be_restarted(site):
    vdsmd(site, LAUNCHER)
    enabled = site("enable", "--mode", "nfsmount").out
    assert "fix: systemctl restart vdsmd" in enabled
    assert "needs no restart" not in enabled
    status = site("status").out
    assert "fix: systemctl restart vdsmd\n" in status
    assert "needs no restart" not in status
    vdsmd(site, STOCK_VDSMD)
    assert "needs no restart" in site("enable", "--mode", "nfsmount").out
    assert "needs no restart" in site("status").out


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


def test_no_disable_comes_between_the_parts_of_a_policy_load(site, monkeypatch):
    site("enable", "--mode", "nfsmount")
    real, tried = policy_verbs.store, []

    def disable_first(*words):
        with pytest.raises(LockHeld):
            disable(site.root)
        tried.append(words)
        return real(*words)

    monkeypatch.setattr(policy_verbs, "store", disable_first)
    assert site("policy", "load").code == 0
    assert tried
    assert under(site.root, ENABLED).exists()


def test_mode_nfsmount_in_documents(site):
    document = site("enable", "--mode", "nfsmount", "-o", "json").document
    assert document["steps"][1]["id"] == "write-nfsmount-conf"
    assert document["notes"][0].startswith("10.0.0.1:/vm: a storage connection with")
    loaded = site("policy", "load", "-o", "json").document
    assert (loaded["changed"], loaded["notes"]) == (False, document["notes"])
    status = site("status", "-o", "json").document
    assert status["enabled"]["conf"] == "ours"
    assert status["nfsmount"] == {
        "file": NFSMOUNT_FILE,
        "exports": 1,
        "as_policy": True,
    }


def test_policy_load_in_mode_nfsmount(site):
    site("enable", "--mode", "nfsmount")
    write_policy(site, VM.replace("/vm", "/new"), ISO)
    loaded = site("policy", "load")
    assert loaded.out.startswith(f"done: write {NFSMOUNT_FILE}\n")
    assert "note: rule 'iso': in this mode tcp writes nothing" in loaded.err
    assert "_new" in under(site.root, NFSMOUNT_FILE).read_text()
    assert "done:" not in site("policy", "load").out


def test_a_policy_that_mode_nfsmount_cannot_carry(site):
    site("enable", "--mode", "nfsmount")
    stored = under(site.root, "/var/lib/ovirt-rdma/policy.json")
    before = stored.read_text(), under(site.root, NFSMOUNT_FILE).read_text()
    write_policy(
        site,
        VM.replace("/vm", "/vm*"),
        ISO.replace("transport: tcp", "transport: prefer-rdma"),
    )
    site("policy", "load").refused(
        4,
        "ovirt-rdma-host: rule 'vm': names server 10.0.0.1 and path /vm*",
        "ovirt-rdma-host: rule 'iso': says prefer-rdma",
        "fix: change the policy, or use --mode vdsmd",
    )
    after = stored.read_text(), under(site.root, NFSMOUNT_FILE).read_text()
    assert after == before


def test_a_broken_stored_policy_is_said_before_mode_nfsmount_is_on(site):
    under(site.root, "/var/lib/ovirt-rdma/policy.json").write_text("{")
    site("enable", "--mode", "nfsmount").refused(1, "the stored policy is broken")
    assert not under(site.root, NFSMOUNT_FILE).exists()
    assert not under(site.root, ENABLED).exists()
