# SPDX-License-Identifier: GPL-2.0-or-later
"""Run domain convert, revert and heal, from the command line to the engine double."""

from __future__ import annotations

import contextlib

import ovirtsdk4
import pytest
from engine_double import (
    EngineDouble,
    SimConnection,
    SimDomain,
    new_id,
    sample_world,
)
from engine_double.host_life import stop_responding
from engine_double.jobs import add as add_job
from engine_double.jobs import jobs_of
from ovirtsdk4 import types
from support.engine.engine_command_line import Result, run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

EXPORT = "nfs1.example.com:/exports/data1"
ROLLING = ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y")


@pytest.fixture(autouse=True)
def state_files(tmp_path, monkeypatch):
    """States are stored here, not in root's folder."""
    folder = tmp_path / "states"
    monkeypatch.setattr(cli_session, "conversion_states", lambda: StateFolder(folder))
    return folder


class Site:
    """A double with hosts, and the command that uses it."""

    def __init__(self, capsys, double, world):
        self._capsys = capsys
        self.double = double
        self.world = world
        self.door = DoubleDoor(world)

    def run(self, *words: str) -> Result:
        result = run_engine(self._capsys, self.double, self.door, *words)
        assert self.double.strict_errors == []
        return result

    def transports(self, export: str = EXPORT):
        return [host.mounts.get(export) for host in self.world.hosts.values()]


@pytest.fixture
def site(capsys):
    """Return a function that makes sites."""
    with contextlib.ExitStack() as open_ones:

        def make(**words) -> Site:
            world = sample_world(
                **{"hosts": 2, "domains": ("data1",), "addon": True, **words}
            )
            double = open_ones.enter_context(EngineDouble(world))
            return Site(capsys, double, world)

        yield make


def test_convert_rolling_and_revert(site):
    made = site()
    done = made.run(*ROLLING, "-o", "json")
    assert done.code == 0, done
    assert done.document["stage"] == "converted"
    assert set(made.transports()) == {"rdma"}
    row = made.world.connection_of("data1")
    assert row.mount_options == "proto=rdma,port=20049"
    (event,) = [e for e in made.world.log.events if e.origin == "ovirt-rdma"]
    assert event.description == "ovirt-rdma: domain data1 is converted to RDMA"
    again = made.run(*ROLLING)
    assert (again.code, again.out) == (0, "Nothing to do: data1 is on RDMA.\n")
    back = made.run("domain", "revert", "data1", "-y")
    assert back.code == 0, back
    assert "Domain data1 is mounted as before." in back.out
    assert set(made.transports()) == {"tcp"}
    assert not made.world.connection_of("data1").mount_options
    assert "Nothing to do: data1 is as before" in (
        made.run("domain", "revert", "data1", "-y").out
    )


def test_a_dry_run_shows_every_call_and_policy_and_changes_nothing(site, state_files):
    made = site()
    shown = made.run(*ROLLING, "--dry-run").out
    assert not made.double.changes()
    assert not state_files.exists()
    order = [line for line in shown.splitlines() if line[:1].isdigit()]
    assert order[:4] == [
        "1. pushing the policy to host02",
        "2. marking cluster cl1 as being upgraded",
        "3. moving host02 to maintenance",
        "4. activating host02",
    ]
    assert order[-3] == "7. activating host01"
    assert order[-1] == "9. ending the mark of cluster cl1"
    center = made.world.data_center("dc1").id
    assert f"<correlation_id>ovirt-rdma-{center}</correlation_id>" in shown
    assert "PUT /storageconnections/" in shown
    assert "?force=true" in shown
    assert "transport: require-rdma" in shown
    document = made.run(*ROLLING, "--dry-run", "-o", "json").document
    assert [c["doing"] for c in document["calls"]] == [x[3:].strip() for x in order]


def test_offline(site):
    made = site(domains=("data1",), iso=False)
    words = ("domain", "convert", "data1", "--to", "rdma", "-y")
    made.run(*words).refused(4, "takes the whole data center down", "--rolling")
    done = made.run(*words, "--allow-datacenter-down", "--no-job")
    assert done.code == 0, done
    assert set(made.transports()) == {"rdma"}
    made.world.domain("data1").running_vms = ["vm1"]
    back = ("domain", "revert", "data1", "-y")
    made.run(*back).refused(3, "data1 is in use by running virtual machines: vm1")
    assert made.world.domain("data1").status == "active"


