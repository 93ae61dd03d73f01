# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``apply`` on a host, and check changes, output and refusals."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager

import pytest
from support.command_line import run
from support.host.changes_wanted import MODES, POLICY, killed_apply, modes

from ovirt_rdma.cli.host import plan, runs
from ovirt_rdma.host.changes.journal import Journal, Listener
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.system import commands
from ovirt_rdma.host.system.lock import holder_of, one_run

pytestmark = pytest.mark.hypervisor

DONE = """\
done     MODOPT-02/boot     none -> options mlx4_core log_mtts_per_seg=5
done     IPOIB-MODE-01/ib0  datagram -> connected
done     IPOIB-MODE-01/ib1  datagram -> connected
"""


def test_the_changes_are_made_shown_and_there(ready):
    source = ready.root / "p.yaml"
    result = ready("apply")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"{DONE}3 steps applied on hv1 and verified, 1 of them effective at the next "
        f"boot (run 1, policy: {source}).\nnext: ovirt-rdma-host status\n"
    )
    assert modes(ready) == ["connected", "connected"]
    assert ready("plan", "--exit-code").code == 0


def test_a_second_apply_has_nothing_to_do(ready):
    ready("apply")
    before = under(ready.root, JOURNAL).read_bytes()
    result = ready("apply")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Nothing to do on hv1: no change is planned (")
    assert under(ready.root, JOURNAL).read_bytes() == before


def test_what_could_not_be_read_is_said(ready):
    # Without it a step may be missing in the plan, which must not go unnoticed.
    ready.fake.write("/sys/class/net/ib1/mtu", "")
    result = ready("apply")
    assert "note: /sys/class/net/ib1/mtu " in result.err
    document = ready("apply", "-o", "json").document
    assert any("/sys/class/net/ib1/mtu" in note for note in document["notes"])


def test_document(ready):
    document = ready("apply", "-o", "json").document
    assert (document["schema_version"], document["kind"]) == (1, "apply")
    assert (document["run"], document["outcome"]) == (1, "done")
    assert document["steps"][1] == {
        "id": "IPOIB-MODE-01/ib0",
        "outcome": "done",
        "before": "datagram",
        "after": "connected",
    }
    assert (document["left"], document["refused"], document["notes"]) == ([], [], [])
    assert document["confirm_by"] is None


def test_no_policy(changeable):
    changeable("apply").refused(1, "no policy is loaded", "fix: write ", "policy load")
    assert not under(changeable.root, JOURNAL).exists()


def test_users_of_a_netdev_are_named_and_nothing_is_done(ready):
    ready.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    ready("apply").refused(
        4, "IPOIB-MODE-01/ib0", "nfs: 10.0.0.1:/data at /mnt/data", "fix: put the host"
    )
    assert modes(ready) == ["datagram", "datagram"]
    assert not under(ready.root, JOURNAL).exists()


def test_live_only(ready):
    ready.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    result = ready("apply", "--live-only")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["left", "IPOIB-MODE-01/ib0"],
        ["left", "IPOIB-MODE-01/ib1"],
        ["done", "MODOPT-02/boot"],
    ]
    assert "; 2 left (run 1, " in lines[3]
    assert lines[4] == "fix: put the host into maintenance, then: ovirt-rdma-host apply"
    assert modes(ready) == ["datagram", "datagram"]
    again = ready("apply", "--live-only").out
    assert "Nothing was changed on hv1: 2 steps left.\n" in again


def test_a_link_may_go_down_where_that_is_allowed(ready):
    ready.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    assert ready("apply", "--allow-link-down").code == 0
    assert modes(ready) == ["connected", "connected"]


def test_what_a_rule_refuses_is_listed_and_not_done(ready):
    ready.fake.network_manager()
    for name in ("ib0", "ib1"):
        ready.fake.nm_device(name, "disconnected")
    why = "ib0 has the address 10.0.0.2/24, which is in no profile"
    document = ready("plan", "-o", "json").document
    result = ready("apply", "-o", "json")
    assert result.code == 0
    (refused,) = result.document["refused"]
    assert refused == {"id": "IPOIB-MODE-01/ib0", "why": why}
    done = [step["id"] for step in result.document["steps"]]
    planned = [step["id"] for step in document["steps"] if not step["refused"]]
    assert done == planned
    again = ready("apply")
    assert again.out.splitlines()[0] == f"refused  IPOIB-MODE-01/ib0  {why}"
    assert "\nNothing to do on hv1: 1 step refused.\n" in again.out


