# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the settings of an engine, and make requests outside the SDK: its CA and the
login.

The SDK uses libcurl too, so proxies and CAs have the same meaning for all requests. It
does not do what ``ask`` does: its login has no timeout and no limit on an answer's size
(ovirtsdk4 4.6.3, Connection._get_sso_response), and it reads no other page.

The first fetch of the CA cannot be verified, so the user compares its fingerprint with
the one that the engine's machine shows:
``openssl x509 -noout -fingerprint -sha256 -in /etc/pki/ovirt-engine/ca.pem``.

The answer to a login (enginesso, OAuthTokenServlet and SsoService) is JSON with
``access_token``, or with ``error_description`` and ``error``, or with ``error`` and
``error_code``.

Settings come from the command line, the environment and a file. The file has the form
of ovirt-img's (ovirt-imageio, client/_options.py): an ini file whose sections have
``engine_url``, ``username``, ``password``, ``cafile``, ``log_file`` and ``log_level``.
The environment variables are those of the ovirt.ovirt Ansible collection. The caller
reads and writes the files.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import io
import ipaddress
import json
import os
import re
import shlex
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Literal, Optional, Union
from urllib.parse import urlencode, urlsplit

import pycurl

from ovirt_rdma.engine_sdk_tools.api.request import (
    BROKEN,
    DENIED,
    EngineProblem,
    failed,
    header,
    media_type,
    of_curl,
    of_page,
)
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
        raise _no_url(text, str(error)) from error
    path = parts.path.rstrip("/")
    if path in ("", *_PORTALS):
        path = API
    if parts.scheme not in ("https", "http") or not host:
        raise _no_url(text, "it does not name a host for https")
    if any(letter.isspace() or not letter.isprintable() for letter in whole):
        raise _no_url(text, "it contains a blank or an unprintable character")
    if parts.scheme == "http" and not _this_machine(host):
        raise Problem(
            "engine-url-not-https",
            f"{text!r} would send the password unencrypted",
            "use https:// instead",
        )
    if parts.query or parts.fragment:
        raise _no_url(text, "it has a query or a fragment")
    if not path.endswith("/api") or not path.isascii():
        raise _no_url(text, f"its path is {path}")
    return f"{parts.scheme}://{netloc}{path}"


def _no_url(text: str, why: str) -> Problem:
    return Problem(
        "engine-url-invalid",
        f"{text!r} is not an engine's URL: {why}",
        "use https://ENGINE/ovirt-engine/api",
    )


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
    """A settings file: ``open_to_others`` if not only its owner may read it."""

    path: str
    text: str = field(repr=False)
    open_to_others: bool = False


