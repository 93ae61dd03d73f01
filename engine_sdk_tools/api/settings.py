# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of the connection to the engine, and where state is kept.

The text of a settings file: its sections, and one of them set with everything else
left as it is written. Pure.

configparser would drop the comments.

Where this machine keeps what a run needs to go on, and the user's settings.

Where the engine is and who asks: from the command line, the environment, a file.

The file has the shape of ovirt-img's (ovirt-imageio, client/_options.py): sections of
an ini file with ``engine_url``, ``username``, ``password``, ``cafile``, ``log_file``
and ``log_level``. The variables are those of the ovirt.ovirt Ansible collection.
Pure: who calls reads the files.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.url import engine_url
from ovirt_rdma.host.errors import Problem

KEYS = ("engine_url", "username", "password", "cafile", "log_file", "log_level")
# Read where no section is named and the file has several.
DEFAULT_SECTION = "default"

_HEADER = re.compile(r"\[(.+)\]")
_KEY = re.compile(r"([^\s=:#;][^=:]*?)\s*[=:]")
_FIRST_LINE = "# Settings of ovirt-rdma: the engines it knows.\n"


@dataclass(frozen=True)
class IniFile:
    """A settings file: ``open_to_others`` where not only its owner may read it,
    ``ours`` where it is not another program's, ovirt-img's.
    """

    path: str
    text: str = field(repr=False)
    open_to_others: bool = False
    ours: bool = True


def sections(ini: IniFile) -> dict[str, dict[str, str]]:
    """Return the sections of the file. Raises Problem that quotes no line of it: it may
    hold a password.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(ini.text)
    except configparser.DuplicateSectionError as error:
        raise Problem(
            "settings-section-twice", f"{ini.path} has two sections [{error.section}]"
        ) from error
    except configparser.DuplicateOptionError as error:
        raise Problem(
            "settings-key-twice",
            f"{ini.path}: section [{error.section}] has {error.option} twice",
        ) from error
    except configparser.MissingSectionHeaderError as error:
        raise Problem(
            "settings-no-section",
            f"{ini.path}:{error.lineno}: there is no section before this line",
            f"put [{DEFAULT_SECTION}] above it",
        ) from error
    except configparser.ParsingError as error:
        lines = ", ".join(str(number) for number, _ in error.errors)
        raise Problem(
            "settings-line-invalid", f"{ini.path}: line {lines} is no 'key = value'"
        ) from error
    found = {name: dict(parser[name]) for name in parser.sections()}
    if ini.ours:
        for name, values in found.items():
            for key in values:
                if key not in KEYS:
                    raise Problem(
                        "settings-key-unknown",
                        f"{ini.path}: section [{name}] has an unknown key {key!r}",
                        nearest_word(key, KEYS) or f"the keys are {', '.join(KEYS)}",
                    )
    return found


def with_section(
    ini: IniFile, name: str, values: Mapping[str, Optional[str]]
) -> IniFile:
    """Return the file with ``values`` in section ``name``, made if need be; None takes
    a key away. Raises Problem for what an ini file cannot hold.
    """
    if not name.strip() or name != name.strip() or re.search(r"[\]\[\n\r]", name):
        raise Problem(
            "settings-section-name-invalid",
            f"{name!r} cannot be a section of a settings file",
        )
    for key, value in values.items():
        if value is not None and (value != value.strip() or "\n" in value):
            raise Problem(
                "settings-value-invalid",
                f"{key} cannot be kept in a settings file: it begins or ends with a "
                "blank",
                "keep a password in a file of its own: --password-file",
            )
    before = sections(ini)
    after = replace(ini, text=_edited(ini.text, name, values))
    wanted = dict(before.get(name, {}))
    for key, value in values.items():
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    if sections(after) != {**before, name: wanted}:
        raise Problem(
            "settings-not-editable",
            f"{ini.path} is written in a way that cannot be changed safely",
            "edit it by hand",
        )
    return after


def _edited(text: str, name: str, values: Mapping[str, Optional[str]]) -> str:
    lines = (text or _FIRST_LINE).splitlines()
    start = _line_of(lines, name)
    if start is None:
        if lines and lines[-1].strip():
            lines.append("")
        lines.append(f"[{name}]")
        start = len(lines) - 1
    end = next(
        (at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])),
        len(lines),
    )
    kept, dropping = [], False
    for line in lines[start + 1 : end]:
        found = _KEY.match(line)
        if found:
            dropping = found.group(1).lower() in values
        elif not line[:1].isspace():
            # What is indented goes on from the line before.
            dropping = False
        if not dropping:
            kept.append(line)
    last = max((at + 1 for at, line in enumerate(kept) if line.strip()), default=0)
    new = [f"{key} = {value}" for key, value in values.items() if value is not None]
    body = [*kept[:last], *new, *kept[last:]]
    return "\n".join([*lines[: start + 1], *body, *lines[end:]]) + "\n"


def _line_of(lines: list[str], name: str) -> Optional[int]:
    for at, line in enumerate(lines):
        found = _HEADER.match(line)
        if found and found.group(1) == name:
            return at
    return None


def nearest_word(word: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for a word of ``known`` that is like it; "" for none."""
    near = get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


_OF_ROOT = Path("/var/lib/ovirt-rdma/engine")
_NAME = "ovirt-rdma"


def state_folder(environ: Mapping[str, str], euid: int) -> Path:
    """Return the folder of states: root's below /var/lib, else by the XDG Base
    Directory Specification. It need not be there. Raises Problem without a home.
    """
    if euid == 0:
        return _OF_ROOT
    return _base(environ, "XDG_STATE_HOME", ".local/state") / _NAME


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the name of the user's settings file. Raises Problem without a home."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / f"{_NAME}.conf"


def imageio_settings_file(environ: Mapping[str, str]) -> Path:
    """Return the name of ovirt-img's settings file, which has the same shape."""
    return settings_file(environ).with_name("ovirt-img.conf")


def ca_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the CAs that ``login --fetch-ca`` fetched."""
    return settings_file(environ).with_name(_NAME)


def made_folder(folder: Path) -> Path:
    """Make ``folder``, readable for its owner only, if need be; return it.

    Raises Problem where it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            "folder-not-created", f"{folder} cannot be made: {error.strerror}"
        ) from error
    return folder


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    # The specification: what is not absolute is to be ignored.
    named = environ.get(variable, "")
    if named.startswith("/"):
        return Path(named)
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise Problem(
            "home-unknown",
            f"neither {variable} nor HOME says where files of yours are",
            f"set HOME, or {variable}",
        )
    return Path(home) / below_home


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
                raise Problem(
                    "credential-not-utf8",
                    f"the {name} for the engine is not UTF-8 text",
                )
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise Problem(
                "token-invalid",
                "the token for the engine is none: it is not ASCII text",
            )


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
        raise Problem("engine-not-configured", *_no_engine(ini))
    url = engine_url(asked)
    username, password, token = _credentials(sources)
    level = _first(sources, "log_level") or "info"
    if level not in LOG_LEVELS:
        raise Problem(
            "log-level-unknown",
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
            "settings-file-missing",
            f"there is no settings file for --config {name}",
            "'ovirt-rdma login' writes one",
        )
    found = sections(ini)
    if name not in found:
        raise Problem(
            "settings-section-unknown",
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
