# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that after any error before VDSM's main() stock VDSM runs, with a reason."""

from __future__ import annotations

import json
import resource
import signal
import time

import pytest
from support.storage.launcher_host import Host

from ovirt_rdma.host import __version__
from ovirt_rdma.host.services.enablement import BY_LAUNCHER, BY_STOCK

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def host(loaded_vdsm, tmp_path):
    made = Host(tmp_path, loaded_vdsm.path)
    yield made
    made.close()


def _change(module, text):
    return lambda host: host.change_vdsm(module, text)


def _ours(text):
    return lambda host: host.replace_our_package(text)


def _remove(module):
    def remove(host):
        (host.copy_of_vdsm() / f"{module}.py").unlink()

    return remove


def _deny(part):
    return lambda host: host.deny(part)


SERVER = "storage/storageServer"
# A complete VDSM with another name: its own constructor finds what it calls.
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
RENAMED_MOUNT_CONNECTION = """
_stock_init = NFSConnection.__init__
def _init(self, id, export, timeout=100, retrans=3, version=None, extraOptions=""):
    _stock_init(self, id, export, timeout, retrans, version, extraOptions)
    self._mountConnection = self.__dict__.pop("_mountCon")
NFSConnection.__init__ = _init
"""
OTHER_FOR_SUBCLASSES = """
_stock_init = NFSConnection.__init__
def _init(self, id, export, timeout=100, retrans=3, version=None, extraOptions=""):
    if type(self) is not NFSConnection:
        extraOptions += ",sync"
    _stock_init(self, id, export, timeout, retrans, version, extraOptions)
NFSConnection.__init__ = _init
"""
EARLIER = """
import sys, types
for name in ("storage", "storage.vdsm", "storage.vdsm.launch"):
    launch = sys.modules[f"ovirt_rdma.{name}"] = types.ModuleType(name)
launch.prepare = lambda root: types.SimpleNamespace(main=None, remarks=())
"""
MUTE = "class Mute(Exception):\n def __str__(self): 1 / 0\nraise Mute"