def sections(ini: IniFile) -> dict[str, dict[str, str]]:
    """Return the sections of the file. Raises Problem, which quotes no line, because it
    may contain a password.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(ini.text)
    except configparser.Error as error:
        # A ParsingError has a list, a line of which it shows in its own message.
        several = getattr(error, "errors", None) or [(getattr(error, "lineno", 0), "")]
        wrong, fix = "this line is not 'key = value'", "correct it, or remove it"
        if isinstance(error, configparser.MissingSectionHeaderError):
            wrong = "this line is in no section"
            fix = f"insert [{DEFAULT_SECTION}] above it"
        elif isinstance(error, configparser.DuplicateSectionError):
            wrong = f"the section [{error.section}] is there twice"
        elif isinstance(error, configparser.DuplicateOptionError):
            wrong = f"section [{error.section}] has {error.option} twice"
        place = f"{ini.path}:{several[0][0]}"
        raise Problem("settings-file-invalid", f"{place}: {wrong}", fix) from None
    by_name = {name: dict(parser[name]) for name in parser.sections()}
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


# The settings of one source that are not empty, under the file's keys and ``token``.
_Source = Mapping[str, str]


def _source(**values: Optional[str]) -> _Source:
    return {key: value for key, value in values.items() if value}


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
    sources = [
        _source(
            engine_url=flags.engine_url,
            username=flags.username,
            password=flags.password,
            cafile=flags.ca_file,
        )
    ]
    in_file: list[_Source] = []
    if flags.config is not None:
        in_file = [_source(**_section(ini, flags.config))]
        sources += in_file
    variables = _source(
        engine_url=environ.get("OVIRT_URL") or environ.get("OVIRT_HOSTNAME"),
        username=environ.get("OVIRT_USERNAME"),
        password=environ.get("OVIRT_PASSWORD"),
        token=environ.get("OVIRT_TOKEN"),
        cafile=environ.get("OVIRT_CAFILE"),
    )
    if not _for_another(variables, sources):
        sources.append(variables)
    if flags.config is None and ini is not None:
        in_file = _default_section(ini, sources)
        sources += in_file
    address = _first(sources, "engine_url")
    if address is None:
        fix = "give --engine-url, set OVIRT_URL, or write a settings file with "
        fix += "'ovirt-rdma login'"
        if ini is not None and len(by_name := sections(ini)) > 1:
            fix = f"name a section with --config; those of {ini.path}: "
            fix += ", ".join(by_name)
        raise Problem("engine-not-configured", "no engine is named", fix)
    url = engine_url(address)
    username, password, token = _credentials(sources)
    level = _first(sources, "log_level") or "info"
    if level not in LOG_LEVELS:
        raise Problem(
            "log-level-unknown",
            f"log_level {level!r} is not one of {', '.join(LOG_LEVELS)}",
            did_you_mean(level, LOG_LEVELS),
        )
    warnings: tuple[str, ...] = ()
    if ini and ini.open_to_others and _first(in_file, "password"):
        command = f"chmod 600 {shlex.quote(ini.path)}"
        sentence = f"{ini.path} has a password, and others can read it: run {command}"
        warnings = (sentence,)
    return Settings(
        url,
        username,
        password,
        token,
        _first(sources, "cafile") or default_ca,
        log_file=_first(sources, "log_file"),
        log_level=level,
        warnings=warnings,
    )


def _section(ini: Optional[IniFile], name: str) -> dict[str, str]:
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
            did_you_mean(name, by_name)
            or f"its sections: {', '.join(by_name) or 'none'}",
        )
    return by_name[name]


def _default_section(ini: IniFile, above: Sequence[_Source]) -> list[_Source]:
    by_name = sections(ini)
    name = DEFAULT_SECTION if DEFAULT_SECTION in by_name else None
    if name is None and len(by_name) == 1:
        name = next(iter(by_name))
    if name is None:
        return []
    source = _source(**by_name[name])
    engine_named = _first(above, "engine_url") is not None
    if engine_named and "engine_url" not in source:
        return []
    return [] if _for_another(source, above) else [source]


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


# Enough for a TCP connection with retransmissions, if anything listens.
CONNECT_S = 15.0
# A token and a CA have some thousand bytes. The sender of the CA is not
# verified yet.
MOST_BYTES = 1 << 20

# The system's trusted CAs on EL and on Debian; a pycurl of PyPI would use its own.
_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt")


def trusted_cas() -> Optional[str]:
    """Return the system's file of trusted CAs; None if no known file exists."""
    files = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((file for file in files if file and Path(file).is_file()), None)