def test_some_hosts_done_some_not(site):
    made = site(hosts=3)
    made.door.fail_push["host03"] = "the disk is full"
    done = made.run(*ROLLING)
    assert done.code == 5, done
    assert "the disk is full" in done.out
    assert made.transports() == ["tcp", "rdma", "tcp"]
    made.door.fail_push.clear()
    assert made.run(*ROLLING).code == 0
    assert set(made.transports()) == {"rdma"}


def test_the_command_that_is_shown_goes_on(site):
    """Also if the data center has no other domain."""
    made = site(hosts=3, iso=False)
    made.door.fail_push["host03"] = "the disk is full"
    done = made.run(*ROLLING, "--policy-rule", "prefer-rdma")
    shown = "domain convert data1 --to rdma --rolling --policy-rule prefer-rdma"
    assert f"next: ovirt-rdma {shown}" in " ".join(done.out.split())
    made.door.fail_push.clear()
    done = made.run(*ROLLING[:-2], "--batch", "2", "-y")
    assert done.code == 0, done
    assert f"with the options of its first run: ovirt-rdma {shown}" in (
        " ".join(done.err.split())
    )
    assert set(made.transports()) == {"rdma"}


def cut_off(made, monkeypatch, *words):
    """A rolling conversion, or ``words``, interrupted at its first activation."""

    def interrupted(self, call, **words):
        if call.method == "activate":
            raise KeyboardInterrupt
        return perform(self, call, **words)

    perform = Session.perform
    with monkeypatch.context() as patched:
        patched.setattr(Session, "perform", interrupted)
        done = made.run(*(words or ROLLING))
    assert done.code == 130, done
    return done


@pytest.mark.parametrize("more", [(), ("--no-job",)])
def test_interrupted_it_says_which_hosts_are_away_and_keeps_its_task(
    site, monkeypatch, more
):
    made = site()
    done = cut_off(made, monkeypatch)
    said = " ".join(done.err.split())
    assert "host02 is in maintenance for this run" in said
    assert (
        "resume it with 'ovirt-rdma domain convert data1 --to rdma --rolling'" in said
    )
    assert "revert it with 'ovirt-rdma domain revert data1'" in said
    (job,) = jobs_of(made.world).values()
    assert job.status == "started"
    *_, last = job.steps.values()
    assert "host02 is in maintenance for this run" in last.description
    # The next run resumes with the same job, or ends it.
    assert made.run(*ROLLING, *more).code == 0
    assert [one.status for one in jobs_of(made.world).values()] == ["finished"]


def test_a_run_that_was_cut_off_is_named_by_what_its_domain_is_called_now(
    site, monkeypatch
):
    made = site(domains=("data1", "data2"))
    made.world.connection_of("data2").address = "nfs2.example.com"
    for host in made.world.hosts.values():
        host.mounts["nfs2.example.com:/exports/data2"] = host.mounts.pop(
            "nfs1.example.com:/exports/data2"
        )
    cut_off(made, monkeypatch)
    made.world.domain("data1").name = "new"
    other = ("domain", "convert", "data2", *ROLLING[3:])
    made.run(*other).refused(4, "ovirt-rdma domain convert new --to rdma")


def test_all_offenders_are_named(site):
    made = site(hosts=4)
    made.world.host("host01").status = "non_operational"
    made.world.host("host02").addon = False
    made.world.host("host03").rdma_ready = False
    made.world.host("host04").status = "down"
    made.world.host("host04").reachable = False
    done = made.run(*ROLLING)
    done.refused(3, "host01 is non-operational", "host02", "host03", "host04 is down")
    assert not made.double.changes()


def test_machines_that_cannot_go_are_named_before_any_change(site):
    made = site(domains=("data1", "data2"))
    there = made.world.host("host02")
    there.vms, there.pinned_vms = ["vm1", "vm2"], ["vm2"]
    words = ("domain", "convert", "data1", "data2", "--to", "rdma", "-y")
    made.run(*words, "--rolling").refused(3, "pinned to it: vm2", "--without host02")
    made.world.cluster("cl1").upgrade_in_progress = True
    made.run(*words, "--rolling").refused(3, "cluster cl1 is being upgraded")
    made.world.cluster("cl1").upgrade_in_progress = False
    made.world.domain("data2").running_vms = ["vm1", "vm2"]
    made.run(*words, "--allow-datacenter-down").refused(3, "vm1, vm2")
    assert not made.double.changes()


