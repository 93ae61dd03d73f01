# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the settings of an engine; send requests to it; fetch its CA; log in and out.

``ask`` sends all requests, those of the SDK's services too. The SDK's own connection
uses libcurl as well, but it has no limit on an answer's size, its login has no timeout
(ovirtsdk4 4.6.3, Connection._get_sso_response), and of threads that share one, one gets
the error of another's request, and the other waits forever (Connection.wait).

The first fetch of the CA cannot be verified, so the user compares its fingerprint with
the one that the engine's machine shows.

The answer to a login (enginesso, OAuthTokenServlet and SsoService) is JSON with
``access_token``, or with ``error_description`` and ``error``, or with ``error`` and
``error_code``.

Settings come from the command line, the environment and a file. The file has the form
of ovirt-img's (ovirt-imageio, client/_options.py), the environment variables are those
of the ovirt.ovirt Ansible collection. The caller reads and writes the files.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import io
import json
import os
import re
import ssl
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional, Union
from urllib.parse import urlencode, urlsplit

import pycurl

from ovirt_rdma.engine_sdk_tools.api.request import (
    DENIED,
    EngineProblem,
    of_curl,
    of_page,
)
from ovirt_rdma.host.errors import Problem, did_you_mean

API = "/ovirt-engine/api"
# Paths that people copy from their browser.
_PORTALS = ("/ovirt-engine", "/ovirt-engine/webadmin", "/ovirt-engine/web-ui")


def engine_url(text: str) -> str:
    """Return the API's URL for ``engine.example.com``, ``https://HOST[:PORT]`` or a
    whole URL. Raises Problem. Plain http is for this machine only: the password is not
    encrypted.
    """
    whole = text.strip() if "://" in text else f"https://{text.strip()}"
    # Before anything else, because the other sentences quote the URL.
    if "@" in re.split("[/?#]", whole.partition("://")[2], maxsplit=1)[0]:
        raise Problem(
            "engine-url-has-credentials",
            "the engine's URL must not contain a user or password",
            "use --username and --password-file",
        )
    wrong = ""
    try:
        parts = urlsplit(whole)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        parts, host, wrong = urlsplit(""), None, str(error)
    path = parts.path.rstrip("/")
    if path in ("", *_PORTALS):
        path = API
    if not wrong and (parts.scheme not in ("https", "http") or not host):
        wrong = "it does not name a host for https"
    elif any(not "!" <= letter <= "~" for letter in whole):
        wrong = "it contains a blank, or a letter that is not ASCII"
    elif parts.query or parts.fragment:
        wrong = "it has a query or a fragment"
    elif not path.endswith("/api"):
        wrong = f"its path is {path}"
    if wrong:
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: {wrong}",
            "use https://ENGINE/ovirt-engine/api",
        )
    if parts.scheme == "http" and not re.fullmatch(
        r"localhost|127\.[0-9.]+|::1", host or ""
    ):
        raise Problem(
            "engine-url-not-https",
            f"{text!r} would send the password unencrypted",
            "use https:// instead",
        )
    return f"{parts.scheme}://{parts.netloc}{path}"


def engine_host_port(url: str) -> str:
    """Return ``HOST[:PORT]`` of the API's URL, for messages."""
    return urlsplit(url).netloc


def engine_address(url: str, path: str) -> str:
    """Return the URL of ``path`` next to the API: ``sso/oauth/token``."""
    return f"{url.removesuffix('/api')}/{path}"


KEYS = ("engine_url", "username", "password", "cafile")
# The section to use if none is named and the file has several.
DEFAULT_SECTION = "default"
_WRONG_LINES: Mapping[type, str] = {
    configparser.MissingSectionHeaderError: f"it needs a section, [{DEFAULT_SECTION}]",
    configparser.DuplicateSectionError: "this section is there twice",
    configparser.DuplicateOptionError: "its section has this key twice",
}


@dataclass(frozen=True)
class IniFile:
    """A settings file."""

    path: str
    text: str = field(repr=False)


