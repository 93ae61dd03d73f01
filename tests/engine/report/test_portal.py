# SPDX-License-Identifier: GPL-2.0-or-later
"""The data of the portal's plugin, and the service that gives a user their part."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest
from engine_double import jobs
from engine_double.faults import Status
from support.engine.portal_service import (
    ask_as_a_unit,
    ask_here,
    portal_site,
    request,
    said,
    token_of,
)

from ovirt_rdma.engine_sdk_tools.model import FAIL, OK, UNKNOWN, Axis, Cell, Matrix
from ovirt_rdma.engine_sdk_tools.report import page as portal
from ovirt_rdma.engine_sdk_tools.report.model import Report, ReportDomain, ReportHost
from ovirt_rdma.engine_sdk_tools.report.portal_service import (
    DATA,
    Refused,
    elements,
    runs_of,
    visible,
)
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(tmp_path):
    with portal_site(tmp_path, 4, ("data1", "data2")) as double:
        yield double


def get(folder, token, **words):
    return said(ask_here(request(token, **words), folder))


def shown_rows(document):
    """Return the texts of each host's cells by its name."""
    return {
        host["name"]: [
            " ".join(document["cells"][n][:2]) for n in document["rows"][host["row"]]
        ]
        for host in document["hosts"]
    }


# -- the data


def test_250_hosts_and_8_domains_have_less_than_300_kb(tmp_path):
    with portal_site(tmp_path, 250):
        file = tmp_path / DATA
        assert 40_000 < file.stat().st_size < 300_000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        document = json.loads(file.read_text())
        assert (len(document["hosts"]), len(document["domains"])) == (250, 8)
        assert {len(row) for row in document["rows"]} == {8 + len(document["checks"])}


def test_the_document_says_what_the_report_says(engine, tmp_path):
    document = json.loads((tmp_path / DATA).read_text())
    assert document["sentence"] == "Of 4 hosts, 1 has a failed check."
    rows = shown_rows(document)
    assert rows["host01"][-2:] == ["ok rdma", "ok rdma"]
    assert rows["host03"][-2:] == ["fail tcp", "fail tcp"]
    # The proof of a mount that is well has addresses, and nobody asks for it.
    assert {len(one) for one in document["cells"] if one[0] == "ok"} == {2}
    (finding,) = document["findings"]
    assert (finding["verdict"], finding["hosts"]) == ("fail", ["host03"])
    assert finding["sentence"] == "mlx5_0/1 is DOWN"
    assert "data1, data2" in [one["domains"] for one in finding["also"]]
    domain = document["domains"][0]
    assert domain["nfs_version"] == "4.2"
    assert domain["commands"][0] == "ovirt-rdma domain verify data1"
    # What changes something is a dry run first.
    assert all("--dry-run" in one for one in domain["commands"][1:])


def _report(*cells, name="data1"):
    axis = (Axis(name, "1"),)
    matrix = Matrix("domains", (), axis, tuple((cell,) for cell in cells))
    hosts = tuple(
        ReportHost(
            f"hv{n}", f"id{n}", f"hv{n}.example.com", "dc1", "cl1", "up", cell.verdict,
            *[None] * 5, (), "", "",
        )
        for n, cell in enumerate(cells)
    )  # fmt: skip
    checks = replace(matrix, kind="hosts", columns=(), cells=((),) * len(cells))
    domain = ReportDomain(name, "1", "dc1", "active", "s", "s:/x", None, "tcp", ())
    return Report(
        "2026-11-28T12:00:00Z",
        "0.2.0",
        "https://e/ovirt-engine/api",
        "4.5.7",
        hosts,
        (domain,),
        checks,
        matrix,
    )


def test_texts_of_hosts_are_printable_and_cut():
    cell = Cell(FAIL, "tcp\x1b[2J", "a\u202eb" + "x" * 5000, "fix\n\0")
    document = portal.portal_document(_report(cell))
    verdict, text, sentence, fix = document["cells"][0]
    assert (verdict, text, fix) == ("fail", "tcp\\x1b[2J", "fix\\n\\x00")
    assert sentence.startswith("a\\u202eb")
    assert len(sentence) == 603


@pytest.mark.parametrize(
    ("asks", "used", "to"),
    [
        ("rdma", {"tcp": 2}, "tcp"),
        ("tcp", {"rdma": 2}, "tcp"),
        ("tcp", {"rdma": 1, "tcp": 1}, "rdma"),
        ("tcp", {"unknown": 2}, "rdma"),
    ],
)
def test_the_conversion_to_copy_is_to_the_other_transport(asks, used, to):
    report = _report(Cell(OK, "rdma"))
    domain = replace(report.domains[0], engine_asks=asks, used=tuple(used.items()))
    (shown,) = portal.portal_document(replace(report, domains=(domain,)))["domains"]
    assert f"--to {to} --rolling" in shown["commands"][2]


def test_a_command_has_one_word_for_a_name():
    document = portal.portal_document(_report(Cell(OK, "rdma"), name="x; reboot"))
    assert document["domains"][0]["commands"][0] == (
        "ovirt-rdma domain verify 'x; reboot'"
    )


