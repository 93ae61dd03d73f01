# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the journal file: always whole, damage is seen, only a file of ours."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.effects_host import Told
from support.problems import problem

from ovirt_rdma.host.changes.journal import (
    Journal,
    JournalProblem,
    JournalWriter,
    Ledger,
    Run,
)
from ovirt_rdma.host.changes.kinds.kind import AtomicChange, Place
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.rules.base import Change

pytestmark = pytest.mark.hypervisor

AT = "2026-11-21T10:00:00Z"


def change(run=1, number=0, **parts):
    set_mtu = Change("sysfs", "/sys/class/net/ib0/mtu", "2044", "4092", clamped=True)
    place = Place("ib0", "0002:c903:00fb:1231", "0xffff", "0000:04:00.0", 1)
    return AtomicChange(
        *("IPOIB-MTU-01/ib0", "live", (set_mtu,), None, place, False),
        *(run, number, "boot"),
        **parts,
    )


BEGUN = Run(1, "apply", AT, "umlaut ü, \udcff", "sha256:0", 1700000000)
DONE = replace(BEGUN, acts=(change(found=("4092",)),), outcome="done", ended=AT)
BACK = change(found=("4092",), undoing=(None,), undoing_run=2, undone_by=2, why="why")
REVERT = Run(2, "revert", AT, only="IPOIB-MTU-01/ib0")
LEDGER = Ledger((replace(DONE, confirmed=AT, acts=(BACK,)), REVERT))


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path)


def _written(journal, ledger=LEDGER):
    journal.write(ledger)
    return journal.path.read_bytes()


def test_what_was_written_is_read(journal):
    assert journal.ledger() == Ledger()
    _written(journal)
    assert journal.ledger() == LEDGER
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o755


def test_the_form_is_stable(journal):
    """Later versions must read what this one writes."""
    document = json.loads(_written(journal))
    (found,) = document["runs"][0]["acts"]
    keys = [" ".join(part) for part in (document, document["runs"][0], found)]
    assert keys == [
        "schema_version kind digest runs",
        "number verb at by policy confirm_by only acts confirmed outcome ended "
        "sentence",
        "step effect changes uuid place lasting run number boot found undoing "
        "undoing_run undone_by why",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["not JSON"]),
        (b"not json", ["not JSON"]),
        (b"[" * 100000, [""]),
        (b"[]", ["an array, not an object"]),
        (b'{"kind":"plan"}', ["kind is 'plan'"]),
        (
            b'{"kind":"journal","schema_version":2,"new":1}',
            ["a newer version of ovirt-rdma (schema version 2"],
        ),
        (
            b'{"kind":"journal","schema_version":0}',
            ["an older version of ovirt-rdma (schema version 0"],
        ),
        (b'{"kind":"journal","schema_version":1,"runs":[]}', ["digest"]),
    ],
)
def test_damage_is_said_and_nothing_is_lost(journal, text, words):
    _written(journal)
    journal.path.write_bytes(text)
    with problem("journal-damaged", journal.path, *words) as caught:
        journal.ledger()
    assert caught.value.fix
    assert caught.value.exit_code == 1
    assert journal.path.read_bytes() == text


def test_no_flipped_bit_changes_what_is_known(journal):
    """For each bit, the content that was written is read, or none."""
    whole, refused = _written(journal), 0
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        journal._bytes = lambda data=bytes(flipped): data
        try:
            found = journal.ledger()
        except JournalProblem as wrong:
            refused += 1
            assert str(wrong).isprintable()
        else:
            assert found == LEDGER, bytes(flipped)
    assert refused > 8 * len(whole) - 10


def test_a_part_of_it_is_never_taken_for_the_whole(journal):
    whole = _written(journal)
    for length in range(len(whole) - 1):
        journal._bytes = lambda n=length: whole[:n]
        with pytest.raises(JournalProblem):
            journal.ledger()


@given(st.binary(max_size=200))
def test_garbage_gives_a_sentence(tmp_path_factory, data):
    journal = Journal(tmp_path_factory.mktemp("garbage"))
    journal.path.parent.mkdir(parents=True)
    journal.path.write_bytes(data)
    with pytest.raises(JournalProblem) as caught:
        journal.ledger()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("known", [LEDGER, None])
@pytest.mark.parametrize("synced", [0, 1])
def test_what_cannot_be_written_leaves_the_journal_as_it_was(
    journal, monkeypatch, synced, known
):
    """Also if the document is there already, and only its name is not on disk."""
    if known:
        _written(journal)
    calls = []

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == synced + 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    journal.path.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(JournalProblem, match=r"cannot be written: .*No space"):
        journal.write(Ledger((BEGUN,)))
    monkeypatch.undo()
    assert journal.ledger() == (known or Ledger())
    assert len(list(journal.path.parent.iterdir())) == bool(known)


