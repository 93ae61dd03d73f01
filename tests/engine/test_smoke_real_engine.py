# SPDX-License-Identifier: GPL-2.0-or-later
"""A smoke run of the command against a real engine, and what is made is removed again.

    OVIRT_RDMA_TEST_URL=https://engine.example.com OVIRT_RDMA_TEST_ALLOW_CHANGES=1 \\
    OVIRT_RDMA_TEST_USERNAME=admin@internal OVIRT_RDMA_TEST_PASSWORD=... \\
    OVIRT_RDMA_TEST_CAFILE=ca.pem .venv/bin/pytest -rs -k real tests/engine

OVIRT_RDMA_TEST_DATACENTER names the data center, else it is that of a host that is up.
OVIRT_RDMA_TEST_EXPORT=SERVER:/PATH is an empty export; a storage domain is made there
over TCP (OVIRT_RDMA_TEST_TRANSPORT=rdma: over RDMA), and removed with its files. The
same functions run against the double, so that they are right when they are needed.
"""

from __future__ import annotations

import io
import os
import secrets
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest import mock

import pytest
from engine_command_line import Clock, Result, access, run_engine
from engine_door import DoubleDoor
from engine_double import Conflict, EngineDouble, sample_world
from engine_sessions import open_session

from ovirt_rdma.cli.engine_command import main
from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.engine_errors import MISSING, EngineProblem
from ovirt_rdma.engine_sdk_tools.engine_facts import Engine
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.settings import Flags, from_sources

MAINTENANCE_S = 600.0
NO_ENGINE = (
    "no real engine: set OVIRT_RDMA_TEST_URL and OVIRT_RDMA_TEST_ALLOW_CHANGES=1"
)


def given(name):
    return os.environ.get(f"OVIRT_RDMA_TEST_{name}") or None


@dataclass(frozen=True)
class Site:
    """An engine, as the smoke run sees it. ``run`` runs the command; ``name`` is what
    is made called; ``before`` the engine as it was.
    """

    run: object
    session: Session
    before: Engine
    center: str
    name: str
    export: str | None = None
    transport: str = "tcp"

    def now(self):
        return read_engine(self.session, networks=True)

    def clean_up(self):
        """Remove what has our name, however far the run came. Raises for what stays."""
        for network in self.now().networks:
            if network.name == self.name:
                self._act(f"networks/{network.id}", "remove", {})
        for domain in self.now().domains:
            if domain.name == self.name:
                self._remove(domain)
        had = {row.id for row in self.before.connections}
        for row in self.now().connections:
            if row.export == self.export and row.id not in had:
                self._act(f"storageconnections/{row.id}", "remove", {})

    def _remove(self, domain):
        if domain.data_center:
            path = f"datacenters/{domain.data_center}/storagedomains/{domain.id}"
            if domain.status != "maintenance":
                self._act(path, "deactivate", {})
            read = Read(path, "reading the domain", "get")
            self.session.wait_until(read, is_down, "maintenance", MAINTENANCE_S)
            self._act(path, "remove", {})
        up = next(h for h in self.before.hosts if h.status == "up")
        words = {"host": up.name, "format": True}
        self._act(f"storagedomains/{domain.id}", "remove", words)

    def _act(self, path, method, words):
        call = Call(path, method, f"cleaning up {path}", words, self.name)
        try:
            self.session.perform(call)
        except EngineProblem as problem:
            if problem.kind != MISSING:
                raise


def is_down(found):
    word = str(getattr(found.status, "value", ""))
    return True if word in ("maintenance", "unattached") else None


def site_of(run, session, **more):
    engine = read_engine(session, networks=True)
    up = next((h for h in engine.hosts if h.status == "up"), None)
    if up is None:
        pytest.skip("the engine has no host that is up")
    center = given("DATACENTER")
    if center is None:
        cluster = next(c for c in engine.clusters if c.id == up.cluster)
        found = (d for d in engine.data_centers if d.id == cluster.data_center)
        center = next(found).name
    name = f"smoke-{secrets.token_hex(3)}"
    return Site(run, session, engine, center, name, **more)


# -- what is tried


def reads(site):
    hosts = site.run("hosts", "list", "-o", "json")
    assert hosts.code == 0
    assert {h["name"] for h in hosts.document["hosts"]} == {
        h.name for h in site.before.hosts
    }
    domains = site.run("domain", "list", "-o", "json")
    assert domains.code == 0
    on_files = {d.name for d in site.before.domains if d.storage_type == "nfs"}
    assert on_files <= {d["name"] for d in domains.document["domains"]}
    gate = site.run("gate", "status", "-o", "json")
    assert gate.code == 0
    assert {c["cluster"] for c in gate.document["clusters"]} == {
        c.name for c in site.before.clusters
    }


def matrices(site):
    for words in (("hosts", "check"), ("domain", "verify")):
        shown = site.run(*words, "-o", "json")
        assert shown.code in (0, 3), shown
        rows, columns = shown.document["rows"], shown.document["columns"]
        assert len(shown.document["cells"]) == len(rows)
        assert {len(line) for line in shown.document["cells"]} <= {len(columns)}


def a_network(site):
    words = ("network", "create", site.name, "--datacenter", site.center)
    words += ("--mtu", "1500")
    planned = site.run(*words, "--dry-run", "-o", "json")
    assert planned.code == 0, planned
    assert site.name not in {n.name for n in site.now().networks}
    made = site.run(*words, "--assume-yes")
    assert made.code == 0, made
    network = next(n for n in site.now().networks if n.name == site.name)
    assert (network.vm, network.mtu or 1500) == (False, 1500)
    again = site.run(*words, "--assume-yes")
    assert "nothing to do" in again.out


