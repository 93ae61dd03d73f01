# SPDX-License-Identifier: GPL-2.0-or-later
"""Access the engine of a smoke run, by verbs and by its API; its settings, and notes of
what it makes.

The settings are the variables OVIRT_RDMA_TEST_*:

URL, USERNAME, PASSWORD, CAFILE  the engine, as OVIRT_URL and its like
ALLOW_CHANGES=1   without it nothing is changed
DATACENTER        a data center with two hosts up; default: the first that has
EXPORT            SERVER:/PATH, empty; a domain is made there and removed with its files
RDMA=1            hosts and that server do RDMA, or the hosts are simulated ones that
                  mount everything: conversions are carried out
NIC, ADDRESSES    a nic without a network on hosts that are up, and addresses for it
                  (default: 198.51.100.11/24): a network is attached there
HOSTS=ssh         hosts are asked over SSH; SSH_KEY is the private key for it
POLICY            a file, with HOSTS=ssh: pushed to the hosts that are up
RECORD            a folder: every request and answer goes there
NOTES             a folder for the notes of what is made
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import requests
from support.engine.engine_command_line import Clock, Result

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.api.auth import (
    Settings,
    from_sources,
    log_in,
    log_out,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts import ansible
from ovirt_rdma.engine_sdk_tools.model import Engine, Host
from ovirt_rdma.engine_sdk_tools.reader import read_engine

NO_ENGINE = (
    "no real engine: set OVIRT_RDMA_TEST_URL and OVIRT_RDMA_TEST_ALLOW_CHANGES=1"
)
SSH, DOUBLE = "ssh", "double"


class NotAllowed(Exception):
    """The variables do not allow a run; the text says what is missing."""


@dataclass(frozen=True)
class Wishes:
    """``hosts`` is the host access: ``ssh``, ``double`` (in tests), or none."""

    url: str
    notes: Path
    username: Optional[str] = None
    password: Optional[str] = None
    ca_file: Optional[str] = None
    center: Optional[str] = None
    export: Optional[str] = None
    rdma: bool = False
    nic: Optional[str] = None
    addresses: str = "198.51.100.11/24"
    hosts: str = ""
    ssh_key: Optional[str] = None
    policy: Optional[str] = None
    record: Optional[Path] = None


def from_environment(environ: Mapping[str, str]) -> Wishes:
    """Raises NotAllowed."""

    def given(name: str) -> Optional[str]:
        return environ.get(f"OVIRT_RDMA_TEST_{name}") or None

    url = given("URL")
    if url is None or given("ALLOW_CHANGES") != "1":
        raise NotAllowed(NO_ENGINE)
    hosts = given("HOSTS") or ""
    if hosts not in ("", SSH, DOUBLE):
        raise NotAllowed(f"OVIRT_RDMA_TEST_HOSTS is ssh or not set, not {hosts!r}")
    record = given("RECORD")
    return Wishes(
        url,
        Path(given("NOTES") or _state_home(environ) / "ovirt-rdma-smoke"),
        given("USERNAME"),
        given("PASSWORD"),
        given("CAFILE"),
        given("DATACENTER"),
        given("EXPORT"),
        given("RDMA") == "1",
        given("NIC"),
        given("ADDRESSES") or Wishes.addresses,
        hosts,
        given("SSH_KEY"),
        given("POLICY"),
        Path(record) if record else None,
    )


def _state_home(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_STATE_HOME", "")
    if named.startswith("/"):
        return Path(named)
    return Path(environ.get("HOME") or Path.home()) / ".local/state"


# -- the notes

FILE, STATES = "made.jsonl", "states"
# The prefix of all names that a run makes in the engine, and of no others.
PREFIX = "ovirt-rdma-smoke-"


class OtherRun(Exception):
    """Another smoke run of this machine is under way."""


class Notes:
    """The notes in ``folder``, locked against other runs until closed.

    ``states`` is the folder for the states of conversions, which a later run needs too.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.states = folder / STATES
        self.states.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / FILE
        self._file = self._path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise OtherRun(
                "conversion-lock-held", f"another smoke run holds {self._path}"
            ) from None

    def will_make(self, kind: str, name: str, **more: Any) -> None:
        """Write to disk what is made next."""
        line = json.dumps({"kind": kind, "name": name, **more})
        self._file.write(f"{line}\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def all(self) -> list[dict[str, Any]]:
        """Return the notes, the oldest first. An incomplete last line was not made."""
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def names(self, kind: str) -> list[str]:
        return [one["name"] for one in self.all() if one["kind"] == kind]

    def clear(self) -> None:
        """Forget all notes: everything is removed."""
        self._file.truncate(0)
        for one in self.states.rglob("*"):
            if one.is_file():
                one.unlink()

    def close(self) -> None:
        self._file.close()


# -- the engine

# Verbs without options for host access.
_ENGINE_ONLY = {("hosts", "list")}


class Skipped(Exception):
    """A verb that this site cannot run; the text says what is missing."""


@dataclass(frozen=True)
class Reply:
    """A raw answer of the API."""

    status: int
    media: str
    text: str


@dataclass
class Site:
    """``url`` is the address of the engine or of a recording proxy. ``door`` is the
    host access of tests; with ``fast``, waiting takes no time. A signal sets ``ended``.
    """

    wishes: Wishes
    url: str
    notes: Notes
    door: Any = None
    fast: bool = False
    ended: bool = False
    name: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(3)}")
    center: str = ""
    _clock: Clock = field(default_factory=Clock)
    _session: Optional[Session] = None

    # -- the command

    def run(self, *words: str) -> Result:
        """Run ovirt-rdma; raise KeyboardInterrupt if a signal ended it."""
        asks = words[:2] not in _ENGINE_ONLY and words[0] != "login"
        if self.wishes.hosts == SSH and asks:
            words += ("--ssh-key", self.wishes.ssh_key) if self.wishes.ssh_key else ()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as meanwhile:
            for change in self._changes():
                meanwhile.enter_context(change)
            meanwhile.enter_context(contextlib.redirect_stdout(out))
            meanwhile.enter_context(contextlib.redirect_stderr(err))
            code = main(words, self.door)
        self.go_on()
        return Result(code, out.getvalue(), err.getvalue())

    def done(self, *words: str, code: int = 0) -> Result:
        """Run it, and require the exit code ``code``."""
        result = self.run(*words)
        if result.code != code:
            raise AssertionError(
                f"ovirt-rdma {' '.join(words)}: exit code {result.code}, not {code}: "
                f"{' '.join(result.err.split()) or result.out}"
            )
        return result

    def go_on(self) -> None:
        if self.ended:
            raise KeyboardInterrupt

    def _changes(self) -> Iterator[Any]:
        """Yield patches of this process for the command."""
        yield mock.patch.dict(os.environ, self.environment())
        yield mock.patch.object(sys, "stdin", io.StringIO(""))
        states = self.notes.states
        yield mock.patch.object(cli_session, "state_folder", lambda *_: states)
        if self.wishes.hosts != SSH:
            # Root on an engine machine has access to hosts by default.
            yield mock.patch.object(ansible, "default_key", lambda *_: None)
        if self.fast:
            clock = self._clock

            def quick(settings: Settings) -> Session:
                return Session(settings, clock=clock, sleep=clock.sleep)

            yield mock.patch.object(cli_session, "Session", quick)

    def environment(self) -> dict[str, str]:
        wishes = self.wishes
        found = {"XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": "1"}
        found["OVIRT_URL"] = self.url
        for word, text in (
            ("USERNAME", wishes.username),
            ("PASSWORD", wishes.password),
            ("CAFILE", wishes.ca_file),
        ):
            if text is not None:
                found[f"OVIRT_{word}"] = text
        return found

    @property
    def blind(self) -> bool:
        """Whether there is no access to the hosts."""
        return self.door is None and self.wishes.hosts not in (SSH, DOUBLE)

    # -- the engine

    def settings(self) -> Settings:
        return from_sources(self.environment())

    @property
    def session(self) -> Session:
        if self._session is None:
            made = Session(self.settings())
            if self.fast:
                clock = self._clock
                made = Session(self.settings(), clock=clock, sleep=clock.sleep)
            self._session = made
        return self._session

    def now(self) -> Engine:
        return read_engine(self.session, networks=True, nics=True, attachments=True)

    def hosts_up(self, engine: Optional[Engine] = None) -> list[Host]:
        """Return the hosts of our data center that are up."""
        engine = engine or self.now()
        center = next(c for c in engine.data_centers if c.name == self.center)
        return [h for h in engine.hosts_of(center.id) if h.status == "up"]

    def choose_center(self) -> None:
        """Return the data center of the settings, or the first with two hosts up."""
        engine = self.now()
        wished = self.wishes.center
        names = [wished] if wished else [c.name for c in engine.data_centers]
        for name in names:
            ids = [c.id for c in engine.data_centers if c.name == name]
            up = [h for one in ids for h in engine.hosts_of(one) if h.status == "up"]
            if len(up) >= 2:
                self.center = name
                return
        raise Skipped(f"{wished or 'no data center'} has two hosts that are up")

    def raw(
        self, method: str, path: str, body: str = "", token: Optional[str] = None
    ) -> Reply:
        """Send a request that no verb sends."""
        settings = self.settings()
        given = token or log_in(settings)
        http = requests.Session()
        http.trust_env = False
        headers = {"Authorization": f"Bearer {given}", "Accept": "application/xml"}
        if body:
            headers["Content-Type"] = "application/xml"
        reply = http.request(
            method,
            f"{settings.url}/{path}",
            data=body.encode() or None,
            headers=headers,
            verify=settings.ca_file or True,
            timeout=300,
        )
        if token is None:
            log_out(settings, given)
        self.go_on()
        return Reply(
            reply.status_code, reply.headers.get("Content-Type", ""), reply.text
        )

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