def test_it_is_on_disk_and_then_its_name(journal, monkeypatch):
    """A power cut must not remove a record for which a change was made."""
    synced = []
    fsync = os.fsync

    def recorded(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    _written(journal)
    file, folder = synced
    assert file.parent == folder == journal.path.parent


def test_no_link_is_followed(journal, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_text("theirs")
    _refuses_odd_file(journal, lambda path: path.symlink_to(foreign), "symbolic link")
    assert foreign.read_text() == "theirs"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_something_else_in_its_place_is_said_at_once(journal, make):
    _refuses_odd_file(journal, make, "regular file")


def _refuses_odd_file(journal, make, words):
    journal.path.parent.mkdir(parents=True)
    make(journal.path)
    for use in (journal.ledger, lambda: journal.write(LEDGER)):
        with problem("journal-unreadable", words):
            use()


def test_what_others_could_have_written_is_not_believed(journal, monkeypatch):
    """Root makes the changes that the journal has."""
    _written(journal)
    for mode in (0o660, 0o602):
        journal.path.chmod(mode)
        with problem("journal-unreadable", journal.path, "write to it"):
            journal.ledger()
    journal.path.chmod(0o600)
    assert journal.ledger() == LEDGER
    monkeypatch.setattr(os, "geteuid", lambda: 36)
    if journal.path.stat().st_uid == 0:
        os.chown(journal.path, 65534, -1)
    with pytest.raises(JournalProblem, match=r"it belongs to the user \d+, not"):
        journal.ledger()


def test_who_may_not_read_it_is_told_so(journal, monkeypatch):
    def denied(*words):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    sentence = f"{journal.path} may be read by root only"
    with problem("not-root") as caught:
        journal.ledger()
    fix = "run this command as root"
    assert (str(caught.value), caught.value.fix) == (sentence, fix)


def test_the_ledger_says_what_is_applied_and_what_is_open():
    confirmed = replace(DONE, confirmed=AT)
    for runs, applied, interrupted, awaiting, following in (
        ((), 0, None, None, 1),
        ((BEGUN,), 0, 1, None, 2),
        ((replace(BEGUN, acts=(change(),)),), 1, 1, None, 2),
        ((DONE,), 1, None, 1, 2),
        ((confirmed,), 1, None, None, 2),
        ((confirmed, REVERT), 1, 2, None, 3),
        (LEDGER.runs, 0, 2, None, 3),
        ((LEDGER.runs[0], replace(REVERT, outcome="done")), 0, None, None, 3),
    ):
        ledger = Ledger(runs)
        number = lambda run: run and run.number  # noqa: E731
        assert len(ledger.applied) == applied
        assert number(ledger.interrupted) == interrupted
        assert number(ledger.awaiting) == awaiting
        assert ledger.next_run == following


def test_a_change_gets_its_new_state_and_others_stay():
    two = Ledger((DONE, replace(BEGUN, number=2)))
    added = two.with_changes([change(2, 0), change(2, 1), BACK])
    assert [run.acts for run in added.runs] == [(BACK,), (change(2, 0), change(2, 1))]
    one = change(2, 0, found=("1500",))
    assert added.with_changes([one]).runs[1].acts == (one, change(2, 1))


@st.composite
def _ledgers(draw):
    runs, number = [], 0
    for _ in range(draw(st.integers(0, 12))):
        number += draw(st.integers(1, 3))
        undone = st.sampled_from([None, number])
        count = draw(st.integers(0, 2))
        acts = tuple(change(number, n, undone_by=draw(undone)) for n in range(count))
        outcome = draw(st.sampled_from(["done", "rolled back", None]))
        runs.append(replace(BEGUN, number=number, acts=acts, outcome=outcome))
    return Ledger(tuple(runs))


@given(_ledgers(), st.integers(0, 4))
def test_compaction_drops_old_runs_of_which_nothing_is_applied(whole, newest):
    few = whole.compacted(newest)
    kept = {run.number for run in few.runs}
    assert few.applied == whole.applied
    assert few.interrupted == whole.interrupted
    assert {run.number for run in whole.runs[len(whole.runs) - newest :]} <= kept
    dropped = [run for run in whole.runs if run.number not in kept]
    assert not any(run.applied or run.outcome is None for run in dropped)
    if newest and whole.runs:
        assert few.next_run == whole.next_run


def test_the_next_run_shortens_a_long_journal(journal):
    runs = [replace(BEGUN, number=n, outcome="done") for n in range(2, 302)]
    journal.write(Ledger((DONE, *runs)))
    JournalWriter(journal, Told()).begin(replace(BEGUN, number=302))
    ledger = journal.ledger()
    assert [run.number for run in ledger.runs] == [1, *range(202, 303)]
    assert ledger.applied == DONE.acts


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "var").write_text("a file in place of the folder")
    with problem("journal-unreadable", under(tmp_path, JOURNAL)):
        Journal(tmp_path).ledger()
    with pytest.raises(JournalProblem):
        Journal(tmp_path).write(LEDGER)
