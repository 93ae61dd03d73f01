# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the list of faults, the runner's verdicts and docs/faults.md without guests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from lab import fault_run, fault_writer
from lab.fault import ConnectFault, Expected, Row, WritingFault
from lab.fault_report import Shown, read_back, report
from lab.fault_run import run
from lab.fault_site import CASES, Case, FaultSite, Written, policy
from lab.fault_table import FAULTS
from lab.problem import LabProblem
from lab.vdsm_daemon import Outcome
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import rule_for

pytestmark = pytest.mark.selftest

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
REQUIRE, PREFER = Case("require-rdma", "4.2"), Case("prefer-rdma", "3")


def expectation(fault: ConnectFault) -> dict[Case, tuple[int, str]]:
    return {
        case: (fault.expected(case).status, fault.expected(case).transport or "nothing")
        for case in CASES
    }


def test_the_document_is_that_of_these_faults() -> None:
    text = DOCUMENT.read_text()
    shown = read_back(text)
    wanted = []
    for fault in FAULTS:
        assert f"\n| **{fault.id}**: {fault.sentence} | " in text
        for case in CASES:
            status, mounted = 0, "rdma"
            if isinstance(fault, ConnectFault):
                status, mounted = expectation(fault)[case]
            wanted.append(Shown(fault.id, case.rule, case.version, status, mounted))
    assert shown == wanted, "run `make faults`"


def test_a_report_reads_back() -> None:
    rows = [
        Row(fault.id, case, 477, 1.25, "nothing", "ERROR says | so", "do", "EIO")
        for fault in FAULTS
        for case in CASES
    ]
    text = report(FAULTS, rows, "kernel 1, nfs-utils 2", "2026-01-02")
    assert [(s.fault, s.rule, s.version) for s in read_back(text)] == [
        (row.fault, row.case.rule, row.case.version) for row in rows
    ]
    assert "| both | 4.2, 3 | 477 | 1.2 | nothing | says / so | 1 |" in text
    assert "| both | 4.2, 3 | 477 | 1.2 | nothing | EIO | says / so | 1 |" in text
    assert text.endswith("\n\n1. do\n")
    assert "2026-01-02" in text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_check_of_the_log_can_fail(case: Case) -> None:
    for fault in FAULTS:
        if isinstance(fault, ConnectFault):
            expected = fault.expected(case)
            says, fix, _ = expected.words(case.version)
            assert len(says) > 15, fault.id
            if (expected.status, expected.transport) != (0, "rdma"):
                assert len(fix) > 10, fault.id


