# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the settings of an engine: from options, the environment and a settings file;
and read its URL.

Settings come from the command line, the environment and a file. The file has the form
of ovirt-img's (ovirt-imageio, client/_options.py): an ini file whose sections have
``engine_url``, ``username``, ``password``, ``cafile``, ``log_file`` and ``log_level``.
The environment variables are those of the ovirt.ovirt Ansible collection. The caller
reads and writes the files.
"""

from __future__ import annotations

import configparser
import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from ovirt_rdma.host.errors import Problem, did_you_mean

API = "/ovirt-engine/api"
# Paths that people copy from their browser.
_PORTALS = ("/ovirt-engine", "/ovirt-engine/webadmin", "/ovirt-engine/web-ui")


def engine_url(text: str) -> str:
    """Return the API's URL for ``engine.example.com``, ``https://HOST[:PORT]`` or a
    whole URL. Raises Problem if it cannot be the URL of an engine.

    Plain http is accepted for this machine only, because the password is sent
    unencrypted.
    """
    whole = text.strip() if "://" in text else f"https://{text.strip()}"
    # Before anything else, because the other sentences quote the URL.
    if "@" in re.split("[/?#]", whole.partition("://")[2], maxsplit=1)[0]:
        raise Problem(
            "engine-url-has-credentials",
            "the engine's URL must not contain a user or password",
            "use --username and --password-file",
        )
    try:
        parts = urlsplit(whole)
        host, _ = parts.hostname, parts.port
        netloc = parts.netloc
        if not netloc.isascii():  # the SDK takes nothing else
            netloc = netloc.encode("idna").decode()
    except ValueError as error:
        raise Problem(
            "engine-url-invalid", f"{text!r} is not a URL: {error}"
        ) from error
    fix = "use https://ENGINE/ovirt-engine/api"
    if parts.scheme not in ("https", "http") or not host:
        raise Problem("engine-url-invalid", f"{text!r} is not an engine's URL", fix)
    if any(letter.isspace() or not letter.isprintable() for letter in whole):
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: it contains a blank or an unprintable "
            "character",
            fix,
        )
    if parts.scheme == "http" and not _this_machine(host):
        raise Problem(
            "engine-url-not-https",
            f"{text!r} would send the password unencrypted",
            "use https:// instead",
        )
    if parts.query or parts.fragment:
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: it has a query or a fragment",
            fix,
        )
    path = parts.path.rstrip("/")
    if path in ("", *_PORTALS):
        path = API
    if not path.endswith("/api") or not path.isascii():
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: its path is {path}",
            fix,
        )
    return f"{parts.scheme}://{netloc}{path}"


def engine_host_port(url: str) -> str:
    """Return ``HOST[:PORT]`` of the API's URL, for messages."""
    return urlsplit(url).netloc


def engine_address(url: str, path: str) -> str:
    """Return the URL of ``path`` next to the API: ``sso/oauth/token``."""
    return f"{url.removesuffix('/api')}/{path}"


def _this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# Merge the settings of the connection to the engine, and name the folders for settings
# and state.

KEYS = ("engine_url", "username", "password", "cafile", "log_file", "log_level")
# The section to use if none is named and the file has several.
DEFAULT_SECTION = "default"


@dataclass(frozen=True)
class IniFile:
    """A settings file: ``open_to_others`` if not only its owner may read it, ``ours``
    unless it belongs to another program, ovirt-img.
    """

    path: str
    text: str = field(repr=False)
    open_to_others: bool = False
    ours: bool = True


