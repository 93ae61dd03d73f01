# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the journal file: always readable, no half records, only a file of ours."""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import problem

from ovirt_rdma.host.changes.journal import (
    Journal,
    JournalProblem,
    compacted,
    line_of,
    record_in,
)
from ovirt_rdma.host.changes.kinds.model import (
    AtomicChange,
    Begin,
    Confirmed,
    Doing,
    Done,
    End,
    Place,
    Undoing,
    Undone,
)
from ovirt_rdma.host.changes.ledger import Ledger, fold
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.rules.base import Change
from ovirt_rdma.host.system.json_document import WrongRecord

pytestmark = pytest.mark.hypervisor

AT = "2026-11-21T10:00:00Z"


def act(step="IPOIB-MTU-01/ib0", name="mtu", before="2044"):
    change = Change("sysfs", f"/sys/class/net/ib0/{name}", before, "4092", clamped=True)
    place = Place("ib0", "0002:c903:00fb:1231", "0xffff", "0000:04:00.0", 1)
    return AtomicChange(
        step, "live", "umlaut ü, \udcff", (change,), (before,), None, place, False
    )


RECORDS = (
    Begin(1, "apply", AT, "boot", "ovirt-rdma-host apply", "sha256:0", 1700000000),
    Doing(1, 0, act()),
    Done(1, 0, ("4092",)),
    End(1, "done", AT, "1 step done"),
    Confirmed(1, AT),
    Begin(2, "revert", AT, "boot", only="IPOIB-MTU-01/ib0"),
    Undoing(1, 0, 2, (None,)),
    Undone(1, 0, 2, "why"),
    End(2, "done", AT),
)


def unchecked(line: bytes) -> bytes:
    """Return a line without its checksum."""
    return re.sub(rb'^\{"crc32":"[0-9a-f]{8}",', b"{", line)


def checked(text: bytes) -> bytes:
    """Return a line with ``text``, as another version may have written it."""
    return b'{"crc32":"%08x",%b' % (zlib.crc32(text), text[1:])


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path)


def _written(journal, records=RECORDS):
    for record in records:
        journal.append(record)
    return journal.path.read_bytes()


def test_what_was_noted_is_read(journal):
    assert journal.records() == ()
    _written(journal)
    assert journal.records() == RECORDS
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o755


def test_the_form_is_stable():
    """Later versions must read what this one writes."""
    lines = [line_of(record) for record in RECORDS]
    assert lines[3].decode() == (
        '{"crc32":"62cdde2f","record":"end","run":1,"outcome":"done",'
        '"at":"2026-11-21T10:00:00Z","sentence":"1 step done"}\n'
    )
    assert [unchecked(line).decode() for line in lines[3:]] == [
        '{"record":"end","run":1,"outcome":"done","at":"2026-11-21T10:00:00Z",'
        '"sentence":"1 step done"}\n',
        '{"record":"confirmed","run":1,"at":"2026-11-21T10:00:00Z"}\n',
        '{"record":"begin","run":2,"verb":"revert","at":"2026-11-21T10:00:00Z",'
        '"boot":"boot","by":"","policy":"","confirm_by":null,'
        '"only":"IPOIB-MTU-01/ib0","schema_version":1}\n',
        '{"record":"undoing","run":1,"number":0,"by_run":2,"to":[null]}\n',
        '{"record":"undone","run":1,"number":0,"by_run":2,"why":"why"}\n',
        '{"record":"end","run":2,"outcome":"done","at":"2026-11-21T10:00:00Z",'
        '"sentence":""}\n',
    ]
    doing = json.loads(line_of(RECORDS[1]))
    assert list(doing) == ["crc32", "record", "run", "number", "act"]
    assert list(doing["act"]) == [
        "step",
        "effect",
        "reason",
        "changes",
        "before",
        "uuid",
        "place",
        "lasting",
    ]
    assert [record_in(line[:-1]) for line in lines] == list(RECORDS)


