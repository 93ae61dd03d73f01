# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fakes.fake_mounts import escaped

from ovirt_rdma.host.collect.storage import (
    MountEntry,
    normalised_source,
    parse_mountinfo,
    visible,
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


@pytest.mark.parametrize(
    "tags", [b"", b"shared:1 ", b"shared:1 master:2 propagate_from:3 unbindable x:9 "]
)
def test_any_number_of_optional_fields(tags):
    line = b"36 25 0:30 / /mnt rw " + tags + b"- nfs s:/x rw,vers=3\n"
    (entry,), problems = parse_mountinfo(line)
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
    (entry,), _ = parse_mountinfo(line)
    assert entry.options == shown


def test_escapes_and_bytes_that_are_not_utf8():
    line = rb"36 25 0:30 / /m\040t\011\134\012x rw - nfs s:/d\040" + b"\xff rw"
    (entry,), _ = parse_mountinfo(line)
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
    assert entries == [NFS_ENTRY, NFS_ENTRY]
    assert problems == ["/proc/self/mountinfo line 2 is not a mount entry: skipped"]


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_valid_line_survives_any_bytes_around_it(before, after):
    entries, _ = parse_mountinfo(before + b"\n" + NFS + b"\n" + after)
    assert NFS_ENTRY in entries


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
    line = f"36 25 0:30 / {escaped('/' + path)} rw - nfs {escaped(source)} rw"
    (entry,), problems = parse_mountinfo(line.encode())
    assert (entry.mountpoint, entry.source) == ("/" + path, source)
    assert not problems


def test_of_stacked_mounts_the_last_is_seen():
    def entry(mountpoint, fstype, source):
        return MountEntry(mountpoint, fstype, source, "rw")

    old, other = entry("/a", "nfs", "s:/old"), entry("/b", "nfs", "s:/b")
    new, cover = entry("/a", "nfs", "s:/new"), entry("/b", "tmpfs", "tmpfs")
    assert visible([old, other, new]) == [other, new]
    assert visible([old, other, cover]) == [old, cover]


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
