# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.changes.plan import diff
from ovirt_rdma.host.rules.base import (
    FILE,
    MODULE,
    OFFLOAD,
    PROFILE,
    SYSFS,
    UNIT,
    Change,
)

CONF = "/etc/modprobe.d/ovirt-rdma.conf"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ([], []),
        (
            [Change(FILE, CONF, None, "a\n")],
            ["--- /dev/null", f"+++ {CONF}", "@@ -0,0 +1 @@", "+a"],
        ),
        (
            [Change(FILE, CONF, "a\n", None)],
            [f"--- {CONF}", "+++ /dev/null", "@@ -1 +0,0 @@", "-a"],
        ),
        ([Change(FILE, CONF, "a\n", "a\n")], []),
        (
            [Change(UNIT, "a.service", "disabled", "enabled", "enabled")],
            ["a.service: disabled -> enabled"],
        ),
        (
            [Change(SYSFS, "/sys/class/net/ib0/mtu", "2044", "4092")],
            ["mtu of ib0: 2044 -> 4092"],
        ),
        (
            [
                Change(PROFILE, "new:ib0", None, "ib0", "connection.interface-name"),
                Change(PROFILE, "new:ib0", None, "datagram", "infiniband.mode"),
            ],
            [
                "connection.interface-name of the new profile of ib0: none -> ib0",
                "infiniband.mode of the new profile of ib0: none -> datagram",
            ],
        ),
        (
            [
                Change(OFFLOAD, "ib0", "on", "off", "tso"),
                Change(OFFLOAD, "ib1", "on", "off", "tso"),
            ],
            ["tso of ib0: on -> off", "tso of ib1: on -> off"],
        ),
        ([Change(MODULE, "rpcrdma", None, "loaded")], ["rpcrdma: none -> loaded"]),
    ],
)
def test_diff(changes, lines):
    assert list(diff(changes)) == lines


texts = st.text("ab \n\x0c\x85", max_size=12)


@pytest.mark.skipif(not shutil.which("patch"), reason="patch is not installed")
@pytest.mark.parametrize(
    ("before", "after"),
    [("a\nb\nc\n", "a\nB\nc\n"), ("a\x0cb\n", "a\x0cb\nc\n"), ("", "a\n")],
)
def test_patch_takes_a_file_s_diff(tmp_path, before, after):
    place = tmp_path / "file"
    place.write_text(before)
    text = "\n".join(diff([Change(FILE, "file", before, after)])) + "\n"
    subprocess.run(["patch", "-s", str(place)], input=text.encode(), check=True)
    assert place.read_text() == after


@given(texts, texts)
def test_what_comes_and_goes_is_what_differs(before, after):
    lines = list(diff([Change(FILE, "f", before, after)]))
    assert bool(lines) == (before != after)
    assert not any("\n" in line for line in lines)