def test_a_host_that_is_down_is_left_out_by_name(site):
    made = site(hosts=3)
    there = made.world.host("host03")
    there.status, there.reachable, there.mounts = "down", False, {}
    made.run(*ROLLING).refused(3, "host03 is down", "--without host03")
    assert not made.double.changes()
    done = made.run(*ROLLING, "--without", "host03")
    assert done.code == 0, done
    assert "warning: host03 is left out and was not checked" in done.err
    assert "Domain data1 is converted to RDMA, without host03." in done.out
    assert "left out" in done.out
    again = "next: ovirt-rdma domain convert data1 --to rdma --rolling"
    assert again in " ".join(done.out.split())
    (host,) = [
        one
        for one in made.run(*ROLLING, "--without", "host03", "-o", "json").document[
            "hosts"
        ]
        if one["host"] == "host03"
    ] or [None]
    assert host is None or host["outcome"] == "left out"


def test_a_take_over_that_is_refused_ends_nobodys_task(site, tmp_path, monkeypatch):
    made = site()
    cut_off(made, monkeypatch)
    monkeypatch.setattr(
        cli_session, "conversion_states", lambda: StateFolder(tmp_path / "elsewhere")
    )
    made.world.host("host01").rdma_ready = False
    assert made.run(*ROLLING, "--take-over").code == 3
    assert made.run(*ROLLING[:-1], "--take-over").code in (3, 4)
    assert [job.status for job in jobs_of(made.world).values()] == ["started"]


def test_a_host_that_is_not_there_is_not_left_out(site):
    made = site()
    made.run(*ROLLING, "--without", "host9").refused(3, "--without host9")


def test_the_engines_own_reason_is_shown(site):
    """The response has none, but the events have."""
    made = site(hosts=3)
    there = made.world.host("host02")
    there.vms, there.unscheduled_vms = ["vm1", "vm2"], ["vm1"]
    done = made.run(*ROLLING)
    assert done.code == 6, done
    assert "HTTP 400" not in done.err
    assert "cannot be switched to maintenance: not all goes away" in done.err
    assert "host02 is not evacuated: 1 virtual machine stayed on it" in done.out
    assert "Domain data1 is as before" in done.out
    assert there.policy_text == ""
    assert {host.status for host in made.world.hosts.values()} == {"up"}


def test_other_domains_of_the_server_hold_the_connection(site):
    made = site(domains=("data1", "data2"))
    made.run(*ROLLING).refused(
        3, "uses one connection for all NFS 4.2 mounts", "convert them together"
    )
    both = ("domain", "convert", "data1", "data2", *ROLLING[3:])
    assert made.run(*both).code == 0
    assert set(made.transports("nfs1.example.com:/exports/data2")) == {"rdma"}


def test_what_cannot_be_converted(site):
    made = site(hosted_engine=True)
    posix = SimConnection(new_id("p"), "posixfs", "nas", "/p", vfs_type="nfs")
    made.world.connections[posix.id] = posix
    centre = made.world.data_center("dc1").id
    made.world.domains["p"] = SimDomain(
        "p", "posix1", "data", "posixfs", posix.id, centre, "active"
    )
    words = ("--to", "rdma", "--rolling", "-y")
    refused = made.run("domain", "convert", "hosted_storage", *words)
    refused.refused(4, "hosted engine's domain", "--set-shared-config")
    refused.refused(4, "--get-shared-config", "put it into maintenance in the engine")
    refused = made.run("domain", "convert", "posix1", *words)
    refused.refused(4, "of type posixfs", "create an NFS domain")
    made.run("domain", "convert", "data", *words).refused(2, "did you mean data1?")


def test_another_run_here_and_elsewhere(site, state_files):
    made = site()
    centre = made.world.data_center("dc1").id
    with StateFolder(state_files).only_run(centre):
        made.run(*ROLLING).refused(75, "another run")
    domain = made.world.domain("data1").id
    user, password = next(iter(made.world.passwords.items()))
    connection = ovirtsdk4.Connection(made.double.url, user, password)
    text = f"ovirt-rdma: convert domain data1 to rdma ({domain})"
    job = types.Job(description=text, auto_cleared=True)
    connection.system_service().jobs_service().add(job)
    connection.close()
    made.run(*ROLLING).refused(75, "open task", "--take-over")
    assert made.run(*ROLLING, "--take-over").code == 0


def test_a_broken_state_file_is_left_and_said(site, state_files):
    made = site()
    assert made.run(*ROLLING).code == 0
    (path,) = state_files.glob("*.json")
    broken = path.read_text().replace('"to": "rdma"', '"to": "tcp"')
    path.write_text(broken)
    made.run("domain", "revert", "data1", "-y").refused(1, str(path), "keep a copy")
    path.write_text(broken[:100])
    made.run(*ROLLING).refused(1, "is not JSON")
    assert path.read_text() == broken[:100]


