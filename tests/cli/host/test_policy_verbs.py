# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from support.command_line import run
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.errors import NOTHING_CHANGED
from ovirt_rdma.host.paths import POLICY_COPY, POLICY_JSON, under

RULES = """\
version: 1
nfs:
  rules:
    - {name: iso, server: nas1, path: /iso, transport: tcp}
    - {server: nas1, transport: prefer-rdma, options: nconnect=4}
"""
HOST = """\
host:
  interfaces:
    - name: storage
      match: {link_layer: infiniband, device: "mlx4_*", pci: 04:00.0}
      transport_mode: auto
      tso: off
      port_mtu: 2048
      pkey_children: [0x8001, 0x8002]
    - match: {guid: "0002:c903:00fb:1231", port: 1}
      mtu: 9000
  modules: [nvme-rdma]
  module_options:
    mlx4_core: {port_type_array: "1,1", num_vfs: 8}
"""
ONE = "version: 1\nnfs: {rules: [{server: nas1, transport: tcp}]}\n"


@pytest.fixture
def written(host):
    def write(text, path="etc/ovirt-rdma/policy.yaml"):
        file = host.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    return write


def test_check_in_order(host, written):
    path = written(RULES)
    result = host("policy", "check")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{path} is valid: 2 NFS rules.\n"
    document = host("policy", "check", path, "-o", "json").document
    assert (document["kind"], document["in_order"]) == ("policy-check", True)


def test_check_names_all_mistakes(host, written):
    path = written("version: 1\nnfs:\n  rules:\n    - {server: nas1}\ncolour: 1\n")
    result = host("policy", "check")
    assert (result.code, result.err) == (3, "")
    lines = result.out.splitlines()
    assert lines[0].startswith(f"{path}:4: nfs.rules[1].transport: ")
    assert lines[1].startswith(f"{path}:5: colour: ")
    assert lines[2] == f"{path} is invalid: 2 mistakes."
    document = host("policy", "check", "-o", "json")
    assert document.code == 3
    errors = document.document["errors"]
    assert [error["line"] for error in errors] == [4, 5]
    assert [error["id"] for error in errors] == ["key-missing", "key-unknown"]


def test_check_that_cannot_be_done(host, written):
    host("policy", "check").refused(1, "there is no such policy file")
    host("policy", "check", str(host.root)).refused(1, "Is a directory")


def test_check_warns_of_a_rule_that_never_wins(host, written):
    text = RULES.replace("path: /iso, ", "")
    path = written(text)
    result = host("policy", "check")
    assert result.code == 0
    assert result.out.startswith(f"{path}:5: ")
    assert "(warning)\n" in result.out
    loaded = host("policy", "load")
    assert loaded.code == 0
    assert loaded.err.startswith(f"warning: {path}:5: ")
    assert "warning: " in host("policy", "show", "--policy", path).err


def test_load_then_show(host, written):
    path = written(RULES)
    first = host("policy", "load")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"{path} is loaded: 2 NFS rules, sha256:")
    again = host("policy", "load")
    assert again.out.startswith(f"{path} was already loaded: 2 NFS rules, ")
    shown = host("policy", "show").out.splitlines()
    assert shown[:3] == [
        "RULE    SERVER  PATH  TRANSPORT    PORT   OPTIONS",
        "iso     nas1    /iso  tcp          -      -",
        "rule 2  nas1    *     prefer-rdma  20049  nconnect=4",
    ]
    assert shown[3].startswith(
        f"2 NFS rules; the first that names an export wins ({path}, loaded "
    )