def test_a_last_line_torn_at_any_byte_is_cut_off(journal):
    whole = _written(journal)
    *_, last = whole.splitlines(keepends=True)
    for length in range(len(last)):
        torn = whole[: len(whole) - len(last) + length]
        journal.path.write_bytes(torn)
        assert journal.records() == RECORDS[:-1]
        assert journal.path.read_bytes() == torn, "a reader changes nothing"
        journal.append(RECORDS[-1])
        assert journal.path.read_bytes() == whole


def test_a_torn_tail_of_zeros_is_cut_off(journal):
    """As some file systems leave it after a power cut."""
    whole = _written(journal)
    journal.path.write_bytes(whole + b'{"record":' + bytes(4000))
    assert journal.records() == RECORDS
    journal.append(Begin(3, "apply", AT, "boot"))
    assert journal.records()[:-1] == RECORDS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not json", ["line 10: ", "checksum"]),
        (b"", ["line 10: ", "checksum"]),
        (unchecked(line_of(RECORDS[2]))[:-1], ["line 10: ", "checksum"]),
        (checked(b"{not json"), ["line 10: ", "JSON"]),
        (checked(b"{" + b"[" * 100000), ["line 10: ", "JSON"]),
        (checked(b'{"a":' + b"[" * 100000), ["line 10: ", "nested"]),
        (checked(b'{"record":"wish","run":1}'), ["line 10: ", "'wish'"]),
        (checked(b'{"record":["a"],"run":1}'), ["line 10: ", "['a']"]),
        (checked(b'{"record":"end","run":"1"}'), ["line 10: ", "outcome"]),
        (checked(b'{"record":"end","run":1,"x":1}'), ["line 10: x "]),
        (
            checked(b'{"record":"begin","schema_version":2,"new":1}'),
            ["line 10: ", "a newer version of ovirt-rdma (schema version 2"],
        ),
        (
            checked(unchecked(line_of(RECORDS[0])).replace(b'n":1}', b'n":0}')[:-1]),
            ["line 10: ", "an older version of ovirt-rdma (schema version 0"],
        ),
        (
            line_of(RECORDS[2]).replace(b"4092", b"4093")[:-1],
            ["line 10: ", "checksum"],
        ),
        (line_of(Begin(3, "wish", AT, "boot"))[:-1], ["line 10: ", "verb is 'wish'"]),
        (line_of(End(2, "won", AT))[:-1], ["line 10: ", "outcome is 'won'"]),
        (line_of(RECORDS[0])[:-1], ["run 1 begins after run 2"]),
        (line_of(End(9, "done", AT))[:-1], ["run 9 ", "beginning"]),
        (line_of(Done(1, 7))[:-1], ["run 1 ", "change 7"]),
        (line_of(Doing(1, 7, act()))[:-1], ["run 1 ", "missing"]),
    ],
)
def test_any_other_damage_is_said_and_nothing_is_lost(journal, line, words):
    damaged = _written(journal) + line + b"\n"
    journal.path.write_bytes(damaged)
    with problem("journal-damaged", journal.path, *words) as caught:
        journal.ledger()
    assert caught.value.fix
    assert caught.value.exit_code == 1
    assert journal.path.read_bytes() == damaged


def test_no_flipped_bit_changes_what_is_known():
    """For each bit of each line, the record that was written is read, or none."""
    refused = 0
    for record in RECORDS:
        line = line_of(record)[:-1]
        for bit in range(8 * len(line)):
            flipped = bytearray(line)
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                found = record_in(bytes(flipped))
            except WrongRecord as wrong:
                refused += 1
                assert str(wrong).isprintable()
            else:
                assert found == record, bytes(flipped)
    assert refused > 10000


def test_no_flipped_bit_makes_one_line_of_two_or_two_of_one_unseen(journal):
    """If the last record were removed as torn, its run would count as interrupted."""
    whole = _written(journal)
    ends = [at for at, byte in enumerate(whole) if byte == 0x0A]
    near = [(at, bit) for at in ends for bit in range(8)]
    near += [
        (at, bit)
        for at, byte in enumerate(whole)
        for bit in range(8)
        if byte ^ 1 << bit in (0x0A, 0x0D)
    ]
    assert len(near) > 8 * len(RECORDS)
    for at, bit in near:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << bit
        journal.path.write_bytes(flipped)
        for use in (journal.ledger, lambda: journal.append(RECORDS[-1])):
            try:
                use()
            except JournalProblem as problem:
                assert problem.fix
            else:
                # Only reading checks more than the end.
                assert use != journal.ledger and at < ends[-1]
                journal.path.write_bytes(flipped)
            assert journal.path.read_bytes() == flipped, (at, bit)


