# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the settings of the connection: which source wins, and invalid files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.auth import (
    IniFile,
    engine_address,
    engine_url,
    from_sources,
    section_text,
    sections,
    settings_file,
    state_folder,
)
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.hypervisor

INI = """\
# our engines
[default]
engine_url = https://one.example.com
username = file@internal
password = of%the=file
cafile = /one.pem

[two]
engine_url = https://two.example.com/ovirt-engine/api
username = two@internal
"""
ENVIRON = {
    "OVIRT_URL": "https://env.example.com/ovirt-engine/api",
    "OVIRT_USERNAME": "env@internal",
    "OVIRT_PASSWORD": "of-environ",
    "OVIRT_CAFILE": "/env.pem",
}


def ini(text=INI):
    return IniFile("/home-of/ovirt-rdma.conf", text)


def found_in(flags, environ, file, default_ca=None):
    given = {key: value for key, value in flags.items() if key != "config"}
    file = None if file is None else ini(file)
    return from_sources(environ, given, file, flags.get("config"), default_ca)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("engine.example.com", "https://engine.example.com/ovirt-engine/api"),
        ("https://engine:8443/", "https://engine:8443/ovirt-engine/api"),
        ("https://engine/ovirt-engine", "https://engine/ovirt-engine/api"),
        ("https://engine/ovirt-engine/webadmin/", "https://engine/ovirt-engine/api"),
        ("https://engine/ovirt-engine/api/", "https://engine/ovirt-engine/api"),
        ("https://[fd00::1]", "https://[fd00::1]/ovirt-engine/api"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/ovirt-engine/api"),
    ],
)
def test_an_engine_as_people_write_it(text, url):
    assert engine_url(text) == url
    assert engine_url(url) == url


@pytest.mark.parametrize(
    ("text", "id", "named"),
    [
        ("http://engine.example.com", "not-https", "'http://engine.example.com'"),
        ("https://admin:pw@engine", "has-credentials", "--password-file"),
        ("https://admin:pw@engine:port", "has-credentials", "--password-file"),
        ("admin:pw@[fd00", "has-credentials", "--password-file"),
        ("https://ü..example", "invalid", "is not an engine's URL"),
        ("bücher.example", "invalid", "not ASCII"),
        ("ftp://engine", "invalid", "'ftp://engine'"),
        ("https://", "invalid", "'https://'"),
        ("https://engine/other", "invalid", "path is /other"),
        ("https://engine/ovirt-engine/api?x=1", "invalid", "query"),
        ("https://engine:port", "invalid", "'https://engine:port'"),
        ("https://[fd00", "invalid", "'https://[fd00'"),
        ("an engine", "invalid", "a blank"),
    ],
)
def test_what_is_no_engine(text, id, named):
    with problem(f"engine-url-{id}", named) as caught:
        engine_url(text)
    assert "pw" not in str(caught.value)


def test_addresses_beside_the_api():
    url = engine_url("https://engine:8443")
    assert engine_address(url, "services/health") == (
        "https://engine:8443/ovirt-engine/services/health"
    )


@pytest.mark.parametrize(
    ("flags", "environ", "file", "url", "user", "password", "ca"),
    [
        # The default section, the environment over it, flags over that.
        ({}, {}, INI, "one", "file", "of%the=file", "/one.pem"),
        ({}, ENVIRON, INI, "env", "env", "of-environ", "/env.pem"),
        # The environment's user and password are for its own engine only.
        ({"engine_url": "flag.example.com"}, ENVIRON, INI, "flag", None, None, "/ca"),
        ({"engine_url": "env.example.com"}, ENVIRON, INI, "env", "env", "of-environ",
         "/env.pem"),
        ({"engine_url": "HTTPS://ENV.example.com:443/ovirt-engine/webadmin"}, ENVIRON,
         INI, "ENV.example.com:443", "env", "of-environ", "/env.pem"),
        # Also where the other name is none.
        ({"engine_url": "flag.example.com"}, {**ENVIRON, "OVIRT_URL": "http://old"},
         INI.replace("https://one", "ftp://one"), "flag", None, None, "/ca"),
        ({"engine_url": "env.example.com:8443"}, ENVIRON, None,
         "env.example.com:8443", None, None, "/ca"),
        ({"engine_url": "flag.example.com"}, {"OVIRT_PASSWORD": "of-environ"}, None,
         "flag", None, "of-environ", "/ca"),
        ({"username": "flag@internal", "password": "p"}, ENVIRON, INI, "env", "flag",
         "p", "/env.pem"),
        # A section that is named wins over the environment.
        ({"config": "two"}, ENVIRON, INI, "two", "two", None, "/ca"),
        ({"config": "two"}, {"OVIRT_PASSWORD": "of-environ"}, INI, "two", "two",
         "of-environ", "/ca"),
        ({"config": "default"}, ENVIRON, INI, "one", "file", "of%the=file", "/one.pem"),
        # The default section's password is for its own engine only.
        ({"engine_url": "flag.example.com"}, {}, INI, "flag", None, None, "/ca"),
        ({"engine_url": "one.example.com"}, {}, INI, "one", "file",
         "of%the=file", None),
        # A file with one section needs no [default].
        ({}, {}, "[x]\nengine_url=one.example.com", "one", None, None, "/ca"),
        ({}, {"OVIRT_HOSTNAME": "host.example.com"}, None, "host", None, None, "/ca"),
        # An empty variable counts as not set.
        ({}, {"OVIRT_URL": "", "OVIRT_HOSTNAME": "host.example.com"}, None, "host",
         None, None, "/ca"),
    ],
)  # fmt: skip
def test_what_wins(flags, environ, file, url, user, password, ca):
    found = found_in(flags, environ, file, "/ca")
    host = url if "." in url else f"{url}.example.com"
    assert found.url == f"https://{host}/ovirt-engine/api"
    assert found.username == (user and f"{user}@internal")
    assert found.password == password
    if ca is not None:
        assert found.ca_file == ca


