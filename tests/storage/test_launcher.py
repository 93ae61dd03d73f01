# SPDX-License-Identifier: GPL-2.0-or-later
"""The launcher ``vdsmd``, run as daemonAdapter runs it, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ovirt_rdma.host
import ovirt_rdma.storage
from ovirt_rdma.storage import vdsm_shape

VERSION = f"ovirt-rdma {ovirt_rdma.host.__version__}"
LAUNCHER = Path(ovirt_rdma.storage.__path__[0]) / "launcher/vdsmd"
# The folders that an interpreter of this test finds ovirt_rdma's dependencies in.
STOCK_TEXT = """#!{python}
import json, os, sys
print(json.dumps({{"ran": "stock", "argv": sys.argv,
    "PYTHONPATH": os.environ.get("PYTHONPATH"), "sys.path": sys.path[:2]}}))
"""
# What stands in for VDSM's main(): it tells what was registered when it ran.
MAIN_TEXT = """
import json, os, sys
from vdsm.storage import storageServer
def main():
    nfs = storageServer.ConnectionFactory.registeredConnectionTypes["nfs"]
    print(json.dumps({"ran": "main", "ours": nfs is not storageServer.NFSConnection,
        "module": nfs.__module__, "PYTHONPATH": os.environ.get("PYTHONPATH"),
        "sys.path": sys.path[:2]}))