def test_faults_have_names_and_sentences_of_their_own() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert len({fault.sentence for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_has_a_rule_of_its_transport(case: Case) -> None:
    rules = parse_policy(policy(), "policy.yaml").policy
    for fault in FAULTS:
        if isinstance(fault, ConnectFault):
            export = case.export(fault.server, fault.folder)
            match = rule_for(rules, Export.parse(export))
            assert match is not None, export
            assert match.rule.transport == case.rule


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits in these tests."""
    monkeypatch.setattr(fault_run.time, "sleep", lambda _: None)


class Bed:
    """A site where every export connects as the test says; records its calls."""

    def __init__(self, outcome: Outcome, transport: Optional[str]) -> None:
        self.done: list[str] = []
        self._outcome = outcome
        self._transport = transport
        self._faulty = False
        self.times_slower = 1.0

    def begin(self, _: FaultSite) -> None:
        self.done.append("begin")
        self._faulty = True

    def end(self, _: FaultSite) -> None:
        self.done.append("end")
        self._faulty = False

    def slowness(self) -> float:
        return self.times_slower

    def connect(self, case: Case, export: str) -> Outcome:
        self.done.append(f"connect {export}")
        return self._outcome if self._faulty else Outcome([0], 1.0, [])

    def transport(self, export: str) -> Optional[str]:
        return self._transport if self._faulty else "rdma"

    def disconnect(self, case: Case, export: str) -> Outcome:
        self.done.append(f"disconnect {export}")
        return Outcome([0], 1.0, [])

    def shell(self, line: str, timeout: float = 60.0) -> str:
        self.done.append(line.partition(" ")[0])
        return ""

    def unmount_all(self) -> None:
        """Nothing is mounted."""


GOOD = Outcome([477], 2.0, ["ERROR nas:/srv/a: it is dead; fix: wake it"])
EXPECTED = Expected(477, 5, None, "it is dead", "wake it")


def rows_of(bed: Bed, expected: Expected = EXPECTED) -> list[Row]:
    ends = (bed.begin, bed.end)
    fault = ConnectFault("dead", "It is dead.", expected, expected, *ends)
    site: FaultSite = bed  # type: ignore[assignment]
    return run(fault, site, (REQUIRE, PREFER))


@pytest.mark.parametrize(
    "outcome, transport, expected, says",
    [
        (replace(GOOD, statuses=[100]), None, EXPECTED, "status 100, not 477"),
        (replace(GOOD, seconds=6.0), None, EXPECTED, "6.0 s, not between 0 and 5 s"),
        (GOOD, None, replace(EXPECTED, at_least=3), "2.0 s, not between 3 and 5 s"),
        (GOOD, "tcp", EXPECTED, "tcp is mounted, not nothing"),
        (GOOD, None, replace(EXPECTED, fix="reboot"), "does not say 'reboot'"),
        (GOOD, None, replace(EXPECTED, also="at all"), "does not say 'at all'"),
        (
            replace(GOOD, log=["ERROR it is dead"]),
            None,
            replace(EXPECTED, fix=""),
            "vdsm.log gives no fix",
        ),
    ],
)
def test_what_is_not_as_expected_is_said(
    outcome: Outcome, transport: Optional[str], expected: Expected, says: str
) -> None:
    rows = rows_of(Bed(outcome, transport), expected)
    assert all(says in row.wrong[0] for row in rows), rows


def test_a_fault_ends_even_if_the_lab_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(GOOD, None)

    def breaks(*_: object) -> None:
        raise LabProblem("the guest is gone")

    monkeypatch.setattr(bed, "connect", breaks)
    with pytest.raises(LabProblem, match="gone"):
        rows_of(bed)
    assert bed.done == ["begin", "end"]


def test_a_lab_that_stays_broken_is_not_passed_on() -> None:
    bed = Bed(GOOD, None)
    bed.end = lambda _: None  # type: ignore[method-assign]
    with pytest.raises(LabProblem, match="after dead the lab does not work"):
        rows_of(bed)


def writing(
    monkeypatch: pytest.MonkeyPatch, got: Written, bed: Bed, **keys: Any
) -> list[Row]:
    class Writers:
        def __init__(self, _: FaultSite, exports: Sequence[str]) -> None:
            self._exports = exports

        def stop(self) -> None:
            bed.done.append("stop")

        def wait(self, timeout: float) -> list[Written]:
            bed.done.append("wait")
            return [got for _ in self._exports]

    monkeypatch.setattr(fault_run, "Writers", Writers)
    fault = WritingFault("cut", "It is cut.", "EIO", bed.begin, bed.end, "fix it")
    site: FaultSite = bed  # type: ignore[assignment]
    return run(replace(fault, **keys), site, (REQUIRE,))


FINE = Outcome([0], 0.1, [])


@pytest.mark.parametrize(
    "got, outcome, transport, says",
    [
        (Written(None, 9.0, 7), FINE, "rdma", "the writer got None, not EIO"),
        (Written("EIO", 90.0, 7), FINE, "rdma", "a write took 90.0 s"),
        (Written("EIO", 9.0, 7), GOOD, "rdma", "connecting what is mounted"),
        (Written("EIO", 9.0, 7), FINE, "tcp", "tcp is mounted, not rdma"),
    ],
)
def test_what_a_writer_should_not_meet_is_said(
    monkeypatch: pytest.MonkeyPatch,
    got: Written,
    outcome: Outcome,
    transport: str,
    says: str,
) -> None:
    bed = Bed(outcome, transport)
    # It is the same after the end of the fault.
    monkeypatch.setattr(bed, "end", lambda _: bed.done.append("end"))
    monkeypatch.setattr(fault_run, "_see_that_all_is_well", lambda *_: None)
    (row,) = writing(monkeypatch, got, bed)
    assert any(says in wrong for wrong in row.wrong), row


@pytest.mark.parametrize("differences", [3, None])
def test_lost_blocks_are_said(
    monkeypatch: pytest.MonkeyPatch, differences: Optional[int]
) -> None:
    got = Written(None, 9.0, 80, differences)
    (row,) = writing(monkeypatch, got, Bed(FINE, "rdma"), error=None, lasts=0.1)
    assert f"{differences} blocks are not as they were written" in row.wrong


def test_the_writer_says_what_is_read_of_it(tmp_path: Path) -> None:
    (tmp_path / "state.stop").touch()
    done = subprocess.run(
        [sys.executable, fault_writer.__file__, tmp_path / "disk", tmp_path / "state"],
        capture_output=True,
        check=True,
    )
    assert Written(**json.loads(done.stdout)) == Written(None, 0.0, 0, 0)


def test_a_fault_that_nobody_noticed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    got = Written(None, 0.01, 80, 0)
    (row,) = writing(monkeypatch, got, Bed(FINE, "rdma"), error=None, lasts=0.1)
    assert "was there a fault?" in row.wrong[0]