def sections(ini: IniFile) -> dict[str, dict[str, str]]:
    """Return the sections. Raises Problem without a line: it may have a password."""
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(ini.text)
    except configparser.Error as error:
        # A ParsingError has a list, a line of which it shows in its own message.
        several = getattr(error, "errors", None) or [(getattr(error, "lineno", 0), "")]
        wrong = _WRONG_LINES.get(type(error), "this line is not 'key = value'")
        raise Problem(
            "settings-file-invalid", f"{ini.path}:{several[0][0]}: {wrong}"
        ) from None
    by_name = {name: dict(parser[name]) for name in parser.sections()}
    for name, values in by_name.items():
        for key in values.keys() - {*KEYS}:
            raise Problem(
                "settings-key-unknown",
                f"{ini.path}: section [{name}] has an unknown key {key!r}",
                did_you_mean(key, KEYS) or f"the keys are {', '.join(KEYS)}",
            )
    return by_name


def section_text(name: str, values: Mapping[str, Optional[str]]) -> str:
    """Return a section ``name`` of the ``values`` that are not None. Raises Problem for
    what an ini file cannot contain.
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


def state_folder(environ: Mapping[str, str], euid: int) -> Path:
    """Return the folder for state files, which need not exist: for root below /var/lib,
    else as the XDG Base Directory Specification says. Raises Problem without HOME.
    """
    if euid == 0:
        return Path("/var/lib/ovirt-rdma/engine")
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "ovirt-rdma"


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the user's settings file; CAs of ``login --fetch-ca`` are in the folder of
    that name without ``.conf``. Raises Problem without HOME.
    """
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "ovirt-rdma.conf"


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


# curl and the engine's own clients wait forever; a reading takes some seconds.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Settings:
    """The connection to an engine; ``url`` ends in /ovirt-engine/api. Without ``token``
    and ``password`` the caller asks. ``timeout_s`` is for one reading.
    """

    url: str
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    token: Optional[str] = field(default=None, repr=False)
    ca_file: Optional[str] = None
    timeout_s: float = TIMEOUT_S

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


# Of two for one key the later one wins.
_VARIABLES = {
    "OVIRT_HOSTNAME": "engine_url",
    "OVIRT_URL": "engine_url",
    "OVIRT_USERNAME": "username",
    "OVIRT_PASSWORD": "password",
    "OVIRT_TOKEN": "token",
    "OVIRT_CAFILE": "cafile",
}


