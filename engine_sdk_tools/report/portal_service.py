# SPDX-License-Identifier: GPL-2.0-or-later
"""Answer one request of the administration portal's plugin: what its user may see.

systemd starts this program for each connection that the engine's Apache opens, with the
connection as standard input, and hands it a copy of the data. It has no access to
anything else: docs/decisions/014-portal.md.

The token of the portal's user goes to the engine's API and nowhere else. An
administrator of any kind may read all (QueriesCommandBase.java:155-171); others get 400
from the API, at least for its jobs, and 403 from here. A 401 has no WWW-Authenticate,
with which a browser would ask for a password. Times are the server's, so that the age
of the data does not depend on the browser's clock.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Optional
from urllib.parse import quote
from xml.etree import ElementTree

from ovirt_rdma.engine_sdk_tools.api.auth import ask
from ovirt_rdma.engine_sdk_tools.api.request import EngineProblem
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.text import printable

PATH = "/ovirt-rdma/portal"
# Names of variables of the unit: systemd's folder with the data, and the CA of Apache.
FOLDER, CA_FILE = "CREDENTIALS_DIRECTORY", "OVIRT_CAFILE"
DATA = "report.json"
# A token of the engine has 86 characters. Printable, without a blank: one header.
_TOKEN = re.compile(r"Bearer ([!-~]{8,4096})")
# 250 hosts are some 2 MB of XML.
_MOST_BYTES, _MOST_DATA = 16 << 20, 2_000_000
_ASK_S, _REQUEST_S = 20.0, 10.0
# Of the newest runs; the portal itself lists all.
_MOST_RUNS, _MOST_STEPS, _MOST_TEXT = 5, 500, 600
_ENDED = "The session has ended."
# How descriptions of our jobs begin (job.ORIGIN).
_OURS = "ovirt-rdma: "
# And how they end, for other runs (job.py).
_IDS = re.compile(r"; [0-9a-f-]{36}(, [0-9a-f-]{36})*\)$")


class Refused(Problem):
    """The request gets ``status`` and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__("portal-request-refused", sentence)
        self.status = status


def visible(
    data: Mapping[str, Any], hosts: set[str], domains: set[str]
) -> dict[str, Any]:
    """Return ``data`` with the hosts and domains that the user may see; if that is not
    all, without findings that name others, without the sentence about all, and notes;
    ``findings_hidden`` says whether there are other findings.
    """
    columns = len(data["checks"])
    keep = [n for n, one in enumerate(data["domains"]) if one["id"] in domains]
    shown = {**data, "hosts": [one for one in data["hosts"] if one["id"] in hosts]}
    whole = len(keep) == len(data["domains"])
    if whole and len(shown["hosts"]) == len(data["hosts"]):
        return shown
    rows = [[*row[:columns], *(row[columns + n] for n in keep)] for row in data["rows"]]
    # Cells of others have their addresses.
    used = {cell for one in shown["hosts"] for cell in rows[one["row"]]}
    names = {one["name"] for one in shown["hosts"]}
    findings = [
        one for one in data["findings"] if whole and names.issuperset(one["hosts"])
    ]
    every = len(data["findings"]) + data["findings_left"]
    return {
        **shown,
        "domains": [{**data["domains"][n], "used": {}} for n in keep],
        "rows": rows,
        "cells": [
            cell if n in used else ["none", ""] for n, cell in enumerate(data["cells"])
        ],
        "findings": findings,
        "findings_hidden": len(findings) < every,
        "sentence": "Not all hosts and domains of the report are shown: the engine "
        "does not list the others for you.",
        "notes": [],
        "findings_left": 0,
    }


def elements(text: str, tag: str) -> list[ElementTree.Element]:
    """Return the elements of a list of the API. Raises Refused."""
    try:
        # Of the engine, which has the user's token anyway.
        return ElementTree.fromstring(text).findall(tag)  # noqa: S314
    except ElementTree.ParseError:
        raise Refused(502, "The engine's answer cannot be read.") from None


def _text(element: ElementTree.Element, tag: str) -> str:
    return printable((element.findtext(tag) or "")[:_MOST_TEXT])


