# SPDX-License-Identifier: GPL-2.0-or-later
import ipaddress
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.export import Export, ExportProblem

FORM = "write it as SERVER:/PATH, an IPv6 address in brackets: [fd00::1]:/PATH"


@pytest.mark.parametrize(
    ("text", "server", "path"),
    [
        ("nas1.example.org:/export/vm", "nas1.example.org", "/export/vm"),
        ("10.0.0.1:/x", "10.0.0.1", "/x"),
        ("[fd00::1]:/x", "fd00::1", "/x"),
        ("[fe80::1%eth0]:/x", "fe80::1%eth0", "/x"),
        ("nas:/", "nas", "/"),
        ("nas:/a//b/", "nas", "/a/b"),
        ("nas://a", "nas", "/a"),
        ("nas:/a/../..", "nas", "/"),
        ("nas:/a:/b", "nas", "/a:/b"),
        ("nas:/with blank", "nas", "/with blank"),
        ("nas:/caf\u00e9", "nas", "/caf\u00e9"),
        ("nas:/\udcff", "nas", "/\udcff"),
    ],
)
def test_an_export_is_a_server_and_a_normal_path(text, server, path):
    assert Export.parse(text) == Export(server, path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "nas", "/x", ":/x", "nas:", "nas:relative", "na s:/x", "/etc:/x"),
        *("fd00::1:/x", "[fd00::1:/x", "[fd00::1]/x", "[fd00::1]:x", "[nas]:/x"),
        *("[]:/x", "nas:/a\nb", "n\x7fs:/x"),
    ],
)
def test_what_is_no_export_gets_a_sentence_and_the_form(text):
    with pytest.raises(ExportProblem) as caught:
        Export.parse(text)
    fix = "write [fd00::1]:/x" if text == "fd00::1:/x" else FORM
    sentence = f"export {text!r} is not SERVER:/PATH"
    assert (str(caught.value), caught.value.fix) == (sentence, fix)


def test_the_address_of_a_server_is_known_unless_it_is_a_name():
    assert Export.parse("[fd00:0::1]:/x").address == ipaddress.ip_address("fd00::1")
    assert Export.parse("10.0.0.1:/x").address == ipaddress.ip_address("10.0.0.1")
    assert Export.parse("nas:/x").address is None


@given(
    st.one_of(
        st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True),
        st.ip_addresses().map(str),
    ),
    st.text(st.characters(exclude_categories=["Cc"]), max_size=30),
)
def test_an_export_reads_back_from_its_own_text(server, tail):
    export = Export(server, "/" + posixpath.normpath("/" + tail).lstrip("/"))
    assert Export.parse(str(export)) == export


@given(st.text(max_size=40))
def test_any_text_is_an_export_or_a_problem(text):
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        assert "\n" not in str(problem)
    else:
        assert export.server
        assert posixpath.normpath(export.path) == export.path


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("nas:/data", "NAS.:/data/", True),
        ("[fd00::1]:/data", "[FD00:0::1]:/data", True),
        ("nas:/data", "nas:/other", False),
        ("nas:/data", "nas2:/data", False),
        ("10.0.0.1:/data", "nas:/data", False),
        ("nas:/data", "not an export", False),
    ],
)
def test_the_same_export_in_another_notation(one, other, same):
    export, known = Export.parse(one), Export.maybe(other)
    assert export.same_as(known) is same
    assert known is None or known.same_as(export) is same
