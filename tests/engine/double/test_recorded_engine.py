# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the recorded answers of engines with those of the double.

Recordings are folders in tests/data/recorded, and in ../shared/recorded beside the
repository; docs/engine-double.md, "Recorded answers", describes how to make one.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote_plus

import pytest
import requests
from engine_double import DropConnection, EngineDouble, sample_world
from engine_recording import (
    Exchange,
    RecordingProxy,
    read_recording,
    replay,
)
from engine_recording.exchanges import (
    EXCHANGES,
    MANIFEST,
    RecordingProblem,
    RecordingWriter,
)
from engine_recording.recorder import Secrets
from engine_recording.replay import unknown
from engine_smoke.run import smoke
from engine_smoke.site import Wishes
from support.engine.engine_door import DoubleDoor

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

REPOSITORY = Path(__file__).parents[3]
PLACES = (
    REPOSITORY / "tests/data/recorded",
    REPOSITORY.parent / "shared/recorded",
)
PASSWORD = "a-Pass word+of/this&run"


def recordings():
    """Return all folders with a manifest."""
    return sorted(one.parent for top in PLACES for one in top.glob(f"*/{MANIFEST}"))


def named(folder):
    return folder.name


NONE = pytest.param(
    Path("none"),
    marks=pytest.mark.skip("no recording of an engine in tests/data/recorded"),
)


@pytest.mark.engine
@pytest.mark.parametrize("folder", recordings() or [NONE], ids=named)
def test_the_double_answers_as_the_engine_did(folder):
    recording = read_recording(folder)
    lines = unknown(replay(recording))
    version = recording.manifest["engine_version"]
    told = "\n".join([f"{len(lines)} differences from engine {version}:", *lines])
    assert not lines, told


@pytest.mark.parametrize("folder", recordings() or [NONE], ids=named)
def test_a_recording_in_the_repository_is_small_and_without_secrets(folder):
    files = list(folder.iterdir())
    assert sum(one.stat().st_size for one in files) < 3_000_000
    text = "".join(one.read_text(encoding="utf-8") for one in files)
    assert set(re.findall(r"Bearer ([^\"]*)", text)) <= set(
        re.findall(r"TOKEN-\d+|UNKNOWN-TOKEN", text)
    )
    for body in re.findall(r'"request_body": "(grant_type[^"]*)"', text):
        assert re.search(r"password=(WRONG-)?PASSWORD(&|$)", body), body
    assert "-----BEGIN" not in text


# -- the recording and its replay, tried with the double in place of an engine