def test_drop_ins_are_loaded_with_the_file(host, written):
    path = written(ONE)
    drop_in = written(
        ONE.replace("tcp", "require-rdma"), "etc/ovirt-rdma/policy.d/50-a.yaml"
    )
    loaded = host("policy", "load")
    assert loaded.out.startswith(f"{path} with 1 drop-in is loaded: 2 NFS rules, ")
    assert loaded.err.startswith(
        f"warning: {path}:2: nfs.rules[1]: 'rule 2' never wins"
    )
    assert drop_in in loaded.err
    shown = host("policy", "show", "-o", "json").document["nfs"]["rules"]
    assert [rule["transport"] for rule in shown] == ["require-rdma", "tcp"]
    document = host("policy", "check", "-o", "json").document
    assert document["drop_ins"] == ["50-a.yaml"]
    assert [warning["file"] for warning in document["warnings"]] == [path]
    status = host("status", "-o", "json").document["policy"]
    assert status["drop_ins"] == {"50-a.yaml": Path(drop_in).read_text()}
    # Without it, the rule of the file decides.
    Path(drop_in).unlink()
    loaded = host("policy", "load").out.splitlines()
    assert loaded[-1].startswith(f"{path} is loaded: 1 NFS rule, ")
    shown = host("policy", "show", "-o", "json").document["nfs"]["rules"]
    assert [rule["transport"] for rule in shown] == ["tcp"]


def test_a_broken_drop_in_leaves_the_policy_in_force(host, written):
    written(ONE)
    host("policy", "load")
    stored = (host.root / "var/lib/ovirt-rdma/policy.json").read_bytes()
    drop_in = written("colour: 1\n", "etc/ovirt-rdma/policy.d/50-a.yaml")
    assert host("policy", "load").err.startswith(f"ovirt-rdma-host: {drop_in}:1: ")
    result = host("policy", "check")
    assert result.code == 3
    assert result.out.startswith(f"{drop_in}:1: colour: ")
    odd = written("", "etc/ovirt-rdma/policy.d/data1.yaml")
    assert host("policy", "check").out.startswith(
        f"{odd}: is not the name of a drop-in"
    )
    Path(odd).unlink()
    Path(drop_in).unlink()
    os.mkfifo(drop_in)
    host("policy", "load").refused(1, drop_in, "a named pipe")
    status = host("status", "-o", "json").document
    assert status["policy"]["drop_ins"] is None
    assert any("a named pipe" in problem for problem in status["problems"])
    assert (host.root / "var/lib/ovirt-rdma/policy.json").read_bytes() == stored


def test_load_as_a_document(host, written):
    path = written(ONE)
    document = host("policy", "load", "-o", "json").document
    assert (document["kind"], document["file"]) == ("policy-load", path)
    assert (document["changed"], document["rules"]) == (True, 1)
    assert not host("policy", "load", "-o", "json").document["changed"]
    assert document["file_digest"] == document["digest"]


def test_a_load_shows_the_digest_of_the_file_alone(host, written):
    """Hosts that got the same file have it in common, drop-ins are their own."""
    written(ONE)
    alone = host("policy", "load", "-o", "json").document
    rules = "version: 1\nnfs:\n  rules:\n  - {server: nas9, transport: tcp}\n"
    written(rules, "etc/ovirt-rdma/policy.d/50-a.yaml")
    both = host("policy", "load", "-o", "json").document
    assert (both["rules"], alone["rules"]) == (2, 1)
    assert both["digest"] != alone["digest"]
    assert both["file_digest"] == alone["digest"]


def test_documents_of_show(host, written):
    path = written(RULES)
    rules = host("policy", "show", "--policy", path, "-o", "json").document
    assert (rules["schema_version"], rules["kind"]) == (1, "policy")
    assert [rule["name"] for rule in rules["nfs"]["rules"]] == ["iso", "rule 2"]
    words = ("policy", "show", "--policy", path, "-o", "yaml")
    assert yaml.safe_load(host(*words).out)["nfs"] == rules["nfs"]


def test_how_much_a_policy_says(host, written):
    guid = "0002c90300fb1231"
    srp = f"{{name: a, id_ext: {guid}, ioc_guid: {guid}, dest: 10.0.0.1:5555}}"
    fabric = "fabric: {partitions: {storage: {pkey: 0x8001, members: [ALL]}}}\n"
    path = written(f"{ONE}{HOST}{fabric}block: {{srp: [{srp}]}}\n")
    counts = (
        "1 NFS rule, 2 interfaces, 1 module, 2 module options, 1 partition, "
        "1 SRP target"
    )
    assert host("policy", "check").out == f"{path} is valid: {counts}.\n"
    assert host("policy", "load").out.startswith(f"{path} is loaded: {counts}, sha256:")
    written(ONE + "host: {interfaces: [{match: {port: 1}}]}\n")
    loaded = host("policy", "load").out.splitlines()
    assert loaded[-1].startswith(f"{path} is loaded: 1 NFS rule, 1 interface, sha256:")


