# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the list of faults, the runner's verdicts and docs/faults.md without guests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional
from unittest.mock import Mock

import pytest

from lab import fault_run, fault_site
from lab.fault import ConnectFault, Expected, Fault, Row, WritingFault
from lab.fault_report import Shown, read_back, report, shortened
from lab.fault_run import deciding_line, run
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


def test_cases_with_one_result_share_a_line_and_no_others() -> None:
    fault = next(f for f in FAULTS if isinstance(f, WritingFault))
    rows = [
        Row(fault.id, case, 0, 0.0, "rdma", f"of {case.rule}-{case.version}", "do")
        for case in CASES
    ]
    rows = [
        replace(row, writer=f"EIO, after 9.{n} s", seconds=n)
        for n, row in enumerate(rows)
    ]

    def lines(some: list[Row]) -> list[str]:
        text = report([fault], some, "", "")
        assert len(read_back(text)) == len(CASES)
        return [
            line.split(" | ", 1)[1]
            for line in text.splitlines()
            if line.startswith(f"| **{fault.id}") or line.startswith("|  |")
        ]

    tail = "of EXPORT | 1 |"
    assert lines(rows) == [
        f"both | 4.2, 3 | 0 | 0.0 to 3.0 | rdma | EIO, after 9.0 to 9.3 s | {tail}"
    ]
    assert lines([*rows[:3], replace(rows[3], status=477)]) == [
        "require-rdma | 4.2, 3 | 0 | 0.0 to 1.0 | rdma | EIO, after 9.0 to 9.1 s | "
        f"{tail}",
        f"prefer-rdma | 4.2 | 0 | 2.0 | rdma | EIO, after 9.2 s | {tail}",
        f"prefer-rdma | 3 | 477 | 3.0 | rdma | EIO, after 9.3 s | {tail}",
    ]
    for other in (
        {"mounted": "tcp"},
        {"writer": "no error"},
        {"says": "so"},
        {"fix": "x"},
    ):
        changed = [replace(row, **other) for row in rows[1::2]]
        assert [line[:12] for line in lines([*rows[::2], *changed])] == [
            "both | 4.2 |",
            "both | 3 | 0",
        ]


def cell_of_what_to_do(fault: Fault, row: Row) -> str:
    text = report([fault], [row], "", "")
    (line,) = (one for one in text.splitlines() if one.startswith(f"| **{fault.id}"))
    cell = line.strip(" |").rpartition("| ")[2]
    return text.partition(f"\n{cell}. ")[2].strip() or cell


def test_where_the_log_gives_no_fix_the_document_says_what_to_do() -> None:
    for fault in FAULTS:
        row = Row(fault.id, REQUIRE, 0, 1.0, "rdma", "INFO mounted")
        advice = f"({fault.advice})" if isinstance(fault, WritingFault) else "-"
        advice = "-" if advice == "(nothing)" else advice
        assert cell_of_what_to_do(fault, row) == advice
        assert cell_of_what_to_do(fault, replace(row, fix="do")) == "do"


@pytest.mark.parametrize("status, mounted", [(469, "nothing"), (0, "tcp")])
def test_no_trouble_is_shown_without_what_to_do(status: int, mounted: str) -> None:
    fault = next(f for f in FAULTS if isinstance(f, ConnectFault))
    with pytest.raises(ValueError, match="gives no fix"):
        report([fault], [Row(fault.id, REQUIRE, status, 1.0, mounted)], "", "")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_check_of_the_log_can_fail(case: Case) -> None:
    for fault in FAULTS:
        if isinstance(fault, ConnectFault):
            expected = fault.expected(case)
            says, fix, _ = expected.words(case.version)
            assert len(says) > 15, fault.id
            if (expected.status, expected.transport) != (0, "rdma"):
                assert len(fix) > 10, fault.id


def test_a_connect_that_did_not_wait_for_the_port_is_told() -> None:
    fault = next(f for f in FAULTS if f.id == "port-at-boot")
    assert isinstance(fault, ConnectFault)
    line = "INFO nas:/e: mounted over rdma, proven (mountinfo: proto=rdma)"
    waited = "INFO nas:/e: waited 2.5 s for an RDMA port to come up"
    late = Outcome([0], 22.0, [waited, line])
    at_once = Outcome([0], 2.7, [line])
    for case in CASES:
        expected = fault.expected(case)
        assert not [*fault_run._differences(expected, case, late, "rdma", Mock())]
        wrong = " ".join(
            fault_run._differences(expected, case, at_once, "rdma", Mock())
        )
        assert "2.7 s, not between 15 and 45 s" in wrong
        assert "vdsm.log does not say 's for an RDMA port to come up'" in wrong