def test_where_every_host_says_something_else_sentences_are_shorter():
    cells = [
        Cell(UNKNOWN, "unknown", f"{n} " + "x" * 590, "y" * 590) for n in range(900)
    ]
    data = portal.portal_file(_report(*cells))
    assert 100_000 < len(data) <= portal.MOST_BYTES
    assert len(json.loads(data)["hosts"]) == 900


def test_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(portal, "MOST_BYTES", 100)
    with pytest.raises(Problem, match="100 are the most"):
        portal.portal_file(_report(Cell(OK, "rdma")))


# -- what a user may see


@pytest.mark.parametrize("role", ["SuperUser", "ReadOnlyAdmin"])
def test_an_administrator_of_any_kind_sees_all(engine, tmp_path, role):
    answer = get(tmp_path, token_of(engine, role))
    assert answer.status == 200
    document = answer.document
    assert len(document["hosts"]) == 4
    assert document["now"] >= document["made_at"]
    assert "engine_url" not in document
    assert document["runs"] == []
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("what", ["hosts", "jobs"])
def test_who_is_no_administrator_gets_nothing(engine, tmp_path, what):
    """With UserRole on the whole system, the engine lists hosts, and no jobs."""
    engine.fail_next("GET", f"^/{what}$", Status(400, "insufficient permissions"))
    answer = get(tmp_path, token_of(engine))
    assert answer.status == 403
    assert answer.document == {"sentence": f"The engine does not let you see {what}."}


def test_what_the_engine_does_not_list_is_not_there(engine, tmp_path):
    """And nothing that names them."""
    token, world = token_of(engine), engine.world
    gone = world.host("host03")
    del world.hosts[gone.id]
    hidden = world.domain("data2")
    del world.domains[hidden.id]
    answer = get(tmp_path, token)
    document = answer.document
    assert list(shown_rows(document)) == ["host01", "host02", "host04"]
    assert [len(row) for row in shown_rows(document).values()] == [11] * 3
    assert [one["name"] for one in document["domains"]] == ["data1"]
    for text in (b"host03", b"data2", b"DOWN", gone.id.encode(), b"tcp (mount"):
        assert text not in answer.body
    assert (document["findings"], document["findings_hidden"]) == ([], True)
    assert document["sentence"].startswith("Not all hosts and domains")


def test_a_finding_that_also_names_a_hidden_host_is_not_there(engine, tmp_path):
    token, world = token_of(engine), engine.world
    del world.hosts[world.host("host03").id]
    document = get(tmp_path, token).document
    assert len(document["domains"]) == 2
    assert (document["findings"], document["findings_hidden"]) == ([], True)


def test_findings_that_name_nobody_hidden_are_all(engine, tmp_path):
    token, world = token_of(engine), engine.world
    del world.hosts[world.host("host01").id]
    document = get(tmp_path, token).document
    assert (len(document["findings"]), document["findings_hidden"]) == (1, False)


def test_data_of_all_are_as_they_were():
    document = portal.portal_document(_report(Cell(FAIL, "tcp", "over tcp")))
    shown = visible(json.loads(json.dumps(document)), {"id0"}, {"1"})
    assert shown == json.loads(json.dumps(document))


def test_a_run_under_way_is_shown_with_its_progress(engine, tmp_path):
    world = engine.world
    jobs.add(world, "Adding Host x")
    ids = ", ".join(world.domain(name).id for name in ("data1", "data2"))
    described = f"convert to RDMA: data1 (by root@engine; {ids})"
    job = jobs.add(world, f"ovirt-rdma: {described}")
    first = jobs.begin_step(world, job, "executing", "host01: maintenance")
    jobs.end_step(world, job, first, True)
    jobs.begin_step(world, job, "executing", "host02: maint\u202eenance")
    (run,) = get(tmp_path, token_of(engine)).document["runs"]
    assert run.pop("started_at")
    assert run == {
        "id": job.id,
        "description": "convert to RDMA: data1 (by root@engine)",
        "status": "started",
        "ended": 1,
        "last": "host02: maint\\u202eenance",
    }


def test_runs_that_cannot_be_read_are_unknown(engine, tmp_path):
    engine.fail_next("GET", "^/jobs$", Status(500))
    document = get(tmp_path, token_of(engine)).document
    assert document["runs"] is None
    assert document["runs_problem"] == "The engine answered HTTP 500."
    assert len(document["hosts"]) == 4


def test_the_newest_runs_come_first():
    text = "".join(
        f"<job id='{n}'><description>ovirt-rdma: {n}</description></job>"
        for n in range(9)
    )
    jobs = elements(f"<jobs>{text}</jobs>", "job")
    found = [one["description"] for one in runs_of(jobs)]
    assert found == ["8", "7", "6", "5", "4"]


@pytest.mark.parametrize("text", ["", "<", "<html>Unavailable", "<jobs>&x;</jobs>"])
def test_an_answer_that_is_no_list_is_refused(text):
    with pytest.raises(Refused, match="cannot be read"):
        elements(text, "job")


# -- requests


