# SPDX-License-Identifier: GPL-2.0-or-later
"""Valid and broken text of the kernel and its tools: it is read exactly and never
raises.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

import copy
import json
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_hosts import soft_roce
from support.mutation import mutated

from ovirt_rdma.host.collect import tools
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.storage import (
    nfs_mounts,
    normalised_source,
    parse_mountinfo,
    parse_mountstats,
    unescape,
)
from ovirt_rdma.host.facts.model import Facts

# Linux 6.1, two guests of the lab; and EL9's tags of a mount tree that is shared.
MOUNTINFO = [
    b"22 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/machine:/layer",
    b"36 25 0:30 / /rhev/data-center/mnt/10.0.0.1:_data rw,relatime shared:3 master:1"
    b" - nfs4 10.0.0.1:/data rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,soft,"
    b"nosharecache,proto=rdma,port=20049,timeo=100,retrans=3,sec=sys,"
    b"clientaddr=10.0.0.2,local_lock=none,addr=10.0.0.1",
    b"37 25 0:31 / /rhev/data-center/mnt/[fd00::1]:_a\\040b rw,relatime shared:4 - "
    b"nfs [fd00::1]:/a\\040b rw,vers=3,proto=tcp6,mountport=20048,mountproto=udp6,"
    b"local_lock=all,addr=fd00::1",
]
MOUNTSTATS = [
    b"device overlay mounted on / with fstype overlay",
    b"no device mounted on /sys with fstype sysfs",
    b"device 10.0.0.1:/data mounted on /rhev/data-center/mnt/10.0.0.1:_data with "
    b"fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.2\n\tage:\t2\n\tevents:\t0 0 0 0\n"
    b"\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
    b"\txprt:\trdma 0 0 1 0 0 44 44 0 80 0 37 64 4 8411456 8389512 0 0 64320 3 0\n"
    b"\tper-op statistics\n\t        NULL: 1 1 0 44 24 0 0 0 0\n",
    b"device [fd00::1]:/a\\040b mounted on /rhev/data-center/mnt/[fd00::1]:_a\\040b "
    b"with fstype nfs statvers=1.1\n\tage:\t7\n\txprt:\ttcp 878 1 1 0 11 30\n",
]
WORDS = st.sampled_from(
    [b"\n", b" ", b" - ", b"-", b"\\040", b"\\", b"\\400", b"nfs4", b"xprt:", b"age:",
     b"device ", b" mounted on ", b"mounted", b"\r", b"\x00", b"\xff", b",", b"=", b"9"]
) | st.binary(max_size=4)  # fmt: skip


def joined(lines):
    """All lines of a file, and each line separately, for changes."""
    return [*lines, b"\n".join(lines) + b"\n"]


@given(mutated(joined(MOUNTINFO), WORDS), mutated(joined(MOUNTSTATS), WORDS))
def test_odd_mount_tables_hide_nothing_else(mountinfo, mountstats):
    good_info, good_stats = MOUNTINFO[1], MOUNTSTATS[2]
    problems = []
    found = nfs_mounts(
        mountinfo + b"\n" + good_info + b"\n",
        mountstats + b"\n" + good_stats,
        problems,
    )
    mount = found[-1]
    assert (mount.source, mount.protocol, mount.port) == (
        "10.0.0.1:/data",
        "rdma",
        20049,
    )
    assert mount.protocols == ("rdma",)
    assert mount.age_s == 2
    assert all("\n" not in sentence for sentence in problems)
    assert len({mount.mountpoint for mount in found}) == len(found)


@given(mutated(joined(MOUNTINFO), WORDS))
def test_each_line_is_an_entry_or_a_sentence(data):
    _, problems = parse_mountinfo(data)
    lines = [line for line in data.split(b"\n") if line]
    entries = [entry for line in lines for entry in parse_mountinfo(line)[0].values()]
    assert len(entries) + len(problems) == len(lines)
    assert all("is not a mount entry" in sentence for sentence in problems)


@given(mutated(joined(MOUNTSTATS), WORDS))
def test_sections_are_of_mount_points_in_the_text(data):
    for place in parse_mountstats(data):
        assert place in unescape(data)


ESCAPED = b" \t\n\\"  # mangle() of fs/proc_namespace.c; newer kernels a # too
NAMES = st.binary(min_size=1, max_size=20).map(lambda name: name.replace(b"\0", b"/"))


def escape(name: bytes, characters: bytes) -> bytes:
    """As seq_escape() does, byte by byte."""
    return b"".join(
        b"\\%03o" % byte if byte in characters else bytes([byte]) for byte in name
    )


@given(
    NAMES, NAMES, st.sampled_from([ESCAPED, ESCAPED + b"#", bytes(range(33)) + b"\\"])
)
def test_escapes_of_the_kernel_come_back_exactly(path, source, characters):
    path = b"/" + path
    shown, device = escape(path, characters), escape(source, characters)
    line = b"36 25 0:30 / %s rw shared:3 - nfs %s rw" % (shown, device)
    entries, problems = parse_mountinfo(line)
    (entry,) = entries.values()
    assert entry.mountpoint.encode("utf-8", "surrogateescape") == path
    assert entry.source.encode("utf-8", "surrogateescape") == source
    assert not problems
    stats = b"device %s mounted on %s with fstype nfs\n\tage:\t4\n" % (device, shown)
    assert list(parse_mountstats(stats)) == [entry.mountpoint]


@given(
    st.sampled_from(["10.0.0.1", "nas", "[fd00::1]"]),
    st.text("/.ab", min_size=1, max_size=12),
)
def test_a_source_is_normalised_once_and_as_a_path_is(server, path):
    once = normalised_source(f"{server}:/{path}")
    assert normalised_source(once) == once
    assert once == f"{server}:{posixpath.normpath('/' + path.lstrip('/'))}"


# ip and rdma

ROUTES = [
    '[{"dst":"10.0.0.1","dev":"ib0","prefsrc":"10.0.0.2","flags":[],"uid":0}]',
    '[{"type":"local","dst":"10.0.0.2","dev":"lo","prefsrc":"10.0.0.2"}]',
    '[{"type":"unreachable","dst":"10.9.9.9","dev":"lo"}]',
    '[{"dst":"10.1.0.1","via":{"family":"inet6","host":"fe80::1"},"dev":"br8"}]',
]
LINKS = [
    '[{},{"ifindex":3,"ifname":"br8","mtu":1500,"linkinfo":{"info_kind":"bridge",'
    '"info_data":{"forward_delay":0}},"addr_info":[{"family":"inet","local":'
    '"10.0.0.2","prefixlen":24,"scope":"global"}]}]',
]
CM_IDS = [
    '[{"ifindex":0,"ifname":"rxe0","port":1,"cm-idn":0,"state":"CONNECT","ps":"TCP",'
    '"comm":"rpcrdma","src-addr":"10.0.0.2:40001","dst-addr":"10.0.0.1:20049"},'
    '{"ifindex":0,"ifname":"rxe0","cm-idn":1,"state":"LISTEN","ps":"TCP","pid":7,'
    '"comm":"rping","src-addr":"fd00::2:7174"}]',
]
JSON = st.sampled_from(
    ["[", "]", "{", "}", '"', ":", ",", "null", "true", "1e999", "NaN", "-", "\\u0000",
     "9" * 5000, "[" * 3000]
) | st.text(max_size=4)  # fmt: skip
VALUES = st.sampled_from(
    [None, True, 7, -1, 1e300, "", "x", [], {}, [None], {"host": 1}, "10.0.0.2",
     "fe80::1%eth0", "fd00::1:7", "10.0.0.2/24", "\udcff", "blackhole"]
)  # fmt: skip


@st.composite
def answers(draw, samples):
    """A tool's output with up to three changed values, or broken text."""
    if draw(st.booleans()):
        return draw(mutated(samples, JSON))
    rows = json.loads(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.sampled_from([row for row in rows if row] or [{}]))
        for place in ("linkinfo", "via"):
            if isinstance(row.get(place), dict) and draw(st.booleans()):
                row = row[place]
        key = draw(st.sampled_from(sorted(row) or ["dev"]))
        row[key] = copy.deepcopy(draw(VALUES))  # one is a dict that may be changed
    return json.dumps(rows)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """One for all examples, because its creation takes most of an example's time."""
    return soft_roce(tmp_path_factory.mktemp("host"))