def test_each_line_is_json_for_any_reader():
    """RFC 8259 does not define the meaning of a key that is there twice."""
    for record in RECORDS:
        pairs = json.loads(line_of(record), object_pairs_hook=list)
        assert pairs[0][0] == "crc32"
        assert len(dict(pairs)) == len(pairs)


def test_a_checksum_counts_at_the_front_and_in_one_form_only():
    line, checksum = line_of(RECORDS[3])[:-1].decode(), '"crc32":"62cdde2f"'
    plainly = unchecked(line.encode()).decode()
    assert line == f"{{{checksum},{plainly[1:]}"
    for wrong in (
        plainly,
        plainly.replace("}", f",{checksum}}}"),
        line.replace("62cdde2f", "62CDDE2F"),
        line.replace('"62cdde2f"', "1657658927"),
        line.replace('{"', '{ "'),
        line.replace("{", f"{{{checksum},"),
    ):
        with pytest.raises(WrongRecord):
            record_in(wrong.encode())


@given(st.binary(max_size=200))
def test_garbage_gives_records_or_a_sentence(tmp_path_factory, data):
    journal = Journal(tmp_path_factory.mktemp("garbage"))
    journal.path.parent.mkdir(parents=True)
    journal.path.write_bytes(data)
    try:
        journal.ledger()
    except JournalProblem as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize("when", ["write", "half", "sync"])
def test_a_full_disk_leaves_the_journal_as_it_was(journal, monkeypatch, when):
    known = _written(journal)
    write = os.pwrite

    def full(descriptor, data, offset):
        if when == "half" and len(data) > 20:
            return write(descriptor, data[:20], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    def unsynced(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    if when == "sync":
        monkeypatch.setattr(os, "fsync", unsynced)
    else:
        monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(JournalProblem, match=r"be written: (No space|Input)"):
        journal.append(Begin(3, "apply", AT, "boot"))
    monkeypatch.undo()
    assert journal.path.read_bytes() == known


def test_each_record_is_on_disk_and_a_new_journal_has_its_name_there(
    journal, monkeypatch
):
    """A power cut must not remove a record for which a change was made."""
    synced = []
    fsync = os.fsync

    def recorded(descriptor):
        lines = journal.path.read_bytes().count(b"\n")
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), lines))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    _written(journal, RECORDS[:2])
    file, folder = str(journal.path), str(journal.path.parent)
    assert synced == [(file, 1), (folder, 1), (file, 2)]


