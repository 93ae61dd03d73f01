# SPDX-License-Identifier: GPL-2.0-or-later
"""Test mistakes on the command line and on disk, and failures of hosts and the engine.

Each verb reports them in sentences with the right exit code, and reports every change
that is left incomplete.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import shlex
import sys
from unittest import mock

import pytest
from engine_double import (
    AnswerLost,
    Conflict,
    DropConnection,
    EngineDouble,
    Locked,
    NoContentType,
    ServiceUnavailableHtml,
    Status,
    Timeout,
    sample_world,
)
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.engine.told_hosts import rules

from ovirt_rdma.cli.engine import session
from ovirt_rdma.cli.engine.session import settings_of
from ovirt_rdma.engine_sdk_tools.conversion import model
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.model import status_words
from ovirt_rdma.host.system.files import write_atomically

pytestmark = pytest.mark.engine

ME = "--username admin@internal --password-file password"
DATA1 = "nfs1.example.com:/exports/data1"
NEW = "nfs2.example.com:/exports/new"
CREATE = f"domain create new --export {NEW} --datacenter dc1"
NETWORK = "network create lan --datacenter dc1 --mtu 2044"
ATTACH = "network attach storage --hosts '*' --nic-match ib0 --addresses"
RANGE = "10.20.0.11/24"
POLICY = rules("tcp", "/exports/data1")
CONVERT = "domain convert data1 --to rdma --rolling"
READING = (
    "hosts list",
    "hosts check",
    "domain list",
    "domain verify",
    "policy diff policy.yaml",
    f"{CONVERT} --dry-run",
)
ACTING = (
    CREATE,
    NETWORK,
    f"{ATTACH} {RANGE}",
    CONVERT,
    "policy push policy.yaml --hosts '*'",
)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Run in a folder with a policy file, without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "password").write_text("secret")
    return tmp_path


def two_hosts():
    """Return two hosts with the add-on, a network ``storage`` that can be attached to
    them, and an empty data center ``Default``.
    """
    world = sample_world(
        hosts=2, domains=("data1",), addon=True, iscsi=True, default_data_center=True
    )
    lan = dataclasses.replace(
        world.network("ovirtmgmt"), id="storage-id", name="storage", vm=False, mtu=2044
    )
    world.networks[lan.id] = lan
    row = dataclasses.replace(
        next(iter(world.cluster("cl1").networks.values())),
        network=lan.id,
        required=False,
        usages=set(),
    )
    world.cluster("cl1").networks[lan.id] = row
    return world


class Asked:
    """Runs the command against a double. ``state`` must not be left partly changed.

    ``folder`` has the states of conversions.
    """

    def __init__(self, capsys, double, folder):
        self._capsys = capsys
        self.folder = folder
        self.double = double
        self.world = double.world

    def __call__(self, words, door=True):
        way = DoubleDoor(self.world) if door else None
        with mock.patch.object(
            session, "conversion_states", lambda: StateFolder(self.folder)
        ):
            return run_engine(self._capsys, self.double, way, *shlex.split(words))

    def state(self):
        world = self.world
        return (
            {(d.name, d.status, d.data_center) for d in world.domains.values()},
            {(c.export, c.mount_options) for c in world.connections.values()},
            {n.name for n in world.networks.values()},
            {c.name: len(c.networks) for c in world.clusters.values()},
            {
                h.name: (h.status, h.policy_text, len(h.attachments), dict(h.mounts))
                for h in world.hosts.values()
            },
        )


@pytest.fixture
def asked(capsys, tmp_path):
    with EngineDouble(two_hosts()) as double:
        yield Asked(capsys, double, tmp_path / "states")
        assert double.strict_errors == []


# -- names

WRONG_NAMES = [
    ("hosts list --datacenter dc", 2, "no data center 'dc'", "did you mean dc1?"),
    ("hosts check hots01", 2, "no host 'hots01'", "host01"),
    ("hosts check --datacenter nope", 2, "no data center 'nope'", "Default, dc1"),
    ("domain list --datacenter DC1", 2, "no data center 'DC1'", "did you mean dc1?"),
    ("domain verify dta1", 2, "no storage domain 'dta1'", "did you mean data1?"),
    ("domain verify data1 --datacenter Default", 2, "'data1' in data center 'Default'"),
    ("policy diff policy.yaml --hosts h9", 2, "no host 'h9'"),
    ("policy push policy.yaml --hosts 'x*,h9'", 2, "no host 'x*' or 'h9'"),
    (CREATE.replace("dc1", "dc2"), 2, "no data center 'dc2'", "did you mean dc1?"),
    (f"{CREATE} --host host1", 2, "no host 'host1'", "host01"),
    (CREATE.replace("new", "data1", 1), 3, "the domain data1 already exists"),
    (CREATE.replace("new", "'a b'", 1), 3, "ASCII letters", "not ' '"),
    (CREATE.replace("new", "''", 1), 3, "1 to 50 characters, this has 0"),
    (CONVERT.replace("data1", "dta1"), 2, "no storage domain 'dta1'", "data1?"),
    (CONVERT.replace("data1", "block1"), 4, "block1"),
    ("domain revert dta1", 2, "no storage domain 'dta1'", "did you mean data1?"),
    ("domain revert data1", 4, "no record of a conversion of data1"),
    ("domain heal dta1", 2, "no storage domain 'dta1'", "did you mean data1?"),
    (NETWORK.replace("dc1", "dc"), 2, "no data center 'dc'"),
    (f"{NETWORK} --clusters cl2", 2, "no cluster 'cl2'", "cl1"),
    (f"{NETWORK} --hosts h9", 2, "no host 'h9'"),
    (f"{NETWORK} --nic-match 'zz*'", 3, "host01", "no IPoIB netdev", "'zz*'"),
    (NETWORK.replace("lan", "''"), 3, "1 to 256 characters"),
    (NETWORK.replace("lan", "ovirtmgmt"), 3, "ovirtmgmt is a VM network"),
    (NETWORK.replace("lan", "bond9"), 1, "cannot start with 'bond'"),
    (f"{ATTACH.replace('storage', 'storag')} {RANGE}", 2, "did you mean storage?"),
    (f"{ATTACH.replace('*', 'host9')} {RANGE}", 2, "no host 'host9'"),
    (f"{ATTACH.replace('ib0', 'ib7')} {RANGE}", 3, "host01", "no NIC", "eth0, ib0"),
    (f"{ATTACH.replace('storage', 'zzz')} {RANGE}", 2, ": ovirtmgmt, storage\n"),
    (
        f"{ATTACH.replace('ib0', 'eth0')} {RANGE}",
        3,
        "the network ovirtmgmt, the management network",
    ),
]


@pytest.mark.parametrize(
    ("words", "code", "said"), [(w, c, s) for w, c, *s in WRONG_NAMES]
)
def test_wrong_names(asked, words, code, said):
    before = asked.state()
    looks = ("hosts", "domain list", "domain verify", "policy diff")
    yes = "" if words.startswith(looks) else " --assume-yes"
    asked(words + yes).refused(code, *said)
    assert asked.state() == before


@pytest.mark.parametrize("more", ["-y", "--dry-run"])
@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (CONVERT, "or create a new one (domain create)"),
        (CONVERT.replace("--rolling", ""), "or create a new one (domain create)"),
        ("domain revert data1", "attach it first"),
    ],
)
def test_a_domain_that_is_in_no_data_center(asked, words, fix, more):
    asked.world.domain("data1").data_center = None
    asked(f"{words} {more}").refused(4, "data1 is not attached to a data center", fix)
    assert not asked.folder.exists()
    assert asked.double.changes() == []


def test_ambiguous_names(asked):
    other = next(c for c in asked.world.clusters.values() if c.name == "Default")
    twin = dataclasses.replace(
        asked.world.network("storage"), id="twin", data_center=other.data_center
    )
    asked.world.networks[twin.id] = twin
    found = asked(f"{ATTACH} {RANGE} --dry-run")
    found.refused(2, "'storage' is ambiguous", "'dc1'", "'Default'", "--datacenter")
    assert asked(f"{ATTACH} {RANGE} --dry-run --datacenter dc1").code == 0


# -- exports and mount options


@pytest.mark.parametrize(
    ("export", "code", "said"),
    [
        ("2001:db8::1:/exports/new", 3, "write [2001:db8::1]:/e"),
        ("[2001:db8::1:/exports/new", 3, "[2001:db8::1"),
        ("[nas]:/exports/new", 3, "[nas]"),
        ("nas", 3, "export 'nas' is not SERVER:/PATH"),
        ("nas:exports", 3, "export 'nas:exports' is not SERVER:/PATH"),
        ("'nas:/with blank'", 3, "ASCII without blanks"),
        ("nfs1.example.com:/exports/data1", 3, "of the domain data1"),
    ],
)
def test_exports_that_are_none(asked, export, code, said):
    words = CREATE.replace(NEW, export)
    asked(f"{words} --assume-yes").refused(code, said)
    assert asked.double.changes() == []


def test_an_ipv6_export_is_created_with_brackets(asked):
    done = asked(f"{CREATE.replace(NEW, '[2001:db8::1]:/exports/new')} --assume-yes")
    assert done.code == 0
    assert asked.world.connection_of("new").address == "[2001:db8::1]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("vers=3", "the engine refuses vers"),
        ("timeo=5,retrans=2", "the engine refuses timeo"),
        ("proto=tcp", "request tcp, not RDMA"),
        ("hard,soft", "contradict each other"),
        ("x" * 500, "stores at most 500"),
    ],
)
def test_mount_options_that_are_refused(asked, options, said):
    asked(f"{CREATE} --mount-options {options} -y").refused(3, said)
    assert asked.double.changes() == []


# -- addresses


@pytest.mark.parametrize(
    ("plan", "code", "said"),
    [
        ("host01: 10.20.0.5/24\nhost02: 10.20.0.5/24\n", 3, "10.20.0.5 more than once"),
        ("host01: 10.20.0.5/24\nhost01: 10.20.0.6/24\n", 2, "plan.yaml:2: host01"),
        (
            "host01: 10.20.0.5/24\nhost02: 10.30.0.5/24\n",
            3,
            "10.30.0.5/24: it is outside 10.20.0",
        ),
        ("host01: 10.20.0.5/24\nhost02: 10.20.0.255/24\n", 3, "the broadcast address"),
        ("host01: 10.20.0.5/24\nhost02: 10.20.0.0/24\n", 3, "the network address"),
        ("host01: 10.20.0.5/24\n", 3, "no address for host02"),
        ("host01: 10.20.0.5/24\nhost9: 10.20.0.6/24\n", 3, "an address for host9"),
        ("host01: 10.20.0.5\nhost02: 10.20.0.6/24\n", 2, "plan.yaml:1: host01"),
        ("host01: [1]\nhost02: x/24\n", 2, "plan.yaml:2: host02"),
        ("host01: 192.0.2.3/24\nhost02: 192.0.2.9/24\n", 3, "of host02 has it"),
        ("a: [", 2, "not valid YAML"),
        ("", 2, "the plan is empty"),
        ("- a\n", 2, "mapping"),
        (b"\xff\xfe", 2, "UTF-8 text"),
    ],
)
def test_plan_files_that_are_wrong(asked, files, plan, code, said):
    content = plan if isinstance(plan, bytes) else plan.encode()
    (files / "plan.yaml").write_bytes(content)
    asked(f"{ATTACH} plan.yaml -y").refused(code, said)
    assert asked.double.changes() == []


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("10.20.0.20-10.20.0.11/24", 2, "last address before its first"),
        ("10.20.0.11-10.20.0.11/24", 3, "no address for host02"),
        ("10.20.0.11/33", 2, "is not a range"),
        ("10.20.0.254/24", 3, "no address for host02"),
        ("192.0.2.2/24", 3, "eth0 of host01 has it"),
        ("224.0.0.5/24", 3, "host01 cannot have 224.0.0.5"),
        ("none.yaml", 2, "none.yaml cannot be read"),
        (".", 2, "cannot be read"),
    ],
)
def test_ranges_that_are_wrong(asked, text, code, said):
    asked(f"{ATTACH} {text} -y").refused(code, said)
    assert asked.double.changes() == []


# -- hosts


@pytest.mark.parametrize("status", ["down", "non_responsive", "installing"])
def test_hosts_in_the_wrong_state(asked, status):
    asked.world.host("host02").status = status
    found = asked(f"{ATTACH} {RANGE} -y")
    found.refused(3, f"host02: it is {status_words(status)}")
    assert asked.double.changes() == []


def test_no_host_that_could_create(asked):
    for host in asked.world.hosts.values():
        host.status = "maintenance"
    asked(f"{CREATE} -y").refused(3, "no host of data center dc1 is up")
    assert asked.double.changes() == []


def test_hosts_without_rdma_are_named_all(asked):
    for host in asked.world.hosts.values():
        host.rdma_ready = False
    asked(f"{CREATE} -y").refused(3, "host01 is not ready", "host02 is not ready")


@pytest.mark.parametrize("verb", ["hosts check", "domain verify"])
def test_hosts_that_are_silent_are_unknown_not_green(asked, verb):
    asked.world.host("host02").reachable = False
    found = asked(f"{verb} -o json")
    assert found.code == 3
    lines = dict(zip(("host01", "host02"), found.document["cells"]))
    by_host = [c for c in lines["host02"] if c["source"] == "host"]
    assert {c["verdict"] for c in by_host} == {"unknown"}
    assert "does not answer over SSH" in by_host[0]["sentence"]


def test_a_host_that_takes_no_policy(asked, capsys):
    door = DoubleDoor(asked.world)
    door.fail_push["host02"] = "the disk is full"
    words = shlex.split("policy push policy.yaml --hosts '*' -y -o json")
    found = run_engine(capsys, asked.double, door, *words)
    assert found.code == 5
    assert asked.world.host("host01").policy_text == POLICY
    assert "the disk is full" in found.out


# -- files


@pytest.mark.parametrize("verb", ["policy diff {}", "policy push {} --hosts '*' -y"])
@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 1, "there is no such policy file"),
        (b"version: 1\nnfs: 3\n", 3, "bad.yaml:2: nfs"),
        (b"\xff", 3, "bad.yaml:1: the byte 0xff"),
        (b"a: [", 3, "bad.yaml:1"),
    ],
)
def test_policy_files_that_are_wrong(asked, files, verb, content, code, said):
    if content is not None:
        (files / "bad.yaml").write_bytes(content)
    asked(verb.format("bad.yaml")).refused(code, said)
    assert asked.double.requests == []


@pytest.mark.parametrize("verb", ["hosts check", "domain verify"])
def test_a_folder_of_dumps_that_is_none(asked, files, verb):
    found = asked(f"{verb} --facts-dir nowhere", door=False)
    found.refused(1, "nowhere: No such file", "HOST.facts.json")
    (files / "dumps").mkdir()
    (files / "dumps" / "host01.facts.json").write_text("{")
    shown = asked(f"{verb} --facts-dir dumps -o json", door=False)
    assert shown.code == 3
    assert "host01.facts.json" in shown.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--config-file nowhere", "nowhere cannot be read"),
        ("--config-file . ", "cannot be read"),
        ("--config prod", "no settings file for --config prod"),
        ("--password-file nowhere", "nowhere cannot be read"),
        ("--ca-file nowhere", "nowhere cannot be read"),
        ("--ca-file policy.yaml", "no certificate in PEM form"),
        ("--engine-url ftp://x", "engine's URL"),
        ("--engine-url ::::", " URL"),
        ("--engine-url http://127.0.0.1:1", "the user for 127.0.0.1:1"),
        (f"--engine-url http://127.0.0.1:1 {ME}", "cannot be reached"),
        ("--username nobody@internal", "the user name or the password is wrong"),
    ],
)
def test_settings_that_are_wrong(asked, words, said):
    asked(f"hosts list {words}").refused(1, said)


def conversion_file(asked):
    """Convert data1; return the file of that."""
    assert asked(f"{CONVERT} -y --no-job").code == 0
    (path,) = asked.folder.glob("*.json")
    return path


@pytest.mark.parametrize("words", [CONVERT, "domain revert data1"])
@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: b"\xff\x00",
        lambda text: b"[]",
        lambda text: text.replace(b"host01", b"host02"),
    ],
)
def test_a_state_file_that_is_broken_is_left_as_it_is(asked, words, broken):
    path = conversion_file(asked)
    content = broken(path.read_bytes())
    path.write_bytes(content)
    before, changes = asked.state(), len(asked.double.changes())
    for more in ("-y", "--dry-run"):
        asked(f"{words} {more}").refused(1, str(path), "keep a copy")
    assert (path.read_bytes(), asked.state()) == (content, before)
    assert len(asked.double.changes()) == changes


@pytest.mark.parametrize("words", [CONVERT, "domain revert data1"])
def test_a_state_file_of_a_newer_version_is_left_as_it_is(asked, words):
    path = conversion_file(asked)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "schema_version": 4}))
    before = path.read_bytes()
    asked(f"{words} -y").refused(
        1, f"{path} is invalid: it was written by a newer version", "or a newer one"
    )
    assert path.read_bytes() == before


def test_a_file_that_names_this_machine_and_is_empty(asked):
    """Any task would look like ours."""
    StateFolder(asked.folder).owner()
    (file,) = asked.folder.iterdir()
    file.write_text("")
    asked(f"{CONVERT} -y").refused(1, f"{file} is empty", "remove the file")
    assert asked.double.changes() == []


@pytest.mark.parametrize("words", [CONVERT, "domain revert data1", "domain heal"])
def test_a_state_folder_that_cannot_be_written(asked, words):
    asked.folder = asked.folder.parent / "policy.yaml" / "states"
    asked(f"{words} -y").refused(1, "the state cannot be stored", "free disk space")
    assert asked.double.changes() == []


def test_a_disk_that_is_full_in_the_middle(asked, monkeypatch):
    """If the state cannot be written before a change, the change is not made."""
    written = []

    def full(path, data, mode, **how):
        written.append(path)
        if len(written) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomically(path, data, mode, **how)

    with monkeypatch.context() as patched:
        patched.setattr(model, "write_atomically", full)
        found = asked(f"{CONVERT} -y --no-job")
    assert found.code == 1
    assert "No space left on device" in found.err
    assert "resume it with" in found.err
    assert asked(f"{CONVERT} -y --no-job").code == 0
    assert {h.mounts[DATA1] for h in asked.world.hosts.values()} == {"rdma"}


# -- no terminal


@pytest.mark.parametrize("words", ACTING)
def test_without_a_terminal_nothing_is_changed(asked, words):
    before = asked.state()
    asked(words).refused(4, "there is no terminal to ask on", "--assume-yes")
    assert asked.double.changes() == []
    assert asked.state() == before


# -- the engine

SAID = {
    "down": (ServiceUnavailableHtml(), "is not available"),
    "proxy": (Status(502, html=True), "is not available"),
    "cut": (DropConnection(), "broke"),
    "denied": (Status(403, "No permission."), "No permission"),
    "denied in HTML": (Status(403, html=True), "does not permit it"),
    "broken": (Status(500), "Internal Engine Error (HTTP 500)"),
    "empty": (Status(500, empty=True), "HTTP 500"),
    "other HTML": (Status(200, html=True), "engine's API"),
    "no type": (NoContentType(), "no Content-Type"),
    "conflict": (Conflict(), "Another operation is running"),
}
PASSING = ("down", "proxy", "cut")
# All of the API, and not the login.
API = r"^/(?!ovirt-engine/)"


def quiet(result):
    """Return stdout without the lines that differ from run to run."""
    return [line for line in result.out.splitlines() if "read at" not in line.lower()]


@pytest.mark.parametrize("verb", READING)
def test_an_engine_that_restarts_at_any_reading(asked, verb):
    double = asked.double
    well = asked(verb)
    count = len(double.requests)
    assert count > 2
    for number in range(count):
        double.fail_next("GET", API, ServiceUnavailableHtml, times=2, after=number)
        found = asked(verb)
        assert (found.code, quiet(found)) == (well.code, quiet(well))
        assert "is not available: HTTP 503" in found.err
        assert double.traps.left() == []
    assert double.changes() == []


@pytest.mark.parametrize(
    ("verb", "trouble"),
    [
        *(("hosts list", trouble) for trouble in SAID),
        *((verb, trouble) for verb in READING[1:] for trouble in ("cut", "denied")),
    ],
)
def test_an_engine_in_trouble(asked, verb, trouble):
    what, said = SAID[trouble]
    asked.double.fail_next("GET", API, what, times=9999, after=1)
    found = asked(verb)
    found.refused(1, said)
    notes = [x for x in found.err.splitlines() if x.startswith("note: ")]
    assert bool(notes) == (trouble in PASSING)


def test_an_engine_that_is_silent_for_once(asked, monkeypatch):
    def hurried(words, output):
        return dataclasses.replace(settings_of(words, output), timeout_s=0.05)

    monkeypatch.setattr(session, "settings_of", hurried)
    asked.double.fail_next("GET", "/clusters", Timeout(0.3))
    found = asked("hosts list")
    assert found.code == 0
    assert "did not answer in time; retrying" in found.err


@pytest.mark.parametrize("verb", [*READING, *ACTING])
def test_a_session_that_ends_meanwhile(asked, verb):
    words = f"{verb} -y" if verb in ACTING else verb
    asked.double.fail_next("*", API, Status(401, html=True), after=3)
    found = asked(words)
    assert found.code in (0, 3)
    assert asked.double.traps.left() == []
    assert asked.double.sso.logins > 1
    assert "note: " not in found.err


# -- incomplete changes are reported

FAULTS = {
    "broken": Status(500),
    "denied": Status(403, "No permission."),
    "down": ServiceUnavailableHtml(),
    "lost": AnswerLost(),
    "locked": Locked(),
}
# Those that change the engine.
CHANGING = ACTING[:3]
# test_conversion_work.py tests a conversion with all faults, without a session.
ONCE = [
    *((words, fault) for words in CHANGING for fault in FAULTS),
    (CONVERT, "denied"),
    (CONVERT, "lost"),
]
FOR_GOOD = [
    *((words, fault) for words in CHANGING for fault in ("broken", "down", "lost")),
    (CONVERT, "down"),
]


WAYS = (
    "manually: ",
    "not rolled back",
    "may have made the change",
    "was attached; that could not be verified",
    "resume it with",
)


HALVES = (
    "was attached; that could not be verified",
    "may have been attached; that could not be verified",
    "Network storage is on 1 of 2 hosts.",
    "Domain data1 stopped and is incomplete",
)


def is_said(found, after, before, good):
    """Whether exit code and sentences report the result correctly."""
    told = " ".join((found.err + found.out).split())
    if after == good and found.code == 0:
        return True
    if after == before:
        # 4: the engine refused the first of a conversion's changes.
        return found.code in (1, 6) or (found.code == 4 and "is as before" in told)
    if after != good and found.code == 5:
        return any(text in told for text in HALVES)
    return found.code in (1, 5) and any(way in told for way in WAYS)


@pytest.fixture(scope="module")
def well():
    """The state after each verb and the number of its changes: (state, count)."""
    return {}


def when_well(well, capsys, folder, words):
    if words not in well:
        with EngineDouble(two_hosts()) as double:
            asked = Asked(capsys, double, folder / "well")
            assert asked(f"{words} -y --no-job").code == 0
            well[words] = asked.state(), len(double.changes())
    return well[words]


@pytest.mark.parametrize(("words", "fault"), ONCE)
def test_a_change_that_fails_once(capsys, files, well, words, fault):
    good, count = when_well(well, capsys, files, words)
    for number in range(count):
        with EngineDouble(two_hosts()) as double:
            asked = Asked(capsys, double, files / str(number))
            before = asked.state()
            fail_from_change(double, number, FAULTS[fault], times=1)
            found = asked(f"{words} -y --no-job")
            assert is_said(found, asked.state(), before, good), (number, found)
            assert found.code == 0 or fault not in ("lost", "locked")
            again = asked(f"{words} -y --no-job")
            assert (again.code, asked.state()) == (0, good)
            assert double.strict_errors == []


@pytest.mark.parametrize(("words", "fault"), FOR_GOOD)
def test_an_engine_that_is_gone_in_the_middle(capsys, files, well, words, fault):
    good, count = when_well(well, capsys, files, words)
    for number in range(count):
        with EngineDouble(two_hosts()) as double:
            asked = Asked(capsys, double, files / str(number))
            before = asked.state()
            comes_back = fail_from_change(double, number, FAULTS[fault])
            found = asked(f"{words} -y --no-job")
            assert found.code in (1, 5)
            assert is_said(found, asked.state(), before, good), (number, found)
            if fault == "down":
                # It comes back, and the same command resumes or has nothing to do.
                comes_back()
                asked.world.settle()
                again = asked(f"{words} -y --no-job")
                assert (again.code, asked.state()) == (0, good)


def test_all_that_is_left_is_named(asked):
    """Including the objects after the step at which the rollback ended."""
    fail_from_change(asked.double, 2, Status(500))
    found = asked(f"{CREATE} -y --no-job")
    (row,) = [c for c in asked.world.connections.values() if c.export == NEW]
    found.refused(
        1,
        "move new to maintenance and detach it",
        f"remove the domain new, and on the server the folder {domain_id(asked)}",
        f"remove the storage connection {row.id}",
    )


def domain_id(asked):
    return asked.world.domain("new").id


def fail_from_change(double, number, what, times=9999):
    """Answer ``times`` requests from the change ``number`` on with ``what``, until the
    returned function is called.
    """
    spring, left = double.traps.spring, [times]

    def sprung(method, path):
        if len(double.changes()) > number and left[0] and re.match(API, path):
            left[0] -= 1
            return what
        return spring(method, path)

    def comes_back():
        double.traps.spring = spring

    double.traps.spring = sprung
    return comes_back