def with_the_package(made):
    """The add-on's command is on each host, and nothing of it is enabled."""
    for host in made.world.hosts.values():
        host.more["package"] = True


def test_by_the_engines_options_without_the_add_on(site):
    made = site(addon=False)
    words = (*ROLLING, "--engine-options")
    # Without the package nothing can be proven.
    made.run(*words).refused(3, "ovirt-rdma-host is missing on")
    with_the_package(made)
    done = made.run(*words)
    assert done.code == 0, done
    assert "reboots" in done.err
    assert "not proven" not in done.out
    assert set(made.transports()) == {"rdma"}
    made.run(*ROLLING, "--without", "host02").refused(3, "the add-on is not enabled")


def degraded(made: Site) -> None:
    """A third host stayed on RDMA."""
    policy = (
        "version: 1\nnfs:\n  rules:\n"
        "    - {server: nfs1.example.com, transport: prefer-rdma}\n"
    )
    for host in made.world.hosts.values():
        host.policy_text = policy
        host.mounts[EXPORT] = "rdma"
    for name in ("host01", "host03"):
        made.world.host(name).mounts[EXPORT] = "tcp"


def test_heal(site):
    made = site(hosts=3)
    assert made.run("domain", "heal", "-y").out.startswith("Nothing to do: no mount is")
    degraded(made)
    done = made.run("domain", "heal", "-y")
    assert done.code == 0, done
    assert set(made.transports()) == {"rdma"}
    moved = [seen for seen in made.double.changes() if "deactivate" in seen.path]
    ids = [made.world.host(name).id for name in ("host03", "host01")]
    assert [seen.path.split("/")[2] for seen in moved] == ids


def test_heal_leaves_what_maintenance_would_not_mend(site):
    made = site(hosts=3)
    degraded(made)
    made.world.host("host01").rdma_ready = False
    done = made.run("domain", "heal", "data1", "-y")
    assert done.code == 3, done
    assert "host01: not remounted: the RDMA port" in done.err
    assert "left as they are: host01: not remounted" in " ".join(done.out.split())
    assert made.transports() == ["tcp", "rdma", "rdma"]
    done = made.run("domain", "heal", "data1", "-y")
    assert done.code == 3


def test_heal_of_the_rest_is_not_good_while_a_host_is_unknown(site):
    made = site(hosts=3)
    degraded(made)
    made.world.host("host01").addon = False
    done = made.run("domain", "heal", "-y")
    assert done.code == 3, done
    assert made.transports() == ["tcp", "rdma", "rdma"]
    assert "host01: its mounts are unknown" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"status": "unknown"}, "it is in an unknown status"),
        ({"status": "inactive"}, "it is inactive"),
        ({"status": "locked"}, "it is locked"),
        ({"storage_type": "posixfs"}, "it is of type posixfs"),
    ],
)
def test_heal_names_the_degraded_mounts_that_it_does_not_remount(site, there, why):
    made = site(hosts=3)
    degraded(made)
    for name, value in there.items():
        setattr(made.world.domain("data1"), name, value)
    if "storage_type" in there:
        row = made.world.connection_of("data1")
        row.type, row.vfs_type, row.mount_options = "posixfs", "nfs", "proto=rdma"
    made.run("domain", "heal", "-y").refused(3, "host03, host01: data1", why)
    for host in made.world.hosts.values():
        host.mounts[EXPORT] = "rdma"
    assert made.run("domain", "heal", "-y").out.startswith("Nothing to do: no mount is")


def test_heal_continues_only_what_is_named_and_as_many_at_a_time(site, monkeypatch):
    made = site(hosts=5, domains=("data1", "data2"))
    made.world.connection_of("data2").address = "nfs2.example.com"
    degraded(made)
    for host in made.world.hosts.values():
        host.mounts[EXPORT] = "tcp"
    heal = ("domain", "heal", "data1", "-y")
    cut_off(made, monkeypatch, *heal, "--batch", "2")
    changes = len(made.double.changes())
    made.run("domain", "heal", "data2", "-y").refused(4, "ovirt-rdma domain heal data1")
    assert len(made.double.changes()) == changes
    away = []

    def count(seen):
        away.append({h.name for h in made.world.hosts.values() if h.status != "up"})

    made.double.on_change = count
    assert made.run(*heal).code == 0
    assert set(made.transports()) == {"rdma"}
    assert {"host04"} in away
    assert {"host04", "host05"} not in away