def a_domain(site):
    if site.export is None:
        pytest.skip("no domain is made without OVIRT_RDMA_TEST_EXPORT")
    words = ("domain", "create", site.name, "--export", site.export)
    words += ("--datacenter", site.center, "--transport", site.transport)
    planned = site.run(*words, "--dry-run", "-o", "json")
    assert planned.code == 0, planned
    made = site.run(*words, "--assume-yes", "-o", "json")
    assert made.code == 0, made
    domain = next(d for d in site.now().domains if d.name == site.name)
    assert (domain.status, domain.connection.export) == ("active", site.export)
    assert domain.id == made.document["id"]
    verified = site.run("domain", "verify", site.name, "-o", "json")
    assert verified.code in (0, 3)
    assert [c["name"] for c in verified.document["columns"]] == [site.name]


SMOKE = (reads, matrices, a_network, a_domain)


# -- against a real engine


@pytest.fixture
def real(capsys):
    yield from real_site(capsys)


def real_site(capsys):
    """Yield the engine of OVIRT_RDMA_TEST_URL; remove after it what was made there."""
    if given("URL") is None or given("ALLOW_CHANGES") != "1":
        pytest.skip(NO_ENGINE)
    environment = {"XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": "1"}
    for word in ("URL", "USERNAME", "PASSWORD", "CAFILE"):
        if given(word) is not None:
            environment[f"OVIRT_{word}"] = str(given(word))

    def run(*words):
        capsys.readouterr()
        silent = mock.patch.object(sys, "stdin", io.StringIO(""))
        with silent, mock.patch.dict(os.environ, environment):
            code = main(words)
        return Result(code, *capsys.readouterr())

    with Session(from_sources(Flags(), environment, None)) as session:
        more = {"export": given("EXPORT")}
        if given("TRANSPORT") is not None:
            more["transport"] = given("TRANSPORT")
        site = site_of(run, session, **more)
        with ExitStack() as at_end:
            at_end.callback(site.clean_up)
            yield site


@pytest.mark.parametrize("act", SMOKE)
def test_on_a_real_engine(act, real):
    act(real)


# -- against the double


@pytest.fixture
def pretended(capsys):
    """The double in place of a real engine, and a way to its hosts."""
    with EngineDouble(sample_world(hosts=2, addon=True, iscsi=True)) as double:
        door = DoubleDoor(double.world)
        with open_session(double, Clock()) as session:

            def run(*words):
                return run_engine(capsys, double, door, *words)

            export = "nfs2.example.com:/exports/empty"
            site = site_of(run, session, export=export)
            yield site, double
        assert double.strict_errors == []


def left(double):
    """What tells whether something stayed."""
    world = double.world
    return (
        {n.name for n in world.networks.values()},
        {c.id: sorted(c.networks) for c in world.clusters.values()},
        {(d.name, d.status) for d in world.domains.values()},
        {row.export for row in world.connections.values()},
        {h.name: (h.status, dict(h.mounts)) for h in world.hosts.values()},
    )


@pytest.mark.parametrize("act", SMOKE)
def test_the_smoke_run_cleans_up(act, pretended):
    site, double = pretended
    before = left(double)
    act(site)
    site.clean_up()
    assert left(double) == before
    site.clean_up()  # and again does no harm


@pytest.mark.parametrize("act", [a_network, a_domain])
def test_a_smoke_run_that_breaks_off_cleans_up(act, pretended):
    site, double = pretended
    before = left(double)

    def dies_after_making(*words):
        done = site.run(*words)
        if "--assume-yes" in words:
            assert left(double) != before
            raise KeyboardInterrupt
        return done

    with pytest.raises(KeyboardInterrupt):
        act(replace(site, run=dies_after_making))
    site.clean_up()
    assert left(double) == before


def test_what_cannot_be_cleaned_up_is_said(pretended):
    site, double = pretended
    a_network(site)
    double.fail_next("DELETE", "/networks/", Conflict("Cannot remove Network."))
    with pytest.raises(EngineProblem, match="Cannot remove Network"):
        site.clean_up()


def test_the_way_to_a_real_engine_is_the_one_of_the_command(pretended, capsys):
    """What the fixture ``real`` gives, with the double for an engine."""
    _, double = pretended
    words = access(double)
    environment = {
        "OVIRT_RDMA_TEST_URL": words["OVIRT_URL"],
        "OVIRT_RDMA_TEST_ALLOW_CHANGES": "1",
        "OVIRT_RDMA_TEST_USERNAME": words["OVIRT_USERNAME"],
        "OVIRT_RDMA_TEST_PASSWORD": words["OVIRT_PASSWORD"],
    }
    before = left(double)
    with mock.patch.dict(os.environ, environment):
        sites = real_site(capsys)
        found = next(sites)
        for act in (reads, matrices, a_network):
            act(found)
        assert left(double) != before
        with pytest.raises(pytest.skip.Exception, match="OVIRT_RDMA_TEST_EXPORT"):
            a_domain(found)
        assert next(sites, None) is None
    assert left(double) == before


@pytest.mark.parametrize("lacking", ["URL", "ALLOW_CHANGES"])
def test_without_both_words_no_engine_is_touched(lacking, capsys):
    environment = {
        "OVIRT_RDMA_TEST_URL": "http://127.0.0.1:1",
        "OVIRT_RDMA_TEST_ALLOW_CHANGES": "1",
    }
    environment[f"OVIRT_RDMA_TEST_{lacking}"] = ""
    skipped = pytest.raises(pytest.skip.Exception, match=NO_ENGINE)
    with mock.patch.dict(os.environ, environment), skipped:
        next(real_site(capsys))
