# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions and LUNs as sysfs has them, and who uses a LUN."""

import os

import pytest
from support.fakes.fake_block import GUID, NAA, FakeBlock
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host.block.read import BlockReader, mixed_sections, multipath_findings
from ovirt_rdma.host.collect.storage import Lun, Session
from ovirt_rdma.host.system.tree import FileTree

VALUES = {"id_ext": GUID, "ioc_guid": GUID}
GID = "fe800000000000000002c90300fb1231"


@pytest.fixture
def block(tmp_path):
    return FakeBlock(FakeRoot(tmp_path))


def reader(block):
    return BlockReader(FileTree(block.root.path))


def users(block, *devices):
    read = BlockReader(FileTree(block.root.path), block.run)
    sessions = read.facts().sessions
    leaving = [s for s in sessions if any(lun.device in devices for lun in s.luns)]
    return [str(user) for user in read.users(leaving)]


def test_a_host_without_block_storage_has_none(block):
    facts = reader(block).facts()
    assert (facts.sessions, facts.srp_ports, facts.problems) == ((), None, ())


def test_srp_sessions_with_their_luns(block):
    block.local_port("srp-mlx4_0-1")
    block.targets = {GUID: [2048, 4096]}
    block.session("srp-mlx4_0-1", {**VALUES, "dgid": GID})
    block.session("srp-mlx4_0-2", VALUES)
    block.root.write("/sys/class/srp_remote_ports/port-1:1/state", "blocked")
    block.root.write("/sys/class/srp_remote_ports/port-1:1/dev_loss_tmo", "off")
    map = block.mapped(3, "lun0", f"mpath-3{NAA[:-2]}00", "sda")
    assert map == "dm-3"
    facts = reader(block).facts()
    assert facts.problems == ()
    assert facts.srp_ports == ("srp-mlx4_0-1",)
    first, second = facts.sessions
    luns = (
        Lun("sda", 0, f"3{NAA[:-2]}00", 1 << 20, "LIO-ORG", "disk0", "running", "lun0"),
        Lun(
            "sda1",
            1,
            f"3{NAA[:-2]}01",
            2 << 20,
            "LIO-ORG",
            "disk1",
            "running",
            not_offered="multipath has no map for it",
        ),
    )
    assert first == Session(
        "srp",
        0,
        "running",
        "mlx4_0",
        1,
        GUID,
        GUID,
        GID,
        remote_port="port-0:1",
        timeouts=(15, 600, 10),
        luns=luns,
    )
    # By RDMA CM there is no GID to read (orig_dgid_show, ib_srp.c: ENOENT).
    assert (second.port, second.dgid, second.state) == (2, None, "blocked")
    assert second.timeouts == (15, "off", 10)


def test_a_session_that_is_being_removed_is_left_out(block):
    block.session("srp-mlx4_0-1", VALUES)
    block.root.unreadable("/sys/class/scsi_host/host0/ioc_guid")
    facts = reader(block).facts()
    assert facts.sessions == ()
    assert len(facts.problems) == 1


@pytest.mark.parametrize(
    ("name", "conf", "why"),
    [
        ("36001", "", None),
        ("36001", "[multipath]\nblacklist = 36002,36001x\n", None),
        ("36001", "[multipath]\nblacklist = 36002, 36001\n", "blacklist in vdsm.conf"),
        ("(a", "", "begins with '('"),
        ("a(", "", None),
        (None, "", "multipath has no map"),
    ],
)
def test_which_luns_vdsm_leaves_out(block, name, conf, why):
    """getMPDevsIter, lib/vdsm/storage/multipath.py."""
    block.targets = {GUID: [2048]}
    block.session("srp-mlx4_0-1", VALUES)
    block.root.write("/etc/vdsm/vdsm.conf", conf)
    if name:
        block.mapped(3, name, "mpath-36001", "sda")
    ((lun,),) = (one.luns for one in reader(block).facts().sessions)
    assert (lun.not_offered is None) is (why is None)
    assert (why or "") in (lun.not_offered or "")


def test_with_an_invalid_vdsm_conf_nothing_is_offered(block):
    """VDSM does not start."""
    block.targets = {GUID: [2048]}
    block.session("srp-mlx4_0-1", VALUES)
    block.root.write("/etc/vdsm/vdsm.conf", "x\n")
    block.mapped(3, "36001", "mpath-36001", "sda")
    facts = reader(block).facts()
    assert facts.sessions[0].luns[0].not_offered == "vdsm.conf cannot be read"
    assert "vdsm.conf or a drop-in of it cannot be read" in facts.problems[0]


def test_iser_sessions_and_no_others(block):
    block.root.iscsi_session(4, "iqn.2003-01.org:a", "10.0.0.1", "iscsi_iser")
    block.root.iscsi_session(5, "iqn.2003-01.org:b", "10.0.0.1", "iscsi_tcp")
    block.root.write("/sys/class/iscsi_session/session4/state", "LOGGED_IN")
    (found,) = reader(block).facts().sessions
    assert (found.protocol, found.iqn, found.portal, found.state) == (
        "iser",
        "iqn.2003-01.org:a",
        "10.0.0.1:3260",
        "LOGGED_IN",
    )


