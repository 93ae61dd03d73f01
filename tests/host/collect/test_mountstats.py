# SPDX-License-Identifier: GPL-2.0-or-later
"""The protocols and the age of a mount in mountstats, beside its line in mountinfo."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ovirt_rdma.host.collect.storage import nfs_mounts, parse_mountstats

MOUNTINFO = b"36 25 0:30 / %s rw - nfs4 10.0.0.1:/data rw,vers=4.2,proto=rdma\n"
DEVICE = b"device 10.0.0.1:/data mounted on /mnt/a with fstype nfs4 statvers=1.1"
XPRT = b"\txprt:\trdma 0 0 1 0 0 44 44 0 80 0"
SECTION = b"\n".join([DEVICE, b"\topts:\trw,vers=4.2", XPRT, b"\tper-op statistics"])


def found(mountstats, place=b"/mnt/a"):
    """Return protocols and age of the mount at ``place``, and the sentences."""
    problems = []
    (mount,) = nfs_mounts(MOUNTINFO % place, mountstats, problems)
    return mount.protocols, mount.age_s, problems


def test_a_mount_among_others():
    others = b"device proc mounted on /proc with fstype proc\n"
    others += b"no device mounted on /sys with fstype sysfs\n"
    assert found(others + SECTION + b"\n\n" + others) == (("rdma",), None, [])


@pytest.mark.parametrize(
    "line, protocol",
    [
        (b"xprt:\ttcp 878 1 1 0 11 30 30 0 30 0 2 0 0", "tcp"),
        (b"xprt:\trdma 0 -1 x", "rdma"),
        (b"xprt:\tquic 1", "quic"),
        (b"xprt:\tvsock", "vsock"),
    ],
)
def test_protocols_of_other_kernels(line, protocol):
    assert found(DEVICE + b"\n\t" + line + b"\n") == ((protocol,), None, [])


def test_each_connection_of_nconnect_counts():
    assert found(b"\n".join([DEVICE, XPRT, XPRT, XPRT]))[0] == ("rdma",) * 3


def test_an_xprt_line_without_a_protocol_is_named():
    assert found(DEVICE + b"\n\txprt:\n" + XPRT) == (
        ("rdma",),
        None,
        ["/proc/self/mountstats line 2 names no transport: skipped"],
    )


def test_a_line_of_another_mount_is_not_given_to_this_one():
    other = b"device x mounted somewhere else\n" + XPRT
    assert found(SECTION + b"\n" + other)[0] == ("rdma",)


def test_of_stacked_mounts_the_last_counts():
    tcp = SECTION.replace(b"rdma", b"tcp")
    assert found(tcp + b"\n" + SECTION)[0] == ("rdma",)
    covered = b"device tmpfs mounted on /mnt/a with fstype tmpfs"
    assert found(SECTION + b"\n" + covered)[0] == ()


def test_a_source_that_reads_like_the_line_around_it():
    assert found(SECTION.replace(b"10.0.0.1:/data", b"mounted"))[0] == ("rdma",)


def test_escapes_and_bytes_that_are_not_utf8():
    odd = rb"/mnt/\040" + b"\xff"
    assert found(SECTION.replace(b"/mnt/a", odd), odd)[0] == ("rdma",)


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_valid_section_survives_any_bytes_around_it(before, after):
    # The text after it can be more lines of the same section.
    assert found(before + b"\n" + SECTION + b"\n" + after)[0][0] == "rdma"


@settings(deadline=None)
@given(st.lists(st.sampled_from([*DEVICE.split(), *XPRT.split(), b"\n", b"no"])))
def test_no_order_of_words_raises(words):
    parse_mountstats(b" ".join(words))


@pytest.mark.parametrize(
    "line, age_s",
    [
        (b"\tage:\t59", 59),
        (b"\tage:\t-1", None),
        (b"\tage:", None),
        (b"\tage:\t\xb2", None),
        (b"\tage:\t" + b"9" * 5000, None),
        (b"\topts:\trw", None),
    ],
)
def test_age(line, age_s):
    assert found(DEVICE + b"\n" + line + b"\n" + XPRT)[1] == age_s


def test_the_age_of_a_stacked_mount_is_that_of_the_last():
    aged = DEVICE + b"\n\tage:\t59\n"
    assert found(aged + DEVICE + b"\n\tage:\t7")[1] == 7
    assert found(aged + DEVICE)[1] is None