def sections(ini: IniFile) -> dict[str, dict[str, str]]:
    """Return the sections of the file. Raises Problem, which quotes no line, because it
    may contain a password.
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
            f"{ini.path}:{error.lineno}: this line is not in a section",
            f"insert [{DEFAULT_SECTION}] above it",
        ) from error
    except configparser.ParsingError as error:
        lines = ", ".join(str(number) for number, _ in error.errors)
        raise Problem(
            "settings-line-invalid", f"{ini.path}: line {lines} is not 'key = value'"
        ) from error
    by_name = {name: dict(parser[name]) for name in parser.sections()}
    if ini.ours:
        for name, values in by_name.items():
            for key in values:
                if key not in KEYS:
                    raise Problem(
                        "settings-key-unknown",
                        f"{ini.path}: section [{name}] has an unknown key {key!r}",
                        did_you_mean(key, KEYS) or f"the keys are {', '.join(KEYS)}",
                    )
    return by_name


def section_text(name: str, values: Mapping[str, Optional[str]]) -> str:
    """Return the lines of a section ``name`` with those ``values`` that are not None.

    Raises Problem for a name or value that an ini file cannot contain.
    """
    present = {key: value for key, value in values.items() if value is not None}
    lines = [f"[{name}]", *(f"{key} = {value}" for key, value in present.items())]
    text = "\n".join([*lines, ""])
    try:
        good = sections(IniFile("", text)) == {name: present}
    except Problem:
        good = False
    if not good:
        raise Problem(
            "settings-value-invalid",
            f"section {name!r} cannot be stored in a settings file: its name or a "
            "value begins or ends with a blank, or has several lines",
            "write a password to a separate file, for --password-file",
        )
    return text


_STATE_OF_ROOT = Path("/var/lib/ovirt-rdma/engine")
_NAME = "ovirt-rdma"


def state_folder(environ: Mapping[str, str], euid: int) -> Path:
    """Return the folder for state files, which need not exist: for root below /var/lib,
    else as the XDG Base Directory Specification says. Raises Problem without HOME.
    """
    if euid == 0:
        return _STATE_OF_ROOT
    return _base(environ, "XDG_STATE_HOME", ".local/state") / _NAME


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's settings file. Raises Problem without HOME."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / f"{_NAME}.conf"


def imageio_settings_file(environ: Mapping[str, str]) -> Path:
    """Return the path of ovirt-img's settings file, which has the same form."""
    return settings_file(environ).with_name("ovirt-img.conf")


def ca_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for the CAs that ``login --fetch-ca`` stores."""
    return settings_file(environ).with_name(_NAME)


def create_folder(folder: Path) -> Path:
    """Return ``folder``, created if missing, readable for its owner only.

    Raises Problem if it cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            "folder-not-created", f"{folder} cannot be created: {error.strerror}"
        ) from error
    return folder


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    # The specification says to ignore a path that is not absolute.
    path = environ.get(variable, "")
    if path.startswith("/"):
        return Path(path)
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise Problem(
            "home-unknown",
            f"neither {variable} nor HOME is set to an absolute path",
            f"set HOME or {variable}",
        )
    return Path(home) / below_home


LOG_LEVELS = ("debug", "info", "warning", "error")

# curl and the engine's own clients wait forever; a reading takes some seconds.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Flags:
    """Settings on the command line; ``password`` is the content of --password-file."""

    config: Optional[str] = None
    engine_url: Optional[str] = None
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    ca_file: Optional[str] = None


