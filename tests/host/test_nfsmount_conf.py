# SPDX-License-Identifier: GPL-2.0-or-later
import re

import pytest
from host_fake_enablement import nfsconf_dump, policy_of, rdma_rule
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.nfsmount_conf import (
    NfsmountRefused,
    local_path,
    render,
)
from ovirt_rdma.host.nfsmount_conf_file import with_header
from ovirt_rdma.host.nfsmount_conf_proof import lost, parse_dump, wanted_settings
from ovirt_rdma.host.policy import NfsRule

ADDRESSES = {
    "nas": ("10.0.0.1",),
    "nas6": ("fd00::1",),
    "both": ("fd00::1", "10.0.0.1"),
}


def rendered(*rules):
    return render(policy_of(*rules), lambda name: ADDRESSES.get(name, ()))


def mistakes(*rules):
    with pytest.raises(NfsmountRefused) as caught:
        rendered(*rules)
    assert caught.value.exit_code == 4
    return str(caught.value).splitlines()


def rule(number, transport, server="10.0.0.1", path="/vm", **more):
    return NfsRule(number, f"rule {number}", server, path, transport, **more)


@pytest.mark.parametrize(
    "export, place",
    [
        ("10.0.0.1:/export/vm", "10.0.0.1:_export_vm"),
        ("nas.example.org:/a_b/c__d", "nas.example.org:_a__b_c____d"),
        ("nas://doubled//", "nas:_doubled"),
        ("[fd00::1]:/vm", "[fd00::1]:_vm"),
    ],
)
def test_local_path_is_vdsms(loaded_vdsm, export, place):
    assert local_path(Export.parse(export)) == f"/rhev/data-center/mnt/{place}"
    connection = loaded_vdsm.create({"id": "1", "connection": export})
    base = loaded_vdsm.storage_server.MountConnection.getLocalPathBase()
    theirs = connection._mountCon.getMountObj().fs_file
    assert theirs == f"{base}/{place}"


def test_the_whole_text():
    found = rendered(
        NfsRule(1, "vm store", "10.0.0.1", "/vm_1", "require-rdma", options="noac,a=1"),
        rdma_rule(2, server="nas6", port=20050),
    )
    assert found.text == (
        "\n"
        "# rule 'vm store'\n"
        '[ MountPoint "/rhev/data-center/mnt/10.0.0.1:_vm__1" ]\n'
        "Proto=rdma\n"
        "Retry=0\n"
        "ac=False\n"
        "a=1\n"
        "\n"
        "# rule 2\n"
        '[ MountPoint "/rhev/data-center/mnt/nas6:_vm" ]\n'
        "Proto=rdma6\n"
        "Port=20050\n"
        "Retry=0\n"
    )


def test_an_empty_policy_has_no_section():
    assert (rendered().text, rendered().notes) == ("", ())


def test_the_default_port_is_left_to_the_kernel():
    # Any supported one has it; with a port in the file, proto=tcp would end there.
    found = rendered(rdma_rule())
    assert "Port=" not in found.text
    assert "proto=tcp is still mounted over TCP" in found.notes[0]


@pytest.mark.parametrize(
    "server, proto, family",
    [
        ("nas", "rdma", "IPv4"),
        ("nas6", "rdma6", "IPv6"),
        ("both", "rdma", "IPv4"),
        ("10.0.0.1", "rdma", None),
    ],
)
def test_families(server, proto, family):
    found = rendered(rdma_rule(server=server))
    assert f"Proto={proto}\n" in found.text
    said = [note for note in found.notes if "the server's name is used over" in note]
    wanted = f"{server}:/vm: the server's name is used over {family} only"
    assert said == ([wanted] if family else [])


