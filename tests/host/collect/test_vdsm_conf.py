# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.odd_files import bounded

from ovirt_rdma.host.collect.software import (
    nfs_mount_options,
    replaces_nfs_connections,
)
from ovirt_rdma.host.paths import under

CONF = "/etc/vdsm/vdsm.conf"
VENDOR, RUN, ADMIN = (
    f"{folder}/vdsm/vdsm.conf.d" for folder in ("/usr/lib", "/run", "/etc")
)


def irs(options):
    return f"[vars]\nx = 1\n[irs]\nother = 2\nnfs_mount_options = {options}\n"


@pytest.fixture
def read(tmp_path):
    """Write files below a root; return the options that VDSM would use."""
    root = tmp_path / "root[1]"

    def written(files):
        for path, text in files.items():
            file = under(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        problems = []
        options = nfs_mount_options(root, problems)
        assert (options is None) == bool(problems)
        return problems[0] if problems else options

    return written


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ({}, "soft,nosharecache"),
        ({CONF: ""}, "soft,nosharecache"),
        ({CONF: "[irs]\nother = 1\n"}, "soft,nosharecache"),
        ({CONF: "[DEFAULT]\nnfs_mount_options = a\n"}, "soft,nosharecache"),
        ({CONF: irs("a, b")}, "a, b"),
        ({CONF: irs("")}, ""),
        ({CONF: "[irs]\n# nfs_mount_options = a\n"}, "soft,nosharecache"),
        ({CONF: irs("a%%%%(x)s")}, "a%%(x)s"),
        # A drop-in wins over vdsm.conf, wherever it is.
        ({CONF: irs("a"), f"{VENDOR}/00.conf": irs("b")}, "b"),
        ({CONF: irs("a"), f"{VENDOR}/00.conf": "[irs]\nother = 3\n"}, "a"),
        # Among drop-ins the name decides, then the folder.
        ({f"{VENDOR}/90.conf": irs("a"), f"{ADMIN}/10.conf": irs("b")}, "a"),
        ({f"{RUN}/50-a.conf": irs("a"), f"{VENDOR}/50-b.conf": irs("b")}, "b"),
        ({f"{VENDOR}/50.conf": irs("a"), f"{RUN}/50.conf": irs("b")}, "b"),
        ({f"{RUN}/50.conf": irs("a"), f"{ADMIN}/50.conf": irs("b")}, "b"),
        # Not drop-ins.
        ({f"{ADMIN}/50.conf.rpmsave": irs("a")}, "soft,nosharecache"),
        ({f"{ADMIN}/.50.conf": irs("a")}, "soft,nosharecache"),
        ({f"{ADMIN}/x/50.conf": irs("a")}, "soft,nosharecache"),
        # Not a file, so VDSM ignores it.
        ({f"{CONF}/x": "", f"{ADMIN}/50.conf": irs("b")}, "b"),
    ],
)
def test_what_vdsm_takes(read, files, options):
    assert read(files) == options


@pytest.mark.parametrize(
    "text",
    [
        "nfs_mount_options = a",
        "[irs]\nnfs_mount_options\n",
        "[irs\n",
        f"{irs('a')}{irs('b')}",
        irs("%(nothing)s"),
        irs("%%%(other)s"),
        irs("50%"),
        b"[irs]\nx = \xff\n",
    ],
)
@pytest.mark.parametrize("path", [CONF, f"{ADMIN}/50.conf"])
def test_a_broken_file_is_a_sentence(read, path, text):
    sentence = read({path: text})
    assert sentence.startswith("vdsm.conf or a drop-in of it cannot be read: ")
    assert "\n" not in sentence


def test_what_vdsms_user_may_write_does_not_grow_without_end(read):
    """VDSM itself would expand these 900 bytes to 20 to the power of 7 names."""
    names = ["nfs_mount_options", *(f"a{number}" for number in range(7))]
    lines = [f"{name} = {20 * f'%({of})s'}" for name, of in zip(names, names[1:])]
    with bounded():
        sentence = read({f"{RUN}/50.conf": "\n".join(["[irs]", *lines, "a6 ="])})
    assert sentence == (
        "vdsm.conf or a drop-in of it cannot be read: nfs_mount_options has a % for "
        "another setting, which is not followed"
    )


def test_one_file_of_many_names_is_read_so_often_and_no_more(read):
    text = "[irs]\n" + "".join(f"x{number} = 1\n" for number in range(5000))
    few = {f"{RUN}/{number}.conf": text for number in range(5)}
    assert read(few) == "soft,nosharecache"
    assert read({f"{RUN}/5.conf": text}) == (
        "vdsm.conf or a drop-in of it cannot be read: /run/vdsm has more than 262144 "
        "bytes of them"
    )


@pytest.mark.parametrize(
    ("options", "replaces"),
    [
        ("soft,nosharecache", False),
        ("nosharecache, soft", False),
        ("soft,nosharecache,soft", False),
        ("soft", True),
        ("soft,nosharecache,vers=3", True),
        ("soft,nosharecache,", True),
        ("", True),
    ],
)
def test_which_options_take_the_place_of_nfs_connections(options, replaces):
    assert replaces_nfs_connections(options) is replaces