# The fault, and what the line in syslog must say about it.
FAULTS = {
    "not enabled": (lambda host: host.enabled.unlink(), "run ovirt-rdma-host enable"),
    "another mode is on": (
        lambda host: host.enabled.write_text("mode: host\n"),
        "/etc/ovirt-rdma/enabled does not enable mode vdsmd",
    ),
    "the marker may not be read": (_deny("etc/ovirt-rdma"), "Permission denied"),
    # VDSM is different.
    "VDSM's daemon is missing": (_remove("vdsmd"), "No module named 'vdsm.vdsmd'"),
    "VDSM's storage is missing": (_remove(SERVER), "storageServer"),
    "an import fails deep inside": (
        _change("storage/mount", "import no_such_module"),
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "VDSM exits while it is imported": (
        _change("vdsmd", "raise SystemExit(7)"),
        "SystemExit: 7",
    ),
    "no main": (_change("vdsmd", "del main"), "vdsm.vdsmd has no main()"),
    "no NFSConnection": (_change(SERVER, "del NFSConnection"), "NFSConnection"),
    "no registry": (
        _change(SERVER, "del ConnectionFactory.registeredConnectionTypes"),
        "registeredConnectionTypes",
    ),
    "no NFS in the registry": (
        _change(SERVER, "del ConnectionFactory.registeredConnectionTypes['nfs']"),
        "the registered nfs connection is not NFSConnection",
    ),
    "someone else is registered": (
        _change(
            SERVER,
            "class Other(NFSConnection): pass\n"
            "ConnectionFactory.registeredConnectionTypes['nfs'] = Other",
        ),
        "the registered nfs connection is not NFSConnection",
    ),
    "another constructor": (
        _change(
            SERVER,
            "def _init(self, id, export, options): pass\n"
            "NFSConnection.__init__ = _init",
        ),
        "NFSConnection takes ('id', 'export', 'options')",
    ),
    "other defaults": (
        _change(SERVER, "NFSConnection.DEFAULT_OPTIONS = ['hard']"),
        "NFSConnection's defaults are ['hard']",
    ),
    "no defaults": (
        _change(SERVER, "del NFSConnection.DEFAULT_OPTIONS"),
        "DEFAULT_OPTIONS",
    ),
    "no mount error": (
        _change("storage/mount", "MountError = None\ndel MountError"),
        "MountError",
    ),
    "no storage error": (_change("storage/exception", "del MountError"), "MountError"),
    "another error code": (
        _change("storage/exception", "MountError.code = 499"),
        "exception.MountError has code 499, not 477",
    ),
    **{
        f"no {name}": (
            _change(SERVER, f"NFSConnection.{name} = None"),
            f"NFSConnection has no {name}()",
        )
        for name in ("connect", "isConnected", "disconnect", "connect_all")
    },
    "the mount connection has another name": (
        _change(SERVER, RENAMED_MOUNT_CONNECTION),
        "NFSConnection's mount connection has no options",
    ),
    "the local path has another name": (
        _change(SERVER, RENAMED_LOCAL_PATH),
        "mount connection has no _getLocalPath",
    ),
    "subclasses are treated differently": (
        _change(SERVER, OTHER_FOR_SUBCLASSES),
        "a connection without a rule has options",
    ),
    # Our package is different, or missing.
    "our package is gone": (
        _ours("raise ModuleNotFoundError(\"No module named 'ovirt_rdma'\")"),
        "ModuleNotFoundError: No module named 'ovirt_rdma'",
    ),
    "our package is broken": (_ours("1 / 0"), "ovirt_rdma.py:1)"),
    "our package is cut off": (_ours("def prepare("), "SyntaxError"),
    "our package is a null": (_ours("a\0b"), "null bytes"),
    "our package may not be read": (_deny("storage/vdsm/"), "Permission denied"),
    "our package is of an earlier version": (_ours(EARLIER), "no attribute 'version'"),
    "memory is short": (_ours("raise MemoryError"), "MemoryError"),
    "no end of calls": (_ours("def f(): f()\nf()"), "RecursionError"),
    # Texts that syslog does not accept unchanged.
    "a null in the words": (_ours("raise ValueError('a\\0b')"), "ValueError: a b ("),
    "lines and umlauts in the words": (
        _ours("raise ValueError('ä\\nb\\udc80')"),
        "ValueError: \\xe4 b\\udc80 (",
    ),
    "no words": (_ours(MUTE), "starting stock vdsmd instead: Mute"),
    "many words": (_ours("raise ValueError('no ' * 100000)"), "no no no"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_stock_vdsm_runs_as_if_we_were_not_there(host, fault):
    damage, words = FAULTS[fault]
    damage(host)
    ran = host.start()
    assert ran["ran"] == "stock"
    assert ran["argv"] == [str(host.stock), "an argument"]
    assert ran["environment"] == host.as_started()
    (line,) = host.log
    assert line.startswith("ovirt-rdma: starting stock vdsmd instead: ")
    assert words in line
    assert len(line) < 1100


def test_why_stock_vdsmd_runs_is_kept_for_status(host):
    """The engine's side reads it there; nobody on the engine reads the host's log."""
    host.started.parent.mkdir(parents=True)
    damage, words = FAULTS["another error code"]
    damage(host)
    for _ in range(2):
        process = host.popen([str(host.launcher)], host.as_started())
        process.communicate(timeout=60)
        number, program, why = host.started.read_text().split(" ", 2)
        assert (int(number), program) == (process.pid, BY_STOCK)
        assert words in why
    assert [path.name for path in host.started.parent.iterdir()] == ["vdsmd"]


@pytest.mark.parametrize(
    "odd",
    [
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/proc/self/no/such"),
    ],
)
def test_a_reason_that_cannot_be_kept_changes_nothing(host, odd):
    host.started.parent.mkdir(parents=True)
    odd(host.started)
    host.replace_our_package("1 / 0")
    assert host.start()["ran"] == "stock"


def test_a_start_of_ours_keeps_the_version_that_it_loaded(host):
    host.started.parent.mkdir(parents=True)
    host.started.write_text(f"1 {BY_STOCK} an earlier reason\n")
    process = host.popen([str(host.launcher)], host.as_started())
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["ran"] == "main"
    expected = f"{process.pid} {BY_LAUNCHER} {__version__}\n"
    assert host.started.read_text() == expected


def test_a_version_that_cannot_be_kept_changes_nothing(host):
    host.started.mkdir(parents=True)
    ran = host.start()
    assert (ran["ran"], ran["ours"]) == ("main", True)


def test_a_change_that_an_import_made_in_the_environment_is_taken_back(host):
    host.change_vdsm("vdsmd", "import os; os.environ['LEFT'] = '1'; 1 / 0")
    ran = host.start()
    assert ran["ran"] == "stock"
    assert ran["environment"] == host.as_started()


def _stored(text):
    return lambda host: host.policy.write_bytes(text)


def _forbidden(host):
    host.policy.write_text("{}")
    host.deny("policy.json")


@pytest.mark.parametrize(
    "damage, words",
    [
        (_stored(b"\xff{"), "the stored policy is invalid"),
        (
            _stored(b'{"schema_version": 99, "kind": "stored-policy"}'),
            "schema version 99; this one reads 1",
        ),
        (lambda host: host.policy.mkdir(), "cannot be read: Is a directory"),
        (_forbidden, "cannot be read: Permission denied"),
    ],
    ids=["damaged", "another schema", "a folder", "forbidden"],
)
def test_a_policy_that_cannot_be_used_is_no_reason_for_stock(host, damage, words):
    damage(host)
    ran = host.start()
    assert (ran["ran"], ran["ours"]) == ("main", True)
    _, line = host.log
    assert words in line
    assert "no policy is in force, NFS mounts are stock" in line


def test_a_run_folder_that_may_not_be_read_changes_nothing(host):
    host.deny(f"{host.root}/run")
    assert host.start()["ran"] == "main"
    assert len(host.log) == 1


@pytest.mark.parametrize("broken", [False, True])
def test_a_syslog_that_fails_changes_nothing(host, broken):
    syslog = host.extra / "fake_syslog.py"
    syslog.write_text(syslog.read_text() + "\ndef syslog(*_): raise OSError('no')\n")
    if broken:
        host.replace_our_package("1 / 0")
    assert host.start()["ran"] == ("stock" if broken else "main")


@pytest.mark.parametrize("broken", [False, True])
def test_a_full_disk_changes_nothing(host, broken):
    if broken:
        host.replace_our_package("1 / 0")
    ran = host.start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert ran["ran"] == ("stock" if broken else "main")
    assert len(host.log) == 1


@pytest.mark.parametrize("wanted", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_stock_vdsm_ends_the_launcher(host, wanted):
    marker = host.root / "importing"
    host.change_vdsm(
        "vdsmd", f"open({str(marker)!r}, 'w')\nimport time; time.sleep(60)"
    )
    process = host.popen([str(host.launcher)], host.as_started())
    while not marker.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(wanted)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == -wanted
    assert out == ""
    assert host.log == []


def test_where_stock_does_not_start_either_syslog_says_that_too(host):
    host.replace_our_package("1 / 0")
    host.stock.unlink()
    code, out, _ = host.run([str(host.launcher)], host.as_started())
    assert (code, out) == (1, "")
    instead, neither = host.log
    assert "starting stock vdsmd instead" in instead
    assert "stock vdsmd does not start either" in neither
    assert str(host.stock) in neither
