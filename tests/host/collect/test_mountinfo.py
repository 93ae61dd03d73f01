# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of mountinfo, and what mountstats adds to an NFS mount."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.storage.nfs_mount_text import escape

from ovirt_rdma.host.collect.storage import (
    MountEntry,
    nfs_mounts,
    normalised_source,
    parse_mountinfo,
    parse_mountstats,
)

NFS = (
    b"36 25 0:30 / /mnt/a rw,relatime shared:3 master:1 - nfs4 10.0.0.1:/data "
    b"rw,vers=4.2,proto=rdma,port=20049,addr=10.0.0.1"
)
NFS_ENTRY = MountEntry(
    mountpoint="/mnt/a",
    fstype="nfs4",
    source="10.0.0.1:/data",
    options="rw,relatime,vers=4.2,proto=rdma,port=20049,addr=10.0.0.1",
)


def only(line):
    entries, problems = parse_mountinfo(line)
    (entry,) = entries.values()
    return entry, problems


@pytest.mark.parametrize(
    "tags", [b"", b"shared:1 ", b"shared:1 master:2 propagate_from:3 unbindable x:9 "]
)
def test_any_number_of_optional_fields(tags):
    line = b"36 25 0:30 / /mnt rw " + tags + b"- nfs s:/x rw,vers=3\n"
    entry, problems = only(line)
    assert (entry.mountpoint, entry.fstype, entry.source) == ("/mnt", "nfs", "s:/x")
    assert not problems


@pytest.mark.parametrize(
    "mount, super_block, shown",
    [
        (b"rw,relatime", b"rw,vers=3", "rw,relatime,vers=3"),
        (b"ro,noexec", b"rw", "ro,noexec"),
        (b"rw,noexec", b"ro,vers=3", "ro,noexec,vers=3"),
        (b"rw", b"rw", "rw"),
    ],
)
def test_options_are_joined_as_in_proc_mounts(mount, super_block, shown):
    line = b"36 25 0:30 / /m " + mount + b" - nfs s:/x " + super_block
    entry, _ = only(line)
    assert entry.options == shown


def test_escapes_and_bytes_that_are_not_utf8():
    line = rb"36 25 0:30 / /m\040t\011\134\012x rw - nfs s:/d\040" + b"\xff rw"
    entry, _ = only(line)
    assert entry.mountpoint == "/m t\t\\\nx"
    assert entry.source == "s:/d \udcff"
    assert json.loads(json.dumps(entry.source)) == entry.source


@pytest.mark.parametrize(
    "line",
    [
        b"36 25 0:30 / /mnt rw shared:1",
        b"36 25 0:30 / /mnt rw - nfs s:/x",
        b"one 25 0:30 / /mnt rw - nfs s:/x rw",
        b"36 25 0:30 / mnt rw - nfs s:/x rw",
        b"-",
        b"\x00\xff",
    ],
)
def test_an_odd_line_is_named_and_hides_no_other(line):
    entries, problems = parse_mountinfo(b"\n".join([NFS, line, NFS]))
    assert entries == {"/mnt/a": NFS_ENTRY}
    assert problems == ["/proc/self/mountinfo line 2 is not a mount entry: skipped"]


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_valid_line_survives_any_bytes_around_it(before, after):
    entries, _ = parse_mountinfo(before + b"\n" + NFS + b"\n" + after)
    assert NFS_ENTRY in entries.values()


@settings(deadline=None)
@given(st.lists(st.sampled_from([*NFS.split(b" "), b"-", b"", b"\\", b"\\040"])))
def test_no_order_of_fields_raises(fields):
    parse_mountinfo(b" ".join(fields))


NAMES = st.text(
    st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)),
    min_size=1,
)


@settings(deadline=None)
@given(NAMES, NAMES)
def test_every_path_and_source_comes_back_as_it_was(path, source):
    line = f"36 25 0:30 / {escape('/' + path)} rw - nfs {escape(source)} rw"
    entry, problems = only(line.encode())
    assert (entry.mountpoint, entry.source) == ("/" + path, source)
    assert not problems


@pytest.mark.parametrize(("fstype", "source"), [("nfs", "s:/new"), ("tmpfs", "tmpfs")])
def test_of_stacked_mounts_the_last_is_seen(fstype, source):
    line = "36 25 0:30 / {} rw - {} {} rw\n"
    mounts = (("/a", "nfs", "s:/old"), ("/b", "nfs", "s:/b"), ("/a", fstype, source))
    entries, _ = parse_mountinfo("".join(line.format(*m) for m in mounts).encode())
    assert [*entries.values()] == [
        MountEntry("/b", "nfs", "s:/b", "rw"),
        MountEntry("/a", fstype, source, "rw"),
    ]