def from_sources(
    environ: Mapping[str, str],
    given: Optional[Mapping[str, Optional[str]]] = None,
    ini: Optional[IniFile] = None,
    section: Optional[str] = None,
    default_ca: Optional[str] = None,
) -> Settings:
    """Return the settings: of ``given``, then ``section`` of the file, the environment,
    the file's default section. The last two are ignored if they name another engine
    than those before, because their password is for that. Raises Problem.
    """
    present = {key: value for key, value in (given or {}).items() if value}
    sources: ChainMap[str, str] = ChainMap(present)
    if section is not None:
        sources.maps.append(_section(ini, section))
    variables = {
        key: environ[name] for name, key in _VARIABLES.items() if environ.get(name)
    }
    named = sources.get("engine_url")
    if not named or same_engine(named, variables.get("engine_url", named)):
        sources.maps.append(variables)
    if section is None and ini is not None:
        in_file = _default_section(ini)
        named = sources.get("engine_url")
        if not named or same_engine(named, in_file.get("engine_url")):
            sources.maps.append(in_file)
    address = sources.get("engine_url")
    if address is None:
        fix = "give --engine-url, set OVIRT_URL, or write a settings file with "
        fix += "'ovirt-rdma login'"
        if ini is not None and len(by_name := sections(ini)) > 1:
            fix = f"name a section with --config; those of {ini.path}: "
            fix += ", ".join(by_name)
        raise Problem("engine-not-configured", "no engine is named", fix)
    # A token after a user or a password could belong to another user.
    credentials = {"username", "password", "token"}
    who = next((one for one in sources.maps if one.keys() & credentials), {})
    token = None if who.get("password") else who.get("token")
    return Settings(
        engine_url(address),
        sources.get("username"),
        None if token else sources.get("password"),
        token,
        sources.get("cafile", default_ca),
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
    return {key: value for key, value in by_name[name].items() if value}


def _default_section(ini: IniFile) -> dict[str, str]:
    names = [*sections(ini)]
    if DEFAULT_SECTION in names:
        names = [DEFAULT_SECTION]
    return _section(ini, names[0]) if len(names) == 1 else {}


_PORTS = {"https": 443, "http": 80}


def same_engine(one: str, other: Optional[str]) -> bool:
    """Whether two addresses, as :func:`engine_url` reads them, are of one engine; not
    if one is none.
    """
    try:
        urls = [urlsplit(engine_url(text or "")) for text in (one, other)]
    except Problem:
        return False
    first, second = (
        (url.scheme, url.hostname, url.port or _PORTS[url.scheme], url.path)
        for url in urls
    )
    return first == second


# Enough for a TCP connection with retransmissions, if anything listens.
CONNECT_S = 15.0
# A token and a CA have some thousand bytes. The sender of the CA is not
# verified yet.
_MOST_BYTES = 1 << 20

# The system's trusted CAs on EL and on Debian; a pycurl of PyPI would use its own.
_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt")


def trusted_cas() -> Optional[str]:
    """Return the system's file of trusted CAs; None if no known file exists."""
    files = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((file for file in files if file and Path(file).is_file()), None)


class WebAnswer(NamedTuple):
    """An HTTP answer: status ``code``, ``body`` as text, ``media`` its type."""

    code: int
    body: str
    media: str


def ask(
    url: str,
    doing: str,
    *,
    ca_file: Union[str, Literal[False], None],
    timeout_s: float,
    form: Optional[Mapping[str, str]] = None,
    token: Optional[str] = None,
    most_bytes: int = _MOST_BYTES,
    xml: Optional[tuple[str, str]] = None,
) -> WebAnswer:
    """GET ``url``, or POST ``form`` to it; ``xml`` is the method and the body for the
    API.

    ``ca_file`` None stands for the system's CAs; False verifies nothing, to fetch the
    CA itself. No redirection is followed: a password goes to no other host. Answers of
    the API alone are unpacked; ``most_bytes`` is for what they become. Raises
    EngineProblem without a complete answer within ``timeout_s``.
    """
    curl: Any = pycurl.Curl()
    headers = [f"Authorization: Bearer {token}"] if token else []
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    if form is not None:
        curl.setopt(pycurl.COPYPOSTFIELDS, urlencode(form))
        headers.append("Accept: application/json")
    if xml is not None:
        method, text = xml
        if text:
            curl.setopt(pycurl.COPYPOSTFIELDS, text.encode())
        curl.setopt(pycurl.CUSTOMREQUEST, method)
        curl.setopt(pycurl.ENCODING, "")  # all that libcurl can unpack
        headers += ["Version: 4", "Accept: application/xml"]
        # Some messages can be distinguished by their text only.
        headers += ["Content-Type: application/xml", "Accept-Language: en-US"]
    curl.setopt(pycurl.HTTPHEADER, headers)
    curl.setopt(pycurl.SSL_VERIFYPEER, 0 if ca_file is False else 1)
    curl.setopt(pycurl.SSL_VERIFYHOST, 0 if ca_file is False else 2)
    cas = trusted_cas() if ca_file is None else ca_file
    if cas:
        curl.setopt(pycurl.CAINFO, os.fsencode(cas))
    # Without this, libcurl uses signals for its timeouts, which interrupt threads.
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000)))
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(min(CONNECT_S, timeout_s) * 1000)))
    body, left = io.BytesIO(), most_bytes

    def count(part: bytes) -> int:
        nonlocal left
        left -= len(part)
        # libcurl ends an answer if not all of it was taken.
        return len(part) if left >= 0 else 0

    def keep(part: bytes) -> int:
        return body.write(part) if count(part) else 0

    curl.setopt(pycurl.HEADERFUNCTION, count)
    curl.setopt(pycurl.WRITEFUNCTION, keep)
    error = _perform(curl)
    if error is not None:
        raise of_curl(*error, doing, f"the engine {engine_host_port(url)}", most_bytes)
    code = int(curl.getinfo(pycurl.RESPONSE_CODE))
    media = (curl.getinfo(pycurl.CONTENT_TYPE) or "").partition(";")[0].strip().lower()
    return WebAnswer(code, body.getvalue().decode("utf-8", "replace"), media)