def test_a_value_that_does_not_stick(ready):
    ready.fake.ignored.add(MODES.format("ib1"))
    result = ready("apply")
    assert (result.code, result.err) == (6, "")
    *done, verdict, next_ = result.out.splitlines()
    assert [line.split()[0] for line in done] == ["done", "done"]
    assert verdict.startswith("IPOIB-MODE-01/ib1 ")
    for part in ("mode of ib1", "connected", "datagram", "as before"):
        assert part in verdict
    assert next_ == "next: ovirt-rdma-host check"
    assert modes(ready) == ["datagram", "datagram"]
    assert not under(ready.root, "/etc/modprobe.d/ovirt-rdma.conf").exists()


def test_the_document_of_a_run_that_was_rolled_back(ready):
    ready.fake.ignored.add(MODES.format("ib1"))
    result = ready("apply", "-o", "json")
    assert result.code == 6
    document = result.document
    assert document["outcome"] == "rolled back"
    assert {step["outcome"] for step in document["steps"]} == {"rolled back"}
    assert document["sentence"].startswith("IPOIB-MODE-01/ib1 ")


def test_what_could_not_be_taken_back_is_named(ready):
    fake, effects = ready.fake, ready.fake.effects
    fake.ignored.add(MODES.format("ib1"))

    def failing():
        host = effects()
        undo = host.undo

        def no_undo(act):
            if "ib0" in act.changes[0].target:
                fake.refusals[MODES.format("ib0")] = errno.EROFS
            undo(act)

        host.undo = no_undo
        return host

    fake.effects = failing
    result = ready("apply")
    assert result.code == 1
    assert "IPOIB-MODE-01/ib0 mode of ib0: " in result.out
    assert "\nfix: " in result.out
    assert result.out.endswith("next: ovirt-rdma-host status\n")
    assert "changes   1 step applied" in ready("status").out