def test_heal_leaves_hosts_with_pinned_machines(site):
    made = site(hosts=3)
    degraded(made)
    there = made.world.host("host03")
    there.vms, there.pinned_vms = ["vm1", "vm2"], ["vm2"]
    done = made.run("domain", "heal", "-y")
    # The verb has no --without.
    done.refused(3, "host03 has", "pinned to it: vm2; stop them")
    assert "--without" not in done.err
    assert not made.double.changes()


def test_heal_waits_for_a_conversion_elsewhere(site):
    made = site(hosts=3)
    degraded(made)
    text = f"ovirt-rdma: convert domain data1 to rdma ({made.world.domain('data1').id})"
    add_job(made.world, text)
    made.run("domain", "heal", "-y").refused(75, "open task", "--take-over")
    assert made.run("domain", "heal", "-y", "--take-over").code == 0


def test_heal_stops_where_it_does_not_help(site):
    made = site(hosts=3)
    degraded(made)
    made.world.export(EXPORT).rdma = False
    done = made.run("domain", "heal", "-y")
    assert done.code == 6, done
    assert "Heal of data1 failed and was rolled back: on host03" in done.out
    assert "the heal is rolled back" in done.err
    assert "conversion" not in done.out + done.err
    assert made.world.host("host03").status == "up"
    assert made.transports() == ["tcp", "rdma", "tcp"]


def two_data_centers(site):
    """Two data centers with a host that has fallen back; no one knows the second."""
    made = site(hosts=4, default_data_center=True)
    world = made.world
    degraded(made)
    (other,) = (c for c in world.clusters.values() if c.name == "Default")
    world.data_centers[other.data_center].status = "up"
    row = SimConnection(new_id("row2"), "nfs", "nas2", "/data2", nfs_version="v4_2")
    world.connections[row.id] = row
    domain = SimDomain(
        new_id("data2"), "data2", "data", "nfs", row.id, other.data_center, "active"
    )
    world.domains[domain.id] = domain
    world.export(row.export).domain = domain.id
    there = world.host("host04")
    there.cluster, there.mounts = other.id, {row.export: "rdma"}
    return made


def test_heal_of_two_data_centers_is_one_document(site):
    made = two_data_centers(site)
    done = made.run("domain", "heal", "-y", "-o", "json")
    assert done.code == 0, done
    assert done.document["kind"] == "domain-heal"
    parts = {p["data_center"]: p["stage"] for p in done.document["data_centers"]}
    assert parts == {"dc1": "converted", "Default": "nothing to do"}


def test_a_data_center_that_is_refused_does_not_keep_off_the_next(site):
    made = two_data_centers(site)
    add_job(made.world, f"ovirt-rdma: x ({made.world.domain('data1').data_center})")
    done = made.run("domain", "heal", "-y", "-o", "json")
    assert done.code == 75, done
    first, second = done.document["data_centers"]
    assert (first["data_center"], second["stage"]) == ("dc1", "nothing to do")
    assert "open task" in first["sentences"][0]
    assert (
        "ovirt-rdma: dc1: the engine has an open task"
        in made.run("domain", "heal", "-y").err
    )


def test_after_the_revert_of_a_removed_domain_the_next_command_works(site):
    made = site()
    assert made.run(*ROLLING).code == 0
    domain = made.world.domain("data1")
    del made.world.connections[domain.connection]
    del made.world.domains[domain.id]
    for host in made.world.hosts.values():
        host.mounts.clear()
    done = made.run("domain", "revert", "data1", "-y")
    assert done.code == 0, done
    assert "next: ovirt-rdma hosts check" in done.out


def test_a_second_one_that_failed_does_not_hide_the_first_from_a_revert(site):
    made = site(hosts=3)
    late = made.world.hosts.pop(made.world.host("host03").id)
    assert made.run(*ROLLING, "--no-job").code == 0
    made.world.hosts[late.id] = late
    made.door.fail_push["host03"] = "the disk is full"
    done = made.run(*ROLLING, "--no-job")
    assert "the disk is full" in done.out, done
    assert made.transports() == ["rdma", "rdma", "tcp"]
    made.door.fail_push.clear()
    done = made.run("domain", "revert", "data1", "-y", "--no-job")
    assert done.code == 0, done
    assert set(made.transports()) == {"tcp"}
    assert not made.world.connection_of("data1").mount_options
    assert (
        "Nothing to do: data1 is as before."
        in made.run("domain", "revert", "data1", "-y", "--no-job").out
    )


def test_why_the_status_of_a_domain_is_unknown(site):
    made = site()
    stop_responding(made.world, made.world.host("host01"))
    made.run(*ROLLING).refused(
        3,
        "data1 is in an unknown status because data center dc1 is problematic, and "
        "host01 is non-responsive",
    )