def test_names_are_added_once_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    monkeypatch.setattr(fault_site, "_HOSTS", str(hosts))
    monkeypatch.setattr(fault_site, "VdsmDaemon", Mock())
    lab = Mock()

    def shell(line: str, **keys: Any) -> Any:
        words = ["sh", "-c", line]
        text = keys.get("input")
        return subprocess.run(words, input=text, text=True, check=True, timeout=9)

    lab.hypervisor.run = shell
    FaultSite(lab)
    once = hosts.read_text()
    assert "\n10.99.0.77 absent " in once
    site = FaultSite(lab)
    assert hosts.read_text() == once
    site.close()
    assert hosts.read_text() == "127.0.0.1 localhost\n"


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


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "ERROR Could not connect to storage server: nas:/srv/a: rule 'x' says"
            " require-rdma (server is nas, path matches *), but 10.0.0.1 is away",
            "10.0.0.1 is away",
        ),
        (
            "WARNING nas:/srv/a: FALLING BACK TO TCP, this mount is degraded: why",
            "why",
        ),
        ("INFO nas:/srv/a: mounted over rdma, proven (b)", "mounted over rdma,"),
        ("", ""),
    ],
)
def test_what_a_line_of_the_log_says(line: str, text: str) -> None:
    assert shortened(line).startswith(text)


def test_the_loudest_last_line_decides_and_gives_the_fix() -> None:
    log = ["INFO a", "WARNING it is so; fix: do this", "INFO b"]
    assert deciding_line(log) == ("WARNING it is so", "do this")
    # VDSM's own line comes last and has no fix.
    log = ["WARNING it is so; fix: do this", "ERROR failed"]
    assert deciding_line(log) == ("ERROR failed", "do this")
    assert deciding_line(["INFO a", "INFO b"]) == ("INFO b", "")
    assert deciding_line([]) == ("", "")


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


@pytest.mark.parametrize("seconds, wrong", [(9.0, False), (11.0, True)])
def test_a_busy_machine_may_take_as_much_longer_as_all_else_there(
    seconds: float, wrong: bool
) -> None:
    bed = Bed(replace(GOOD, seconds=seconds), None)
    bed.times_slower = 2.0
    assert [bool(row.wrong) for row in rows_of(bed)] == [wrong] * 2


GOOD = Outcome([477], 2.0, ["ERROR nas:/srv/a: it is dead; fix: wake it"])
EXPECTED = Expected(477, 5, None, "it is dead", "wake it")


def rows_of(bed: Bed, expected: Expected = EXPECTED, each: bool = False) -> list[Row]:
    fault = ConnectFault(
        "dead", "It is dead.", expected, expected, bed.begin, bed.end, each_case=each
    )
    site: FaultSite = bed  # type: ignore[assignment]
    return run(fault, site, (REQUIRE, PREFER))


def test_a_fault_begins_once_and_ends_before_all_is_tried_again() -> None:
    bed = Bed(GOOD, None)
    rows = rows_of(bed)
    assert [row.wrong for row in rows] == [(), ()]
    assert bed.done == [
        "begin",
        "connect nas:/srv/require-rdma-4.2",
        "connect nas:/srv/prefer-rdma-3",
        "end",
        "connect nas:/srv/require-rdma-4.2",
    ]
    bed.done.clear()
    rows_of(bed, each=True)
    assert bed.done.count("begin") == bed.done.count("end") == 2


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


def test_nfs_3_may_say_something_else() -> None:
    expected = replace(EXPECTED, says_v3="it is very dead")
    rows = rows_of(Bed(GOOD, None), expected)
    assert [bool(row.wrong) for row in rows] == [False, True]


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


def test_writers_suffer_and_all_takes_data_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed(FINE, "rdma")
    (row,) = writing(monkeypatch, Written("EIO", 9.04, 7), bed)
    assert (row.wrong, row.writer) == ((), "EIO, after 9.0 s")
    order = ["begin", "wait", "end", "until"]
    assert [what for what in bed.done if what in order] == order


def test_a_fault_that_ends_by_itself_lets_writers_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed(FINE, "rdma")
    got = Written(None, 0.3, 80)
    (row,) = writing(monkeypatch, got, bed, error=None, lasts=0.1)
    assert (row.wrong, row.writer) == ((), "no error, after 0.3 s")
    order = ["begin", "end", "stop", "wait"]
    assert [what for what in bed.done if what in order] == order


def test_a_mount_of_a_server_that_forgot_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed(FINE, "rdma")
    writing(monkeypatch, Written("EIO", 9.0, 7), bed, forgets=True)
    end = bed.done.index("end")
    assert bed.done[end + 1 : end + 3] == [
        "disconnect nas:/srv/require-rdma-4.2",
        "connect nas:/srv/require-rdma-4.2",
    ]


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


def test_a_fault_that_nobody_noticed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    got = Written(None, 0.01, 80)
    (row,) = writing(monkeypatch, got, Bed(FINE, "rdma"), error=None, lasts=0.1)
    assert "was there a fault?" in row.wrong[0]
