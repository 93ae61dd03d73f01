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
from engine_double import EngineDouble, sample_world
from engine_recording import (
    Exchange,
    read_recording,
    replay,
)
from engine_recording.exchanges import (
    EXCHANGES,
    MANIFEST,
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
    "an object": (
        _of("GET", r"/networks$"),
        lambda d: d.update(
            body=re.sub(r"(?s)<network .*?</network>", "", d["body"], count=1)
        ),
        "network ovirtmgmt: object: the engine has nothing like it, the double it",
    ),
    "an event": (
        lambda one: one.method == "GET" and "<code>13</code>" in one.body,
        lambda d: d.update(body=d["body"].replace("<code>13<", "<code>17<")),
        r"codes: events: the engine has .*\b17\b",
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
