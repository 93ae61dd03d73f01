# SPDX-License-Identifier: GPL-2.0-or-later
"""Our node records in the real open-iscsi, beside those that VDSM makes.

The database needs no network, no daemon and no module: only the discovery and the login
are doubles here, and tests/lab/test_block_lab.py has these too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.fakes.fake_iscsiadm import FakeIscsiadm
from support.fakes.fake_root import FakeRoot

from lab.cache import cache_folder
from lab.iser_target import PACKAGES
from lab.packages import fetched
from ovirt_rdma.host.block.iser import Iser
from ovirt_rdma.host.block.logins import wanted_iser_logins
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.policy.block_fields import INTERFACE, IserTarget
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.lab

IQN, PORTAL = "iqn.2003-01.org.example:a", "10.0.0.1:3260"
# Debian's database is in /etc/iscsi, EL's in /var/lib/iscsi; its lock in /run/lock. An
# interface record of iser is made here, because iscsiadm asks the kernel's modules.
_MOUNT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir -p /run/lock /mnt/etc
cp -a /etc/passwd /etc/group /etc/nsswitch.conf /mnt/etc
mount --bind /mnt/etc /etc
mount -t tmpfs tmpfs /run/lock
mkdir -p /etc/iscsi/ifaces
echo InitiatorName=iqn.2003-01.org.example:host >/etc/iscsi/initiatorname.iscsi
echo node.startup = automatic >/etc/iscsi/iscsid.conf
for name in "$@"; do
  printf 'iface.iscsi_ifacename = %s\niface.transport_name = iser\n' "$name" \
    >/etc/iscsi/ifaces/$name
done
echo ready
exec cat >/dev/null
"""


class Database:
    """A private database of the real iscsiadm; logins are those of the double."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a private database")
        package = fetched(cache_folder(), *PACKAGES)
        self._program = str(package / "usr/sbin/iscsiadm")
        libraries = [str(one) for one in package.glob("usr/lib/*-linux-gnu")]
        self._environment = {"LD_LIBRARY_PATH": ":".join(libraries), "PATH": "/bin"}
        self.double = FakeIscsiadm(FakeRoot(folder))
        self.double.portals = {PORTAL: [IQN]}
        self._process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _MOUNT, "sh", INTERFACE, "rdma1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        if argv[0] != "iscsiadm" or argv[2] == "discovery":
            return self.double.run(argv, timeout_s)
        if argv[-1] == "-l":
            words = dict(zip(argv, argv[1:]))
            made = (words["-T"], words["-p"].partition(",")[0], words["-I"])
            self.real("node", *argv[3:-1])  # there is such a record
            self.double.session(len(self.double.sessions) + 7, *made)
            return ""
        return self.real(*argv[2:])

    def real(self, *words: str) -> str:
        """Run the real iscsiadm; raises CommandFailed as run_command does."""
        enter = ["nsenter", "-t", str(self._process.pid), "-m"]
        done = subprocess.run(
            [*enter, self._program, "-m", *words],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            timeout=120,
        )
        if done.returncode:
            raise CommandFailed(done.stderr.strip(), done.returncode)
        return done.stdout

    def records(self) -> set[str]:
        """Return the files of the records, with portal and interface."""
        nodes = Path(f"/proc/{self._process.pid}/root/etc/iscsi/nodes/{IQN}")
        return {
            str(one.relative_to(nodes)) for one in nodes.rglob("*") if one.is_file()
        }

    def password(self, interface: str) -> str:
        portal = f"/etc/iscsi/nodes/{IQN}/10.0.0.1,3260,1/{interface}"
        text = Path(f"/proc/{self._process.pid}/root{portal}").read_text()
        found = [one for one in text.splitlines() if "auth.password =" in one]
        return found[0].rpartition(" ")[2] if found else ""

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
    yield database
    database.close()


def _log_in(database: Database, *interfaces: str) -> list[str]:
    root = database.double.root.path
    targets = [IserTarget(1, name, PORTAL, IQN, name) for name in interfaces]
    sessions = BlockReader(FileTree(root)).facts().sessions
    made = Iser(root, database.run).log_in(wanted_iser_logins(targets, sessions), 9)
    return [str(one.problem or "") for one in made]


def _as_vdsm(database: Database, interface: str, operation: str) -> None:
    """lib/vdsm/storage/iscsiadm.py:262-298, with the address of IscsiTarget."""
    portal = f"{PORTAL},1"
    database.real("node", "-T", IQN, "-I", interface, "-p", portal, f"--op={operation}")


def test_vdsms_records_do_not_touch_ours(database: Database) -> None:
    assert _log_in(database, INTERFACE) == [""]
    ours = f"10.0.0.1,3260,1/{INTERFACE}"
    assert database.records() == {ours}
    own = ("-T", IQN, "-p", f"{PORTAL},1", "-I", INTERFACE)
    secret = ("-n", "node.session.auth.password", "-v", "secret")
    database.real("node", *own, "-o", "update", *secret)
    for interface in ("default", "iser"):  # the second one is its trial login's
        _as_vdsm(database, interface, "new")
        assert database.records() == {ours, f"10.0.0.1,3260,1/{interface}"}
        _as_vdsm(database, interface, "delete")
        assert database.records() == {ours}
    assert database.password(INTERFACE) == "secret"
    # Another login uses the record as it is.
    database.double.sessions.clear()
    assert _log_in(database, INTERFACE) == [""]
    assert database.password(INTERFACE) == "secret"


def test_two_interfaces_have_a_record_each(database: Database) -> None:
    assert _log_in(database, INTERFACE, "rdma1") == ["", ""]
    assert database.records() == {
        f"10.0.0.1,3260,1/{INTERFACE}",
        "10.0.0.1,3260,1/rdma1",
    }


def test_a_record_without_tag_is_removed_by_vdsms(database: Database) -> None:
    """Why ours has the tag, and what the double does."""
    own = ("-T", IQN, "-p", PORTAL, "-I", INTERFACE)
    database.real("node", *own, "-o", "new")
    assert database.records() == {"10.0.0.1,3260"}
    _as_vdsm(database, "default", "new")
    assert database.records() == {"10.0.0.1,3260,1/default"}
    double = database.double
    double.interfaces[INTERFACE] = "iser"
    double.run(["iscsiadm", "-m", "node", *own, "-o", "new"], 9)
    vdsms = ("-T", IQN, "-p", f"{PORTAL},1", "-I", "default")
    double.run(["iscsiadm", "-m", "node", *vdsms, "-o", "new"], 9)
    assert set(double.records) == {(IQN, PORTAL, "default")}