@pytest.mark.parametrize("verb", ["apply", "revert", "confirm"])
def test_another_run_holds_the_lock(ready, verb):
    with one_run(ready.root):
        ready(verb).refused(75, "another run of ovirt-rdma-host is changing")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_not_root(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    for words in (["apply"], ["confirm"], ["revert"], ["unit", "recover"]):
        run(capsys, *words).refused(
            1, f"only root can change this host: {' '.join(words)}", "fix: run"
        )


def test_a_damaged_journal_stops_everything(ready):
    under(ready.root, JOURNAL).write_text("{\n{\n")
    ready("apply").refused(1, "journal.json: it is not JSON", "fix: ")
    ready("revert").refused(1, "journal.json: it is not JSON")
    ready("confirm").refused(1, "journal.json: it is not JSON")
    assert modes(ready) == ["datagram", "datagram"]


# An interrupted run


@pytest.fixture
def interrupted(ready):
    """A host on which apply was killed while it was setting the mode of ib1."""
    killed_apply(ready)
    assert modes(ready) == ["connected", "datagram"]
    return ready


def test_the_next_apply_takes_it_back_first_and_says_so(interrupted):
    shown = interrupted("status")
    assert "interrupted  run 1\n" in shown.out
    assert "Run 1 was interrupted.\nfix: ovirt-rdma-host apply" in shown.out
    result = interrupted("apply")
    assert result.code == 0
    assert "run 1 was interrupted" in result.err
    assert result.out.startswith(DONE)
    assert modes(interrupted) == ["connected", "connected"]


def test_so_does_revert(interrupted):
    result = interrupted("revert")
    assert result.code == 0
    assert "run 1 was interrupted" in result.err
    assert result.out == "Nothing to revert on hv1.\n"
    assert modes(interrupted) == ["datagram", "datagram"]


def test_so_does_the_unit_at_boot(interrupted):
    interrupted.fake.reboot()
    result = interrupted("unit", "recover")
    assert result.code == 0
    assert "run 1 was interrupted" in result.err
    assert modes(interrupted) == ["datagram", "datagram"]
    assert not Journal(interrupted.root).ledger().applied
    assert interrupted("unit", "recover").err == ""


# Saved plans


@pytest.fixture
def saved(ready):
    file = ready.root / "plan.json"
    assert ready("plan", "--out", str(file)).code == 0
    return file


def test_a_saved_plan_is_done(ready, saved):
    result = ready("apply", str(saved))
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(DONE)


def test_a_value_that_has_changed_since(ready, saved):
    ready.fake.write("/sys/class/net/ib0/mode", "connected")
    ready("apply", str(saved)).refused(
        4,
        "Nothing was changed.",
        "IPOIB-MODE-01/ib0 is no longer planned",
        f": ovirt-rdma-host plan --out {saved}",
    )
    assert modes(ready) == ["connected", "datagram"]


def test_a_plan_of_another_policy(ready, saved):
    ready.follow(POLICY.replace("5}", "6}"))
    ready("apply", str(saved)).refused(4, "the plan is for policy sha256:")


def test_an_edited_plan_has_nothing_else_done(ready, saved):
    plan = json.loads(saved.read_text())
    plan["steps"][0]["changes"][0]["target"] = "/etc/shadow"
    saved.write_text(json.dumps(plan))
    ready("apply", str(saved)).refused(4, "MODOPT-02/boot would make other changes")
    assert not under(ready.root, "/etc/shadow").exists()


def test_no_plan_file(ready):
    ready("apply", str(ready.root / "no.json")).refused(1, "No such file", "fix: give")


def test_what_is_still_planned_after_the_run_is_rolled_back(ready, monkeypatch):
    really, looks = HostReader.facts, []

    def forgetful(self, routes_to=()):
        looks.append(really(self, routes_to))
        # The second reading is the verification: it still shows the old values.
        return looks[0]

    monkeypatch.setattr(HostReader, "facts", forgetful)
    result = ready("apply")
    assert result.code == 6
    assert len(looks) == 2
    assert "was done, and is still planned; all is as before." in result.out
    assert modes(ready) == ["datagram", "datagram"]


@pytest.fixture
def interrupted_and_used(interrupted):
    """The same, with a mount over ib0 since then, whose link would go down."""
    interrupted.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    return interrupted


@pytest.mark.parametrize("words", [["apply"], ["revert"], ["confirm"]])
def test_with_users_by_now_it_is_not_taken_back(interrupted_and_used, words):
    host = interrupted_and_used
    before = under(host.root, JOURNAL).read_bytes()
    for _ in range(2):
        host(*words).refused(
            4,
            "run 1 was interrupted",
            "10.0.0.1:/data",
            "--allow-link-down",
        )
    assert modes(host) == ["connected", "datagram"]
    assert under(host.root, JOURNAL).read_bytes() == before


@pytest.mark.parametrize(
    ("words", "then"), [(["apply"], ["connected"] * 2), (["revert"], ["datagram"] * 2)]
)
def test_with_users_by_now_it_is_taken_back_where_that_is_allowed(
    interrupted_and_used, words, then
):
    host = interrupted_and_used
    result = host(*words, "--allow-link-down")
    assert result.code == 0
    assert "run 1 was interrupted" in result.err
    assert modes(host) == then


# The host is read before the lock is taken


@pytest.fixture
def reads(monkeypatch):
    """One entry per reading of the whole host: True if the lock was taken."""
    found = []
    really = HostReader.facts

    def facts(self, routes_to=()):
        found.append(holder_of(self._tree.root) is not None)
        return really(self, routes_to)

    monkeypatch.setattr(HostReader, "facts", facts)
    return found


def test_the_lock_is_held_for_the_proof_only(ready, reads):
    assert ready("apply").code == 0
    assert reads == [False, True]
    reads.clear()
    assert ready("revert").code == 0
    assert reads == [False]


def test_a_host_is_read_anew_after_what_was_taken_back(interrupted, reads):
    assert interrupted("apply").code == 0
    # Before, after run 1 was rolled back, and for the verification.
    assert reads == [False, True, True]
    assert modes(interrupted) == ["connected", "connected"]


def test_and_after_a_run_that_came_between(ready, monkeypatch):
    """A rollback of this run restores its values."""
    really, calls = one_run, []

    @contextmanager
    def after_another(root, **more):
        if not calls:
            calls.append(1)
            assert ready("apply", "--live-only").code == 0
        with really(root, **more):
            yield

    monkeypatch.setattr(plan, "one_run", after_another)
    result = ready("apply")
    assert result.code == 0
    assert "MODOPT-02/boot" not in result.out
    assert modes(ready) == ["connected", "connected"]


def test_a_dry_run_shows_what_plan_shows(ready):
    planned, result = ready("plan"), ready("apply", "--dry-run", "--live-only")
    assert "IPOIB-MODE-01/" in planned.out
    assert (result.code, result.out) == (planned.code, planned.out)
    assert modes(ready) == ["datagram", "datagram"]


def test_a_tool_that_is_slow_on_a_busy_host_is_waited_for(monkeypatch, tmp_path):
    """An unread fact would be a missing step."""
    monkeypatch.setattr(runs, "TOOLS", None)
    host = runs.ThisHost("/", "apply", Listener())
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.0)
    assert host.run is not None
    assert host.run(["true"]) == ""
    assert host.run.keywords["timeout_s"] > 10  # seen: systemctl show, load of ten
    # Below another root no tools are run.
    assert runs.ThisHost(str(tmp_path), "apply", Listener()).run is None
