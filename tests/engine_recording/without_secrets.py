# SPDX-License-Identifier: GPL-2.0-or-later
"""Replace the secrets in a recording by fixed words."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, quote_plus, urlencode
from xml.sax.saxutils import escape

from engine_recording.exchanges import Exchange

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
