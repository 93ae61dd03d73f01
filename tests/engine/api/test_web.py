# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the limits on answers of a server that is hostile, or not an engine."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import signal
import socket
import threading
import time

import pytest
from engine_double.answers import Answer
from engine_double.faults import Fault
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api import request
from ovirt_rdma.engine_sdk_tools.api.auth import (
    Settings,
    ca_of,
    fetch_ca,
    log_in,
)
from ovirt_rdma.engine_sdk_tools.api.request import (
    BROKEN,
    TIMEOUT,
    UNREACHABLE,
    EngineProblem,
    Read,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session

pytestmark = pytest.mark.hypervisor

HOSTS = Read("hosts", "reading the hosts")
# More than the limit, but little enough that a test which reads all of it ends.
_TOO_MANY = 4 << 20
_DRIPS, _DRIP_S = 100, 0.05


class Server:
    """An engine that answers with ``how``; ``asked`` are its requests."""

    def __init__(self, how, address="127.0.0.1") -> None:
        asked = self.asked = []
        self._address = f"[{address}]" if ":" in address else address

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append(self.path)
                self.close_connection = True
                with contextlib.suppress(OSError):
                    how(self)

            do_POST = do_GET

            def log_message(self, *words):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

        self._server = Listener((address, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        # The default looks for a shutdown every 0.5 s.
        threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        ).start()

    def settings(self, **more) -> Settings:
        url = f"http://{self._address}:{self.port}/ovirt-engine/api"
        return Settings(url, "admin@internal", "secret", **more)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve():
    with contextlib.ExitStack() as servers:

        def made(how, *address) -> Server:
            server = Server(how, *address)
            servers.callback(server.close)
            return server

        yield made


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(_TOO_MANY >> 16):
        handler.wfile.write(b"x" * (1 << 16))


def packed(handler, times=1):
    body = b"x" * _TOO_MANY
    for _ in range(times):
        body = gzip.compress(body)
    handler.send_response(200)
    handler.send_header("Content-Encoding", ", ".join(["gzip"] * times))
    handler.end_headers()
    handler.wfile.write(body)


def packed_twice(handler):
    packed(handler, times=2)


def dripping_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(_DRIPS))
    handler.end_headers()
    for _ in range(_DRIPS):
        handler.wfile.write(b"x")
        time.sleep(_DRIP_S)


def dripping_head(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(_DRIPS):
        handler.wfile.write(b"x")
        time.sleep(_DRIP_S)
    handler.wfile.write(b"\r\nContent-Length: 0\r\n\r\n")


ASKING = [fetch_ca, log_in]


@pytest.mark.parametrize("ask", ASKING)
def test_an_answer_without_end_is_one_sentence(serve, ask):
    with problem("engine-answer-too-large", "1 MiB") as caught:
        ask(serve(endless).settings())
    assert caught.value.kind == BROKEN


@pytest.mark.parametrize(
    ("ask", "id"), [(fetch_ca, "engine-ca-invalid"), (log_in, "not-an-engine")]
)
@pytest.mark.parametrize("how", [packed, packed_twice])
def test_an_answer_that_is_packed_is_not_unpacked(serve, ask, id, how):
    """A few bytes become gigabytes before anything can count them."""
    with problem(id):
        ask(serve(how).settings())


@pytest.mark.parametrize("ask", ASKING)
@pytest.mark.parametrize("how", [dripping_body, dripping_head])
def test_a_byte_now_and_then_is_no_answer(serve, ask, how):
    with problem("engine-timeout") as caught:
        ask(serve(how).settings(timeout_s=0.5))
    assert caught.value.kind == TIMEOUT


def test_a_signal_ends_the_wait_for_an_answer(serve):
    """Ctrl-C does not wait for the timeout."""
    done = threading.Event()

    def interrupted(number, frame):
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            fetch_ca(serve(lambda handler: done.wait(60)).settings(timeout_s=60))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        done.set()
    assert time.monotonic() - began < 30


def token(handler):
    text = b'{"access_token": "t"}'
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_engines_address_may_be_a_number(serve, address):
    server = serve(token, address)
    assert log_in(server.settings()) == "t"
    assert server.asked == ["/ovirt-engine/sso/oauth/token"]


def test_nothing_listens():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        url = f"http://127.0.0.1:{port}/ovirt-engine/api"
        refused = f"the engine 127.0.0.1:{port} cannot be reached: Connection refused"
        with problem("engine-unreachable", refused) as caught:
            log_in(Settings(url, "admin@internal", "secret"))
    assert caught.value.kind == UNREACHABLE


@pytest.mark.parametrize("taken", [1, 1 << 16], ids=["reset", "closed"])
def test_a_tls_handshake_that_is_cut_off(taken):
    """As while httpd restarts: nothing was sent, and no certificate was seen."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def cut():
            connection, _ = server.accept()
            with connection:
                connection.recv(taken)  # what is left makes it a reset

        threading.Thread(target=cut, daemon=True).start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/ovirt-engine/api"
        with problem("engine-unreachable", "cannot be reached") as caught:
            log_in(Settings(url, "admin@internal", "secret"))
    assert caught.value.kind == UNREACHABLE


def test_a_connection_that_breaks(serve):
    def broken(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "50")
        handler.end_headers()
        handler.wfile.write(b"DB Up")

    with problem("engine-connection-lost", "the connection to the engine") as caught:
        fetch_ca(serve(broken).settings())
    assert caught.value.kind == TIMEOUT


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("ask", ASKING)
def test_redirections_are_not_followed(serve, ask, code):
    """The password would follow a 307."""
    other = serve(endless)

    def elsewhere(handler):
        handler.send_response(code)
        handler.send_header("Location", f"http://127.0.0.1:{other.port}/")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server = serve(elsewhere)
    with pytest.raises(EngineProblem, match=f"HTTP {code}"):
        ask(server.settings())
    assert (len(server.asked), other.asked) == (1, [])


class Answered(Fault):
    """An answer in place of the engine's."""

    def __init__(self, code, body, *more):
        self._answer = Answer(code, body, *more)

    def answer(self):
        return self._answer


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_requests_of_the_api_follow_none_either(serve, double, session, code):
    """The token would."""
    other = serve(endless)
    url = f"http://127.0.0.1:{other.port}/ovirt-engine/api/hosts"
    double.fail_next("GET", "/hosts", Answered(code, b"", "", {"Location": url}))
    with pytest.raises(EngineProblem):
        session.read(HOSTS)
    assert other.asked == []


def test_an_answer_of_the_api_has_a_limit(double, session, monkeypatch):
    monkeypatch.setattr(f"{Session.__module__}.MOST_BYTES", 20_000)
    much = Answered(200, b"<hosts>" + b" " * 25_000 + b"</hosts>")
    double.fail_next("GET", "/hosts", much)
    with problem("engine-answer-too-large") as caught:
        session.read(HOSTS)
    assert caught.value.kind == BROKEN
    # Each answer is counted separately.
    assert len(session.read(HOSTS)) == 3
    assert request.MOST_BYTES == 64 << 20


STEERS = "\x9b2J\u202e\u2028\x7f"


@pytest.mark.parametrize(
    "name", [f"{STEERS}</x>".encode(), b"\x1b]0;PWNED\x07</name>", b"\x9b\xff</name>"]
)
def test_an_answer_that_is_no_xml_reaches_no_terminal_raw(capfd, double, session, name):
    """libxml2 itself writes the line to stderr."""
    body = b"<hosts><host><name>%b</host></hosts></hosts>" % name
    double.fail_next("GET", "/hosts", Answered(200, body))
    with problem("engine-answer-invalid"):
        session.read(HOSTS)
    said = capfd.readouterr().err
    assert all(c.isprintable() for c in said if c != "\n"), ascii(said)


def test_names_are_as_the_engine_has_them(double, session):
    name = f"h\u00e9{STEERS}&<"
    double.world.host("host02").name = name
    assert [host.name for host in session.read(HOSTS)] == ["host01", name, "host03"]


def test_a_ca_with_letters_in_it_that_no_certificate_has():
    text = "-----BEGIN CERTIFICATE-----\nMIIBé\n-----END CERTIFICATE-----\n"
    with problem("engine-ca-invalid"):
        ca_of(text)


@pytest.mark.parametrize("word", ["username", "password", "token"])
def test_words_that_are_no_utf8_are_one_sentence(word):
    name = "user" if word == "username" else word
    with problem("credential-not-utf8", name):
        Settings("https://e/ovirt-engine/api", **{word: "pass\udcff"})
    with problem("token-invalid"):
        Settings("https://e/ovirt-engine/api", token="a\r\nX: y")


@pytest.mark.parametrize(
    "proxy", ["http://admin:s3cret pw@proxy:3128", "odd://admin:s3cret@proxy"]
)
def test_a_proxy_that_is_none_shows_no_password(monkeypatch, proxy):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    settings = Settings("http://engine.invalid/ovirt-engine/api", "admin@internal", "x")
    with problem("engine-unreachable", "proxy") as caught:
        log_in(settings)
    assert "s3cret" not in f"{caught.value} {caught.value.fix}"