def test_the_host_part_is_shown_below_the_rules(host, written):
    path = written("version: 1\n" + HOST)
    host("policy", "load")
    shown = host("policy", "show").out.splitlines()
    assert shown[0].startswith("No NFS rule: VDSM mounts every export as stock (")
    assert shown[1:] == [
        "host.interfaces: name storage, link_layer infiniband, device mlx4_*, "
        "pci 0000:04:00.0, transport_mode auto, tso off, port_mtu 2048, "
        "pkey_children 0x8001 0x8002",
        "host.interfaces: port 1, guid 0002:c903:00fb:1231, mtu 9000",
        "host.modules: nvme_rdma",
        "host.module_options: module mlx4_core, name port_type_array, value 1,1",
        "host.module_options: module mlx4_core, name num_vfs, value 8",
    ]
    part = host("policy", "show", "--policy", path, "-o", "json").document["host"]
    assert part["modules"] == ["nvme_rdma"]
    assert part["module_options"][1] == {
        "module": "mlx4_core",
        "name": "num_vfs",
        "value": "8",
    }
    assert [rule["mtu"] for rule in part["interfaces"]] == [None, 9000]
    assert part["interfaces"][0]["pkey_children"] == ["0x8001", "0x8002"]


def test_partitions_that_are_followed_are_shown(host, written):
    rule = "{match: {port: 1}, partitions: follow}"
    written(f"version: 1\nhost: {{partitions_interval: 10, interfaces: [{rule}]}}\n")
    host("policy", "load")
    shown = host("policy", "show").out.splitlines()
    assert shown[1:] == [
        "host.interfaces: port 1, partitions follow",
        "host.partitions_interval: 10",
    ]


def test_the_partitions_are_shown_below_all_else(host, written):
    path = written(
        "version: 1\nfabric:\n  hosts: {hv1: [0002:c903:00fb:1231]}\n  partitions:\n"
        "    v100: {vlan: 100, members: [hv1=limited], mtu: 4096}\n"
    )
    assert host("policy", "check").out.endswith("0 NFS rules, 1 partition.\n")
    shown = host("policy", "show", "--policy", path).out.splitlines()
    assert shown[-2:] == [
        "fabric.hosts: name hv1, guids 0002:c903:00fb:1231",
        "fabric.partitions: name v100, pkey 0x8064, members hv1=limited, ipoib True, "
        "mtu 4096, vlan 100",
    ]
    document = host("policy", "show", "--policy", path, "-o", "json").document
    (partition,) = document["fabric"]["partitions"]
    assert partition["members"] == ["hv1=limited"]


@pytest.mark.parametrize("text", [None, "", "version: 1\n"])
def test_an_empty_policy(host, written, text):
    if text is not None:
        written(text)
        host("policy", "load")
    result = host("policy", "show")
    assert result.code == 0
    assert result.out.startswith("No NFS rule: VDSM mounts every export as stock (")
    assert ("no policy is loaded" in result.out) is (text is None)
    assert result.out.count("\n") == 1
    document = host("policy", "show", "-o", "json").document
    assert document["nfs"] == {"rules": [], "health_interval": None}
    assert not any(document["host"][key] for key in ("interfaces", "modules"))


def test_a_broken_policy_is_shown_by_its_copy_and_said(host, written):
    written(ONE)
    host("policy", "load")
    good = host("policy", "show", "-o", "json").document
    stored = under(host.root, POLICY_JSON)
    stored.write_bytes(bytes(len(stored.read_bytes())))
    result = host("policy", "show")
    assert result.code == 0
    assert result.err.startswith(f"warning: {stored}: the stored policy is invalid: ")
    assert "; its copy is used: policy sha256:" in result.err
    assert ", from its copy)." in result.out
    shown = json.loads(host("policy", "show", "-o", "json").out)
    assert shown["nfs"] == good["nfs"]
    under(host.root, POLICY_COPY).unlink()
    host("policy", "show").refused(1, "the stored policy is invalid")
    assert host("policy", "load").code == 0
    assert (host("policy", "show").code, host("policy", "show").err) == (0, "")


