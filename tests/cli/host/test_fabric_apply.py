# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric partitions apply``: the file, the signal, the proof and the way back."""

from __future__ import annotations

import pytest
from support.host.subnet import PID, Subnet

from ovirt_rdma.cli.host import fabric
from ovirt_rdma.host.fabric.decisions import PARTITIONS_RULE
from ovirt_rdma.host.services import opensm

pytestmark = pytest.mark.hypervisor

FILE = "/etc/rdma/partitions.conf"
OWN, OTHER, ABSENT = (f"0x0002c90300fb12{n}" for n in ("31", "41", "51"))
POLICY = f"""\
version: 1
fabric:
  hosts: {{hv2: [{OTHER}]}}
  partitions:
    storage: {{pkey: 0x8001, members: [{OWN}, hv2=limited]}}
"""
MINE = "# by hand\nDefault=0x7fff : ALL=limited, SELF=full;\n"


@pytest.fixture
def managed(changeable, monkeypatch):
    """A host with opensm, the operator's own file, and our policy."""
    monkeypatch.setattr(fabric, "SWEEP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(opensm, "_POLL_S", 0.05)
    fake = changeable.fake
    fake.write(FILE, MINE.rstrip())
    path = changeable.root / FILE[1:]
    path.chmod(0o640)
    changeable.file = path
    changeable.subnet = Subnet(path, OWN, [OTHER])
    changeable.subnet.install(fake)
    changeable.subnet.read()
    changeable.follow(POLICY)
    return changeable


def apply(host, *words):
    return host("fabric", "partitions", "apply", *words)


def journal(host):
    return host("history", "-o", "json").document["runs"]


def test_the_file_is_written_read_and_proven(managed):
    result = apply(managed)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"done     {PARTITIONS_RULE}/host  another text -> 2 partitions\n"
        "1 step done and verified.\nThe subnet manager has these partitions.\n"
    )
    assert f"{OTHER}=limited" in managed.file.read_text()
    assert managed.file.stat().st_mode & 0o777 == 0o640
    assert managed.subnet.signals == [f"-HUP {PID}"]
    assert managed.file.read_text() == managed("fabric", "partitions", "render").out


def test_a_second_run_changes_nothing(managed):
    apply(managed)
    result = apply(managed)
    assert result.code == 0
    assert result.out.startswith(f"{FILE} is as the policy says.\n")
    assert len(managed.subnet.signals) == 1
    assert len(journal(managed)) == 1


def test_a_file_that_opensm_has_not_read_is_reported(managed):
    managed.file.write_text(managed("fabric", "partitions", "render").out)
    result = apply(managed)
    assert (result.code, managed.subnet.signals) == (3, [])
    assert "storage (0x8001) has no broadcast group" in " ".join(result.out.split())
    assert "fix: send SIGHUP to opensm" in result.out


def test_revert_restores_the_operators_file(managed):
    apply(managed)
    assert managed("revert").code == 0
    assert managed.file.read_text() == MINE
    assert managed.subnet.signals == [f"-HUP {PID}"] * 2
    assert [one.pkey for one in managed.subnet.definitions] == [0x7FFF]


def test_revert_leaves_a_file_that_somebody_edited(managed):
    apply(managed)
    edited = managed.file.read_text() + "# more\n"
    managed.file.write_text(edited)
    managed("revert")
    assert managed.file.read_text() == edited


def test_revert_removes_a_file_that_was_not_there(managed):
    managed.file.unlink()
    assert apply(managed).code == 0
    assert managed("revert").code == 0
    assert not managed.file.exists()


def test_a_file_without_effect_is_rolled_back(managed):
    managed.subnet.deaf = True
    result = apply(managed)
    assert result.code == 6
    assert "storage (0x8001) has no broadcast group" in result.out.replace("\n", " ")
    assert managed.file.read_text() == MINE


def test_a_group_with_members_keeps_its_mtu(managed):
    apply(managed)
    managed.follow(POLICY.replace("pkey: 0x8001,", "pkey: 0x8001, mtu: 4096,"))
    result = apply(managed)
    assert result.code == 0
    said = " ".join(result.out.split())
    assert "has MTU 2048 and 10 Gb/s, not MTU 4096 and 10 Gb/s" in said
    assert "fix: restart opensm" in said
    assert "mtu=5" in managed.file.read_text()


def test_a_port_that_is_off_is_no_failure(managed):
    managed.follow(POLICY.replace(f"[{OTHER}]", f"[{OTHER}, {ABSENT}]"))
    result = apply(managed)
    assert result.code == 0
    assert f"note: {ABSENT} is not in the fabric now" in result.err


def test_another_subnet_manager_does_not_read_this_file(managed):
    managed.subnet.master = OTHER
    result = apply(managed)
    assert result.code == 0
    assert f"is at {OTHER}, which is no port of this host" in result.err
    assert "The subnet manager has" not in result.out


def test_without_opensm_the_file_waits(managed):
    managed.fake.write(f"/proc/{PID}/cmdline", "/usr/bin/python3\0opensm\0")
    result = apply(managed)
    assert (result.code, managed.subnet.signals) == (0, [])
    assert "opensm is not running on this host" in result.err
    assert apply(managed, "-o", "json").document["proven"] is None


def test_a_silent_subnet_manager_proves_nothing(managed):
    managed.subnet.silent = True
    result = apply(managed)
    assert result.code == 0
    assert "note: sminfo at " in result.err


@pytest.mark.parametrize(
    "words", [["-P", "/x"], ["--Pconfig=/x"], ["-Pcon", "/x"], ["-P/x"]]
)
def test_opensm_with_another_file_is_refused(managed, words):
    managed.subnet.install(managed.fake, "-f", "/var/log/opensm.log", *words)
    apply(managed).refused(4, "opensm (process 4711) reads /x", "fix: start it without")
    assert managed.file.read_text() == MINE


def test_the_configuration_of_opensm_names_another_file(managed):
    managed.fake.write(
        "/etc/rdma/opensm.conf",
        "# partition_config_file /y\npartition_config_file /x\n",
    )
    apply(managed).refused(4, "reads /x, not /etc/rdma/partitions.conf")


def test_a_file_that_the_operator_keeps_is_left(managed):
    managed.file.write_text(f"{MINE}#  Mine\n")
    result = apply(managed)
    assert result.code == 6
    assert "has a line '# mine'" in " ".join(result.out.split())
    assert managed.file.read_text() == f"{MINE}#  Mine\n"


def test_a_link_is_not_followed(managed, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text(MINE)
    managed.file.unlink()
    managed.file.symlink_to(target)
    apply(managed).refused(4, "is a symbolic link")
    assert target.read_text() == MINE


def test_a_policy_without_partitions_writes_nothing(managed):
    managed.follow("version: 1\n")
    apply(managed).refused(1, "the policy has no partitions")
    assert managed.file.read_text() == MINE