@dataclass(frozen=True)
class WebAnswer:
    """An HTTP answer: status ``code``, ``body`` as text, ``media`` its type."""

    code: int
    body: str
    media: str

    def json(self) -> Mapping[str, Any]:
        """Return the JSON object in the body; {} if there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        if isinstance(value, list) and value:
            value = value[0]
        return value if isinstance(value, dict) else {}


def ask(
    url: str,
    doing: str,
    *,
    ca_file: Union[str, Literal[False], None],
    timeout_s: float,
    form: Optional[Mapping[str, str]] = None,
    query: Optional[Mapping[str, str]] = None,
    token: Optional[str] = None,
    most_bytes: int = MOST_BYTES,
) -> WebAnswer:
    """GET ``url``, or POST ``form`` to it. ``token`` is of the user who asks.

    ``ca_file`` None stands for the system's CAs; False verifies nothing, to fetch the
    CA itself. Redirections are not followed, so that a password goes to no other host.

    Raises EngineProblem if no answer came, if it is compressed or larger than
    ``most_bytes``, and if it was not complete within ``timeout_s``, of which connecting
    may take up to CONNECT_S.
    """
    curl: Any = pycurl.Curl()
    headers = [f"Authorization: Bearer {token}"] if token else []
    curl.setopt(pycurl.URL, f"{url}?{urlencode(query)}" if query else url)
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    if form is not None:
        curl.setopt(pycurl.COPYPOSTFIELDS, urlencode(form))
        headers.append("Accept: application/json")
    curl.setopt(pycurl.HTTPHEADER, headers)
    curl.setopt(pycurl.SSL_VERIFYPEER, 0 if ca_file is False else 1)
    curl.setopt(pycurl.SSL_VERIFYHOST, 0 if ca_file is False else 2)
    cas = trusted_cas() if ca_file is None else ca_file
    if cas:
        curl.setopt(pycurl.CAINFO, os.fsencode(cas))
    head: list[str] = []
    body = io.BytesIO()

    def keep(line: bytes) -> None:
        if line.startswith(b"HTTP/"):  # what a proxy said before is not the answer
            head.clear()
        head.append(line.decode("latin-1"))

    limit(curl, timeout_s, most_bytes, body.write, keep)
    where = f"the engine {engine_host_port(url)}"
    error = _perform(curl)
    if error is not None and error[0] == pycurl.E_WRITE_ERROR:
        what = f"{where} is not an engine: its answer is larger than "
        what += f"{most_bytes >> 20} MiB"
        raise failed("engine-answer-too-large", doing, what, BROKEN)
    if error is not None:
        raise of_curl(*error, doing, where)
    if header(head, "content-encoding") not in ("", "identity"):
        what = f"{where} is not an engine: its answer is compressed without a request"
        raise failed("engine-answer-compressed", doing, what, BROKEN)
    code = int(curl.getinfo(pycurl.RESPONSE_CODE))
    return WebAnswer(code, body.getvalue().decode("utf-8", "replace"), media_type(head))


def limit(
    curl: Any,
    limit_s: float,
    most_bytes: int,
    body: Callable[[bytes], Any],
    head: Callable[[bytes], Any],
) -> None:
    """Let the request of ``curl`` end after ``limit_s`` seconds, and its answer after
    ``most_bytes``, decompressed; ``body`` and ``head`` get the parts of the answer.
    """
    # Without this, libcurl uses signals for its timeouts, which interrupt threads.
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.TIMEOUT_MS, max(1, int(limit_s * 1000)))
    connect_s = min(CONNECT_S, limit_s)
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000)))
    left = most_bytes

    def counting(write: Callable[[bytes], Any]) -> Callable[[bytes], int]:
        def count(part: bytes) -> int:
            nonlocal left
            left -= len(part)
            if left < 0:
                return 0  # libcurl ends an answer if not all of it was written
            write(part)
            return len(part)

        return count

    curl.setopt(pycurl.WRITEFUNCTION, counting(body))
    curl.setopt(pycurl.HEADERFUNCTION, counting(head))


class PromptMulti:
    """libcurl's multi handle, with a shorter sleep: the SDK always asks for a second,
    even if a request's deadline is earlier.
    """

    def __init__(self, multi: Any) -> None:
        self._handle = multi

    def select(self, timeout_s: float) -> Any:
        """Wait up to ``timeout_s`` until there is something to do."""
        due_ms = self._handle.timeout()
        if due_ms >= 0:
            timeout_s = min(timeout_s, due_ms / 1000)
        return self._handle.select(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def _perform(curl: Any) -> Optional[tuple[int, str]]:
    """Carry out the request of ``curl``; return libcurl's error number and text, None
    if an answer came.

    A multi handle, because Python handles no signal during ``curl.perform()``: Ctrl-C
    would wait for the deadline.
    """
    multi = PromptMulti(pycurl.CurlMulti())
    multi.add_handle(curl)
    try:
        while True:
            multi.perform()
            _, done, wrong = multi.info_read()
            if done:
                return None
            if wrong:
                _, number, text = wrong[0]
                errno = curl.getinfo(pycurl.OS_ERRNO)
                if number == pycurl.E_COULDNT_CONNECT and errno:
                    text = os.strerror(errno)
                return number, text
            multi.select(1.0)
    finally:
        multi.remove_handle(curl)
        multi.close()


# Log in to and out of the engine, and fetch its CA.

# As openssl abbreviates them.
_SHORT = {"countryName": "C", "organizationName": "O", "commonName": "CN"}
_PEM = re.compile(
    "-----BEGIN CERTIFICATE-----\n.*?\n-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True)
class Ca:
    """A certificate of a CA: ``subject`` as ``O=example.com, CN=...``, the SHA-256
    ``fingerprint`` in openssl's form, and ``until``, the end of its validity.
    """

    pem: str
    subject: str
    fingerprint: str
    until: str


def fetch_ca(settings: Settings) -> Ca:
    """Return the engine's CA, not verified. Raises Problem."""
    doing = "fetching the engine's CA"
    answer = ask(
        engine_address(settings.url, "services/pki-resource"),
        doing,
        ca_file=False,
        timeout_s=settings.timeout_s,
        query={"resource": "ca-certificate", "format": "X509-PEM-CA"},
    )
    if answer.code != 200:
        fix = "check the URL: https://ENGINE/ovirt-engine/api"
        what, code = f"HTTP {answer.code}", answer.code
        raise failed("engine-http-error", doing, what, BROKEN, code=code, fix=fix)
    return ca_of(answer.body)