def test_a_policy_in_force_that_may_not_outlast_a_power_cut_is_no_failure(
    host, written, monkeypatch
):
    """Otherwise ``policy push`` would restore the old policy.yaml, and both differ."""
    written(ONE)
    fsync = os.fsync

    def unsynced(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", unsynced)
    result = host("policy", "load")
    assert result.code == 0
    assert "is loaded: " in result.out
    assert "warning: " in result.err
    assert "may be back after a power cut: Input/output error" in result.err
    written(RULES)
    document = json.loads(host("policy", "load", "-o", "json").out)
    assert document["changed"]
    assert "Input/output error" in document["notes"][0]


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "free space on the file system of "),
        (errno.EROFS, "is read-only: make it writable"),
        (errno.EACCES, "run this command as root"),
    ],
)
def test_what_to_do_where_a_policy_cannot_be_stored_fits(
    host, written, monkeypatch, number, fix
):
    written(ONE)

    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    result = host("policy", "load")
    result.refused(1, "the policy cannot be stored: ", os.strerror(number), fix)


class TestWhoseFile:
    """Root loads only files that nobody else can write."""

    def check(self, host, path, what, fix):
        where = f"ovirt-rdma-host: {path}: "
        result = host("policy", "load", path)
        result.refused(3, where + what, fix)
        assert not under(host.root, POLICY_JSON).exists()
        # Reading is allowed.
        assert host("policy", "check", path).code == 0
        assert host("policy", "show", "--policy", path).code == 0

    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
    def test_a_file_that_others_may_write_to(self, host, written, mode):
        path = written(ONE)
        Path(path).chmod(mode)
        what = f"can be written by other users (mode {mode:04o})"
        self.check(host, path, what, f"run: chmod go-w {path}")
        Path(path).chmod(0o644)
        assert host("policy", "load", path).code == 0

    def test_a_file_of_another_user(self, host, written, monkeypatch):
        path = written(ONE)
        fstat = os.fstat

        def vdsms(descriptor):
            found = list(fstat(descriptor))
            found[stat.ST_UID] = 36
            return os.stat_result(found)

        monkeypatch.setattr(os, "fstat", vdsms)
        what = "belongs to the user 36, not to root"
        self.check(host, path, what, f"run: chown root {path}")

    def test_a_folder_that_others_may_write_to(self, host, written):
        path = written(ONE)
        folder = Path(path).parent
        folder.chmod(0o777)
        what = f"its folder {folder} can be written by other users (mode 0777)"
        self.check(host, path, what, f"run: chmod go-w {folder}")
        folder.chmod(0o1777)
        assert host("policy", "load", path).code == 0

    def test_a_link_into_such_a_folder(self, host, written):
        path = written(ONE, "elsewhere/policy.yaml")
        folder = Path(path).parent
        folder.chmod(0o775)
        link = under(host.root, "/etc/ovirt-rdma/policy.yaml")
        link.parent.mkdir(parents=True)
        link.symlink_to(path)
        what = f"its folder {folder} can be written by other users (mode 0775)"
        self.check(host, str(link), what, f"run: chmod go-w {folder}")

    def test_what_is_piped_in_is_of_who_runs_it(self, host):
        read_end, write_end = os.pipe()
        os.write(write_end, ONE.encode())
        os.close(write_end)
        try:
            result = host("policy", "load", f"/proc/self/fd/{read_end}")
        finally:
            os.close(read_end)
        assert (result.code, result.err) == (0, "")


MOUNTED = """\
version: 1
nfs:
  rules:
    - {name: storage, server: 10.0.0.1, transport: require-rdma}
    - {name: other, server: nas9, transport: tcp}
"""
WITHOUT = MOUNTED.replace("10.0.0.1", "nas1")
LOST = (
    "10.0.0.1:/data (mounted at /rhev/data-center/mnt/10.0.0.1:_data): require-rdma "
    "by rule 'storage' -> no rule, stock VDSM mounts it"
)