def test_all_mistakes_at_once_each_with_its_rule():
    found = mistakes(
        rule(1, "prefer-rdma"),
        rule(2, "require-rdma", server="10.0.0.0/24"),
        rule(3, "require-rdma", path="/vm*"),
        rule(4, "require-rdma", server="*.example.org"),
        rule(5, "require-rdma", server="fd00::1"),
        rule(6, "require-rdma", path="/a]b"),
        rule(7, "require-rdma", path='/a"b'),
        rule(8, "require-rdma", path="/x", options="sharecache,local_lock=flock"),
        rule(9, "require-rdma", server="unknown"),
        rule(10, "require-rdma", path="/good"),
        rule(11, "require-rdma", path="/Good"),
    )
    assert [re.match(r"rule \d+", line)[0] for line in found] == [
        f"rule {number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 11)
    ]
    assert "nothing falls back to TCP; say require-rdma" in found[0]
    for line in found[1:4]:
        assert "write one server and one path as the engine has them" in line
    assert "give the server a host name" in found[4]
    assert "does not resolve here" in found[9]
    assert "cannot tell 10.0.0.1:/Good from 10.0.0.1:/good" in found[10]


@pytest.mark.parametrize(
    "first, second, why",
    [
        ("/a", "/A", "because nfsmount.conf ignores case"),
        ("/a/_b", "/a_/B", "because nfsmount.conf ignores case"),
        (
            "/a/_b",
            "/a_/b",
            "VDSM mounts 10.0.0.1:/a_/b and 10.0.0.1:/a/_b at the same place, "
            "/rhev/data-center/mnt/10.0.0.1:_a___b; rename one of the exports",
        ),
    ],
)
def test_why_two_exports_clash(first, second, why):
    found = mistakes(rdma_rule(1, first), rdma_rule(2, second))
    assert len(found) == 1
    assert why in found[0]
    assert ("ignores case" in found[0]) == ("ignores case" in why)


def test_the_first_rule_that_names_an_export_wins():
    assert (
        rendered(
            rule(1, "tcp", path="/iso*"),
            rule(2, "require-rdma", path="/iso1"),
            rule(3, "require-rdma", path="/vm"),
            rule(4, "require-rdma", path="/vm", port=20050),
        ).text.count("[ MountPoint")
        == 1
    )


def test_a_tcp_rule_writes_nothing_and_says_so():
    found = rendered(rule(1, "tcp", server="10.0.0.0/24", path="*"))
    assert found.text == ""
    assert found.notes == (
        "rule 1: in this mode tcp writes nothing into the file, and a storage "
        "connection that asks for RDMA gets RDMA",
    )


def test_what_becomes_of_an_engine_that_asks_for_tcp_is_said():
    plain, with_port = rdma_rule(1), rdma_rule(2, path="/b", port=20050)
    notes = rendered(plain, with_port).notes
    assert notes[0].startswith("10.0.0.1:/b: the file gives the port, so a storage")
    assert notes[1].startswith("10.0.0.1:/vm: a storage connection with proto=tcp is")


PATHS = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"), min_size=1
).map(lambda text: f"/{text}")
OPTIONS = st.lists(
    st.sampled_from(
        ["noac", "hard", "rsize=32k", "nconnect=4", "sec=krb5", "fsc=a#b", 'x="a,b"']
    ),
    unique=True,
).map(",".join)


@given(st.lists(st.tuples(PATHS, OPTIONS), max_size=4), st.sampled_from([20049, 1]))
def test_nfs_utils_reads_what_was_meant(tmp_path_factory, exports, port):
    rules = [
        rdma_rule(number, Export.parse(f"s:{path}").path, options=options, port=port)
        for number, (path, options) in enumerate(exports, 1)
    ]
    try:
        found = rendered(*rules)
    except NfsmountRefused:
        return
    conf = tmp_path_factory.mktemp("conf") / "nfsmount.conf"
    conf.write_text(with_header(found.text), encoding="utf-8")
    settings = parse_dump(nfsconf_dump(conf))
    wanted = wanted_settings(found)
    assert lost(wanted, settings) == ()
    assert set(settings) == set(wanted)
