# SPDX-License-Identifier: GPL-2.0-or-later
"""Our records in open-iscsi's database beside those of VDSM, with the real iscsiadm.

It needs neither a target nor iscsid: without iscsid each login fails, ours after its
record is made, and VDSM then removes its own. No guest boots; test_block_lab.py has the
same with sessions.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.host import vdsm_iscsi

from lab import iser_target
from lab.cache import cache_folder
from lab.packages import fetched
from ovirt_rdma.host.block.logins import Login, iser_logins
from ovirt_rdma.host.block.sessions import Iser
from ovirt_rdma.host.policy.block import IserTarget
from ovirt_rdma.host.system.commands import CommandFailed

IQN = "iqn.2003-01.org.example:a"
PORTALS = ("10.0.0.1:3260", "[fd00::1]:3260")
# $1 has what stands for the machine's /etc, /run and /sys.
_NAMESPACE = """\
set -e
for folder in etc run sys; do mount --bind "$1/$folder" "/$folder"; done
shift
exec "$@"
"""
_USER = ("--map-root-user",) if os.getuid() else ()


class Database:
    """The real iscsiadm with a database of its own, and the transports tcp and iser."""

    def __init__(self, folder: Path, package: Path) -> None:
        self._folder, self._package = folder, package
        etc = folder / "etc/iscsi"
        etc.mkdir(parents=True)
        (folder / "run/lock/iscsi").mkdir(parents=True)
        (etc / "initiatorname.iscsi").write_text("InitiatorName=iqn.2003-01.org:me\n")
        # As EL's.
        (etc / "iscsid.conf").write_text("node.startup = automatic\n")
        for name in ("tcp", "iser"):
            transport = folder / f"sys/devices/virtual/iscsi_transport/{name}"
            transport.mkdir(parents=True)
            (transport / "handle").write_text("1\n")
            (transport / "caps").write_text("0x39\n")
            link = folder / f"sys/class/iscsi_transport/{name}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../devices/virtual/iscsi_transport/{name}")

    def __call__(self, argv: Sequence[str], timeout_s: float = 60) -> str:
        """Run as Runner of host.system.commands does."""
        if argv[0] != "iscsiadm":
            return ""  # modprobe
        program = self._package / "usr/sbin/iscsiadm"
        libraries = (self._package / "usr/lib").glob("*-linux-gnu")
        enter = ["unshare", "--mount", *_USER, "sh", "-c", _NAMESPACE, "sh"]
        done = subprocess.run(
            [*enter, str(self._folder), str(program), *argv[1:]],
            env={
                "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            },
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            words = done.stderr.strip().rpartition("\n")[2]
            raise CommandFailed(words, done.returncode)
        return done.stdout

    def log_in(self, *targets: IserTarget) -> list[Login]:
        """Make the records as a login does; there is no iscsid for the login itself."""
        return Iser(self._folder, self).log_in(iser_logins(targets, ()), 20)

    def set_password(self, portal: str, interface: str, password: str) -> None:
        """Set a password as docs/block.md says."""
        words = ("-T", IQN, "-p", portal, "-I", interface, "-o", "update")
        key = ("-n", "node.session.auth.password", "-v", password)
        self(("iscsiadm", "-m", "node", *words, *key))

    def record(self, portal: str, interface: str) -> dict[str, str]:
        """Return a record with its password; empty if there is none."""
        words = ("-T", IQN, "-p", portal, "-I", interface, "-S")
        try:
            text = self(("iscsiadm", "-m", "node", *words))
        except CommandFailed as error:
            assert error.returncode == 21, error
            return {}
        return dict(row.split(" = ", 1) for row in text.splitlines() if " = " in row)


def target(portal: str, interface: str) -> IserTarget:
    return IserTarget(1, "array", portal, IQN, interface)


@pytest.fixture(scope="module")
def package() -> Path:
    return fetched(cache_folder(), *iser_target.PACKAGES)


@pytest.fixture
def database(tmp_path: Path, package: Path) -> Database:
    return Database(tmp_path, package)


@pytest.mark.parametrize("portal", PORTALS)
def test_a_connect_of_the_engine_leaves_our_record_with_its_password(
    database: Database, portal: str
) -> None:
    mine = IserTarget(1, "array", portal, IQN)
    (outcome,) = database.log_in(mine)
    assert outcome.problem is not None
    assert outcome.problem.id == "iscsid-unavailable"
    database.set_password(portal, mine.interface, "secret")
    before = database.record(portal, mine.interface)
    assert before["iface.transport_name"] == "iser"
    assert before["node.startup"] == "manual"
    assert before["node.session.auth.password"] == "secret"

    vdsm_iscsi.connect(database, IQN, portal)
    # With iscsi_default_ifaces = iser in vdsm.conf.
    vdsm_iscsi.connect(database, IQN, portal, "iser")
    assert database.record(portal, mine.interface) == before
    assert database.record(portal, "default") == {}
    assert database.record(portal, "iser") == {}

    database.log_in(mine)
    assert database.record(portal, mine.interface) == before


def test_two_interfaces_to_one_portal_and_target_have_a_record_each(
    database: Database,
) -> None:
    portal = PORTALS[0]
    database.log_in(target(portal, "rdma0"), target(portal, "rdma1"))
    for name in ("rdma0", "rdma1"):
        database.set_password(portal, name, name)
    database.log_in(target(portal, "rdma0"), target(portal, "rdma1"))
    for name in ("rdma0", "rdma1"):
        record = database.record(portal, name)
        assert record["iface.iscsi_ifacename"] == name
        assert record["node.session.auth.password"] == name


@pytest.mark.parametrize("interface", ["iser", "rdma0"])
def test_a_record_that_ours_would_replace_is_refused_and_stays(
    database: Database, interface: str
) -> None:
    portal = PORTALS[0]
    (outcome,) = database.log_in(target(portal, "rdma0"))
    words = ("-T", IQN, "-p", portal, "-I", interface)
    database(("iscsiadm", "-m", "node", *words[:4], "-I", "rdma0", "-o", "delete"))
    database(("iscsiadm", "-m", "node", *words, "-o", "new"))
    database.set_password(portal, interface, "secret")
    before = database.record(portal, interface)
    assert before["node.tpgt"] == "-1"

    (outcome,) = database.log_in(target(portal, "rdma0"))
    assert outcome.problem is not None
    assert outcome.problem.id == "iser-record-without-tag"
    assert database.record(portal, interface) == before
    # The command in the sentence is the fix.
    fix = outcome.problem.partition("(")[2].partition(")")[0]
    database(tuple(fix.split()))
    database.log_in(target(portal, "rdma0"))
    assert database.record(portal, "rdma0")["node.tpgt"] == "1"
