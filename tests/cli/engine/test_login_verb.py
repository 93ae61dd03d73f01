# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``login`` over TLS on the loopback, with a CA of its own."""

from __future__ import annotations

import io
import json
import select
import shlex
import socket
import socketserver
import ssl
import subprocess
import sys
import threading

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import ServiceUnavailableHtml, Status

from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.api.auth import same_fingerprint

pytestmark = pytest.mark.hypervisor

USER, PASSWORD = "admin@ovirt@internalsso", "secret"


def openssl(folder, *words):
    done = subprocess.run(
        ["openssl", *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    """A folder with ca.pem and other-ca.pem, and server.pem, which ca.pem signed for
    127.0.0.1.
    """
    folder = tmp_path_factory.mktemp("pki")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other-ca"):
        openssl(
            folder, "req", "-x509", *key, "-keyout", f"{name}.key", "-out",
            f"{name}.pem", "-days", "2", "-subj", f"/O=example.com/CN={name}",
            "-addext", "keyUsage = critical,cRLSign,keyCertSign",
        )  # fmt: skip
    openssl(
        folder, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj",
        "/CN=engine",
    )  # fmt: skip
    # As the engine's packaging/pki/cert.template.in: Python 3.13 is strict.
    (folder / "more").write_text(
        "authorityKeyIdentifier = keyid:always,issuer:always\n"
        "basicConstraints = CA:false\n"
        "keyUsage = critical,digitalSignature,keyEncipherment\n"
        "extendedKeyUsage = critical,serverAuth,clientAuth\n"
        "subjectAltName = IP:127.0.0.1\n"
    )
    openssl(
        folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey",
        "ca.key", "-CAcreateserial", "-extfile", "more", "-days", "2", "-out",
        "server.pem",
    )  # fmt: skip
    return folder


@pytest.fixture
def engine(pki):
    """The double over TLS; it serves ``ca_pem`` as its CA."""
    world = sample_world(hosts=1)
    world.ca_pem = (pki / "ca.pem").read_text()
    made = EngineDouble(world)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    made._server.socket = context.wrap_socket(made._server.socket, server_side=True)
    with made:
        made.tls_url = made.url.replace("http:", "https:")
        yield made
        assert made.strict_errors == []


@pytest.fixture
def login(engine, capsys, monkeypatch, tmp_path):
    """Run ``ovirt-rdma login`` with an empty settings folder, and a password file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)

    def run(*words, user=USER):
        capsys.readouterr()
        access = ("--engine-url", engine.tls_url, "--password-file", str(password))
        code = main(["login", *access, "--username", user, *words])
        out, err = capsys.readouterr()
        return code, out, err

    run.settings = tmp_path / "config" / "ovirt-rdma.conf"
    run.cas = tmp_path / "config" / "ovirt-rdma"
    run.capsys = capsys
    return run


def fingerprint(pki, name="ca"):
    words = ("x509", "-noout", "-fingerprint", "-sha256", "-in", f"{name}.pem")
    return openssl(pki, *words).strip()


def test_logs_in_with_a_fetched_ca(login, engine, pki):
    code, out, err = login("--fetch-ca", "--fingerprint", fingerprint(pki))
    assert code == 0, err
    assert "subject      O=example.com, CN=ca\n" in err
    assert fingerprint(pki).partition("=")[2] in err
    assert out.startswith("Logged in to 127.0.0.1:")
    (ca_file,) = login.cas.iterdir()
    assert login.settings.stat().st_mode & 0o777 == 0o600
    text = login.settings.read_text()
    assert PASSWORD not in text
    assert text.splitlines()[2:] == [
        "[default]",
        f"engine_url = {engine.tls_url}",
        f"username = {USER}",
        f"cafile = {ca_file}",
    ]
    # The stored settings are sufficient, except for the password.
    code, out, err = login("-o", "json")
    found = json.loads(out)
    assert (found["kind"], found["section"], found["ca_file"]) == (
        "login",
        "default",
        str(ca_file),
    )
    assert found["engine_version"].startswith("4.5")
    assert engine.sso.logins == engine.sso.logouts == 2


def test_what_is_stored_works_in_each_folder(login, engine, pki, monkeypatch, tmp_path):
    monkeypatch.chdir(pki)
    monkeypatch.setenv("OVIRT_CAFILE", "ca.pem")
    monkeypatch.setenv("OVIRT_URL", engine.tls_url)
    file = tmp_path / "other's.conf"
    code, out, err = login("--config-file", str(file))
    assert code == 0, err
    assert f"cafile = {pki / 'ca.pem'}\n" in file.read_text()
    command = f"ovirt-rdma hosts list --config-file {shlex.quote(str(file))}"
    assert command in " ".join(out.split())


def test_a_section_may_have_the_address_in_another_way(login):
    login.settings.parent.mkdir()
    login.settings.write_text("[default]\nengine_url = https://LOCALHOST:1\n")
    code, _, err = login("-c", "default", "--engine-url", "localhost:1")
    assert code == 1
    assert "the engine localhost:1 cannot be reached" in err


def test_a_ca_that_nobody_knows_is_refused(login, engine):
    code, out, err = login()
    assert (code, out) == (1, "")
    assert "is not trusted: unable to get local issuer certificate" in err
    assert "--fetch-ca" in err
    assert not login.settings.exists()
    assert engine.sso.logins == 0  # it never saw the password


def test_a_certificate_for_another_name(login, engine, pki):
    engine.tls_url = engine.tls_url.replace("127.0.0.1", "localhost")
    code, _, err = login("--ca-file", str(pki / "ca.pem"))
    assert code == 1
    assert "is not trusted: no alternative certificate subject name matches" in err
    assert engine.sso.logins == 0


def test_the_name_of_a_ca_file_may_have_any_letters(login, pki, tmp_path):
    ca_file = tmp_path / "Zürich.pem"
    ca_file.write_bytes((pki / "ca.pem").read_bytes())
    code, _, err = login("--ca-file", str(ca_file))
    assert code == 0, err


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that answers CONNECT with ``status``; ``asked`` are its first lines."""

    daemon_threads = True

    def __init__(self, status="200 OK"):
        self.status, self.asked = status, []
        super().__init__(("127.0.0.1", 0), self.serve)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def serve(self, client, address, server):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(4096)
        self.asked.append(head.decode().splitlines()[0].rsplit(" ", 1)[0])
        # The header is the proxy's, not one of the engine's answer.
        answer = f"HTTP/1.1 {self.status}\r\nContent-Encoding: gzip\r\n\r\n"
        client.sendall(answer.encode())
        if self.status.startswith("200"):
            host, port = self.asked[-1].split()[1].split(":")
            with socket.create_connection((host, int(port))) as engine:
                ends = [client, engine]
                while True:
                    (one, *_), _, _ = select.select(ends, [], [])
                    data = one.recv(65536)
                    if not data:
                        return
                    ends[one is client].sendall(data)


@pytest.fixture
def proxy(request, monkeypatch):
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Proxy(*getattr(request, "param", ())) as made:
        threading.Thread(target=made.serve_forever, args=(0.005,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_login_and_api_go_through_the_same_proxy(
    login, engine, pki, proxy, monkeypatch, name
):
    monkeypatch.setenv(name, proxy.url)
    code, _, err = login("--ca-file", str(pki / "ca.pem"))
    assert code == 0, err
    # Login, API and logout.
    assert len(proxy.asked) >= 3
    assert set(proxy.asked) == {f"CONNECT {engine.tls_url.split('/')[2]}"}


def test_a_proxy_is_not_for_all_addresses(login, pki, proxy, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.url)
    monkeypatch.setenv("no_proxy", "example.com,127.0.0.1")
    code, _, err = login("--ca-file", str(pki / "ca.pem"))
    assert code == 0, err
    assert proxy.asked == []


@pytest.mark.parametrize("proxy", [("403 Forbidden",)], indirect=True)
def test_a_proxy_that_refuses_is_named(login, pki, proxy, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.url)
    code, _, err = login("--ca-file", str(pki / "ca.pem"))
    assert code == 1
    assert "403" in err
    assert PASSWORD not in err


def test_another_ca_than_the_one_given(login, pki):
    code, _, err = login("--fetch-ca", "--fingerprint", fingerprint(pki, "other-ca"))
    assert code == 4
    assert "does not have the fingerprint" in err
    assert not login.settings.exists()
    assert not login.cas.exists()


def test_a_ca_that_is_not_the_one_of_the_server(login, engine, pki):
    engine.world.ca_pem = (pki / "other-ca.pem").read_text()
    code, _, err = login("--fetch-ca", "--fingerprint", fingerprint(pki, "other-ca"))
    assert code == 1
    assert "is not trusted" in err
    assert not login.cas.exists()


@pytest.mark.parametrize("answer", ["y\n", "n\n", None])
def test_the_ca_is_confirmed(login, monkeypatch, answer):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    if answer is not None:
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
    code, _, err = login("--fetch-ca")
    assert code == (0 if answer == "y\n" else 4)
    assert ("Is this the engine's CA?" in err) == (answer is not None)
    assert login.settings.exists() == (answer == "y\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"user": "nobody"}, "logging in as nobody failed"),
        ({"login": Status(500, html=True)}, "has failed (HTTP 500)"),
        ({"login": ServiceUnavailableHtml}, "is not available: HTTP 503"),
        ({"api": Status(403, "No.")}, "reading the engine's version failed"),
    ],
)
def test_a_login_that_fails_writes_nothing(login, engine, pki, change, said):
    if "login" in change:
        engine.fail_next("POST", "/sso/oauth/token", change["login"])
    if "api" in change:
        engine.fail_next("GET", "^/$", change["api"])
    words = ("--fetch-ca", "--fingerprint", fingerprint(pki))
    code, out, err = login(*words, user=change.get("user", USER))
    assert (code, out) == (1, "")
    assert said in err
    assert not login.settings.exists()
    assert not login.cas.exists()


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----", None],
)
def test_a_ca_that_is_none(login, engine, pki, text):
    """The last is a certificate, and of no CA."""
    found = (pki / "server.pem").read_text() if text is None else text
    engine.world.ca_pem = found
    code, _, err = login("--fetch-ca")
    assert code == 1
    assert "the engine's CA is invalid" in err


def test_a_file_that_is_there_is_not_changed(login, engine, pki):
    ca = ("--ca-file", str(pki / "ca.pem"))
    login.settings.parent.mkdir()
    before = "# mine\n[other]\nengine_url = https://other.example\n"
    login.settings.write_text(before)
    words = (*ca, "--config", "prod", "--save-password")
    code, out, err = login(*words)
    assert (code, PASSWORD in out + err) == (0, False)
    lines = [
        "[prod]",
        f"engine_url = {engine.tls_url}",
        f"username = {USER}",
        f"cafile = {pki / 'ca.pem'}",
    ]
    assert [line.strip() for line in out.splitlines() if line[0] == " "] == lines
    assert f"{login.settings} was not changed. Put this section there:" in out
    assert "add it in a line 'password = ...'" in out
    found = json.loads(login(*words, "-o", "json")[1])
    assert (found["written"], found["to_add"]) == (False, lines)
    code, _, err = login(*ca, "--config", "other")
    assert code == 1
    assert "section [other]" in err
    assert "is for another engine, https://other.example" in err
    assert login.settings.read_text() == before
    # With these lines, and the address as people write it, nothing is left to add.
    text = "\n".join([before, *lines]).replace("/ovirt-engine/api", "")
    for password in ("", f"\npassword = {PASSWORD}"):
        login.settings.write_text(text + password)
        code, out, _ = login(*words[: None if password else -1])
        assert (code, "is stored in section [prod]" in out) == (0, True)
        assert login.settings.read_text() == text + password


def test_a_new_file_of_another_name_has_the_password(login, pki, tmp_path):
    words = ("--ca-file", str(pki / "ca.pem"), "--save-password")
    file = tmp_path / "new" / "mine.conf"
    assert login(*words, "--config-file", str(file))[0] == 0
    assert f"password = {PASSWORD}" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert not login.settings.exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(login, pki, tmp_path):
    (tmp_path / "new").touch()
    words = ("--ca-file", str(pki / "ca.pem"), "--save-password")
    code, _, err = login(*words, "--config-file", str(tmp_path / "new" / "mine.conf"))
    assert (code, PASSWORD in err) == (1, False)
    assert f"{tmp_path}/new/mine.conf" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("AB:" * 31 + "AB", "ab" * 32, True),
        ("sha256 Fingerprint=" + "AB:" * 31 + "AB", "ab" * 32, True),
        ("ab" * 31, "ab" * 31, False),
        ("", "", False),
        ("ab" * 32, "ac" * 32, False),
    ],
)
def test_fingerprints_as_people_write_them(one, other, same):
    assert same_fingerprint(one, other) == same
