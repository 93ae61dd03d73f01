# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``login``: test the connection to an engine, and store it in the settings."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import PROGRAM, EngineVerb
from ovirt_rdma.cli.engine.session import completed, found_settings, read_ini
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, Declined, Parser
from ovirt_rdma.engine_sdk_tools.api.auth import (
    DEFAULT_SECTION,
    Ca,
    IniFile,
    Settings,
    engine_host_port,
    fetch_ca,
    same_engine,
    same_fingerprint,
    section_text,
    sections,
    settings_file,
)
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.reader import version_of
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.system.files import write_atomically

_FIRST_LINE = "# Settings of ovirt-rdma: one section per engine.\n\n"
_FETCH_FIX = (
    "compare it on the engine's machine: openssl x509 -noout -fingerprint -sha256 "
    "-in /etc/pki/ovirt-engine/ca.pem"
)


class Login(EngineVerb):
    """Test the connection to the engine, and write the settings if there are none.

    Nothing is written if a test fails.
    """

    codes = "0 logged in, 1 failed, 4 declined"
    examples = (
        "--engine-url engine.example.com --username admin@internal --fetch-ca",
        "-c prod --password-file pw --save-password",
    )
    more = (
        "Tests the login, then writes the settings file, without the password. If\n"
        "there is such a file, shows the lines to put there. Writes nothing if the\n"
        "test fails."
    )

    fetch_ca: bool
    fingerprint: Optional[str]
    save_password: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--fetch-ca",
            action="store_true",
            help="fetch the CA from the engine, and ask you to confirm its fingerprint",
        )
        parser.add_argument(
            "--fingerprint",
            metavar="SHA256",
            help="the CA's fingerprint, as 'openssl x509 -fingerprint -sha256' shows "
            "it, in place of the question",
        )
        parser.add_argument(
            "--save-password",
            action="store_true",
            help="write the password too, to a new file",
        )

    def run(self, context: Context) -> int:
        output = context.output
        if self.fingerprint is not None and not self.fetch_ca:
            raise UsageProblem(
                "fingerprint-without-fetch-ca",
                "--fingerprint needs --fetch-ca",
                "add --fetch-ca, or omit --fingerprint",
            )
        named = self.config_file
        new = named is not None and not os.access(named, os.F_OK)
        ini = None if new else read_ini(named, output)
        section = self.config or DEFAULT_SECTION
        target = ini or IniFile(str(named or settings_file(os.environ)), "")
        known = sections(target).get(section, {})
        # A new section has no settings in the file.
        chosen = self.config if known else None
        given = None if self.config and not known else ini
        settings = found_settings(self, given, chosen, output)
        if self.fetch_ca:
            settings = replace(settings, ca_file=None)
        theirs = known.get("engine_url")
        if theirs and not same_engine(settings.url, theirs):
            raise Problem(
                "settings-section-other-engine",
                f"section [{section}] of {target.path} is for another engine, {theirs}",
                "choose another section for this engine, with --config",
            )
        ca = _fetch_ca(self, output, settings) if self.fetch_ca else None
        with _trusting(settings, ca) as trial:
            complete = completed(trial)
            with Session(complete) as session:
                read = Read("", "reading the engine's version", "get")
                version = version_of(session.read(read)) or "unknown"
        ca_file = settings.ca_file and str(Path(settings.ca_file).absolute())
        if ca is not None:
            ca_file = str(_ca_file(settings))
            _write(_ca_file(settings), ca.pem)
        values = {
            "engine_url": settings.url,
            "username": complete.username,
            "cafile": ca_file,
            "password": complete.password if self.save_password else None,
        }
        text, path = section_text(section, values), Path(target.path)
        # The engine's address may be written in another way there.
        wanted = {**values, "engine_url": known.get("engine_url", settings.url)}
        stored = all(value in (None, known.get(key)) for key, value in wanted.items())
        written = not stored and not os.access(path, os.F_OK)
        if written:
            _write(path, f"{_FIRST_LINE}{text}", replace=False)
        shown = section_text(section, {**values, "password": None}).splitlines()
        content = {
            "engine_url": settings.url,
            "engine_version": version,
            "username": complete.username,
            "settings_file": target.path,
            "section": section,
            "ca_file": ca_file,
            "written": written,
            "to_add": [] if stored or written else shown,
        }
        other = None if section == DEFAULT_SECTION else section
        options = (("--config-file", named), ("--config", other))
        more = [f"{name} {shlex.quote(text)}" for name, text in options if text]
        _print_result(output, content, more, values["password"] is not None)
        return 0


def _fetch_ca(args: Login, output: Output, settings: Settings) -> Ca:
    ca = fetch_ca(settings)
    where = engine_host_port(settings.url)
    output.message(f"CA of {where}, fetched without verification:")
    output.message(f"  subject      {ca.subject}")
    output.message(f"  SHA-256      {ca.fingerprint}")
    output.message(f"  valid until  {ca.until}")
    if args.fingerprint is not None:
        if not same_fingerprint(args.fingerprint, ca.fingerprint):
            raise Declined(
                "ca-fingerprint-mismatch",
                "the CA does not have the fingerprint that was given",
                _FETCH_FIX,
            )
        return ca
    if sys.stdin is None or not sys.stdin.isatty():
        raise Declined(
            "no-terminal",
            "the CA was not accepted: there is no terminal to ask on",
            f"{_FETCH_FIX}; then give it with --fingerprint",
        )
    if not output.ask("Is this the engine's CA? [y/N] "):
        raise Declined("declined", "the CA was not accepted: declined", _FETCH_FIX)
    return ca


@contextmanager
def _trusting(settings: Settings, ca: Optional[Ca]) -> Iterator[Settings]:
    """Yield settings that trust ``ca``, which is in a temporary file meanwhile."""
    if ca is None:
        yield settings
        return
    with NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(ca.pem)
        file.flush()
        yield replace(settings, ca_file=file.name)


def _ca_file(settings: Settings) -> Path:
    place = engine_host_port(settings.url).replace("[", "").replace("]", "")
    return settings_file(os.environ).with_suffix("") / f"{place}.pem"


def _write(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file of the user, following links."""
    path = path.resolve()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, text.encode(), 0o600, replace=replace)
    except OSError as error:
        raise Problem(
            "settings-not-written", f"{path} cannot be written: {error.strerror}"
        ) from error


def _print_result(
    output: Output, content: Mapping[str, Any], options: list[str], with_password: bool
) -> None:
    """Print ``content``, and a command with ``options`` that uses the settings."""
    if not output.for_people:
        output.document("login", content)
        return
    place, section = engine_host_port(content["engine_url"]), content["section"]
    output.line(f"Logged in to {place}, version {content['engine_version']}.")
    file = content["settings_file"]
    if content["to_add"]:
        output.text(f"{file} was not changed. Put this section there:")
        for line in content["to_add"]:
            output.line(f"    {line}")
        if with_password:
            output.text("The password is not shown: add it in a line 'password = ...'.")
    else:
        output.line(f"The connection is stored in section [{section}] of {file}.")
    output.next(" ".join((f"{PROGRAM} hosts list", *options)))