@pytest.fixture
def mounted(tmp_path, capsys):
    """Run ovirt-rdma-host on a host that has mounted 10.0.0.1:/data by MOUNTED."""
    fake = soft_roce(tmp_path)
    fake.nfs_mount("10.0.0.1:/data", "/rhev/data-center/mnt/10.0.0.1:_data")
    root = fake.path

    def on_host(*words, policy=MOUNTED):
        file = root / "etc/ovirt-rdma/policy.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(policy)
        return run(capsys, "policy", "load", *words, "--root", str(root))

    on_host.stored = lambda: under(root, POLICY_JSON).read_text()
    assert on_host().code == 0
    return on_host


def test_a_mounted_export_loses_its_rule_only_if_somebody_says_yes(mounted):
    before = mounted.stored()
    refused = mounted(policy=WITHOUT)
    refused.refused(4, f"ovirt-rdma-host: {LOST}\n", "no terminal", "--assume-yes")
    assert mounted.stored() == before
    document = mounted("-o", "json", policy=WITHOUT)
    assert LOST in document.error("no-terminal", 4)["sentences"]
    done = mounted("-y", policy=WITHOUT)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:3] == [
        "- nfs.rules: name storage, server 10.0.0.1, path *, transport require-rdma, "
        "port 20049, readiness_timeout 2.0, settle_timeout 30.0, failure_cache 60.0, "
        "server_kind auto, paths_return 10",
        "+ nfs.rules: name storage, server nas1, path *, transport require-rdma, "
        "port 20049, readiness_timeout 2.0, settle_timeout 30.0, failure_cache 60.0, "
        "server_kind auto, paths_return 10",
        LOST,
    ]
    assert mounted.stored() != before


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (
            MOUNTED.replace("require-rdma", "prefer-rdma"),
            "-> prefer-rdma by rule 'storage'",
        ),
        (
            MOUNTED.replace("require-rdma", "prefer-rdma, port: 20050"),
            "-> prefer-rdma by rule 'storage', port 20050",
        ),
        (
            MOUNTED.replace("require-rdma", "require-rdma, port: 20050"),
            ", port 20049 -> require-rdma by rule 'storage', port 20050",
        ),
        (
            MOUNTED.replace(
                "- {name: s", "- {server: 10.0.0.0/24, transport: tcp}\n    - {name: s"
            ),
            "-> tcp by rule 1",
        ),
    ],
)
def test_so_it_is_with_another_rule(mounted, policy, shown):
    before = mounted.stored()
    result = mounted(policy=policy)
    assert result.code == 4
    assert shown in result.err
    assert mounted.stored() == before


def test_a_dry_run_of_load_shows_the_same(mounted):
    before = mounted.stored()
    shown = mounted("--dry-run", policy=WITHOUT)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[2:] == [LOST, NOTHING_CHANGED]
    [change] = mounted("-n", "-o", "json", policy=WITHOUT).document["rule_changes"]
    assert (change["before"]["name"], change["after"]) == ("storage", None)
    assert mounted.stored() == before


@pytest.mark.parametrize(
    "policy",
    [
        MOUNTED.replace("nas9", "nas8"),  # of no mount
        MOUNTED.replace("name: storage", "name: vms"),
        MOUNTED.replace("10.0.0.1", "10.0.0.0/24"),
        f"{MOUNTED}host: {{modules: [rpcrdma]}}\n",
    ],
)
def test_nobody_is_asked_about_what_changes_no_mount(mounted, policy):
    assert mounted(policy=policy).code == 0


def test_mounts_that_are_unknown_are_not_taken_for_none(mounted, tmp_path):
    (tmp_path / "proc/self/mountinfo").unlink()
    mounted(policy=WITHOUT).refused(4, "not all mounts are known: ")


def test_init_is_valid_and_changes_nothing(host, tmp_path):
    before = sorted(host.root.rglob("*"))
    result = host("policy", "init")
    assert (result.code, sorted(host.root.rglob("*"))) == (0, before)
    (tmp_path / "p.yaml").write_text(result.out)
    assert host("policy", "check", str(tmp_path / "p.yaml")).code == 0
    document = json.loads(host("policy", "init", "-o", "json").out)
    assert (document["kind"], document["text"]) == ("policy-proposal", result.out)