def test_no_link_is_followed(journal, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_text("theirs")
    journal.path.parent.mkdir(parents=True)
    journal.path.symlink_to(foreign)
    with pytest.raises(JournalProblem):
        journal.append(RECORDS[0])
    assert foreign.read_text() == "theirs"
    with problem("journal-unreadable", "symbolic link"):
        journal.records()


def test_what_others_could_have_written_is_not_believed(journal, monkeypatch):
    """Root makes the changes that the journal has."""
    journal.append(RECORDS[0])
    for mode in (0o660, 0o602):
        journal.path.chmod(mode)
        with problem("journal-unreadable", journal.path, "write to it"):
            journal.records()
    journal.path.chmod(0o600)
    assert journal.records()
    monkeypatch.setattr(os, "geteuid", lambda: 36)
    if journal.path.stat().st_uid == 0:
        os.chown(journal.path, 65534, -1)
    with pytest.raises(JournalProblem, match=r"it belongs to the user \d+, not"):
        journal.records()


def test_a_pipe_in_its_place_is_said_at_once(journal):
    journal.path.parent.mkdir(parents=True)
    os.mkfifo(journal.path)
    with problem("journal-unreadable", "regular file"):
        journal.records()


def test_a_folder_in_its_place_is_said(tmp_path):
    under(tmp_path, JOURNAL).mkdir(parents=True)
    journal = Journal(tmp_path)
    with problem("journal-unreadable", "regular file"):
        journal.records()
    with pytest.raises(JournalProblem):
        journal.append(RECORDS[0])


def test_who_may_not_read_it_is_told_so(journal, monkeypatch):
    def denied(*words):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with problem("not-root", journal.path, "as root"):
        journal.records()


def test_the_ledger_says_what_is_held_and_what_is_open():
    for length, held, interrupted, awaiting, following in (
        (0, 0, None, None, 1),
        (1, 0, 1, None, 2),
        (2, 1, 1, None, 2),
        (3, 1, 1, None, 2),
        (4, 1, None, 1, 2),
        (5, 1, None, None, 2),
        (6, 1, 2, None, 3),
        (7, 1, 2, None, 3),
        (8, 0, 2, None, 3),
        (9, 0, None, None, 3),
    ):
        ledger = fold(RECORDS[:length])
        number = lambda run: run and run.number  # noqa: E731
        assert len(ledger.applied) == held
        assert number(ledger.interrupted) == interrupted
        assert number(ledger.awaiting) == awaiting
        assert ledger.next_run == following
    (one,) = ledger.run(1).acts
    assert (one.found, one.undoing, one.undone_by, one.why) == (
        ("4092",),
        (None,),
        2,
        "why",
    )


@st.composite
def _journals(draw):
    """Draw the records of some runs: applies of a change or two, and reverts."""
    records, held, number = [], [], 0
    for _ in range(draw(st.integers(0, 12))):
        number += draw(st.integers(1, 3))
        if held and draw(st.booleans()):
            records.append(Begin(number, "revert", AT, "boot"))
            for key in draw(st.lists(st.sampled_from(held), unique=True)):
                records.append(Undoing(*key, number, ("1",)))
                records.append(Undone(*key, number))
                held.remove(key)
        else:
            records.append(Begin(number, "apply", AT, "boot"))
            for each in range(draw(st.integers(0, 2))):
                records += [Doing(number, each, act()), Done(number, each, ("4092",))]
                held.append((number, each))
        records.append(End(number, "done", AT))
    if draw(st.booleans()):
        records.append(Begin(number + 1, "apply", AT, "boot"))
    return tuple(records)


@given(_journals(), st.integers(0, 4))
def test_compaction_drops_old_runs_that_nothing_is_held_of(records, newest):
    whole = fold(records)
    few = fold(compacted(records, newest))
    kept = {run.number for run in few.runs}
    assert few == Ledger(tuple(run for run in whole.runs if run.number in kept))
    assert few.applied == whole.applied
    assert few.interrupted == whole.interrupted
    assert {run.number for run in whole.runs[len(whole.runs) - newest :]} <= kept
    dropped = [run for run in whole.runs if run.number not in kept]
    assert not any(run.applied or run.outcome is None for run in dropped)
    if newest and whole.runs:
        assert few.next_run == whole.next_run


def test_a_long_journal_is_written_anew_and_what_is_held_stays(journal):
    _written(journal, RECORDS[:4])
    lines = [journal.path.read_bytes()]
    for number in range(2, 302):
        lines += [
            line_of(Begin(number, "hook", AT, "boot")),
            line_of(End(number, "done", AT)),
        ]
    journal.path.write_bytes(b"".join(lines))
    held = journal.ledger().applied
    assert journal.compact()
    assert len(journal.ledger().runs) == 101
    assert journal.ledger().applied == held
    assert journal.ledger().next_run == 302
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert not journal.compact()


def test_a_long_journal_stays_where_it_cannot_be_written_anew(journal, monkeypatch):
    _written(journal, RECORDS[:4])
    for number in range(2, 202):
        with journal.path.open("ab") as stream:
            stream.write(line_of(Begin(number, "hook", AT, "boot")))
            stream.write(line_of(End(number, "done", AT)))
    known = journal.path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not journal.compact()
    assert journal.path.read_bytes() == known
    assert len(list(journal.path.parent.iterdir())) == 1
