# SPDX-License-Identifier: GPL-2.0-or-later
"""Which processes are opensm, and what the tools of the fabric print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_files import FakeFiles
from support.fakes.fake_processes import run_process
from support.host.facts_of_everything import EVERYTHING

from ovirt_rdma.host.fabric.subnet import (
    FabricReader,
    OpensmProcess,
    fabric_guids,
    local_ports,
    running_opensm,
)
from ovirt_rdma.host.system.tree import FileTree

OPENSM = "/usr/sbin/opensm"
WORDS = (OPENSM, "-F", "/tmp/theirs", "-P", "/dev/watchdog")


@pytest.fixture
def host(tmp_path):
    return FakeFiles(tmp_path)


def found(host):
    return running_opensm(FileTree(host.path))


def test_roots_opensm_is_found_also_after_an_update(host):
    run_process(host.path, 7, OPENSM, "-g", "0x5")
    run_process(host.path, 9, OPENSM, "-p", "3", program=f"{OPENSM} (deleted)")
    assert found(host) == (
        OpensmProcess(7, guid="0x0000000000000005"),
        OpensmProcess(9, priority=3),
    )


@pytest.mark.parametrize(
    ("uids", "program"),
    [
        (["1000"] * 4, OPENSM),
        (["1000", "0", "0", "0"], OPENSM),
        (["0"] * 4, "/usr/bin/passwd"),
        (["1000"] * 4, "/tmp/opensm"),
    ],
    ids=["a user's", "set-user-ID", "another program", "both"],
)
def test_a_process_that_a_user_calls_opensm_names_no_file(
    host, monkeypatch, uids, program
):
    run_process(host.path, 7, *WORDS, user="\t".join(uids), program=program)
    read, real = [], FileTree.data

    def spy(tree, path, *more, **keys):
        read.append(path)
        return real(tree, path, *more, **keys)

    monkeypatch.setattr(FileTree, "data", spy)
    assert found(host) == ()
    assert {path.rpartition("/")[0] for path in read} == {"/proc/7"}


def test_the_command_line_wins_over_the_settings(host):
    host.write("/etc/o.conf", "guid 0x1\nsm_priority 3\npartition_config_file /a\n")
    run_process(host.path, 7, OPENSM, "-F", "/etc/o.conf", "-p", "5", "-P", "/b")
    (process,) = found(host)
    assert (process.priority, process.partitions) == (5, "/b")
    assert process.guid == "0x0000000000000001"


ODD = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["9" * 4301, "0x" + "f" * 4301, "0xzz", "-1", "\u0663", "1_0", ""]),
)
RECORDS = {
    "sminfo": "sm lid {0} sm guid 0x{1}, activity count 1 priority {2} state {3}",
    "SMIR": "SMInfoRecord dump:\n\t\tLID..{0}\n\t\tGUID..{1}\n\t\tPriority..{2}\n"
    "\t\tSMState..{3}\n",
    "-g": "MCMemberRecord member dump:\n\t\tMGID..ff12:401b:8001::ffff:ffff\n"
    "\t\tMtu..{0}\n\t\tRate..{1}\n",
    "smpquery": "   0: {0} {1}\n   8: 0x{2} 0xffff\n",
    "ibnetdiscover": 'Ca\t1 "H-{0}"\n[1]({1})\t"S-{2}"[1]\t# lid {3} {0}xSDR\n',
}
GOOD = "sminfo: sm lid 1 sm guid 0x2, activity count 1 priority 3 state 3"


@given(st.lists(ODD, min_size=4, max_size=4), st.booleans())
def test_a_tool_of_the_fabric_may_print_anything(odd, honest):
    def run(argv):
        name = argv[-1] if argv[0] == "saquery" else argv[0]
        return GOOD if name == "sminfo" and honest else RECORDS[name].format(*odd)

    reader = FabricReader(FileTree("/nonexistent"), run)
    for port in local_ports(EVERYTHING):
        subnet = reader.subnet(port)
        known = None not in (subnet.managers, subnet.groups)
        assert known or subnet.problems or not port.port.is_active
        reader.manager_at(port, 1)
        reader.reachable(port)
        reader.tables(port, ["0x0000000000000005"])


@pytest.mark.parametrize("digits", ["9" * 4301, "0xzz"])
def test_a_number_that_is_none_is_a_sentence(digits):
    def run(argv):
        return GOOD if argv[0] == "sminfo" else RECORDS[argv[-1]].format(*[digits] * 4)

    port = next(one for one in local_ports(EVERYTHING) if one.port.is_active)
    subnet = FabricReader(FileTree("/nonexistent"), run).subnet(port)
    assert (subnet.managers, subnet.groups) == (None, None)
    assert [one.id for one in subnet.problems] == ["fabric-tool-failed"] * 2
    assert "is not a number" in subnet.problems[0]


TOPOLOGY = (Path(__file__).parents[2] / "data/fabric/ibnetdiscover.txt").read_text()


def test_the_ports_of_a_topology():
    guids = {"0x00002c9030000011", "0x00002c9030000021", "0x00002c9030000031"}
    assert fabric_guids(TOPOLOGY) == guids


def test_other_text_is_no_topology():
    with pytest.raises(ValueError, match="no port"):
        fabric_guids("Default=0x7fff : ALL=full;")


@given(st.lists(st.sampled_from([*TOPOLOGY.splitlines(), "", "[", 'Ca 1 "'])))
def test_any_part_of_a_topology_is_read(lines):
    try:
        assert fabric_guids("\n".join(lines)) <= fabric_guids(TOPOLOGY)
    except ValueError:
        return
