# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that the version before left on a host are read by this one.

tests/data/earlier-version was written by commit 41d5319, before modules moved and
sentences changed: by ``policy load``, ``plan --out``, ``apply --confirm-timeout`` and
``confirm``, and a journal with every kind of record.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ovirt_rdma.host.changes.journal import Journal, line_of
from ovirt_rdma.host.collect.parsers import degraded_marks
from ovirt_rdma.host.paths import BOOT_JSON, JOURNAL, POLICY_COPY, POLICY_JSON, under

EARLIER = Path(__file__).parents[2] / "data" / "earlier-version"
MODE = "/sys/class/net/ib0/mode"


def put(host, name: str, path: str) -> None:
    file = under(host.root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(EARLIER / name, file)


def recorded(name: str):
    return json.loads((EARLIER / name).read_text())


def test_the_same_plan_is_carried_out(ready):
    assert ready("apply", str(EARLIER / "plan.json")).code == 0
    assert under(ready.root, MODE).read_text().strip() == "connected"


def test_a_run_of_then_is_shown_and_reverted(ready):
    assert ready("apply").code == 0
    put(ready, "journal.jsonl", JOURNAL)
    put(ready, "boot.json", BOOT_JSON)
    assert json.loads(ready("history", "-o", "json").out) == recorded("history.json")
    assert ready("plan", "--exit-code").code == 0
    assert ready("revert").code == 0
    assert under(ready.root, MODE).read_text().strip() == "datagram"
    assert not under(ready.root, "/etc/modprobe.d/ovirt-rdma.conf").exists()


def test_a_stored_policy_counts_as_it_is(ready):
    def shown():
        document = json.loads(ready("policy", "show", "-o", "json").out)
        del document["source"]  # the file and when it was loaded
        return document

    before = shown()
    put(ready, "policy.json", POLICY_JSON)
    put(ready, "policy.json", POLICY_COPY)
    assert shown() == before


def test_a_stored_policy_with_every_key(ready):
    put(ready, "policy-of-every-key.json", POLICY_JSON)
    shown = json.loads(ready("policy", "show", "-o", "json").out)
    assert shown == recorded("policy-of-every-key.shown.json")


def test_every_record_of_a_journal(ready):
    put(ready, "journal-of-every-record.jsonl", JOURNAL)
    lines = (EARLIER / "journal-of-every-record.jsonl").read_bytes()
    assert b"".join(map(line_of, Journal(ready.root).records())) == lines
    shown = json.loads(ready("history", "-o", "json").out)
    assert shown == recorded("history-of-every-record.json")


def test_marks_of_degraded_mounts():
    text = (EARLIER / "degraded.json").read_bytes()
    marks = degraded_marks.from_json(text)
    assert len(marks) == 2
    assert degraded_marks.to_json(marks) == text
