# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the engine is and who asks: from the command line, the environment, a file.

The file has the shape of ovirt-img's (ovirt-imageio, client/_options.py): sections of
an ini file with ``engine_url``, ``username``, ``password``, ``cafile``, ``log_file``
and ``log_level``. The variables are those of the ovirt.ovirt Ansible collection.
Pure: who calls reads the files.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_url import engine_url
from ovirt_rdma.engine_sdk_tools.settings_text import (
    DEFAULT_SECTION,
    IniFile,
    nearest_word,
    sections,
)
from ovirt_rdma.host.problem import Problem

LOG_LEVELS = ("debug", "info", "warning", "error")

# curl and the engine's own clients wait for ever; a reading takes some seconds.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Flags:
    """What the command line says; ``password`` is what the --password-file holds."""

    config: Optional[str] = None
    engine_url: Optional[str] = None
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    ca_file: Optional[str] = None


@dataclass(frozen=True)
class Settings:
    """How to reach an engine. ``url`` ends in /ovirt-engine/api. Without ``token`` and
    ``password`` somebody has to ask for the password. ``timeout_s`` is for a reading;
    ``warnings`` are sentences for the operator.
    """

    url: str
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    token: Optional[str] = field(default=None, repr=False)
    ca_file: Optional[str] = None
    timeout_s: float = TIMEOUT_S
    log_file: Optional[str] = None
    log_level: str = "info"
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise Problem for what no request can have in it."""
        sent = {"user": self.username, "password": self.password, "token": self.token}
        for name, word in sent.items():
            # Bytes of the environment that are no UTF-8 come as surrogates.
            if word and any("\ud800" <= letter <= "\udfff" for letter in word):
                raise Problem(f"the {name} for the engine is not UTF-8 text")
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise Problem("the token for the engine is none: it is not ASCII text")


@dataclass(frozen=True)
class _Source:
    """What one place says, under the file's keys, and ``token``."""

    name: str
    values: Mapping[str, str] = field(repr=False)

    def get(self, key: str) -> Optional[str]:
        return self.values.get(key) or None


def from_sources(
    flags: Flags,
    environ: Mapping[str, str],
    ini: Optional[IniFile] = None,
    default_ca: Optional[str] = None,
) -> Settings:
    """Return the settings: flags and a section that they name, over the environment,
    over the file's default section. Environment and default section do not count where
    they name another engine than what is above them: their password is for that one.

    ``default_ca`` is what is trusted where nobody says what. Raises Problem.
    """
    sources = [_of_flags(flags)]
    if flags.config is not None:
        sources.append(_section(ini, flags.config))
    variables = _of_environ(environ)
    if not _for_another(variables, sources):
        sources.append(variables)
    if flags.config is None and ini is not None:
        sources += _default_section(ini, sources)
    asked = _first(sources, "engine_url")
    if asked is None:
        raise Problem(*_no_engine(ini))
    url = engine_url(asked)
    username, password, token = _credentials(sources)
    level = _first(sources, "log_level") or "info"
    if level not in LOG_LEVELS:
        raise Problem(
            f"log_level {level!r} is none of {', '.join(LOG_LEVELS)}",
            nearest_word(level, LOG_LEVELS),
        )
    return Settings(
        url,
        username,
        password,
        token,
        _first(sources, "cafile") or default_ca,
        log_file=_first(sources, "log_file"),
        log_level=level,
        warnings=_warnings(ini, sources),
    )


def _of_flags(flags: Flags) -> _Source:
    said = {
        "engine_url": flags.engine_url,
        "username": flags.username,
        "password": flags.password,
        "cafile": flags.ca_file,
    }
    return _Source("flags", {key: value for key, value in said.items() if value})


def _of_environ(environ: Mapping[str, str]) -> _Source:
    host = environ.get("OVIRT_HOSTNAME")
    said = {
        "engine_url": environ.get("OVIRT_URL") or host,
        "username": environ.get("OVIRT_USERNAME"),
        "password": environ.get("OVIRT_PASSWORD"),
        "token": environ.get("OVIRT_TOKEN"),
        "cafile": environ.get("OVIRT_CAFILE"),
    }
    return _Source("environment", {key: value for key, value in said.items() if value})


def _section(ini: Optional[IniFile], name: str) -> _Source:
    if ini is None:
        raise Problem(
            f"there is no settings file for --config {name}",
            "'ovirt-rdma login' writes one",
        )
    found = sections(ini)
    if name not in found:
        raise Problem(
            f"{ini.path} has no section [{name}]",
            nearest_word(name, found) or f"it has {_listed(found)}",
        )
    return _Source("file", found[name])


def _default_section(ini: IniFile, above: Sequence[_Source]) -> list[_Source]:
    found = sections(ini)
    name = DEFAULT_SECTION if DEFAULT_SECTION in found else None
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None:
        return []
    source = _Source("file", found[name])
    named = _first(above, "engine_url") is not None
    if _for_another(source, above) or (named and source.get("engine_url") is None):
        return []
    return [source]


def _for_another(source: _Source, above: Sequence[_Source]) -> bool:
    """Whether ``source`` names another engine than the sources ``above`` it."""
    asked, theirs = _first(above, "engine_url"), source.get("engine_url")
    if asked is None or theirs is None:
        return False
    return engine_url(asked) != engine_url(theirs)


def _credentials(
    sources: Sequence[_Source],
) -> tuple[Optional[str], Optional[str], Optional[str]]:
    """Return username, password and token. A token that comes from below the place that
    names the user or the password would be somebody else's.
    """
    username = _first(sources, "username")
    for source in sources:
        if source.get("token") and not source.get("password"):
            return username, None, source.get("token")
        if source.get("username") or source.get("password"):
            break
    return username, _first(sources, "password"), None


def _first(sources: Sequence[_Source], key: str) -> Optional[str]:
    return next((value for one in sources if (value := one.get(key))), None)


def _warnings(ini: Optional[IniFile], sources: Sequence[_Source]) -> tuple[str, ...]:
    secret = any(one.name == "file" and one.get("password") for one in sources)
    if ini is None or not secret or not ini.open_to_others:
        return ()
    command = f"chmod 600 {shlex.quote(ini.path)}"
    return (f"{ini.path} has a password and others may read it: {command}",)


def _no_engine(ini: Optional[IniFile]) -> tuple[str, str]:
    if ini is not None and len(found := sections(ini)) > 1:
        return (
            "no engine is named",
            f"say which with --config: {ini.path} has {_listed(found)}",
        )
    return (
        "no engine is named",
        "give --engine-url, set OVIRT_URL, or write a settings file with "
        "'ovirt-rdma login'",
    )


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "no section"
