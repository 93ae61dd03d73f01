# SPDX-License-Identifier: GPL-2.0-or-later
"""Each dry run and refusal of a verb that changes things ends with one sentence."""

from __future__ import annotations

import shlex

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.auth import READ_ONLY_ADMIN
from engine_double.faults import Status
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder

pytestmark = pytest.mark.engine

THE_SENTENCE = "Nothing was changed."
POLICY = (
    "version: 1\nnfs:\n  rules:\n  - {server: nfs1.example.com, "
    "path: /exports/data1, transport: prefer-rdma}\n"
)
VERBS = [
    "network create lan --datacenter dc1 --mtu 2044",
    "network attach ovirtmgmt --hosts '*' --nic-match ib0 --addresses 10.2.0.11/24",
    "domain create new --export nfs2.example.com:/exports/new --datacenter dc1",
    "domain convert data1 --to rdma --rolling",
    "domain revert data1",
    "domain heal",
    "policy push policy.yaml --hosts '*'",
    "hosts prepare --by ssh --again",
]
# Of these, the sample has nothing to do, or no record.
REFUSED_AT_ONCE = ("domain revert data1", "network attach")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "states"
    monkeypatch.setattr(cli_session, "conversion_states", lambda: StateFolder(folder))
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    for host in world.hosts.values():
        host.policy_text = POLICY
    with EngineDouble(world) as double:

        def run(words, *more):
            door = DoubleDoor(world)
            return run_engine(capsys, double, door, *shlex.split(words), *more)

        run.double = double
        yield run


def last_line(text):
    """Return the last line that is no fix."""
    return [line for line in text.splitlines() if not line.startswith("fix: ")][-1]


@pytest.mark.parametrize("words", VERBS)
def test_a_dry_run(run, words):
    done = run(words, "--dry-run")
    shown = done.err if words.startswith(REFUSED_AT_ONCE) else done.out
    assert last_line(shown) == THE_SENTENCE, done
    assert run.double.changes() == []


@pytest.mark.parametrize("words", VERBS)
def test_without_a_terminal_to_ask_on(run, words):
    done = run(words)
    assert done.code in (3, 4), done
    assert last_line(done.err) == THE_SENTENCE, done
    assert done.err.count(THE_SENTENCE) == 1
    assert run.double.changes() == []


@pytest.mark.parametrize("words", VERBS)
def test_without_the_permission_to_read(run, words):
    run.double.fail_next("GET", "/hosts", Status(403, "Not permitted"), times=9)
    done = run(words, "-y")
    assert done.code == 1
    assert last_line(done.err) == THE_SENTENCE, done


# Of these, the changes are on hosts, over SSH.
NOT_IN_THE_ENGINE = ("policy push policy.yaml --hosts '*'", VERBS[-1])


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("-y",)])
@pytest.mark.parametrize("words", [v for v in VERBS if v not in NOT_IN_THE_ENGINE])
def test_a_user_who_may_only_read(run, words, more):
    run.double.world.roles["admin@ovirt@internalsso"] = READ_ONLY_ADMIN
    done = run(words, *more)
    done.refused(3, "this user may read the engine and change nothing", "SuperUser")
    assert last_line(done.err) == THE_SENTENCE, done
    assert run.double.changes() == []


# After the first change of hosts, if there is one.
MAY_NOT = {
    VERBS[0]: 1,
    VERBS[2]: 1,
    VERBS[3]: 6,
    f"{VERBS[3]} --engine-options": 4,
}


@pytest.mark.parametrize(("words", "code"), MAY_NOT.items(), ids=MAY_NOT)
def test_a_user_who_may_not_make_the_first_change(run, words, code):
    denied = Status(403, "User is not authorized to perform this action.")
    for method in ("POST", "PUT"):
        at = "/(clusters/.*|storageconnections.*|networks)"
        run.double.fail_next(method, at, denied, times=9)
    done = run(words, "-y")
    assert done.code == code
    shown = " ".join(done.out.split() or done.err.split())
    assert "says: User is not authorized to perform this action" in shown
    assert "use a user with an administrator's role (SuperUser)" in shown
    if code == 1:
        assert last_line(done.err) == THE_SENTENCE, done
    policies = {host.policy_text for host in run.double.world.hosts.values()}
    assert policies == {POLICY}
    assert not run.double.world.connection_of("data1").mount_options


def test_permissions_that_cannot_be_read_refuse_nobody(run):
    run.double.fail_next("GET", "/users/.*", Status(403, "No"))
    assert run(VERBS[0], "-y").code == 0


def test_after_the_first_change_it_is_not_said(run):
    run.double.fail_next("POST", "/clusters/.*/networks", Status(409, "No"))
    done = run(VERBS[0], "-y")
    assert done.code == 6, done
    assert THE_SENTENCE not in done.err


def test_in_json_it_is_one_form(run):
    done = run("domain convert data1 --to rdma --rolling", "-o", "json")
    *_, last, fix = done.events
    assert (last["sentence"], fix["event"]) == (THE_SENTENCE, "fix")
    assert len(done.events) == len(done.err.splitlines())


def test_a_verb_that_only_reads_does_not_say_it(run):
    assert "Nothing was changed" not in run("domain verify data9").err
