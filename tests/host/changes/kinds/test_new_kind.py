# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a kind of change is one class: one that is made up here goes through
everything that the kinds of the product go through.
"""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.host.effects_host import Told, apply_steps, recover, revert
from support.host.memory_host import Killed
from support.problems import problem

from ovirt_rdma.cli.host.runs import describe_changes
from ovirt_rdma.host.changes.journal import (
    DONE,
    ROLLED_BACK,
    Journal,
)
from ovirt_rdma.host.changes.kinds import registry
from ovirt_rdma.host.changes.kinds.kind import (
    EffectFailed,
    Kind,
    Reading,
)
from ovirt_rdma.host.changes.plan import (
    diff,
    gate,
)
from ovirt_rdma.host.changes.run import change_status
from ovirt_rdma.host.rules.base import LIVE, Change, Step

pytestmark = pytest.mark.hypervisor


class Sysctl(Kind):
    """A kernel setting below /proc/sys."""

    name = "sysctl"
    is_volatile = True

    def values(self):
        known = re.fullmatch(r"sunrpc\.[a-z_]{1,40}", self.change.target)
        return r"[0-9]{1,6}" if known else None

    def describe(self):
        return f"the kernel setting {self.change.target}"

    def manual_fix(self, value):
        return f"sysctl {self.change.target}={value}"

    def read(self, host):
        path = self._path(host)
        return Reading(path.read_text().strip() if path.exists() else None)

    def do(self, host):
        self._write(host, self.change.after)

    def undo(self, host):
        before = self.change.before
        if before is not None and self.read(host).value != before:
            self._write(host, before)

    def is_gone(self, host):
        return not self._path(host).exists()

    def _path(self, host):
        return host.path(f"/proc/sys/{self.change.target.replace('.', '/')}")

    def _write(self, host, value):
        try:
            host.write(self._path(host), value.encode() + b"\n")
        except OSError as error:
            raise EffectFailed("sysctl-not-set", f"it cannot be set: {error}") from None


SLOTS = "sunrpc.rdma_slot_table_entries"
CHANGE = Change("sysctl", SLOTS, "128", "256")
STEP = Step(
    *("NFSRDMA-09", "sunrpc", "allow more requests", "128", "256", LIVE),
    *("more at a time", "the number is set back"),
    changes=(CHANGE,),
)


@pytest.fixture
def host(host, monkeypatch):
    monkeypatch.setattr(registry, "KINDS", (*registry.KINDS, Sysctl))
    host.write(f"/proc/sys/{SLOTS.replace('.', '/')}", "128")
    host.kernel_write = lambda path, data: path.write_bytes(data)
    return host


def present(host):
    return (host.path / "proc/sys" / SLOTS.replace(".", "/")).read_text().strip()


def applied(host, steps=(STEP,)):
    journal, facts = Journal(host.path), host.reader().facts()
    steps = gate(steps, allow_link_down=False).steps
    return apply_steps(host.effects(), journal, steps, Told(), facts)


def test_it_is_planned_applied_verified_and_reverted(host):
    said = f"the kernel setting {SLOTS}: 128 -> 256"
    assert list(diff(STEP.changes)) == [said]
    result = applied(host)
    assert (result.outcome, present(host)) == (DONE, "256")

    journal = Journal(host.path)
    (entry,) = journal.ledger().applied
    assert list(describe_changes(entry)) == [f"the kernel setting {SLOTS}: 128 -> 256"]
    assert change_status(host.effects(), journal).ledger.applied_steps == (STEP.id,)
    result = revert(host.effects(), journal, host.reader().facts(), Told())
    assert (result.outcome, present(host)) == (DONE, "128")
    assert journal.ledger().applied == ()


def test_a_value_that_the_kernel_does_not_accept_is_rolled_back(host):
    host.kernel_write = lambda path, data: path.write_bytes(b"250\n")
    result = applied(host)
    assert f"the kernel setting {SLOTS} was set to 256, and is 250" in result.sentence
    assert [left.fix for left in result.left] == [f"sysctl {SLOTS}=128"]


def test_a_failure_is_rolled_back(host):
    def refuse(path, data):
        raise OSError(5, "Input/output error")

    host.kernel_write = refuse
    result = applied(host)
    assert (result.outcome, present(host)) == (ROLLED_BACK, "128")


def test_a_killed_run_is_rolled_back(host):
    def kill(path, data):
        path.write_bytes(data)
        raise Killed

    host.kernel_write, kept = kill, host.kernel_write
    with pytest.raises(Killed):
        applied(host)
    assert present(host) == "256"
    host.kernel_write = kept
    journal = Journal(host.path)
    result = recover(host.effects(), journal, 0, Told())
    assert (result.outcome, present(host)) == (ROLLED_BACK, "128")


def test_what_somebody_else_has_set_is_noticed(host):
    applied(host)
    host.write(f"/proc/sys/{SLOTS.replace('.', '/')}", "300")
    journal = Journal(host.path)
    (why,) = change_status(host.effects(), journal).kept
    assert f"the kernel setting {SLOTS} was changed since" in why
    revert(host.effects(), journal, host.reader().facts(), Told())
    assert present(host) == "300"


@pytest.mark.parametrize(
    "change", [Change("sysctl", "kernel.core_pattern", "core", "|/bin/sh"), CHANGE]
)
def test_what_it_does_not_allow_is_refused(host, change, monkeypatch):
    if change is CHANGE:  # a version without that kind reads the journal
        monkeypatch.setattr(registry, "KINDS", registry.KINDS[:-1])
    steps = [replace(STEP, changes=(change,))]
    with problem("change-not-allowed", "is not something that ovirt-rdma changes"):
        applied(host, steps=steps)
    assert present(host) == "128"


def test_a_present_value_that_no_undo_could_restore_is_refused(host):
    host.write(f"/proc/sys/{SLOTS.replace('.', '/')}", "many")
    journal = Journal(host.path)
    steps = [replace(STEP, changes=(replace(CHANGE, before=None),))]
    with problem("change-not-allowed", "'many' is not a valid value for sunrpc."):
        applied(host, steps=steps)
    assert (present(host), journal.ledger().runs) == ("many", ())


PRODUCT = Path(registry.__file__).parents[3]


@pytest.mark.parametrize("folder", ["host/changes", "host/services", "cli/host"])
def test_nobody_else_asks_for_the_kind_of_a_change(folder):
    """What depends on it is a method of the kind, so that a new one is complete."""
    assert [
        f"{path.name}:{node.lineno}"
        for path in sorted((PRODUCT / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Compare)
        and {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        & {"SYSFS", "PROFILE", "OFFLOAD", "FILE", "MODULE", "UNIT"}
    ] == []