def test_srp_daemon_is_seen(block):
    assert not reader(block).facts().srp_daemon
    block.process(77, "srp_daemon")
    assert reader(block).facts().srp_daemon


@pytest.fixture
def lun(block, monkeypatch):
    """A host with one LUN, sda, that nothing uses."""
    monkeypatch.setattr(
        FileTree, "open_device", lambda tree, link: block.open_device(link)
    )
    block.targets = {GUID: [2048]}
    block.session("srp-mlx4_0-1", VALUES)
    block.root.write("/proc/self/mountinfo", "")
    assert users(block, "sda") == []
    return block


def test_a_mount_is_a_user(lun):
    lun.root.write(
        "/proc/self/mountinfo",
        "30 1 8:0 / /mnt/x rw - ext4 /dev/sda rw\n31 1 8:16 / /y",
    )
    assert users(lun, "sda") == ["sda: mounted at /mnt/x"]


def test_mounts_that_cannot_be_read_are_a_user(lun):
    (lun.root.path / "proc/self/mountinfo").unlink()
    assert users(lun, "sda") == [
        "/proc/self/mountinfo cannot be read: No such file or directory"
    ]


def test_a_process_is_a_user_but_not_multipathd(lun):
    lun.process(80, "multipathd", "sda")
    lun.process(81, "qemu-kvm", "sda", "sda")
    lun.process(82, "bash", "sdb")
    assert users(lun, "sda") == ["sda: process 81 (qemu-kvm)"]


@pytest.mark.parametrize(
    ("opened", "is_user"),
    [
        ("/data/sda", False),  # a file, perhaps on a server that does not answer
        ("/dev/shm/sda", False),
        ("/dev/array/lun0", True),  # a node of libvirt's, for a virtual machine
    ],
)
def test_an_open_device_counts_by_its_number_and_not_by_its_name(lun, opened, is_user):
    lun.nodes = {"/dev/array/lun0": "sda"}
    lun.process(81, "qemu-kvm", opened)
    assert bool(users(lun, "sda")) is is_user


def test_what_is_open_outside_of_dev_is_not_asked_for(tmp_path, monkeypatch):
    """A server that does not answer would hold up the logout."""
    tree = FileTree(tmp_path)
    for name, to in {"3": "/data/sda", "4": "socket:[812]", "5": "/dev/null"}.items():
        (tmp_path / name).symlink_to(to)
    assert tree.open_device("/5") == "char/1:3"
    assert tree.open_device("/6") is None
    with monkeypatch.context() as only_here:
        only_here.delattr(os, "stat")
        assert tree.open_device("/3") is None
        assert tree.open_device("/4") is None


@pytest.mark.parametrize(
    ("address", "kind", "name", "number", "of"),
    [
        # <hostdev type="scsi"> of a virtual machine
        ("0:0:0:0", "scsi_generic", "sg3", "21:3", "sda"),
        # A tape has no block device.
        ("0:0:0:1", "scsi_tape", "nst0", "9:128", "0:0:0:1"),
    ],
)
def test_a_character_device_of_a_lun_is_the_lun(lun, address, kind, name, number, of):
    lun.character_device(address, kind, name, number)
    lun.character_device("9:0:0:0", "scsi_generic", "sg9", "21:9")
    lun.process(80, "smartd", "sg9")
    assert users(lun, "sda") == []
    lun.process(81, "qemu-kvm", name)
    assert users(lun, "sda") == [f"{of}: process 81 (qemu-kvm)"]


@pytest.mark.parametrize(
    ("row", "is_user"),
    [("/dev/sda partition 1024", True), ("/data/sda file 1024", False)],
)
def test_swap_on_the_disk_is_a_user(lun, row, is_user):
    lun.root.write("/proc/swaps", f"Filename Type Size\n{row}")
    assert users(lun, "sda") == (["sda: swap"] if is_user else [])


def test_a_map_alone_is_none_but_what_is_on_it(lun):
    lun.mapped(0, "lun0", "mpath-36001", "sda")
    assert users(lun, "sda") == []
    lun.mapped(1, "lun0p1", "part1-mpath-36001", "dm-0")
    assert users(lun, "sda") == []
    lun.mapped(2, "vg-metadata", "LVM-xyz", "dm-1")
    assert users(lun, "sda") == ["sda: device vg-metadata"]
    lun.process(81, "qemu-kvm", "dm-2")
    assert users(lun, "sda") == [
        "sda: device vg-metadata",
        "sda: process 81 (qemu-kvm)",
    ]