@pytest.mark.parametrize(
    "source, normal",
    [
        ("s:/x", "s:/x"),
        ("s:/x/", "s:/x"),
        ("s://x//y/", "s:/x/y"),
        ("s:/", "s:/"),
        ("s:///", "s:/"),
        ("[fd00::1]:/x", "[fd00::1]:/x"),
        ("[fd00::1]://x/", "[fd00::1]:/x"),
        ("s:/a:b/", "s:/a:b"),
        ("s:/a/../b/.", "s:/b"),
        ("tmpfs", "tmpfs"),
        ("s:", "s:"),
        ("[fd00::1", "[fd00::1"),
        ("", ""),
    ],
)
def test_sources_are_normalised_as_vdsm_does(source, normal):
    assert normalised_source(source) == normal
    assert normalised_source(normal) == normal


# mountstats

DEVICE = b"device 10.0.0.1:/data mounted on /mnt/a with fstype nfs4 statvers=1.1"
XPRT = b"\txprt:\trdma 0 0 1 0 0 44 44 0 80 0"


def found(*lines, device=DEVICE, place=b"/mnt/a"):
    """Return protocols and age of the mount at ``place``."""
    mountinfo = NFS.replace(b"/mnt/a", place) + b"\n"
    problems = []
    (mount,) = nfs_mounts(mountinfo, b"\n".join([device, *lines]), problems)
    assert problems == []
    return mount.protocols, mount.age_s


@pytest.mark.parametrize(
    ("lines", "protocols"),
    [
        ([XPRT, b"\tper-op statistics", b"", b"device x mounted on /x"], ("rdma",)),
        ([b"\txprt:\ttcp 878 1 1 0 11 30 30 0 30 0 2 0 0"], ("tcp",)),
        ([b"\txprt:\trdma 0 -1 x"], ("rdma",)),
        ([b"\txprt:\tvsock"], ("vsock",)),
        ([b"\txprt:\tquic 1"], ("quic",)),
        ([b"\txprt:", XPRT], ("rdma",)),
        ([XPRT, XPRT, XPRT], ("rdma",) * 3),
        # Another mount's, and one that covers it.
        ([XPRT, b"", b"device proc mounted on /proc with fstype proc"], ("rdma",)),
        ([XPRT, b"no device mounted on /sys with fstype sysfs", XPRT], ("rdma",)),
        ([XPRT, b"device x mounted somewhere else", XPRT], ("rdma",)),
        ([XPRT, b"device tmpfs mounted on /mnt/a with fstype tmpfs"], ()),
        ([XPRT.replace(b"rdma", b"tcp"), DEVICE, XPRT], ("rdma",)),
    ],
)
def test_each_connection_has_its_protocol(lines, protocols):
    assert found(*lines) == (protocols, None)


def test_a_mount_point_or_source_with_odd_bytes():
    odd = rb"/mnt/\040" + b"\xff"
    device = DEVICE.replace(b"/mnt/a", odd)
    assert found(XPRT, device=device, place=odd)[0] == ("rdma",)
    assert found(XPRT, device=DEVICE.replace(b"10.0.0.1:/data", b"mounted"))[0]


@pytest.mark.parametrize(
    ("line", "age_s"),
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
    assert found(line, XPRT)[1] == age_s
    assert found(line, DEVICE, XPRT)[1] is None


def test_the_age_of_a_stacked_mount_is_that_of_the_last():
    assert found(b"\tage:\t59", DEVICE, b"\tage:\t7")[1] == 7


def test_a_mount_below_others():
    others = b"device proc mounted on /proc with fstype proc\n"
    others += b"no device mounted on /sys with fstype sysfs\n"
    assert found(XPRT, device=others + DEVICE)[0] == ("rdma",)


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_valid_section_survives_any_bytes_around_it(before, after):
    problems = []
    stats = b"\n".join([before, DEVICE, XPRT, after])
    (mount,) = nfs_mounts(NFS + b"\n", stats, problems)
    # The text after it can be more lines of the same section.
    assert (mount.protocols[0], problems) == ("rdma", [])


@settings(deadline=None)
@given(st.lists(st.sampled_from([*DEVICE.split(), *XPRT.split(), b"\n", b"no"])))
def test_no_order_of_words_raises(words):
    parse_mountstats(b" ".join(words))