"""


class Host:
    """Stock vdsmd, our launcher, VDSM's modules, and the enabled marker."""

    def __init__(self, root: Path, vdsm_path: Path) -> None:
        self.root = root
        self.vdsm_path = vdsm_path
        self.stock = root / "usr/libexec/vdsm/vdsmd"
        self.launcher = root / "usr/libexec/ovirt-rdma/launcher/vdsmd"
        self.enabled = root / "etc/ovirt-rdma/enabled"
        for path in (self.stock, self.launcher, self.enabled):
            path.parent.mkdir(parents=True)
        self.stock.write_text(STOCK_TEXT.format(python=sys.executable))
        self.stock.chmod(0o755)
        text = LAUNCHER.read_text()
        assert 'STOCK = "/usr/libexec/vdsm/vdsmd"' in text
        text = text.replace("/usr/libexec/vdsm/vdsmd", str(self.stock))
        assert "prepare()" in text
        text = text.replace("prepare()", f"prepare({str(root)!r})")
        text = text.replace("#!/usr/bin/python3", f"#!{sys.executable}")
        # The log line goes where the test can read it.
        text = text.replace("import syslog", "import fake_syslog as syslog")
        self.launcher.write_text(text)
        self.launcher.chmod(0o755)
        self.extra = root / "extra"
        self.extra.mkdir()
        (self.extra / "fake_syslog.py").write_text(
            "LOG_WARNING, LOG_NOTICE = 4, 5\n"
            "def syslog(priority, line):\n"
            f"    open({str(root / 'log')!r}, 'a').write(line + '\\n')\n"
        )
        self.enabled.write_text("mode: vdsmd\n")

    def start(self, *, pythonpath: str | None = None, **env: str) -> dict:
        """Start the launcher as daemonAdapter does; return what ran said."""
        folders = [str(self.launcher.parent)]
        folders += [pythonpath] if pythonpath is not None else []
        folders += [str(self.extra), str(self.vdsm_path), *_package_folders()]
        done = subprocess.run(
            [str(self.launcher), "an argument"],
            env={**os.environ, "PYTHONPATH": ":".join(folders), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def log(self) -> list[str]:
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    def change_vdsm(self, module: str, text: str) -> None:
        """Let ``text`` run at the end of VDSM's ``module``, in a copy of VDSM."""
        import shutil

        copy = self.root / "vdsm-copy"
        if not copy.exists():
            shutil.copytree(self.vdsm_path, copy, symlinks=False)
        self.vdsm_path = copy
        path = copy / "vdsm" / f"{module}.py"
        path.write_text(path.read_text() + "\n" + text)


def _package_folders() -> list[str]:
    """The folder that has ovirt_rdma, as site-packages has it on a host."""
    tree = Path(ovirt_rdma.storage.__path__[0]).resolve().parent / ".cache/package"
    return [str(tree)] if tree.is_dir() else []


@pytest.fixture
def host(loaded_vdsm, tmp_path):
    made = Host(tmp_path, loaded_vdsm.path)
    made.change_vdsm("vdsmd", MAIN_TEXT)
    return made


def test_runs_vdsms_main_with_our_class_registered(host):
    ran = host.start()
    assert ran["ran"] == "main"
    assert ran["ours"]
    assert ran["module"] == "ovirt_rdma.storage.connection"
    assert host.log == [f"ovirt-rdma: NFS connections are made by {VERSION}"]


def test_a_vdsm_conf_that_bypasses_the_policy_is_told(host):
    host.change_vdsm(
        "vdsmd",
        "from vdsm.config import config\n"
        "config.set('irs', 'nfs_mount_options', 'soft,nosharecache,intr')",
    )
    assert host.start()["ran"] == "main"
    assert "irs/nfs_mount_options" in host.log[1]
    assert "bypass the policy" in host.log[1]


def test_children_find_the_pythonpath_of_stock(host):
    ran = host.start(pythonpath="/some/folder")
    assert ran["PYTHONPATH"].startswith(f"{host.stock.parent}:/some/folder")
    assert str(host.launcher.parent) not in ran["PYTHONPATH"]
    assert ran["sys.path"][0] == str(host.stock.parent)


# A whole VDSM, only with another name: its own constructor finds what it calls.
RENAMED_LOCAL_PATH = """
_stock_init = MountConnection.__init__
MountConnection._getPath = MountConnection._getLocalPath
del MountConnection._getLocalPath
def _init(self, *args, **kwargs):
    MountConnection._getLocalPath = MountConnection._getPath
    _stock_init(self, *args, **kwargs)
    del MountConnection._getLocalPath
MountConnection.__init__ = _init
"""
OTHER_FOR_SUBCLASSES = """
_stock_init = NFSConnection.__init__
def _init(self, id, export, timeout=100, retrans=3, version=None, extraOptions=""):
    if type(self) is not NFSConnection:
        extraOptions += ",sync"
    _stock_init(self, id, export, timeout, retrans, version, extraOptions)
NFSConnection.__init__ = _init
"""

# What the line in the log must say, where more than one check could find the fault.
REASONS = {
    "no connect_all": "NFSConnection has no connect_all()",
    "the local path has another name": "mount connection has no _getLocalPath",
    "subclasses are treated differently": "a connection without a rule has options",
}

FAULTS = {
    "not enabled": lambda host: host.enabled.unlink(),
    "VDSM cannot be imported": lambda host: host.change_vdsm(
        "vdsmd", "import no_such_module"
    ),
    "VDSM exits while it is imported": lambda host: host.change_vdsm(
        "vdsmd", "raise SystemExit(7)"
    ),
    "no main": lambda host: host.change_vdsm("vdsmd", "del main"),
    "no NFSConnection": lambda host: host.change_vdsm(
        "storage/storageServer", "del NFSConnection"
    ),
    "other constructor": lambda host: host.change_vdsm(
        "storage/storageServer",
        "def _init(self, id, export, options): pass\nNFSConnection.__init__ = _init",
    ),
    "other defaults": lambda host: host.change_vdsm(
        "storage/storageServer", "NFSConnection.DEFAULT_OPTIONS = ['hard']"
    ),
    "someone else registered": lambda host: host.change_vdsm(
        "storage/storageServer",
        "class Other(NFSConnection): pass\n"
        "ConnectionFactory.registeredConnectionTypes['nfs'] = Other",
    ),
    "other error code": lambda host: host.change_vdsm(
        "storage/exception", "MountError.code = 499"
    ),
    "no connect_all": lambda host: host.change_vdsm(
        "storage/storageServer", "del Connection.connect_all"
    ),
    "the local path has another name": lambda host: host.change_vdsm(
        "storage/storageServer", RENAMED_LOCAL_PATH
    ),
    "subclasses are treated differently": lambda host: host.change_vdsm(
        "storage/storageServer", OTHER_FOR_SUBCLASSES
    ),
    "our package is gone": lambda host: (host.extra / "ovirt_rdma.py").write_text(
        "raise ImportError('gone')"
    ),
    "our package is broken": lambda host: (host.extra / "ovirt_rdma.py").write_text(
        "1 / 0"
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_before_main_runs_stock_vdsm_and_says_so_once(host, fault):
    FAULTS[fault](host)
    ran = host.start(pythonpath="/some/folder")
    assert ran["ran"] == "stock"
    assert ran["argv"] == [str(host.stock), "an argument"]
    assert ran["PYTHONPATH"].startswith(f"{host.stock.parent}:/some/folder")
    (line,) = host.log
    assert line.startswith("ovirt-rdma: starting stock vdsmd instead: ")
    assert REASONS.get(fault, "") in line


def test_a_broken_policy_is_no_reason_for_stock(host):
    policy = host.root / "var/lib/ovirt-rdma/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(b"\xff{")
    assert host.start()["ran"] == "main"


def test_a_vdsm_without_the_deprecated_setting_is_fine(host):
    host.change_vdsm(
        "vdsmd",
        "from vdsm.config import config\n"
        "config.remove_option('irs', 'nfs_mount_options')",
    )
    assert host.start()["ran"] == "main"
    assert len(host.log) == 1


def test_failure_of_vdsms_main_is_vdsms_own(host):
    host.change_vdsm("vdsmd", "def main(): raise SystemExit(3)")
    with pytest.raises(AssertionError):
        host.start()
    assert not any("stock" in line for line in host.log)


def test_the_launcher_is_alone_in_its_folder_and_executable():
    assert [path.name for path in LAUNCHER.parent.iterdir()] == ["vdsmd"]
    assert os.access(LAUNCHER, os.X_OK)


def test_the_dropin_replaces_execstart_only():
    dropin = LAUNCHER.parents[1] / "systemd/vdsmd.service.d/50-ovirt-rdma.conf"
    lines = [
        line
        for line in dropin.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines == [
        "[Service]",
        "ExecStart=",
        "ExecStart=/usr/libexec/vdsm/daemonAdapter -0 /dev/null -1 /dev/null "
        "-2 /dev/null /usr/libexec/ovirt-rdma/launcher/vdsmd",
    ]


def test_the_shape_check_takes_the_vdsm_under_test(vdsm):
    loaded = vdsm_shape.load()
    assert loaded.nfs_connection is vdsm.storage_server.NFSConnection
    assert callable(vdsm_shape.load_main())
