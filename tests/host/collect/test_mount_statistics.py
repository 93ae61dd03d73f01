# SPDX-License-Identifier: GPL-2.0-or-later
"""mountstats of Debian's 6.1 over Soft-RoCE, 4.2, and what other kernels print."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mutation import mutated

from ovirt_rdma.host.collect.statistics import parse_mount_statistics
from ovirt_rdma.host.collect.storage import unescape
from ovirt_rdma.host.facts.statistics import (
    COLUMNS,
    OperationStatistics,
    Transport,
)

RDMA = b"0 0 1 0 0 44 44 0 80 0 37 64 4 8411456 8389512 0 0 64320 3 0 0 0 0 44 96 0 0"
TCP = b"878 1 1 0 11 30 29 0 31 5 2 6 7"
HEADER = b"device 10.0.0.1:/data mounted on /mnt/a with fstype nfs4 statvers=1.1"
OPTIONS = (
    b"rw,vers=4.2,rsize=524288,wsize=262144,namlen=255,soft,nosharecache,proto=rdma,"
    b"nconnect=4,port=20049,timeo=100,retrans=3,sec=sys,clientaddr=10.0.0.2"
)
LINES = [
    HEADER,
    b"\topts:\t" + OPTIONS,
    b"\tage:\t59",
    b"\tcaps:\tcaps=0x3ffbffff,wtmult=512,dtsize=524288,bsize=0,namlen=255",
    b"\tnfsv4:\tbm0=0xfdffafff,bm1=0xf9be3e,bm2=0x60800,acl=0x3,sessions",
    b"\tsec:\tflavor=1,pseudoflavor=1",
    b"\tevents:\t1 2 3 0 ",
    b"\tbytes:\t1 2 3 4 8388608 8388609 7 8 ",
    b"\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)",
    b"\txprt:\trdma " + RDMA,
    b"\tper-op statistics",
    b"\t        NULL: 1 1 0 44 24 0 0 0 0",
    b"\t        READ: 8 9 1 1600 8389512 3 61 63 2",
    b"\t       WRITE: 0 0 0 0 0 0 0 0 0",
    b"",
]
SECTION = b"\n".join(LINES)
ODD = (
    "/proc/self/mountstats line {} has another form than in the kernels that we know: "
    "what can be read of it counts"
)
OTHERS = b"device proc mounted on /proc with fstype proc\n"


def parsed(data=SECTION):
    (mount,), problems = parse_mount_statistics(data)
    return mount, problems


def operation(mount, name):
    return {one.name: one for one in mount.operations}.get(name)


def sentence_about(line: bytes) -> tuple[object, str]:
    """Parse a section that has ``line`` before its operations."""
    lines = [*LINES[:9], line, *LINES[10:]]
    mount, (sentence,) = parsed(b"\n".join(lines))
    return mount, sentence


def test_all_of_a_mount():
    mount, problems = parsed(OTHERS + SECTION + b"\n" + OTHERS)
    assert not problems
    assert (mount.mountpoint, mount.source) == ("/mnt/a", "10.0.0.1:/data")
    assert (mount.age_s, mount.version) == (59, "4.2")
    assert (mount.rsize, mount.wsize, mount.nconnect) == (524288, 262144, 4)
    assert (mount.server_read, mount.server_written) == (8388608, 8388609)
    assert operation(mount, "READ") == OperationStatistics(
        "READ", 8, 9, 1, 1600, 8389512, 3, 61, 63, 2
    )
    assert [one.name for one in mount.operations] == ["NULL", "READ"]
    assert operation(mount, "WRITE") is None


def test_each_column_of_rdma_has_its_name():
    transport = parsed()[0].transports[0]
    values = [int(word) for word in RDMA.split()]
    assert [*transport.counters.values()] == values
    names = "connect_count sends recvs req_u read_chunk_count write_chunk_count "
    names += "total_rdma_request total_rdma_reply hardway_register_count "
    names += "failed_marshal_count mrs_allocated local_inv_needed"
    assert [transport.counters.get(name) for name in names.split()] == [
        *(1, 44, 44, 80, 37, 64),
        *(8411456, 8389512, 64320),
        *(3, 44, 96),
    ]
    assert transport.counters.get("max_slots") is None


@pytest.mark.parametrize(
    "line, wanted",
    [
        (
            b"tcp " + TCP,
            {"port": 878, "idle_time": 11, "recvs": 29, "bklog_u": 5, "max_slots": 2}
            | {"sending_u": 6, "pending_u": 7},
        ),
        (b"quic 1 2", {"sends": None}),
        (b"udp 878 1 30 29 4 6 5 2 7 8", {"sends": None}),
    ],
)
def test_columns_of_other_protocols(line, wanted):
    mount, problems = parsed(SECTION.replace(b"rdma " + RDMA, line))
    assert not problems
    (transport,) = mount.transports
    assert {name: transport.counters.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("line", "known"),
    [
        *((b"0 0 3 %b 0 44" % odd, 3) for odd in (b"-1", b"x", b"\xb2", b"9" * 21)),
        # Older and newer kernels.
        (b"0 0 3 0 0 44 43 0 80 0", 10),
        (RDMA + b" 7 8", 27),
    ],
)
def test_a_torn_line_keeps_what_is_before_the_tear(line, known):
    mount, sentence = sentence_about(b"\txprt:\trdma " + line)
    numbers = map(int, line.split()[:known])
    wanted = Transport("rdma", dict(zip(COLUMNS["rdma"], numbers)))
    assert (mount.transports, sentence) == ((wanted,), ODD.format(10))


@pytest.mark.parametrize(
    "line",
    [
        b"\txprt:",
        b"\tage:\tx",
        b"\tage:\t1 2",
        b"\tbytes:\t1 2 3",
        b"\tbytes:\t1 2 3 4 5 6 7 8 9",
    ],
)
def test_a_line_of_another_form_is_named_and_the_rest_used(line):
    mount, sentence = sentence_about(line)
    assert sentence == ODD.format(10)
    assert operation(mount, "READ").operations == 8


@pytest.mark.parametrize(
    "line, odd, found",
    [
        (b"\t READ: 8 9 1 1600 8389512 3 61 63 2 5", True, (8, 2)),
        (b"\t READ: 8 9 1 1600 8389512 3 61 63", True, None),
        (b"\t READ: 8 9 1 1600", True, None),
        (b"\t READ: 8 9 1 1600 x 3 61 63 2", True, None),
        (b"\t READ 8 9 1 1600 1 3 61 63 2", True, None),
        (b"\t READ 0 0 0 0 0 0 0 0 0", True, None),
        (b"\t READ: 8 9 1 +1 1 3 61 63 2", True, None),
    ],
)
def test_operations_of_other_kernels(line, odd, found):
    mount, problems = parsed(b"\n".join([*LINES[:12], line]))
    read = operation(mount, "READ")
    assert (read and (read.operations, read.errors)) == found
    assert problems == [ODD.format(13)] * odd


@pytest.mark.parametrize(
    "shown, layout",
    [
        (b"sessions,pnfs=LAYOUT_FLEX_FILES,lease_time=90", "LAYOUT_FLEX_FILES"),
        (b"sessions,pnfs=not configured,lease_time=90", None),
        (b"sessions", None),
        (b"pnfs=", None),
    ],
)
def test_pnfs_layouts(shown, layout):
    mount, problems = parsed(SECTION.replace(b"sessions", shown))
    assert (mount.layout, problems) == (layout, [])


def test_each_connection_is_a_transport():
    two = SECTION.replace(LINES[9], LINES[9] + b"\n" + LINES[9])
    assert len(parsed(two)[0].transports) == 2


def test_of_stacked_mounts_the_last_counts_and_a_covered_one_not_at_all():
    assert parsed(SECTION.replace(b"rdma " + RDMA, b"tcp " + TCP) + b"\n" + SECTION)[
        0
    ].transports[0].protocol == ("rdma")
    covered = SECTION + b"\ndevice tmpfs mounted on /mnt/a with fstype tmpfs"
    assert parse_mount_statistics(covered) == ((), [])


def test_names_with_escapes_and_bytes_that_are_not_utf8():
    odd = SECTION.replace(b"/mnt/a", rb"/mnt/\040\134" + b"\xff").replace(
        b":/data", rb":/da\011ta//"
    )
    mount, _ = parsed(odd)
    assert (mount.mountpoint, mount.source) == ("/mnt/ \\\udcff", "10.0.0.1:/da\tta")


def test_many_wrong_lines_are_one_sentence():
    mount, problems = parsed(SECTION + b"\n" + b"\tx: y\n" * 5000)
    assert operation(mount, "READ")
    assert problems == [ODD.format("16 (and 4999 more)")]


WORDS = st.sampled_from([*SECTION.split(), b"\n", b" ", b"9" * 30, b"\xff", b"xprt:"])


@settings(deadline=None)
@given(mutated([SECTION, *LINES, SECTION + b"\n" + OTHERS + SECTION], WORDS))
def test_odd_text_raises_nothing_and_hides_no_other_mount(data):
    good = SECTION.replace(b"/mnt/a", b"/mnt/good")
    mounts, problems = parse_mount_statistics(data + b"\n" + good)
    assert mounts[-1] == parsed(good)[0]
    assert all("\n" not in sentence and "line" in sentence for sentence in problems)
    for mount in mounts[:-1]:
        assert mount.mountpoint in unescape(data)
        for transport in mount.transports:
            names = [*transport.counters]
            assert names == list(COLUMNS.get(transport.protocol, ())[: len(names)])


@given(st.binary())
def test_any_bytes(data):
    parse_mount_statistics(HEADER + b"\n" + data)
