# SPDX-License-Identifier: GPL-2.0-or-later
"""Record an engine: a proxy on loopback in front of it, plain HTTP for clients, which
records all clients of a run at the wire, whatever library they use. Secrets become
fixed words.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import requests
from engine_double.answers import Answer
from engine_double.http_server import HttpServer

from engine_recording.exchanges import RUN, SNAPSHOT, Exchange, RecordingWriter
from ovirt_rdma.engine_sdk_tools.api.auth import Settings, log_in, log_out

# Headers of one connection only, and those that would make answers unreadable.
_NOT_PASSED = {"host", "connection", "accept-encoding", "content-length", "expect"}
_NOT_PASSED |= {"keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
# The engine may need ten times the 60 s of a read for a change.
_PATIENCE_S = 900.0


class RecordingProxy:
    """Serves the engine at ``url``, below the same path; a context manager.

    ``part`` names what is recorded now. ``passwords`` of the run are left out.
    """

    def __init__(
        self,
        engine: str,
        folder: Path,
        passwords: tuple[str, ...] = (),
        ca_file: Optional[str] = None,
    ) -> None:
        self._engine = urlsplit(engine)
        self._ca_file = ca_file
        self._secrets = Secrets(passwords, self._engine.netloc)
        self._readings = threading.Lock()
        self._lock = threading.Lock()
        self.writer = RecordingWriter(folder)
        self.part = RUN
        self._began_s = time.monotonic()
        self._server = HttpServer(self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self._engine.path}"

    def __enter__(self) -> RecordingProxy:
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop()

    def _serve(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        # One read at a time, so that the order in the recording is the engine's.
        one_by_one = self._readings if method == "GET" else contextlib.nullcontext()
        with one_by_one:
            began_s = round(time.monotonic() - self._began_s, 1)
            answer = self._ask(method, target, headers, raw)
            exchange = Exchange(
                0,
                self.part,
                began_s,
                method,
                target,
                dict(headers.items()),
                raw.decode("utf-8", "replace"),
                answer.status if answer else None,
                _headers(answer),
                answer.body.decode("utf-8", "replace") if answer else "",
            )
            with self._lock:
                self.writer.add(self._secrets.hide(exchange))
        return answer

    def _ask(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        passed = {k: v for k, v in headers.items() if k.lower() not in _NOT_PASSED}
        connection = self._connection()
        try:
            connection.request(method, target, raw or None, passed)
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        found = {
            name.lower(): value
            for name, value in reply.getheaders()
            if name.lower() not in (*_NOT_PASSED, "content-type", "server", "date")
        }
        kind = reply.getheader("Content-Type") or ""
        return Answer(reply.status, body, kind, found)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._engine.hostname or "", self._engine.port
        if self._engine.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(
            host, port, timeout=_PATIENCE_S, context=context
        )


def _headers(answer: Optional[Answer]) -> dict[str, str]:
    if answer is None:
        return {}
    found: dict[str, Any] = dict(answer.headers)
    if answer.content_type:
        found["content-type"] = answer.content_type
    return found


# -- the snapshot: the lists from which a world is made, recorded like any exchange

HOSTS = "hosts?all_content=true&follow=nics,network_attachments,hooks"
CLUSTERS = "clusters?follow=networks"
# Engine-wide lists, in this order; a world of the double is made from their answers.
LISTS = ("", "datacenters", CLUSTERS, HOSTS, "networks", "storagedomains")
LISTS += ("storageconnections", "vms", "jobs", "events?max=1")


def take(proxy: RecordingProxy, settings: Settings) -> dict[str, Any]:
    """Record the snapshot; ``settings`` have the address of the proxy. Return the
    manifest's part about it.
    """
    proxy.part = SNAPSHOT
    token = log_in(settings)
    client = requests.Session()
    client.trust_env = False
    client.headers.update(
        {"Authorization": f"Bearer {token}", "Accept": "application/xml"}
    )

    def get(path: str) -> ElementTree.Element:
        reply = client.get(f"{settings.url}/{path}".rstrip("/"), timeout=120)
        text = reply.text if reply.ok and reply.text else "<nothing/>"
        return ElementTree.fromstring(text.encode())

    found = {path: get(path) for path in LISTS}
    for center in found["datacenters"]:
        get(f"datacenters/{center.get('id')}/storagedomains")
    log_out(settings, token)
    proxy.part = RUN
    return {
        "engine_version": found[""].findtext("product_info/version/full_version")
        or _version(found[""]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "began_with": {
            path.partition("?")[0]: {
                str(one.get("id")): one.findtext("name") for one in found[path]
            }
            for path in LISTS[1:7]
        },
    }


def _version(api: ElementTree.Element) -> str:
    where = "product_info/version/"
    numbers = (api.findtext(where + word) for word in ("major", "minor", "build"))
    return ".".join(number for number in numbers if number)


# -- without secrets

PASSWORD, TOKEN, UNKNOWN_TOKEN = "PASSWORD", "TOKEN", "UNKNOWN-TOKEN"
WRONG_PASSWORD, COOKIE, CERTIFICATE = "WRONG-PASSWORD", "COOKIE", "CERTIFICATE"
SESSION = "SESSION"
# The engine that is recorded, wherever an answer names it.
ENGINE = "engine.example.com"

# Headers that a client or an engine needs to be understood; no other is kept.
_ASKED = ("accept", "accept-language", "content-type", "authorization", "cookie")
_ASKED += ("correlation-id", "jobid", "filter", "all-content", "version", "prefer")
_ANSWERED = ("content-type", "correlation-id", "location", "set-cookie", "allow")
_ANSWERED += ("www-authenticate", "retry-after")
_PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\s*", re.S)
_IN_XML = re.compile(r"(<(\w*password|\w*secret|private_key)>)[^<]*(</\2>)")
# Events of logins name it.
_SESSION = re.compile(r"(using session ['\"])[^'\"]*(?=['\"])")
_TOKENS = ("access_token", "refresh_token", "id_token")


class Secrets:
    """The secrets of a run: those given beforehand, and the tokens that it gets."""

    def __init__(self, passwords: Iterable[str] = (), place: str = "") -> None:
        self._passwords = [one for one in passwords if one]
        # Tokens are numbered, so that a replay can distinguish them.
        self._tokens: dict[str, str] = {}
        self._places = [one for one in (place, place.partition(":")[0]) if one]
        self._lock = threading.Lock()

    def hide(self, exchange: Exchange) -> Exchange:
        """Return the exchange without secrets."""
        with self._lock:
            return self._hidden(exchange)

    def _hidden(self, one: Exchange) -> Exchange:
        is_sso = "/sso/" in one.path or one.path.endswith("/sso-logout")
        answer = self._learned(one.body) if is_sso else one.body
        asked = self._form(one.request_body) if is_sso else one.request_body
        return Exchange(
            one.number,
            one.part,
            one.at_s,
            one.method,
            self._text(one.target),
            self._headers(one.request_headers, _ASKED),
            self._text(asked),
            one.status,
            self._headers(one.headers, _ANSWERED),
            self._text(answer),
        )

    def _learned(self, body: str) -> str:
        try:
            document = json.loads(body)
        except ValueError:
            return body
        if not isinstance(document, dict):
            return body
        for name in _TOKENS:
            if isinstance(document.get(name), str):
                number = len(self._tokens) + 1
                word = self._tokens.setdefault(document[name], f"{TOKEN}-{number}")
                document[name] = word
        return json.dumps(document)

    def _form(self, body: str) -> str:
        words = dict(parse_qsl(body, keep_blank_values=True))
        if "password" in words:
            good = words["password"] in self._passwords
            words["password"] = PASSWORD if good else WRONG_PASSWORD
        for name in ("token", *_TOKENS):
            if name in words:
                words[name] = self._token(words[name])
        return urlencode(words)

    def _token(self, text: str) -> str:
        return self._tokens.get(text, UNKNOWN_TOKEN)

    def _headers(
        self, headers: Mapping[str, str], kept: tuple[str, ...]
    ) -> dict[str, str]:
        found = {}
        small = ((name.lower(), value) for name, value in headers.items())
        for name, value in small:
            if name == "authorization":
                kind, _, token = value.partition(" ")
                bearer = kind == "Bearer"
                found[name] = f"{kind} {self._token(token) if bearer else PASSWORD}"
            elif name in ("cookie", "set-cookie"):
                found[name] = COOKIE
            elif name in kept:
                found[name] = self._text(value)
        return found

    def _text(self, text: str) -> str:
        for secret, word in [
            *self._tokens.items(),
            *((one, PASSWORD) for one in self._passwords),
        ]:
            # A short password may be a word of the API: replace it only as a value.
            if len(secret) < 8:
                continue
            for form in {secret, quote(secret, safe=""), quote_plus(secret)}:
                text = text.replace(form, word)
            text = text.replace(escape(secret), word)
        for place in self._places:
            text = text.replace(place, ENGINE)
        text = _SESSION.sub(rf"\1{SESSION}", _PEM.sub(CERTIFICATE, text))
        return _IN_XML.sub(rf"\1{PASSWORD}\3", text)
