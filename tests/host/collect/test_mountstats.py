# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ovirt_rdma.host.collect.parsers.mounts import parse_ages, parse_mountstats
from ovirt_rdma.host.facts.model import MountTransport

RDMA = (0, 0, 1, 0, 0, 44, 44, 0, 80, 0, 37, 64, 4, 8411456, 8389512, 0, 0, 64320)
RDMA += (3, 0, 0, 0, 0, 44, 96, 0, 0)
DEVICE = b"device 10.0.0.1:/data mounted on /mnt/a with fstype nfs4 statvers=1.1"
XPRT = b"\txprt:\trdma " + " ".join(map(str, RDMA)).encode()
SECTION = b"\n".join([DEVICE, b"\topts:\trw,vers=4.2", XPRT, b"\tper-op statistics"])
FOUND = {"/mnt/a": (MountTransport("rdma", RDMA),)}


def test_a_mount_among_others():
    others = b"device proc mounted on /proc with fstype proc\n"
    others += b"no device mounted on /sys with fstype sysfs\n"
    assert parse_mountstats(others + SECTION + b"\n\n" + others) == (FOUND, [])


@pytest.mark.parametrize(
    "line, protocol, counters",
    [
        (b"xprt:\ttcp 878 1 1 0 11 30 30 0 30 0 2 0 0", "tcp", 13),
        (b"xprt:\tudp 878 1 30 30 0 30 0", "udp", 7),
        (b"xprt:\tlocal 1 2 3", "local", 3),
        (b"xprt:\trdma 0 0 1 0 0 44 44 0 80 0", "rdma", 10),
        (b"xprt:\tquic 1", "quic", 1),
        (b"xprt:\tvsock", "vsock", 0),
    ],
)
def test_protocols_and_counters_of_other_kernels(line, protocol, counters):
    found, problems = parse_mountstats(DEVICE + b"\n\t" + line + b"\n")
    (transport,) = found["/mnt/a"]
    assert transport.protocol == protocol
    assert len(transport.counters) == counters
    assert not problems


def test_each_connection_of_nconnect_counts():
    found, _ = parse_mountstats(b"\n".join([DEVICE, XPRT, XPRT, XPRT]))
    assert found["/mnt/a"] == FOUND["/mnt/a"] * 3


@pytest.mark.parametrize("odd", [b"-1", b"x", b"\xb2", b"9" * 21, b"9" * 5000])
def test_counters_that_are_no_numbers_leave_the_protocol(odd):
    line = b"\txprt:\trdma 0 " + odd + b" 1"
    found, problems = parse_mountstats(DEVICE + b"\n" + line)
    assert found == {"/mnt/a": (MountTransport("rdma", ()),)}
    assert problems == [
        "/proc/self/mountstats line 2 has a counter that is not a number: ignored"
    ]


def test_the_largest_counter_of_the_kernel_counts():
    line = b"\txprt:\trdma %d" % (2**64 - 1)
    found, problems = parse_mountstats(DEVICE + b"\n" + line)
    assert found == {"/mnt/a": (MountTransport("rdma", (2**64 - 1,)),)}
    assert not problems


def test_an_xprt_line_without_a_protocol_is_named():
    found, problems = parse_mountstats(DEVICE + b"\n\txprt:\n" + XPRT)
    assert found == FOUND
    assert problems == ["/proc/self/mountstats line 2 names no transport: skipped"]


def test_a_line_of_another_mount_is_not_given_to_this_one():
    other = b"device x mounted somewhere else\n" + XPRT
    assert parse_mountstats(SECTION + b"\n" + other)[0] == FOUND


def test_of_stacked_mounts_the_last_counts():
    tcp = SECTION.replace(b"rdma", b"tcp")
    assert parse_mountstats(tcp + b"\n" + SECTION)[0] == FOUND
    covered = b"device tmpfs mounted on /mnt/a with fstype tmpfs"
    assert parse_mountstats(SECTION + b"\n" + covered)[0] == {}


def test_a_source_that_reads_like_the_line_around_it():
    section = SECTION.replace(b"10.0.0.1:/data", b"mounted")
    assert parse_mountstats(section)[0] == FOUND


def test_escapes_and_bytes_that_are_not_utf8():
    section = SECTION.replace(b"/mnt/a", rb"/mnt/\040" + b"\xff")
    assert list(parse_mountstats(section)[0]) == ["/mnt/ \udcff"]


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_valid_section_survives_any_bytes_around_it(before, after):
    found, _ = parse_mountstats(before + b"\n" + SECTION + b"\n" + after)
    # The text after it can be more lines of the same section.
    assert found["/mnt/a"][0] == FOUND["/mnt/a"][0]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*DEVICE.split(), *XPRT.split(), b"\n", b"no"])))
def test_no_order_of_words_raises(words):
    parse_mountstats(b" ".join(words))


@pytest.mark.parametrize(
    "line, ages",
    [
        (b"\tage:\t59", {"/mnt/a": 59}),
        (b"\tage:\t-1", {}),
        (b"\tage:", {}),
        (b"\tage:\t" + b"9" * 5000, {}),
        (b"\topts:\trw", {}),
    ],
)
def test_age(line, ages):
    assert parse_ages(DEVICE + b"\n" + line + b"\n" + XPRT) == ages


def test_the_age_of_a_stacked_mount_is_that_of_the_last():
    aged = DEVICE + b"\n\tage:\t59\n"
    assert parse_ages(aged + DEVICE + b"\n\tage:\t7") == {"/mnt/a": 7}
    assert parse_ages(aged + DEVICE) == {}


@given(st.binary())
def test_any_bytes_have_ages_or_none(data):
    parse_ages(DEVICE + b"\n" + data)
