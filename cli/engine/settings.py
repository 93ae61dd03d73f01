# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the settings of the engine from options, environment and files.

This also asks for the password, and opens the log.
"""

from __future__ import annotations

import getpass
import logging
import os
import shlex
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.engine.arguments import EngineVerb
from ovirt_rdma.engine_sdk_tools.api.settings import (
    Flags,
    IniFile,
    Settings,
    engine_host_port,
    from_sources,
    imageio_settings_file,
    settings_file,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.files import remove_unfinished
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.text import printable

# On the engine machine, the CA that signed the certificate of its web server; by
# default the second, the engine's own CA.
ENGINE_CAS = ("/etc/pki/ovirt-engine/apache-ca.pem", "/etc/pki/ovirt-engine/ca.pem")


def settings_of(args: EngineVerb) -> Settings:
    """Return the settings; ask for the password on a terminal if it is missing.

    Raises Problem.
    """
    return completed(found_settings(args, read_ini(args.config_file)))


def completed(settings: Settings) -> Settings:
    """Return ``settings`` ready for use: CA checked, log opened, password asked for.

    Raises Problem.
    """
    if settings.ca_file is not None:
        _readable(settings.ca_file)
    if settings.log_file is not None:
        _log_to(settings.log_file, settings.log_level)
    if settings.username is None and settings.token is None:
        raise Problem(
            "engine-no-user",
            f"the user for {engine_host_port(settings.url)} is missing",
            "give --username, for example admin@internal, or set OVIRT_USERNAME",
        )
    if settings.password is None and settings.token is None:
        settings = replace(settings, password=_asked_password(settings))
    return settings


def found_settings(args: EngineVerb, ini: Optional[IniFile]) -> Settings:
    """Return the settings of options, environment and file, without asking."""
    password: Optional[str] = None
    warnings: tuple[str, ...] = ()
    if args.password_file is not None:
        password, warnings = _password_in(args.password_file)
    flags = Flags(args.config, args.engine_url, args.username, password, args.ca_file)
    default_ca = next((ca for ca in ENGINE_CAS if os.access(ca, os.R_OK)), None)
    settings = from_sources(flags, os.environ, ini, default_ca)
    return replace(settings, warnings=(*warnings, *settings.warnings))


def read_ini(name: Optional[str]) -> Optional[IniFile]:
    """Return the settings file (that with this name, ours, or ovirt-img's), or None."""
    if name is not None:
        _remove_unfinished(Path(name))
        return _ini(Path(name), ours=True)
    if "HOME" not in os.environ and "XDG_CONFIG_HOME" not in os.environ:
        return None
    ours = settings_file(os.environ)
    _remove_unfinished(ours)
    if os.access(ours, os.F_OK):
        return _ini(ours, ours=True)
    theirs = imageio_settings_file(os.environ)
    return _ini(theirs, ours=False) if os.access(theirs, os.F_OK) else None


def _remove_unfinished(file: Path) -> None:
    """Remove files that a killed ``login`` left, which may contain a password."""
    remove_unfinished(Path(os.path.realpath(file)).parent)


def _ini(path: Path, *, ours: bool) -> IniFile:
    text, open_to_others = _read(path, "the settings file")
    return IniFile(str(path), text, open_to_others, ours)


def _password_in(name: str) -> tuple[str, tuple[str, ...]]:
    text, open_to_others = _read(Path(name), "the password file")
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise Problem(
            "password-file-empty",
            f"the first line of {name} is empty",
            "write the password into the first line",
        )
    warnings = (
        f"others may read the password in {name}: chmod 600 {shlex.quote(name)}",
    )
    return lines[0], warnings if open_to_others else ()


def _read(path: Path, what: str) -> tuple[str, bool]:
    """Return the text, and True if others than the owner can read the file."""
    try:
        mode = path.stat().st_mode
        text = read_named(path).decode("utf-8")
    except OSError as error:
        raise Problem(
            "file-unreadable", f"{what} {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise Problem("file-not-utf8", f"{what} {path} is not UTF-8 text") from error
    return text, stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def _readable(ca_file: str) -> None:
    try:
        text = read_named(ca_file)
    except OSError as error:
        raise Problem(
            "ca-file-unreadable",
            f"the CA file {ca_file} cannot be read: {error.strerror}",
            "fetch the engine's CA: ovirt-rdma login --fetch-ca",
        ) from error
    if b"-----BEGIN " not in text:
        raise Problem(
            "ca-file-no-certificate", f"{ca_file} contains no certificate in PEM form"
        )


def _asked_password(settings: Settings) -> str:
    where = engine_host_port(settings.url)
    if sys.stdin is None or not sys.stdin.isatty():
        raise Problem(
            "engine-no-password",
            f"there is no password for {settings.username} at {where}",
            "give --password-file, or set OVIRT_PASSWORD",
        )
    try:
        password = getpass.getpass(
            printable(f"Password of {settings.username} at {where}: ")
        )
    except EOFError as error:
        raise Problem("engine-no-password", "no password was given") from error
    if not password:
        raise Problem("engine-no-password", "no password was given")
    return password


class _LogLines(logging.Formatter):
    """Makes messages printable, on one line, because logs are read on terminals too."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message; called by logging."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Return the traceback; called by logging."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


def _log_to(name: str, level: str) -> None:
    try:
        handler = logging.FileHandler(Path(name).expanduser(), encoding="utf-8")
    except OSError as error:
        raise Problem(
            "log-not-opened", f"the log {name} cannot be opened: {error.strerror}"
        ) from error
    handler.setFormatter(_LogLines("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ovirt_rdma")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
