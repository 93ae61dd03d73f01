# SPDX-License-Identifier: GPL-2.0-or-later
"""``server check``: a sound Linux NFS server, and one fault after the other.

The server is a fake root with the files of the kernel and of exportfs; stat answers
as a tool. Each fault has to be found by the rule that is about it, and nothing
else may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import run
from support.fakes.fake_hosts import soft_roce
from support.fakes.fake_root import FakeRoot
from support.host.rule_cases import facts, sound_server

from ovirt_rdma.cli.host import check
from ovirt_rdma.host.collect import storage
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.storage import (
    configured_folders,
    export_table,
    offered,
    pool_statistics,
    port_list,
    root_folder,
)
from ovirt_rdma.host.facts import model as dump
from ovirt_rdma.host.facts.model import NfsServer
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN
from ovirt_rdma.host.rules.nfs_server import ALL_RULES
from ovirt_rdma.host.rules.registry import SERVER_RULES, decide
from ovirt_rdma.host.system.commands import CommandFailed

NFSD = "/proc/fs/nfsd"
DEFAULTS = (
    "rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,"
    "secure_locks,acl,no_pnfs,anonuid=65534,anongid=65534,sec=sys,rw,secure,"
    "root_squash,no_all_squash"
)
MOUNTED = "30 1 8:1 / /srv {},relatime - ext4 /dev/sda1 rw\n"


@dataclass
class Server:
    """A sound server that exports /srv/vm; a fault changes it."""

    root: FakeRoot
    options: str = DEFAULTS
    owner: str = "36 36 755"
    space: str = "200000 400000 4096 1000 2000"

    def __post_init__(self) -> None:
        write = self.root.write
        write(f"{NFSD}/threads", "16\n")
        write(f"{NFSD}/portlist", "rdma 20049\nrdma 20049\ntcp 2049\ntcp 2049\n")
        write(f"{NFSD}/versions", "-2 +3 +4 +4.1 +4.2\n")
        write(f"{NFSD}/max_block_size", "1048576\n")
        write(f"{NFSD}/clients/1/info", "clientid: 0x1\n")
        write("/proc/self/mountinfo", MOUNTED.format("rw"))
        write(
            f"{NFSD}/pool_stats",
            "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n"
            "0 0 5000 4900 0\n",
        )
        write("/proc/sys/sunrpc/svc_rdma/max_requests", "64\n")
        write("/etc/exports", "/srv/vm *(rw)\n")
        write("/var/lib/nfs/etab", f"/srv/vm\t*({self.options})\n")
        self.root.runner.program("stat", self._stat)

    def set(self, **values: str) -> None:
        """Change what the exported folder is, or its export."""
        vars(self).update(values)
        self.root.write("/var/lib/nfs/etab", f"/srv/vm\t*({self.options})\n")

    def _stat(self, argv: list[str]) -> str:
        if argv[-1] != "/srv/vm":
            raise CommandFailed(f"stat: cannot statx '{argv[-1]}': No such file", 1)
        return self.space if "-f" in argv else self.owner


@pytest.fixture
def server(tmp_path, monkeypatch) -> Server:
    made = Server(soft_roce(tmp_path))
    reader = lambda root: HostReader(root, made.root.runner)  # noqa: E731
    monkeypatch.setattr(check, "HostReader", reader)
    return made


@pytest.fixture
def wrong(server, capsys) -> Callable[[], dict[str, str]]:
    """Return the verdicts that are not PASS or SKIP, by rule."""

    def found(*words: str) -> dict[str, str]:
        root = ("--root", str(server.root.path))
        result = run(capsys, "server", "check", "-o", "json", *words, *root)
        bad = [f for f in result.document["findings"] if f["verdict"] in (WARN, FAIL)]
        assert result.code == (3 if FAIL in [f["verdict"] for f in bad] else 0)
        assert all(f["fix"] for f in bad)
        return {f["rule"]: f["verdict"] for f in bad if f["rule"] != "FACTS-01"}

    return found


def test_a_sound_server(server, wrong):
    assert wrong() == {}


def test_what_a_sound_server_is_told(server, capsys):
    words = ("server", "check", "--all", "--root", str(server.root.path))
    result = run(capsys, *words)
    assert result.code == 0
    for line in (
        "PASS SERVER-LISTENER-01 host it listens over RDMA on port 20049",
        "PASS SERVER-VERS-01 host it offers NFS 3, 4.0, 4.1, 4.2",
        "PASS SERVER-OWNER-01 /srv/vm /srv/vm belongs to vdsm:kvm (36:36)",
        "PASS SERVER-DISK-01 /srv/vm the file system of /srv/vm has 781 MiB free",
    ):
        assert line in [" ".join(one.split()) for one in result.out.splitlines()]
    assert "next:" not in result.out


def _file(path: str, text: str) -> Callable[[Server], None]:
    return lambda server: server.root.write(path, text)


def _set(**values: str) -> Callable[[Server], None]:
    return lambda server: server.set(**values)


def _option(old: str, new: str) -> Callable[[Server], None]:
    return _set(options=DEFAULTS.replace(old, new))


def _read_only(server: Server) -> None:
    server.root.write("/proc/self/mountinfo", MOUNTED.format("ro"))


def _without_rpcrdma(server: Server) -> None:
    server.root.write(f"{NFSD}/portlist", "tcp 2049\n")
    names = ("sunrpc", "nfs", "ib_core", "rdma_cm", "rdma_rxe")
    server.root.modules(loaded=names, available=("rpcrdma",))


FAULTS = {
    "stopped": (_file(f"{NFSD}/threads", "0\n"), "SERVER-LISTENER-01", FAIL),
    "no RDMA listener": (
        _file(f"{NFSD}/portlist", "tcp 2049\n"),
        "SERVER-LISTENER-01",
        FAIL,
    ),
    "rpcrdma not loaded": (_without_rpcrdma, "SERVER-LISTENER-01", FAIL),
    "another port": (
        _file(f"{NFSD}/portlist", "rdma 2050\ntcp 2049\n"),
        "SERVER-LISTENER-01",
        WARN,
    ),
    "RDMA only": (
        _file(f"{NFSD}/portlist", "rdma 20049\n"),
        "SERVER-LISTENER-01",
        WARN,
    ),
    "NFS 3 only": (_file(f"{NFSD}/versions", "-2 +3 -4"), "SERVER-VERS-01", WARN),
    "no version": (_file(f"{NFSD}/versions", "-2 -3 -4"), "SERVER-VERS-01", FAIL),
    "NFS 4.0 only": (
        _file(f"{NFSD}/versions", "-2 -3 +4 -4.1 -4.2"),
        "SERVER-VERS-01",
        WARN,
    ),
    "one thread": (_file(f"{NFSD}/threads", "1\n"), "SERVER-THREADS-01", WARN),
    "busy threads": (
        _file(f"{NFSD}/pool_stats", "# pool\n0 0 9000 100 0\n1 0 1000 900 0\n"),
        "SERVER-THREADS-01",
        WARN,
    ),
    "few requests": (
        _file("/proc/sys/sunrpc/svc_rdma/max_requests", "4\n"),
        "SERVER-RDMA-01",
        WARN,
    ),
    "small blocks": (
        _file(f"{NFSD}/max_block_size", "32768\n"),
        "SERVER-RDMA-01",
        WARN,
    ),
    "read-only export": (_option("rw,", "ro,"), "SERVER-EXPORT-01", FAIL),
    "async": (_option("sync,", "async,"), "SERVER-EXPORT-01", WARN),
    "Kerberos only": (_option("sec=sys", "sec=krb5:krb5p"), "SERVER-EXPORT-01", FAIL),
    "TLS only": (_option("sec=", "xprtsec=tls:mtls,sec="), "SERVER-EXPORT-01", FAIL),
    "squashed": (_option("no_all_squash", "all_squash"), "SERVER-OWNER-01", FAIL),
    "of root": (_set(owner="0 0 755"), "SERVER-OWNER-01", FAIL),
    "not writable": (_set(owner="36 36 555"), "SERVER-OWNER-01", FAIL),
    "group writable only": (_set(owner="107 36 775"), "SERVER-OWNER-01", WARN),
    "full": (_set(space="100 400000 4096 1000 2000"), "SERVER-DISK-01", FAIL),
    "nearly full": (_set(space="9000 400000 4096 1000 2000"), "SERVER-DISK-01", WARN),
    "no inodes": (_set(space="200000 400000 4096 0 2000"), "SERVER-DISK-01", FAIL),
    "read-only disk": (_read_only, "SERVER-DISK-01", FAIL),
    "port down": (
        lambda s: s.root.rdma_port(
            "rxe0",
            state="1: DOWN",
            physical_state="3: Disabled",
            link_layer="Ethernet",
            table_size=0,
        ),
        "NFSRDMA-03",
        FAIL,
    ),
    "forgotten exportfs": (
        _file("/etc/exports", '/srv/vm *(rw)\n"/srv/new data" *(rw)\n'),
        "SERVER-EXPORT-01",
        FAIL,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(server, wrong, name):
    plant, rule, verdict = FAULTS[name]
    plant(server)
    assert wrong() == {rule: verdict}


def test_nothing_is_exported(server, wrong):
    server.root.write("/etc/exports", "# /srv/vm *(rw)\n")
    server.root.write("/var/lib/nfs/etab", "")
    assert wrong() == {"SERVER-EXPORT-01": FAIL}


def test_a_folder_that_is_not_there(server, wrong):
    server.root.write("/var/lib/nfs/etab", f"/srv/gone\t*({DEFAULTS})\n")
    server.root.write("/etc/exports", "/srv/gone *(rw)\n")
    assert wrong() == {"SERVER-OWNER-01": FAIL}


def test_users_that_become_vdsm(server, wrong):
    squashed = DEFAULTS.replace("no_all_squash", "all_squash").replace("65534", "36")
    server.set(options=squashed)
    assert wrong() == {}


def test_folders_below_a_root_folder(server, wrong):
    server.root.write("/etc/nfs.conf", "[nfsd]\nrootdir=/no\n[exports]\nrootdir=/srv\n")
    server.root.write("/var/lib/nfs/etab", f"/vm\t*({DEFAULTS})\n")
    server.root.write("/etc/exports", "/vm *(rw)\n")
    assert wrong() == {}


def test_a_host_without_a_server(tmp_path, capsys, monkeypatch):
    root = soft_roce(tmp_path)
    monkeypatch.setattr(check, "HostReader", lambda _: root.reader())
    words = ("server", "check", "-o", "json", "--root", str(tmp_path))
    result = run(capsys, *words)
    found = {f["rule"]: f["verdict"] for f in result.document["findings"]}
    assert (result.code, found["SERVER-LISTENER-01"]) == (3, FAIL)
    rules = [rule for rule in found if rule.startswith("SERVER-")]
    assert {found[rule] for rule in rules[1:]} == {SKIP}


def test_what_is_unknown_is_not_good(server):
    """Each fact that is made unknown takes away the PASS that rested on it."""
    facts = server.root.reader().facts(exports=True)
    known = facts.nfs_server
    assert known is not None
    for name, rule in {
        "threads": "SERVER-THREADS-01",
        "listeners": "SERVER-LISTENER-01",
        "versions": "SERVER-VERS-01",
        "exports": "SERVER-EXPORT-01",
        "max_requests": "SERVER-RDMA-01",
    }.items():
        changed = _replaced(facts, **{name: None})
        assert {f.verdict for f in _findings(changed, rule)} == {SKIP}, name
    for name, rule in {"uid": "SERVER-OWNER-01", "free": "SERVER-DISK-01"}.items():
        (export,) = known.exports or ()
        unknown = type(export)(**{**vars(export), name: None})
        changed = _replaced(facts, exports=(unknown,))
        assert {f.verdict for f in _findings(changed, rule)} == {SKIP}, name


def _replaced(facts, **values):
    server = NfsServer(**{**vars(facts.nfs_server), **values})
    return type(facts)(**{**vars(facts), "nfs_server": server})


def _findings(facts, rule):
    found = decide(facts, Policy(), (), ALL_RULES).findings
    return [one for one in found if one.rule == rule]


def test_a_dump_of_the_server_is_as_good_as_the_server(server, wrong, tmp_path):
    server.set(owner="0 0 755")
    facts = server.root.reader().facts(exports=True)
    file = tmp_path / "nas.json"
    file.write_text(dump.to_json(facts))
    assert dump.load(file) == facts
    assert wrong("--facts", str(file)) == {"SERVER-OWNER-01": FAIL}


def test_a_dump_without_a_server_is_read(tmp_path):
    facts = soft_roce(tmp_path).reader().facts(exports=True)
    data = dump.to_json_dict(facts)
    assert data["nfs_server"] is None
    assert dump.from_json_dict(data, "old") == facts


# Others' texts

TEXTS = st.text() | st.sampled_from(
    [
        *("rdma 20049\n", "rdma\n", "rdma ²\n", "+3 +4 -4.1", "0 0 1 2 3\n", "# x\n"),
        *("/a\t*(rw)\n", "/a b(c)\n", "\\040 \\777", '"/a b" *(rw)', "[exports]\n"),
        "rootdir=/x\n",
    ]
)


@given(st.lists(TEXTS, max_size=4).map("".join))
def test_any_text_is_read(text):
    port_list(text)
    offered(text)
    queued, woken = pool_statistics(text)
    assert (queued is None) == (woken is None)
    assert all(export.options is not None for export in export_table(text))
    assert all(folder.startswith("/") for folder in configured_folders(text))
    root_folder(text)


def test_forms_of_the_files():
    assert port_list("rdma 20049\nrdma 20049\ntcp 2049\n") == ("rdma 20049", "tcp 2049")
    assert offered("+3 +4 -4.0 +4.1 -4.2") == ("3", "4.1")
    table = export_table("/a\\040b\t10.0.0.0/8(rw,sync)\n/c\t*(ro)\n")
    assert [(e.path, e.client, e.options) for e in table] == [
        ("/a b", "10.0.0.0/8", "rw,sync"),
        ("/c", "*", "ro"),
    ]
    text = '# /x\n/a\\\n  *(rw)\n\'/b\n"/c d" *\n -sync\n/e/ host(rw)\n'
    assert list(configured_folders(text)) == ["/a", "/c d", "/e"]
    assert storage.unescaped("\\057x") == "/x"


@pytest.mark.parametrize(
    ("fact", "rule"),
    [
        ("threads", "SERVER-LISTENER-01"),
        ("clients", "SERVER-THREADS-01"),
        ("max_block_size", "SERVER-RDMA-01"),
        ("versions", "SERVER-VERS-01"),
        ("exports", "SERVER-EXPORT-01"),
    ],
)
def test_what_is_unknown_of_a_server_is_skipped(fact, rule):
    known = facts(nfs_server=sound_server())
    unknown = facts(nfs_server=replace(sound_server(), **{fact: None}))
    for host, verdict in ((known, PASS), (unknown, SKIP)):
        decision = decide(host, Policy(), rules=SERVER_RULES)
        assert {f.verdict for f in decision.findings if f.rule == rule} == {verdict}
    few = facts(nfs_server=replace(unknown.nfs_server, threads=1))
    said = [f.sentence for f in decide(few, Policy(), rules=SERVER_RULES).findings]
    number = any("for an unknown number of NFS 4 clients" in one for one in said)
    assert number == (fact == "clients")


def _exports(**parts):
    (export,) = sound_server().exports
    server = replace(sound_server(), exports=(replace(export, **parts),))
    return decide(facts(nfs_server=server), Policy(), rules=SERVER_RULES).findings


def test_the_root_of_nfs_4_is_no_storage_domain():
    for parts in ({"path": "/"}, {"options": "ro,fsid=0,sec=sys"}):
        found = _exports(uid=0, gid=0, **parts)
        assert {f.verdict for f in found} <= {PASS, SKIP}


def test_a_folder_that_cannot_be_looked_at_is_not_made_anew():
    (found,) = (
        f for f in _exports(problem="no answer in 5 s") if f.rule == "SERVER-OWNER-01"
    )
    assert (found.verdict, "install" in found.fix) == (SKIP, False)


def test_a_link_in_exports_is_exported_by_its_target():
    server = replace(sound_server(), configured=("/export/vm",))
    found = decide(facts(nfs_server=server), Policy(), rules=SERVER_RULES).findings
    (link,) = (f for f in found if f.subject == "/export/vm")
    assert link.verdict == SKIP and "/srv/vm" in link.sentence


def test_hooks_and_runs_look_at_no_export(server):
    """A disk behind an export may hang, and each costs two programs."""
    asked: list[list[str]] = []
    server.root.runner.program("stat", lambda argv: asked.append(argv) or "")
    found = server.root.reader().facts().nfs_server
    assert (found.threads, found.exports) == (16, None)
    assert asked == []