@dataclass(frozen=True)
class Made:
    """A recording of a run against the double, and the tokens that it gave."""

    folder: Path
    tokens: tuple[str, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    top = tmp_path_factory.mktemp("recorded")
    with EngineDouble(sample_world(hosts=2, addon=True)) as double:
        world = double.world
        user = next(iter(world.passwords))
        world.passwords[user] = PASSWORD
        wishes = Wishes(
            double.url,
            top / "notes",
            user,
            PASSWORD,
            export="nfs9.example.com:/exports/empty",
            rdma=True,
            nic="ib0",
            record=top / "recording",
        )
        good = smoke(wishes, lambda one: None, DoubleDoor(world), True)
        assert good
        assert double.strict_errors == []
        tokens = tuple(
            f"token-{number:04d}-of-the-double"
            for number in range(1, double.sso.made + 1)
        )
    return Made(top / "recording", tokens)


@pytest.mark.engine
def test_a_recording_of_the_double_agrees_with_the_double(made):
    assert unknown(replay(read_recording(made.folder))) == []


@pytest.mark.engine
def test_the_folder_says_what_it_is_of(made):
    recording = read_recording(made.folder)
    manifest = recording.manifest
    assert manifest["format"] == 1
    assert manifest["engine_version"].startswith("4.5.7")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", manifest["date"])
    assert set(manifest["began_with"]["hosts"].values()) == {"host01", "host02"}
    files = sorted(one.name for one in made.folder.iterdir())
    assert files == [EXCHANGES, MANIFEST]
    parts = [one.part for one in recording.exchanges]
    assert parts == sorted(parts, reverse=True)
    assert set(parts) == {"snapshot", "run"}


@pytest.mark.engine
def test_no_secret_of_the_run_is_in_the_folder(made):
    text = "".join(
        one.read_text(encoding="utf-8") for one in sorted(made.folder.iterdir())
    )
    assert len(made.tokens) > 5
    basic = base64.b64encode(PASSWORD.encode()).decode()
    quoted = quote_plus(PASSWORD), json.dumps(PASSWORD)[1:-1]
    for secret in (PASSWORD, basic, *quoted, *made.tokens):
        assert secret not in text
    assert "127.0.0.1" not in text


@pytest.mark.engine
def test_every_request_is_in_it_but_repeated_readings(made):
    exchanges = read_recording(made.folder).exchanges
    changes = [one for one in exchanges if one.changes]
    words = {one.path.rsplit("/", 1)[1] for one in changes}
    assert {"token", "sso-logout", "setupnetworks", "deactivate", "activate"} <= words
    for one, after in zip(exchanges, exchanges[1:]):
        if one.target == after.target and one.request_headers == after.request_headers:
            assert one.changes or one.body != after.body or one.status != after.status


# Changes of a recording: the exchange, its change, the expected difference.
def _of(method, path):
    return lambda one: one.method == method and re.search(path, one.target)


_AFTER = 40
_HOSTS = _of("GET", r"/hosts\?")
_TAMPERED = {
    "an HTTP status": (
        _of("POST", "/deactivate"),
        lambda d: d.update(status=409),
        "HTTP status: the engine has 409, the double 200",
    ),
    "a status word": (
        _HOSTS,
        lambda d: d.update(
            body=d["body"].replace("<status>up</status>", "<status>down</status>")
        ),
        r"host host01/status: statuses: the engine has .*down.*, the double",
    ),
    "an element that is read": (
        _of("GET", r"/storageconnections$"),
        lambda d: d.update(
            body=re.sub(r"<nfs_version>.*?</nfs_version>", "", d["body"])
        ),
        "nfs_version: value: the engine has nothing, the double v4_2",
    ),
    "an element that nobody reads": (
        _HOSTS,
        lambda d: d.update(body=re.sub(r"<memory>.*?</memory>", "", d["body"])),
        "host host01/memory: invented: the engine has nothing, the double ",
    ),
    "an object": (
        _of("GET", r"/networks$"),
        lambda d: d.update(
            body=re.sub(r"(?s)<network .*?</network>", "", d["body"], count=1)
        ),
        "network ovirtmgmt: object: the engine has nothing like it, the double it",
    ),
    "another fault": (
        lambda one: one.status == 409 and "<fault>" in one.body,
        lambda d: d.update(
            body=re.sub(
                r"<detail>.*?</detail>",
                "<detail>[Related operation x is currently in progress.]</detail>",
                d["body"],
            )
        ),
        "fault: the engine has locked",
    ),
    "the form of a fault": (
        lambda one: one.status == 409 and "<fault>" in one.body,
        lambda d: d.update(body="<html/>", headers={"content-type": "text/html"}),
        "Content-Type: the engine has text/html, the double application/xml",
    ),
    "a body where there was none": (
        _of("GET", "/hosts/0000"),
        lambda d: d.update(body="<fault><reason>x</reason></fault>"),
        "body: the engine has a body, the double no body",
    ),
    "a network's name": (
        _of("GET", r"/networks$"),
        lambda d: d.update(body=d["body"].replace(">ovirtmgmt<", ">mgmt<")),
        "network mgmt/name: value: the engine has mgmt, the double ovirtmgmt",
    ),
    "an event": (
        lambda one: one.method == "GET" and "<code>13</code>" in one.body,
        lambda d: d.update(body=d["body"].replace("<code>13<", "<code>17<")),
        r"codes: events: the engine has .*\b17\b",
    ),
    "no answer": (
        _of("POST", "/events"),
        lambda d: d.update(status=None, body=""),
        "HTTP status: the engine has no answer, the double 201",
    ),
}


@pytest.mark.engine
@pytest.mark.parametrize("what", _TAMPERED)
def test_what_an_engine_answers_otherwise_is_listed(what, made, tmp_path):
    which, change, said = _TAMPERED[what]
    folder = tmp_path / "recording"
    shutil.copytree(made.folder, folder)
    for one in read_recording(folder).exchanges:
        if one.part == "run" and which(one):
            file = folder / EXCHANGES
            lines = file.read_text(encoding="utf-8").splitlines()
            document = json.loads(lines[one.number - 1])
            document["body"] = one.body
            document.pop("body_as_in", None)
            change(document)
            assert document["body"] != one.body or document["status"] != one.status
            # Later exchanges take time, and add nothing.
            lines = [
                *lines[: one.number - 1],
                json.dumps(document),
                *lines[one.number :],
            ]
            kept = lines[: one.number + _AFTER]
            file.write_text("\n".join(kept), encoding="utf-8")
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            manifest["exchanges"] = len(kept)
            (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            break
    lines = unknown(replay(read_recording(folder)))
    assert any(re.search(said, line) for line in lines), lines


@pytest.mark.parametrize(
    "text",
    [
        "<description>User a connecting using session 'hush-hush==' .</description>",
        "<host><root_password>hush-hush==</root_password></host>",
        "-----BEGIN PRIVATE KEY-----\nhush-hush==\n-----END PRIVATE KEY-----\n",
        "it says hush-hush== somewhere",
        "it says hush-hush%3D%3D in a query",
    ],
)
def test_secrets_that_bodies_have_are_left_out(text):
    secrets = Secrets(["hush-hush=="] if "it says" in text else [])
    one = Exchange(0, "run", 0.0, "POST", "/x", {}, text, 200, {}, text)
    hidden = secrets.hide(one)
    assert "hush" not in hidden.body + hidden.request_body
    assert len(hidden.body) > 5


def test_a_login_has_no_secret_however_short():
    form = "grant_type=password&username=admin%40internal&password=abc"
    answer = '{"access_token": "xyz", "token_type": "bearer"}'
    login = Exchange(0, "run", 0.0, "POST", "/sso/oauth/token", {}, form, 200)
    secrets = Secrets(["abc"])
    hidden = secrets.hide(replace(login, body=answer))
    assert hidden.request_body == form.replace("abc", "PASSWORD")
    assert json.loads(hidden.body)["access_token"] == "TOKEN-1"
    wrong = replace(login, request_body=form.replace("abc", "abd"))
    assert "password=WRONG-PASSWORD" in secrets.hide(wrong).request_body
    for token, word in (("xyz", "TOKEN-1"), ("other", "UNKNOWN-TOKEN")):
        asked = replace(login, request_headers={"Authorization": f"Bearer {token}"})
        assert secrets.hide(asked).request_headers["authorization"] == f"Bearer {word}"


def test_headers_that_have_secrets_keep_their_names_only():
    asked = {"Authorization": "Basic aHVzaA==", "Cookie": "hush", "X-Hush": "hush"}
    told = {"Set-Cookie": "hush", "Content-Type": "text/plain"}
    hidden = Secrets().hide(Exchange(0, "run", 0, "GET", "/", asked, "", 200, told, ""))
    assert hidden.request_headers == {
        "authorization": "Basic PASSWORD",
        "cookie": "COOKIE",
    }
    assert hidden.headers == {"set-cookie": "COOKIE", "content-type": "text/plain"}


def test_a_connection_that_breaks_is_recorded_as_no_answer(tmp_path):
    with EngineDouble(sample_world(hosts=1)) as double:
        double.expire_tokens()
        double.fail_next("GET", "/services/health", DropConnection())
        with RecordingProxy(double.url, tmp_path / "r") as proxy:
            address = proxy.url.replace("/api", "/services/health")
            http = requests.Session()
            http.trust_env = False
            with pytest.raises(requests.ConnectionError):
                http.get(address, timeout=10)
            assert http.get(address, timeout=10).ok
        proxy.writer.finish({})
    found = read_recording(tmp_path / "r").exchanges
    assert [one.status for one in found] == [None, 200]


def test_a_folder_that_is_in_use_or_no_recording_is_refused(tmp_path):
    with pytest.raises(RecordingProblem, match="cannot be read"):
        read_recording(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": 7}', encoding="utf-8")
    with pytest.raises(RecordingProblem, match="has format 7, not 1"):
        read_recording(tmp_path)
    with pytest.raises(RecordingProblem, match="has files already"):
        RecordingWriter(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": 1, "exchanges": 2}', encoding="utf-8")
    for text, said in (
        ("{}\n", "line 1 of .* is no exchange"),
        ("{\n", "cannot be read"),
        ("", "does not have as many lines"),
    ):
        (tmp_path / EXCHANGES).write_text(text, encoding="utf-8")
        with pytest.raises(RecordingProblem, match=said):
            read_recording(tmp_path)


def test_a_body_that_comes_again_is_stored_once(tmp_path):
    writer = RecordingWriter(tmp_path / "r")
    one = Exchange(0, "run", 0.0, "GET", "/a", {}, "", 200, {}, "<a>  <b/></a>")
    writer.add(one)
    writer.add(one)
    writer.add(Exchange(0, "run", 0.0, "GET", "/b", {}, "", 200, {}, one.body))
    writer.finish({})
    _, line = (tmp_path / "r" / EXCHANGES).read_text(encoding="utf-8").splitlines()
    second = json.loads(line)
    assert (second["body"], second["body_as_in"]) == (None, 1)
    recording = read_recording(tmp_path / "r")
    assert [one.body for one in recording.exchanges] == ["<a><b/></a>"] * 2
    assert recording.manifest["dropped"] == 1