def _perform(curl: Any) -> Optional[tuple[int, str]]:
    """Carry out the request of ``curl``; return libcurl's error number and text, if
    any. A multi handle: Python handles no signal during ``curl.perform()``.
    """
    multi: Any = pycurl.CurlMulti()
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
            due_ms = multi.timeout()
            multi.select(min(1.0, due_ms / 1000) if due_ms >= 0 else 1.0)
    finally:
        multi.remove_handle(curl)
        multi.close()


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
    path = "services/pki-resource?resource=ca-certificate&format=X509-PEM-CA"
    url, doing = engine_address(settings.url, path), "fetching the engine's CA"
    answer = ask(url, doing, ca_file=False, timeout_s=settings.timeout_s)
    if answer.code != 200:
        where = f"the engine {engine_host_port(url)}"
        raise of_page(doing, where, answer.code, answer.media)
    return ca_of(answer.body)


def ca_of(text: str) -> Ca:
    """Return the CA in a PEM text. Raises Problem if there is none."""
    match = _PEM.search(text.replace("\r\n", "\n"))
    pem = match.group() + "\n" if match else ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    der, certificates = b"", []
    with contextlib.suppress(ssl.SSLError, ValueError, TypeError):  # also: not ASCII
        context.load_verify_locations(cadata=pem)
        der, certificates = ssl.PEM_cert_to_DER_cert(pem), context.get_ca_certs()
    if not certificates:
        raise Problem(
            "engine-ca-invalid",
            "the engine's CA is invalid: it is not the certificate of a CA",
        )
    certificate: Any = certificates[0]
    return Ca(
        pem,
        ", ".join(
            f"{_SHORT.get(name, name)}={value}"
            for part in certificate.get("subject", ())
            for name, value in part
        ),
        hashlib.sha256(der).digest().hex(":").upper(),
        str(certificate.get("notAfter", "")),
    )


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
            doing,
            f"there is no {'password' if user else 'username'}",
            DENIED,
            fix="give --username and --password-file, set OVIRT_USERNAME and "
            "OVIRT_PASSWORD, or write them to the settings file",
        )
    form = {"grant_type": "password", "scope": _SCOPE, "username": user}
    answer = ask(
        engine_address(settings.url, "sso/oauth/token"),
        doing,
        ca_file=settings.ca_file,
        timeout_s=settings.timeout_s,
        form={**form, "password": settings.password},
    )
    try:
        reply = json.loads(answer.body)
    except ValueError:
        reply = None
    reply = reply[0] if isinstance(reply, list) and reply else reply
    said = reply if isinstance(reply, dict) else {}
    token = said.get("access_token")
    if isinstance(token, str) and token:
        return token
    where = f"the engine {engine_host_port(settings.url)}"
    reason = said.get("error_description") or said.get("error")
    if not reason:
        raise of_page(doing, where, answer.code, answer.media)
    raise EngineProblem(
        "engine-login-refused",
        doing,
        f"{where} says: {reason}",
        DENIED,
        code=answer.code,
        fix="correct the user or the password; the user has a profile, as in "
        "admin@internal, or admin@ovirt@internalsso with Keycloak",
    )


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
