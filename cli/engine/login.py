# SPDX-License-Identifier: GPL-2.0-or-later
"""``login``: the way to an engine, tried and written down."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import PROGRAM
from ovirt_rdma.cli.engine.session import Declined
from ovirt_rdma.cli.engine.settings import completed, found_settings, read_ini
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.engine_sdk_tools.api.auth import (
    Ca,
    ca_of,
    check_health,
    fetch_ca,
    same_fingerprint,
)
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import (
    DEFAULT_SECTION,
    IniFile,
    Settings,
    ca_folder,
    made_folder,
    sections,
    settings_file,
    with_section,
)
from ovirt_rdma.engine_sdk_tools.api.url import engine_place, engine_url
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.system.files import write_atomically

_FETCH_FIX = (
    "compare it on the engine's machine: openssl x509 -noout -fingerprint -sha256 "
    "-in /etc/pki/ovirt-engine/ca.pem"
)


def login(words: Namespace, screen: Screen) -> int:
    """Try the engine that the words name, and write its section. Writes nothing where
    that fails.
    """
    if words.fingerprint is not None and not words.fetch_ca:
        raise UsageProblem(
            "fingerprint-without-fetch-ca",
            "--fingerprint is of a CA that is fetched",
            "add --fetch-ca, or leave it out",
        )
    ini = read_ini(words)
    section = words.config or DEFAULT_SECTION
    settings = _settings(words, ini, section)
    target = _target(words, ini)
    known = sections(target).get(section, {})
    _refuse_other_engine(target, section, known.get("engine_url"), settings)
    ca = _fetched(words, screen, settings) if words.fetch_ca else None
    with _tried_ca(settings, ca) as trial:
        complete = completed(trial)
        for sentence in complete.warnings:
            screen.message(f"warning: {sentence}")
        check_health(complete)
        version = _version(complete)
    ca_file = settings.ca_file if ca is None else _written_ca(settings, ca)
    password = complete.password if words.save_password else None
    if password is None and complete.password == known.get("password"):
        password = known.get("password")
    values = {
        "engine_url": settings.url,
        "username": complete.username,
        "password": password,
        "cafile": ca_file,
    }
    _write(Path(target.path), with_section(target, section, values).text)
    content = {
        "engine_url": settings.url,
        "engine_version": version,
        "username": complete.username,
        "settings_file": target.path,
        "section": section,
        "ca_file": ca_file,
    }
    _tell(screen, content)
    return 0


def _settings(words: Namespace, ini: Optional[IniFile], section: str) -> Settings:
    if words.config is not None and (ini is None or section not in sections(ini)):
        # A new section: nothing comes from the file.
        words = Namespace(**{**vars(words), "config": None})
        ini = None
    settings = found_settings(words, ini)
    return replace(settings, ca_file=None) if words.fetch_ca else settings


def _target(words: Namespace, ini: Optional[IniFile]) -> IniFile:
    """Return the file to write: the one named, or ours, as it is or empty."""
    if ini is not None and ini.ours:
        return ini
    return IniFile(str(words.config_file or settings_file(os.environ)), "")


def _refuse_other_engine(
    target: IniFile, section: str, theirs: Optional[str], settings: Settings
) -> None:
    if theirs and engine_url(theirs) != settings.url:
        raise Problem(
            "settings-section-other-engine",
            f"section [{section}] of {target.path} is of another engine, {theirs}",
            "name a section for this one: --config NAME",
        )


def _fetched(words: Namespace, screen: Screen, settings: Settings) -> Ca:
    ca = fetch_ca(settings)
    screen.message(f"CA of {engine_place(settings.url)}, fetched without verification:")
    screen.message(f"  subject      {ca.subject}")
    screen.message(f"  SHA-256      {ca.fingerprint}")
    screen.message(f"  good until   {ca.until}")
    before = _ca_before(settings)
    if before is not None and before.fingerprint != ca.fingerprint:
        screen.message(f"  it was       {before.fingerprint}, {before.subject}")
    if words.fingerprint is not None:
        if not same_fingerprint(words.fingerprint, ca.fingerprint):
            raise Declined(
                "ca-fingerprint-mismatch",
                "this is not the CA with the fingerprint that was given",
                _FETCH_FIX,
            )
        return ca
    if sys.stdin is None or not sys.stdin.isatty():
        raise Declined(
            "no-terminal",
            "the CA was not taken: there is no terminal to ask on",
            f"{_FETCH_FIX}; then give it with --fingerprint",
        )
    if not screen.asked("Is this the engine's CA? [y/N] "):
        raise Declined("declined", "the CA was not taken: declined", _FETCH_FIX)
    return ca


def _ca_before(settings: Settings) -> Optional[Ca]:
    try:
        return ca_of(_ca_file(settings).read_text(encoding="ascii"))
    except (OSError, ValueError, Problem):
        return None


@contextmanager
def _tried_ca(settings: Settings, ca: Optional[Ca]) -> Iterator[Settings]:
    """Give settings that trust ``ca`` while it is in a file that goes away again."""
    if ca is None:
        yield settings
        return
    with NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(ca.pem)
        file.flush()
        yield replace(settings, ca_file=file.name)


def _version(settings: Settings) -> str:
    with Session(settings) as session:
        api = session.read(Read("", "reading the engine's version", "get"))
    info = api.product_info
    version: Any = info.version.full_version if info and info.version else None
    return str(version or "unknown")


def _ca_file(settings: Settings) -> Path:
    place = engine_place(settings.url).replace("[", "").replace("]", "")
    return ca_folder(os.environ) / f"{place}.pem"


def _written_ca(settings: Settings, ca: Ca) -> str:
    path = _ca_file(settings)
    _write(path, ca.pem)
    return str(path)


def _write(path: Path, text: str) -> None:
    """Write a file of the user's own; a link leads to it."""
    path = path.resolve()
    made_folder(path.parent)
    try:
        write_atomically(path, text.encode(), 0o600)
    except OSError as error:
        raise Problem(
            "settings-not-written", f"{path} cannot be written: {error.strerror}"
        ) from error


def _tell(screen: Screen, content: Mapping[str, Any]) -> None:
    if not screen.for_people:
        screen.document("login", content)
        return
    place, section = engine_place(content["engine_url"]), content["section"]
    screen.line(f"Logged in to {place}, version {content['engine_version']}.")
    screen.line(f"Section [{section}] of {content['settings_file']} has how.")
    more = "" if section == DEFAULT_SECTION else f" --config {shlex.quote(section)}"
    screen.next(f"{PROGRAM} hosts list{more}")