@dataclass(frozen=True)
class Settings:
    """The connection to an engine.

    ``url`` ends in /ovirt-engine/api. Without ``token`` and ``password`` the caller
    has to ask for the password. ``timeout_s`` is for one reading; ``warnings`` are
    sentences for the operator.
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
        """Raise Problem for credentials that no request can contain."""
        sent = {"user": self.username, "password": self.password, "token": self.token}
        for name, value in sent.items():
            # Bytes of the environment that are not UTF-8 become surrogates.
            if value and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise Problem(
                    "credential-not-utf8",
                    f"the {name} for the engine is not UTF-8 text",
                )
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise Problem(
                "token-invalid",
                "the token for the engine is invalid: it is not printable ASCII text",
            )


@dataclass(frozen=True)
class _Source:
    """The settings of one source, under the file's keys and ``token``."""

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
    """Return the settings of all sources. Raises Problem.

    In this order: flags, the section that they name, the environment, the file's
    default section. Environment and default section are ignored if they name another
    engine than the sources before them, because their password is for that engine.
    ``default_ca`` is used if no source names a CA.
    """
    sources = [_of_flags(flags)]
    if flags.config is not None:
        sources.append(_section(ini, flags.config))
    variables = _of_environ(environ)
    if not _for_another(variables, sources):
        sources.append(variables)
    if flags.config is None and ini is not None:
        sources += _default_section(ini, sources)
    address = _first(sources, "engine_url")
    if address is None:
        raise Problem("engine-not-configured", *_no_engine(ini))
    url = engine_url(address)
    username, password, token = _credentials(sources)
    level = _first(sources, "log_level") or "info"
    if level not in LOG_LEVELS:
        raise Problem(
            "log-level-unknown",
            f"log_level {level!r} is not one of {', '.join(LOG_LEVELS)}",
            did_you_mean(level, LOG_LEVELS),
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
    values = {
        "engine_url": flags.engine_url,
        "username": flags.username,
        "password": flags.password,
        "cafile": flags.ca_file,
    }
    return _Source("flags", {key: value for key, value in values.items() if value})


def _of_environ(environ: Mapping[str, str]) -> _Source:
    host = environ.get("OVIRT_HOSTNAME")
    values = {
        "engine_url": environ.get("OVIRT_URL") or host,
        "username": environ.get("OVIRT_USERNAME"),
        "password": environ.get("OVIRT_PASSWORD"),
        "token": environ.get("OVIRT_TOKEN"),
        "cafile": environ.get("OVIRT_CAFILE"),
    }
    return _Source(
        "environment", {key: value for key, value in values.items() if value}
    )


def _section(ini: Optional[IniFile], name: str) -> _Source:
    if ini is None:
        raise Problem(
            "settings-file-missing",
            f"there is no settings file for --config {name}",
            "write one with 'ovirt-rdma login'",
        )
    by_name = sections(ini)
    if name not in by_name:
        raise Problem(
            "settings-section-unknown",
            f"{ini.path} has no section [{name}]",
            did_you_mean(name, by_name) or f"its sections: {_listed(by_name)}",
        )
    return _Source("file", by_name[name])


def _default_section(ini: IniFile, above: Sequence[_Source]) -> list[_Source]:
    by_name = sections(ini)
    name = DEFAULT_SECTION if DEFAULT_SECTION in by_name else None
    if name is None and len(by_name) == 1:
        name = next(iter(by_name))
    if name is None:
        return []
    source = _Source("file", by_name[name])
    engine_named = _first(above, "engine_url") is not None
    engine_missing = source.get("engine_url") is None
    if _for_another(source, above) or (engine_named and engine_missing):
        return []
    return [source]


def _for_another(source: _Source, above: Sequence[_Source]) -> bool:
    """Whether ``source`` names another engine than the sources ``above`` it."""
    url, other = _first(above, "engine_url"), source.get("engine_url")
    if url is None or other is None:
        return False
    return engine_url(url) != engine_url(other)


def _credentials(
    sources: Sequence[_Source],
) -> tuple[Optional[str], Optional[str], Optional[str]]:
    """Return username, password and token. A token is ignored if a source before its
    own names a user or a password: it could belong to another user.
    """
    username = _first(sources, "username")
    for source in sources:
        if source.get("token") and not source.get("password"):
            return username, None, source.get("token")
        if source.get("username") or source.get("password"):
            break
    return username, _first(sources, "password"), None


def _first(sources: Sequence[_Source], key: str) -> Optional[str]:
    return next((value for source in sources if (value := source.get(key))), None)


def _warnings(ini: Optional[IniFile], sources: Sequence[_Source]) -> tuple[str, ...]:
    has_password = any(
        source.name == "file" and source.get("password") for source in sources
    )
    if ini is None or not has_password or not ini.open_to_others:
        return ()
    command = f"chmod 600 {shlex.quote(ini.path)}"
    return (f"{ini.path} has a password, and others can read it: run {command}",)


def _no_engine(ini: Optional[IniFile]) -> tuple[str, str]:
    if ini is not None and len(by_name := sections(ini)) > 1:
        return (
            "no engine is named",
            f"name a section with --config; those of {ini.path}: {_listed(by_name)}",
        )
    return (
        "no engine is named",
        "give --engine-url, set OVIRT_URL, or write a settings file with "
        "'ovirt-rdma login'",
    )


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