def test_a_session_that_has_ended_opens_no_password_window(engine, tmp_path):
    token = token_of(engine)
    engine.expire_tokens()
    answer = get(tmp_path, token)
    assert (answer.status, answer.document["sentence"]) == (
        401,
        "The session has ended.",
    )
    assert "www-authenticate" not in answer.headers


def test_a_session_that_ends_in_the_middle(engine, tmp_path):
    engine.fail_next("GET", "^/jobs$", Status(401))
    assert get(tmp_path, token_of(engine)).status == 401


def test_the_engine_is_down(engine, tmp_path):
    token = token_of(engine)
    engine.restart()
    answer = get(tmp_path, token)
    assert answer.status == 502
    engine.close()
    sentence = get(tmp_path, token).document["sentence"]
    assert sentence.startswith("The engine did not answer: ")
    assert token not in sentence


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "cannot be read"),
        ("", "There are no data yet."),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"kind": "report"}', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_data_that_are_missing_or_not_ours(tmp_path, data, sentence):
    if data is not None:
        (tmp_path / DATA).write_text(data)
    answer = get(tmp_path, "a-token-of-somebody")
    assert answer.status == 503
    assert sentence in answer.document["sentence"]


READ_ONLY_TRIES = [
    {"method": "POST"},
    {"method": "PUT"},
    {"method": "DELETE"},
    {"method": "PATCH"},
    {"method": "OPTIONS"},
    {"method": "CONNECT", "target": "hv1:22"},
    {"target": "/ovirt-rdma/portal/../../ovirt-engine/api/hosts"},
    {"target": "/ovirt-rdma/portal?playbook=x"},
    {"target": "/ovirt-rdma/portal/run"},
    {"target": "/ovirt-rdma/portal%2f..%2freport.json"},
    {"target": "http://hv1/ovirt-rdma/portal"},
    {"target": "//hv1/ovirt-rdma/portal"},
    {"method": "POST", "target": "/ovirt-engine/services/ansible?playbook=ovirt-rdma"},
    {"method": "POST", "target": "/ovirt-engine/api/events"},
    {"method": "DELETE", "target": "/ovirt-engine/api/hosts/1"},
    {"target": "/ovirt-engine/api/hosts"},
]
# What comes after the token, in its header and after it.
WITH_MORE = [
    "\r\nX-HTTP-Method-Override: POST",
    "\r\nX-Engine-Url: http://127.0.0.1:1/ovirt-engine/api",
    "\r\nFilter: true\r\nPrefer: persistent-auth",
    "\r\nContent-Length: 30\r\n\r\nPOST /ovirt-engine/api/events",
]


@pytest.mark.parametrize("words", READ_ONLY_TRIES, ids=repr)
def test_a_reader_changes_nothing_and_gets_nothing(engine, tmp_path, words):
    """With those below, twenty tries of an administrator who may only read."""
    before = sorted(path.name for path in tmp_path.iterdir())
    answer = get(tmp_path, token_of(engine, "ReadOnlyAdmin"), **words)
    assert answer.status in (404, 501)
    assert set(answer.document) == {"sentence"}
    assert engine.requests == [seen for seen in engine.requests if not seen.changes]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("more", WITH_MORE, ids=repr)
def test_what_a_reader_adds_is_ignored(engine, tmp_path, more):
    engine.requests.clear()
    token = token_of(engine, "ReadOnlyAdmin")
    answer = said(ask_here(request(token + more), tmp_path))
    assert answer.status == 200
    asked = [(seen.method, seen.path) for seen in engine.requests]
    assert asked == [("GET", one) for one in ("/hosts", "/storagedomains", "/jobs")]
    for seen in engine.requests:
        sent = {name.lower() for name in seen.headers}
        assert sent <= {"host", "user-agent", "accept", "authorization"}


@pytest.mark.parametrize(
    "header",
    ["", "Basic YWRtaW46eA==", "Bearer ", "Bearer short", "Bearer a b c d e f g h",
     "bearer token-0001-of", "Bearer " + "x" * 5000, "Bearer t\u00f6ken-of-somebody"],
    ids=range(8),
)  # fmt: skip
def test_without_a_token_the_engine_is_not_asked(engine, tmp_path, header):
    engine.requests.clear()
    raw = f"GET /ovirt-rdma/portal HTTP/1.1\r\nAuthorization: {header}\r\n\r\n"
    assert said(ask_here(raw.encode("latin-1"), tmp_path)).status == 401
    assert engine.requests == []


def test_a_unit_answers_one_request_and_prints_nothing(engine, tmp_path):
    token = token_of(engine)
    first, second = request(token), request("token-of-another-user")
    raw, printed = ask_as_a_unit(first + second, tmp_path)
    assert said(raw).status == 200
    assert raw.count(b"HTTP/1.0 ") == 1
    assert len(said(raw).document["hosts"]) == 4
    assert printed == b""


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n\r\n", b"GET", b"\x16\x03\x01", b"A" * 70_000]
)
def test_what_is_no_request_ends(tmp_path, raw):
    answer, printed = ask_as_a_unit(raw, tmp_path)
    assert b"200" not in answer
    assert printed == b""
