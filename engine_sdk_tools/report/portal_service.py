# SPDX-License-Identifier: GPL-2.0-or-later
"""Answer one request of the administration portal's plugin: what its user may see.

systemd starts this program for each connection that the engine's Apache opens (socket
unit with Accept=yes), with the connection as standard input, and hands it a copy of the
data. So nothing of a request outlives it, and the program has no access to anything
else: docs/decisions/014-portal.md.

The user is known by the token of the portal alone, which Apache passes. It goes to the
engine's API and nowhere else: it is neither logged nor stored. An administrator of any
kind may read all (QueriesCommandBase.java:155-171); others get 400 from the API, and
403 from here. A 401 has no WWW-Authenticate, with which a browser would ask for a
password.

Times are the server's, so that the age of the data does not depend on the browser's
clock.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, Optional
from urllib.parse import quote
from xml.etree import ElementTree

from ovirt_rdma.engine_sdk_tools.api.auth import WebAnswer, ask
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
# How descriptions of our jobs begin (job.ORIGIN).
_OURS = "ovirt-rdma: "
# And how they end, for other runs (conversion/lock.py).
_IDS = re.compile(r"; [0-9a-f-]{36}(, [0-9a-f-]{36})*\)$")


class Refused(Problem):
    """The request gets ``status`` and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__("portal-request-refused", sentence)
        self.status = status


def visible(
    data: Mapping[str, Any], hosts: set[str], domains: set[str]
) -> dict[str, Any]:
    """Return ``data`` with those hosts and domains whose ids the user may see.

    If that is not all: no finding that also names others, no sentence about all, and no
    notes.
    """
    shown = dict(data)
    columns = len(data["checks"])
    keep = [n for n, one in enumerate(data["domains"]) if one["id"] in domains]
    shown["hosts"] = [one for one in data["hosts"] if one["id"] in hosts]
    shown["domains"] = [data["domains"][n] for n in keep]
    if (len(shown["hosts"]), len(keep)) == (len(data["hosts"]), len(data["domains"])):
        return shown
    shown["rows"] = [
        [*row[:columns], *(row[columns + n] for n in keep)] for row in data["rows"]
    ]
    # Cells of others have their addresses.
    used = {cell for one in shown["hosts"] for cell in shown["rows"][one["row"]]}
    shown["cells"] = [
        cell if n in used else ["none", ""] for n, cell in enumerate(data["cells"])
    ]
    names = {one["name"] for one in shown["hosts"]}
    whole = len(keep) == len(data["domains"])
    shown["findings"] = [
        one for one in data["findings"] if whole and names.issuperset(one["hosts"])
    ]
    for one in shown["domains"]:
        one["used"] = {}
    shown["sentence"] = (
        "Not all hosts and domains of the report are shown: the engine does not list "
        "the others for you."
    )
    shown["notes"], shown["findings_left"] = [], 0
    return shown


def ids_of(text: str, tag: str) -> set[str]:
    """Return the ids of the elements ``tag`` in a list of the API. Raises Refused."""
    return {one.get("id", "") for one in _elements(text, tag)}


def runs_of(text: str) -> list[dict[str, Any]]:
    """Return the newest of our runs in the API's list of jobs, without their steps."""
    return [
        {
            "id": one.get("id", ""),
            "description": _IDS.sub(")", description.removeprefix(_OURS)),
            "status": _text(one, "status"),
            "started_at": _text(one, "start_time"),
        }
        for one in _elements(text, "job")
        if (description := _text(one, "description")).startswith(_OURS)
    ][-_MOST_RUNS:][::-1]


def steps_of(text: str) -> dict[str, Any]:
    """Return how many steps of a job began and ended, and which began last."""
    steps = _elements(text, "step")[:_MOST_STEPS]
    return {
        "steps": len(steps),
        "ended": sum(_text(one, "status") != "started" for one in steps),
        "last": _text(steps[-1], "description") if steps else "",
    }


def _elements(text: str, tag: str) -> list[ElementTree.Element]:
    try:
        # Of the engine, which has the user's token anyway.
        return ElementTree.fromstring(text).findall(tag)  # noqa: S314
    except ElementTree.ParseError:
        raise Refused(502, "The engine's answer cannot be read.") from None


def _text(element: ElementTree.Element, tag: str) -> str:
    return printable((element.findtext(tag) or "")[:_MOST_TEXT])


def answer(
    token: str, data: Mapping[str, Any], now: datetime, ca_file: Optional[str]
) -> dict[str, Any]:
    """Return the document for the user of ``token``. Raises Refused."""

    def get(path: str) -> WebAnswer:
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
            raise Refused(401, "The session has ended.")
        if found.code in (400, 403):
            raise Refused(403, f"The engine does not let you see {path}.")
        if found.code != 200:
            raise Refused(502, f"The engine answered HTTP {found.code}.")
        return found

    hosts = ids_of(get("hosts").body, "host")
    domains = ids_of(get("storagedomains").body, "storage_domain")
    document = visible(data, hosts, domains)
    del document["engine_url"]
    document["now"] = f"{now.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    try:
        runs = runs_of(get("jobs").body)
        for run in runs:
            if run["status"] == "started":
                id = quote(run["id"], safe="")
                run.update(steps_of(get(f"jobs/{id}/steps").body))
        document["runs"] = runs
    except Refused as refused:
        if refused.status == 401:
            raise
        document["runs"], document["runs_problem"] = None, str(refused)
    return document


def data_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the data that systemd hands over. Raises Refused."""
    try:
        text = read_named(f"{settings[FOLDER]}/{DATA}", _MOST_DATA)
        if not text:
            raise Refused(503, "There are no data yet.")
        found = json.loads(text)
    except (KeyError, OSError, ValueError, RecursionError):
        raise Refused(503, "The data cannot be read.") from None
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
                raise Refused(401, "The session has ended.")
            data, ca_file = data_of(self.settings), self.settings.get(CA_FILE)
            now = datetime.now(timezone.utc)
            self._send(200, answer(match[1], data, now, ca_file))
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