def ca_of(text: str) -> Ca:
    """Return the CA in a PEM text. Raises Problem if there is none."""
    match = _PEM.search(text.replace("\r\n", "\n"))
    pem = match.group() + "\n" if match else ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
        der = ssl.PEM_cert_to_DER_cert(pem)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise Problem(
            "engine-ca-invalid", "the engine's CA is invalid: it is not a certificate"
        ) from error
    certificates = context.get_ca_certs()
    if not certificates:
        raise Problem(
            "engine-ca-not-a-ca",
            "the engine's CA is invalid: the certificate is not one of a CA",
        )
    certificate: Any = certificates[0]
    return Ca(
        pem,
        ", ".join(
            f"{_SHORT.get(name, name)}={value}"
            for part in certificate.get("subject", ())
            for name, value in part
        ),
        fingerprint_of(der),
        str(certificate.get("notAfter", "")),
    )


def fingerprint_of(der: bytes) -> str:
    """Return the SHA-256 as ``AB:CD:...``, the form of openssl and browsers."""
    digits = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints are the same, in any notation."""
    # openssl prints "sha256 Fingerprint=AB:...".
    texts = (text.rpartition("=")[2].lower() for text in (one, other))
    first, second = (re.sub("[^0-9a-f]", "", text) for text in texts)
    return len(first) == 64 and first == second


_SCOPE = "ovirt-app-api"
# A logout may fail, so it is not worth a long wait.
_LOGOUT_S = 5.0


def log_in(settings: Settings) -> str:
    """Return a token for the user of ``settings``. Raises EngineProblem."""
    user = settings.username or ""
    doing = f"logging in as {user}"
    if not user or settings.password is None:
        raise EngineProblem(
            "engine-no-credentials",
            f"there is no {'password' if user else 'username'} for the engine "
            f"{engine_host_port(settings.url)}",
            DENIED,
            fix="give --username and --password-file, set OVIRT_USERNAME and "
            "OVIRT_PASSWORD, or write them to the settings file",
        )
    answer = ask(
        engine_address(settings.url, "sso/oauth/token"),
        doing,
        ca_file=settings.ca_file,
        timeout_s=settings.timeout_s,
        form={
            "grant_type": "password",
            "scope": _SCOPE,
            "username": user,
            "password": settings.password,
        },
    )
    reply = answer.json()
    token = reply.get("access_token")
    if isinstance(token, str) and token:
        return token
    where = f"the engine {engine_host_port(settings.url)}"
    reason = reply.get("error_description") or reply.get("error")
    if reason:
        raise failed(
            "engine-login-refused",
            doing,
            f"{where} says: {reason}",
            DENIED,
            code=answer.code,
            fix=_user_fix(user),
        )
    raise of_page(doing, where, answer.code, answer.media)


def _user_fix(user: str) -> str:
    name, *profile = user.split("@")
    keycloak = f"with Keycloak the user is {name}@ovirt@internalsso"
    if not profile:
        return f"add the profile to the user: {user}@internal; {keycloak}"
    correct = "correct the user or the password"
    return f"{correct}; {keycloak}" if profile == ["internal"] else correct


def log_out(settings: Settings, token: str) -> None:
    """Revoke ``token``. A failure is ignored, because the token expires."""
    with contextlib.suppress(EngineProblem):
        ask(
            engine_address(settings.url, "services/sso-logout"),
            "logging out",
            ca_file=settings.ca_file,
            timeout_s=_LOGOUT_S,
            form={"scope": _SCOPE, "token": token},
        )