def rows_of(text):
    try:
        return tools.rows(text)
    except ValueError:
        return []


@given(answers(ROUTES), answers(LINKS), answers(CM_IDS))
def test_odd_answers_of_tools_make_facts_that_can_be_read_back(
    host, survive_json, route, addr, cm_id
):
    said = {"route": route, "addr": addr, "resource": cm_id}
    reader = HostReader(host.path, lambda argv: said[argv[2 + (argv[2] == "-d")]])
    problems = []
    found = reader.route("10.0.0.1", problems)
    facts = Facts(
        "hv1",
        "6.1",
        1.0,
        netdevs=reader.netdevs(problems),
        routes=(found,) if found else (),
        cm_ids=reader.cm_ids(problems),
        problems=tuple(problems),
    )
    assert survive_json(facts)
    if found is None:
        assert problems


@given(answers(CM_IDS))
def test_an_ipv6_end_always_has_its_brackets(text):
    for cm_id in tools.cm_ids(rows_of(text)):
        for end in filter(None, (cm_id.source, cm_id.destination)):
            address, _, _ = end.rpartition(":")
            assert ":" not in address or address.startswith("[")


# /sys

SYS_TEXT = st.sampled_from(
    ["4: ACTIVE", "1: DOWN", "", "ACTIVE", "4:", "\n", "40 Gb/sec (4X QDR)", "Gb/sec",
     "0000:0000:0000:0000:0000:0000:0000:0000", "fe80::1", "zz", "\udcff", "٣", "-1",
     "9" * 400, "0000:0000:0000:0000:0000:ffff:0a00:0002", "1: CA", "4: RNIC"]
) | st.text(max_size=8)  # fmt: skip
PORT_FILES = st.sampled_from(
    ["state", "phys_state", "rate", "link_layer", "gids/0", "gids/x", "gids/٣",
     "gid_attrs/ndevs/1", "gid_attrs/types/1"]
).map("/sys/class/infiniband/rxe0/ports/1/{}".format)  # fmt: skip
NETDEV_FILES = st.sampled_from(["type", "mtu", "operstate", "address"]).map(
    "/sys/class/net/eth0/{}".format
)


@given(st.lists(st.tuples(PORT_FILES | NETDEV_FILES, SYS_TEXT), max_size=4))
def test_odd_text_in_sys_makes_facts_that_can_be_read_back(
    host, rewritten, survive_json, changes
):
    reader, problems = host.reader(), []
    with rewritten(host, changes):
        facts = Facts(
            "hv1",
            "6.1",
            1.0,
            rdma_devices=reader.rdma_devices(problems),
            netdevs=reader.netdevs(problems),
            problems=tuple(problems),
        )
    assert survive_json(facts)
    assert [device.name for device in facts.rdma_devices] == ["rxe0"]