def test_a_map_that_only_the_kernel_has_open_is_a_user(lun):
    """A mount that is left in another namespace, btrfs, a target of this host."""
    lun.mapped(0, "lun0", "mpath-36001", "sda")
    lun.mapped(1, "lun0p1", "part1-mpath-36001", "dm-0")
    lun.open_counts["lun0"] = 1  # by its partition
    assert users(lun, "sda") == []
    lun.open_counts["lun0p1"] = 2
    assert users(lun, "sda") == ["sda: device lun0p1, whose open count is 2"]
    lun.status["lun0p1"] = None
    assert users(lun, "sda") == [
        "sda: device lun0p1, whose open count is unknown: Device does not exist."
    ]


def test_a_map_with_another_running_path_loses_nothing(lun):
    lun.session("srp-mlx4_0-2", VALUES)
    lun.mapped(0, "lun0", "mpath-36001", "sda", "sdb")
    lun.mapped(2, "vg-metadata", "LVM-xyz", "dm-0")
    assert users(lun, "sda") == []
    # Both go; or the other one is not running.
    assert users(lun, "sda", "sdb") == ["sda: device vg-metadata"]
    lun.root.write("/sys/class/block/sdb/device/state", "transport-offline")
    assert users(lun, "sda") == ["sda: device vg-metadata"]


@pytest.mark.parametrize("status", ["8:0 A 0 0 1 8:16 F 3 0 1", "8:0 A 0 0 1", None])
def test_a_path_that_multipathd_has_failed_is_no_other_path(lun, status):
    """No checker changes the state of the SCSI device, which stays running."""
    lun.session("srp-mlx4_0-2", VALUES)
    lun.mapped(0, "lun0", "mpath-36001", "sda", "sdb")
    lun.process(81, "qemu-kvm", "dm-0")
    assert users(lun, "sda") == []
    lun.status["lun0"] = status
    assert users(lun, "sda") == ["sda: process 81 (qemu-kvm)"]


def test_a_partition_is_part_of_its_disk(lun):
    lun.root.write("/sys/class/block/sda/sda1/partition", "1")
    lun.root.write("/sys/class/block/sda1/dev", "8:1")
    lun.root.write("/proc/self/mountinfo", "30 1 8:1 / /mnt/x rw - ext4 /dev/sda1 rw")
    assert users(lun, "sda") == ["sda: mounted at /mnt/x"]


# Drop-ins of multipath.conf with which ``vdsm-tool is-configured`` fails

# The sections of VDSM's own file, lib/vdsm/storage/mpathconf.py.
VDSM = """\
# VDSM REVISION 2.2
defaults {
    polling_interval            5
    no_path_retry               16
}
blacklist {
    protocol "(scsi:adt|scsi:sbp)"
    devnode "^(rbd)[0-9]*"
}
overrides {
    no_path_retry   16
}
"""


@pytest.mark.parametrize(
    "text",
    [
        'overrides {\n protocol {\n type "scsi:srp"\n fast_io_fail_tmo 5\n }\n}\n',
        "overrides { protocol { type scsi:srp } }",
    ],
)
def test_protocol_in_overrides_stops_vdsmd(text):
    (found,) = mixed_sections([("a", VDSM), ("b", text)])
    assert found.id == "multipath-stops-vdsmd"
    assert found.startswith("b has protocol { } in its section overrides")
    assert "VDSM 4.50.2.2 and later" in found
    # Alone it is no mix.
    assert mixed_sections([("b", text)]) == []


@pytest.mark.parametrize(
    "text",
    [
        'devices {\n device {\n vendor "LIO-ORG"\n product ".*"\n }\n}\n',
        "blacklist {\n device {\n vendor x\n }\n}\n",
        "# overrides { protocol { } }\n! overrides { protocol { } }\n",
        'multipaths {\n multipath {\n wwid 3600\n alias "a { b"\n }\n}\n',
        "overrides {\n no_path_retry 4\n}\n",
        "overrides {",
    ],
)
def test_forms_that_vdsm_tolerates(text):
    assert mixed_sections([("a", VDSM), ("b", text)]) == []


def test_the_files_of_a_host(tmp_path):
    root = FakeRoot(tmp_path)
    tree, problems = FileTree(root.path), []
    assert multipath_findings(tree, problems) == []
    root.write("/etc/multipath.conf", VDSM)
    bad = "overrides {\n protocol {\n type scsi:srp\n }\n}\n"
    root.write("/etc/multipath/conf.d/srp.conf", bad)
    root.write("/etc/multipath/conf.d/srp.conf.bak", bad)
    root.write("/etc/multipath/conf.d/empty.conf", "")
    (found,) = multipath_findings(tree, problems)
    assert found.startswith("/etc/multipath/conf.d/srp.conf has")
    assert problems == []
    (root.path / "etc/multipath.conf").unlink()
    (root.path / "etc/multipath.conf").mkdir()
    multipath_findings(tree, problems)
    assert "/etc/multipath.conf cannot be read" in problems[0]