def runs_of(jobs: Iterable[ElementTree.Element]) -> list[dict[str, Any]]:
    """Return the newest of our runs among the API's jobs, without their steps."""
    return [
        {
            "id": one.get("id", ""),
            "description": _IDS.sub(")", description.removeprefix(_OURS)),
            "status": _text(one, "status"),
            "started_at": _text(one, "start_time"),
        }
        for one in jobs
        if (description := _text(one, "description")).startswith(_OURS)
    ][-_MOST_RUNS:][::-1]


def answer(
    token: str, data: Mapping[str, Any], ca_file: Optional[str]
) -> dict[str, Any]:
    """Return the document for the user of ``token``. Raises Refused."""

    def get(path: str, tag: str) -> list[ElementTree.Element]:
        try:
            found = ask(
                f"{data['engine_url']}/{path}",
                f"reading {path}",
                ca_file=ca_file,
                timeout_s=_ASK_S,
                token=token,
                most_bytes=_MOST_BYTES,
            )
        except EngineProblem as problem:
            sentence = printable(problem.one_line)
            raise Refused(502, f"The engine did not answer: {sentence}.") from None
        if found.code == 401:
            raise Refused(401, _ENDED)
        if found.code in (400, 403):
            raise Refused(403, f"The engine does not let you see {path}.")
        if found.code != 200:
            raise Refused(502, f"The engine answered HTTP {found.code}.")
        return elements(found.body, tag)

    hosts = {one.get("id", "") for one in get("hosts", "host")}
    domains = {one.get("id", "") for one in get("storagedomains", "storage_domain")}
    document = visible(data, hosts, domains)
    del document["engine_url"]
    document["now"] = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    try:
        runs = document["runs"] = runs_of(get("jobs", "job"))
        for run in runs:
            if run["status"] == "started":
                path = f"jobs/{quote(run['id'], safe='')}/steps"
                steps = get(path, "step")[:_MOST_STEPS]
                run["ended"] = sum(_text(one, "status") != "started" for one in steps)
                run["last"] = _text(steps[-1], "description") if steps else ""
    except Refused as refused:
        # Also who is no administrator may list hosts (UserRole on the whole system).
        if refused.status in (401, 403):
            raise
        document["runs"], document["runs_problem"] = None, str(refused)
    return document


def data_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the data that systemd hands over. Raises Refused."""
    found = None
    with suppress(KeyError, OSError, ValueError, RecursionError):
        text = read_named(f"{settings[FOLDER]}/{DATA}", _MOST_DATA)
        if not text:
            raise Refused(503, "There are no data yet.")
        found = json.loads(text)
    if not isinstance(found, dict) or found.get("kind") != "portal":
        raise Refused(503, "The data cannot be read.")
    return found


class Request(BaseHTTPRequestHandler):
    """The one request of a connection."""

    timeout = _REQUEST_S
    server_version, sys_version = "ovirt-rdma", ""
    settings: ClassVar[Mapping[str, str]] = os.environ

    def handle(self) -> None:
        """Answer, and end the connection."""
        self.handle_one_request()

    def do_GET(self) -> None:
        """Answer a request; every other method is answered with 501."""
        try:
            if self.path != PATH:
                raise Refused(404, "There is nothing here.")
            match = _TOKEN.fullmatch(self.headers.get("Authorization", ""))
            if match is None:
                raise Refused(401, _ENDED)
            data, ca_file = data_of(self.settings), self.settings.get(CA_FILE)
            self._send(200, answer(match[1], data, ca_file))
        except Refused as refused:
            self._send(refused.status, {"sentence": str(refused)})

    def send_error(
        self, code: int, message: Optional[str] = None, explain: Optional[str] = None
    ) -> None:
        """Answer what is no request of ours; nothing of it is in the answer."""
        self._send(code, {"sentence": "The request was refused."})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _send(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def main() -> int:
    """Answer the request on standard input, which is a socket."""
    with socket.socket(fileno=os.dup(0)) as connection:
        Request(connection, ("", 0), None)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main())