@pytest.mark.parametrize(
    ("flags", "environ", "file", "token", "password"),
    [
        ({}, {"OVIRT_TOKEN": "t"}, INI, "t", None),
        ({}, {"OVIRT_TOKEN": "t", "OVIRT_USERNAME": "u"}, INI, "t", None),
        ({}, {**ENVIRON, "OVIRT_TOKEN": "t"}, None, None, "of-environ"),
        # The token could belong to another user.
        ({"username": "u"}, {"OVIRT_TOKEN": "t"}, INI, None, "of%the=file"),
        ({"config": "default"}, {"OVIRT_TOKEN": "t"}, INI, None, "of%the=file"),
    ],
)
def test_a_token_or_a_password(flags, environ, file, token, password):
    environ = {"OVIRT_URL": "one.example.com", **environ}
    found = found_in(flags, environ, file)
    assert (found.token, found.password) == (token, password)


@pytest.mark.parametrize(
    ("flags", "file", "id", "named", "fix"),
    [
        ({}, None, "engine-not-configured", "", "OVIRT_URL"),
        ({}, "[a]\n[b]\n", "engine-not-configured", "", "a, b"),
        ({"config": "x"}, None, "settings-file-missing", "--config x", "login"),
        ({"config": "tow"}, INI, "settings-section-unknown", "[tow]",
         "did you mean two?"),
        ({"config": "zzz"}, INI, "settings-section-unknown", "[zzz]", "default, two"),
        ({}, "[a]\nengine_ulr=x", "settings-key-unknown", "section [a]",
         "did you mean engine_url?"),
        ({}, "[a]\nqqqq=x", "settings-key-unknown", "'qqqq'", "engine_url, "),
        ({}, "password=secret", "settings-file-invalid",
         "ovirt-rdma.conf:1: it needs a section, [default]", ""),
        ({}, "[a]\nsecret", "settings-file-invalid",
         "ovirt-rdma.conf:2: this line is not 'key = value'", ""),
        ({}, "[a]\n[a]\n", "settings-file-invalid",
         "ovirt-rdma.conf:2: this section is there twice", ""),
        ({}, "[a]\nusername=x\nusername=secret", "settings-file-invalid",
         "ovirt-rdma.conf:3: its section has this key twice", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file(flags, file, id, named, fix):
    with problem(id) as caught:
        found_in(flags, {}, file)
    assert named in str(caught.value)
    assert fix in caught.value.fix
    assert "secret" not in str(caught.value)


def test_no_secret_is_shown():
    found = from_sources({"OVIRT_URL": "e.example"}, {"password": "of-flag"}, ini())
    for one in (found, ini()):
        assert "of-flag" not in repr(one)
        assert "of%the" not in repr(one)


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "x"), ("a\nb", "x"), ("a", " x"), ("a", "x\n[b]"), ("a", "x\n\nuser: y")],
)
def test_what_a_settings_file_cannot_hold(name, value):
    with problem("settings-value-invalid", repr(name)) as found:
        section_text(name, {"password": value})
    assert "x" not in str(found.value).split()


@given(st.text(max_size=8), st.text(max_size=12), st.none() | st.text(max_size=4))
def test_a_section_is_read_as_it_was_written_or_refused(name, password, user):
    values = {"password": password, "username": user}
    try:
        text = section_text(name, values)
    except Problem:
        return
    present = {key: value for key, value in values.items() if value is not None}
    assert sections(ini(text)) == {name: present}


@pytest.mark.parametrize(
    ("environ", "euid", "state", "settings"),
    [
        ({"HOME": "/h"}, 0, "/var/lib/ovirt-rdma/engine", "/h/.config/ovirt-rdma.conf"),
        ({"HOME": "/h"}, 7, "/h/.local/state/ovirt-rdma", "/h/.config/ovirt-rdma.conf"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}, 7,
         "/s/ovirt-rdma", "/c/ovirt-rdma.conf"),
        ({"HOME": "/h", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": ""}, 7,
         "/h/.local/state/ovirt-rdma", "/h/.config/ovirt-rdma.conf"),
    ],
)  # fmt: skip
def test_where_files_are(environ, euid, state, settings):
    assert str(state_folder(environ, euid)) == state
    assert str(settings_file(environ)) == settings


def test_without_a_home():
    with problem("home-unknown", "XDG_STATE_HOME"):
        state_folder({}, 7)
