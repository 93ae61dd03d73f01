# SPDX-License-Identifier: GPL-2.0-or-later
"""Test loading VDSM for the tests: in child processes, with real mounts, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.storage import vdsm_source
from support.storage.vdsm_under_test import SOURCE, VdsmUnderTest

pytestmark = pytest.mark.selftest


def test_a_child_process_finds_the_same_vdsm(vdsm: VdsmUnderTest) -> None:
    path = [str(vdsm.path), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = (
        "from vdsm import vdsmd; from vdsm.storage import storageServer as s;"
        "print(callable(vdsmd.main), s.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", vdsm.storage_server.__file__]


REAL_MOUNT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.storage.vdsm_under_test import load_vdsm, POSIXFS_DOMAIN
vdsm = load_vdsm()
with vdsm.fresh(Path(sys.argv[2])), vdsm.real_mounts():
    for options in ("mode=0777", "mode=0700", "mode=0722", "no_such_option"):
        tmpfs = {"id": "1", "connection": "tmpfs", "vfs_type": "tmpfs",
                 "mnt_options": options}
        [(_, up)] = vdsm.connect(tmpfs, dom_type=POSIXFS_DOMAIN)
        mounted = os.path.ismount(sys.argv[2] + "/tmpfs")
        [(_, down)] = vdsm.disconnect(tmpfs, dom_type=POSIXFS_DOMAIN)
        print(up, mounted, down)
"""


def test_real_mounts_mount_and_check_the_access_of_vdsm_and_qemu(
    vdsm: VdsmUnderTest, tmp_path: Path
) -> None:
    private = ["unshare", "--mount"]
    attempt = [*private, "mount", "-t", "tmpfs", "x", str(tmp_path)]
    if subprocess.run(attempt, capture_output=True, check=False).returncode:
        pytest.skip("needs root and mount namespaces")
    # Other users have no access to pytest's folders, and other runs have this name.
    base = Path(f"/run/{tmp_path.name}-{os.getpid()}")
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [*private, sys.executable, "-c", REAL_MOUNT, str(tests), str(base)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "0 True 0",
        "469 False 477",
        "469 False 477",
        "477 False 477",
    ]


def test_a_source_is_used_when_one_is_named(vdsm: VdsmUnderTest) -> None:
    assert (vdsm.kind == SOURCE) == bool(os.environ.get("VDSM_SOURCE"))


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="name a checkout of oVirt/vdsm"):
        vdsm_source.build(tmp_path, tmp_path)


def test_a_stand_in_can_be_imported_but_not_used(tmp_path: Path) -> None:
    stand_in = Path(vdsm_source.__file__).with_name("absent_module.py")
    (tmp_path / "fictive").mkdir()
    (tmp_path / "fictive/__init__.py").symlink_to(stand_in)
    code = (
        "import fictive\n"
        "from fictive.deep.er import Thing, FLAG\n"
        "class Mine(Thing): pass\n"
        "FLAG | Thing | fictive.other.one\n"
        "for use in (Thing, Mine, fictive.connect, fictive.other.one):\n"
        "    try: use()\n"
        "    except NotImplementedError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "fictive.deep.er.Thing",
        "fictive.deep.er.Thing",
        "fictive.connect",
        "fictive.other.one",
    ]
