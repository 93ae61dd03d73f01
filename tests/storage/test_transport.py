# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.export import RDMA, MountOptions
from ovirt_rdma.host.policy.model import TCP, TRANSPORTS, NfsRule, RuleMatch
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Readiness, Step
from ovirt_rdma.storage.transport import (
    Attempt,
    choose,
    stock_warnings,
    tcp_service_port,
)

parse = MountOptions.parse


def match(transport, **more):
    return RuleMatch(NfsRule(1, "r", "nas", "*", transport, **more), "server is nas")


def readiness(verdict):
    return Readiness((Step("listener", verdict, "what was seen"),))


@pytest.mark.parametrize(
    "transport, verdict, first, fallback, degraded",
    [
        ("require-rdma", READY, RDMA, None, False),
        ("require-rdma", UNKNOWN, RDMA, None, False),
        ("require-rdma", NOT_READY, None, None, False),
        ("prefer-rdma", READY, RDMA, TCP, False),
        ("prefer-rdma", UNKNOWN, RDMA, TCP, False),
        ("prefer-rdma", NOT_READY, TCP, None, True),
        ("tcp", READY, TCP, None, False),
        ("tcp", NOT_READY, TCP, None, False),
    ],
)
def test_what_is_tried(transport, verdict, first, fallback, degraded):
    choice = choose(match(transport), parse(""), readiness(verdict))
    assert (choice.first and choice.first.transport) == first
    assert (choice.fallback and choice.fallback.transport) == fallback
    assert choice.degraded is degraded
    assert f"says {transport} (server is nas)" in choice.reason
    if verdict == NOT_READY and transport != "tcp":
        assert "but what was seen" in choice.reason


@pytest.mark.parametrize(
    "engine, rule, ipv6, rdma, tcp",
    [
        ("", {}, False, "proto=rdma,port=20049,retry=0", "proto=tcp,retry=0"),
        ("", {}, True, "proto=rdma6,port=20049,retry=0", "proto=tcp6,retry=0"),
        ("rdma,port=20049", {}, False, "proto=rdma,port=20049,retry=0",
         "proto=tcp,retry=0"),
        # An RDMA port with another number is not a TCP port either.
        ("rdma,port=20050", {}, False, "proto=rdma,port=20049,retry=0",
         "proto=tcp,retry=0"),
        ("port=20051", {"port": 20051}, False, "proto=rdma,port=20051,retry=0",
         "proto=tcp,retry=0"),
        # No RDMA option, but the port that only RDMA uses.
        ("port=20049", {"port": 20050}, False, "proto=rdma,port=20050,retry=0",
         "proto=tcp,retry=0"),
        ("tcp,port=2050", {}, False, "proto=rdma,port=20049,retry=0",
         "port=2050,proto=tcp,retry=0"),
        ("hard,rsize=65536,retry=2", {"options": "rsize=1048576,nconnect=4"}, False,
         "hard,rsize=1048576,nconnect=4,proto=rdma,port=20049,retry=0",
         "hard,rsize=1048576,nconnect=4,proto=tcp,retry=0"),
    ],
)  # fmt: skip
def test_options(engine, rule, ipv6, rdma, tcp):
    choice = choose(
        match("prefer-rdma", **rule),
        parse(engine),
        readiness(READY),
        rdma_ipv6=ipv6,
        tcp_ipv6=ipv6,
    )
    assert choice.first.extra_options == rdma
    assert choice.fallback.extra_options == tcp
    as_tcp = choose(
        match("tcp", **rule), parse(engine), readiness(READY), tcp_ipv6=ipv6
    )
    # Such a rule only excludes RDMA: it waits as long as stock VDSM or the engine says.
    engine_retry = [word for word in engine.split(",") if word.startswith("retry=")]
    words = as_tcp.first.extra_options.split(",")
    assert [word for word in words if word.startswith("retry=")] == engine_retry
    fallback = tcp.split(",")
    assert sorted({*words, "retry=0"} - {*engine_retry}) == sorted(fallback)


ENGINE = st.lists(
    st.sampled_from(
        [
            "rdma",
            "proto=tcp",
            "port=2049",
            "port=20049",
            "port=9",
            "hard",
            "",
            "retry=5",
        ]
    ),
    max_size=6,
).map(",".join)


@given(
    st.sampled_from(TRANSPORTS),
    ENGINE,
    st.booleans(),
    st.sampled_from([READY, UNKNOWN, NOT_READY]),
)
def test_every_attempt_says_one_transport_and_how_long(transport, engine, v6, ready):
    six = {"rdma_ipv6": v6, "tcp_ipv6": v6}
    choice = choose(match(transport), parse(engine), readiness(ready), **six)
    for attempt in filter(None, (choice.first, choice.fallback)):
        options = parse(attempt.extra_options)
        assert options.conflicts() == ()
        retry = options.last("retry")
        if transport == "tcp":
            assert retry == parse(engine).last("retry")
        else:
            assert retry.text == "retry=0"
        assert options.netid == attempt.transport + ("6" if v6 else "")
        if attempt.transport == RDMA:
            assert options.port == 20049
        else:
            assert options.port != 20049


@pytest.mark.parametrize(
    "transport, engine, notes",
    [
        ("prefer-rdma", "rdma,port=20049", []),
        ("prefer-rdma", "proto=tcp,port=2050", [
            "the engine's proto=tcp is ignored: the rule says prefer-rdma",
            "the engine's port=2050 is ignored: the rule says port=20049"]),
        ("tcp", "rdma,port=20049", [
            "the engine's rdma is ignored: the rule says tcp"]),
        ("require-rdma", "rdma,tcp", [
            "engine's options: rdma and tcp contradict each other (transport); mount "
            "would silently use tcp",
            "the engine's tcp is ignored: the rule says require-rdma"]),
        ("tcp", "rsize=4096", [
            "the engine's rsize=4096 is ignored: the rule sets its own"]),
    ],
)  # fmt: skip
def test_notes_say_what_is_set_aside(transport, engine, notes):
    rule = match(transport, options="rsize=1048576")
    assert list(choose(rule, parse(engine), readiness(READY)).notes) == notes


@pytest.mark.parametrize(
    "engine, version, port",
    [
        ("", "4.2", 2049),
        ("", None, 2049),
        ("", "3", 111),
        ("port=2050", "3", 111),
        ("mountport=20048", "3", 111),
        ("port=2050,mountport=20048,mountproto=tcp", "3", 2050),
        ("port=2050", "4", 2050),
        ("rdma,port=20049", "4", 2049),
    ],
)
def test_port_that_must_answer_before_tcp(engine, version, port):
    assert tcp_service_port(match("prefer-rdma").rule, parse(engine), version) == port


def test_without_a_known_family_mount_finds_the_protocol():
    choice = choose(match("tcp"), parse("rdma,hard"), tcp_ipv6=None)
    assert choice.first.extra_options == "hard"


def test_families_may_differ():
    choice = choose(match("prefer-rdma"), parse(""), readiness(READY), rdma_ipv6=True)
    assert choice.first.extra_options == "proto=rdma6,port=20049,retry=0"
    assert choice.fallback.extra_options == "proto=tcp,retry=0"


def test_nobody_may_forget_to_ask():
    with pytest.raises(ValueError, match="give the readiness"):
        choose(match("prefer-rdma"), parse(""))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", []),
        ("tcp,port=2049,nconnect=4", []),
        ("rdma,port=20049", ["without a rule"]),
        ("proto=rdma6,port=20049", ["without a rule"]),
        ("rdma,tcp", ["would silently use tcp"]),
        ("hard,soft", ["would silently use soft"]),
    ],
)
def test_warnings_about_what_stock_vdsm_passes_on(options, words):
    found = stock_warnings(parse(options))
    assert len(found) == len(words)
    for sentence, part in zip(found, words):
        assert part in sentence


# -- a rule with paths

PATHS = ("10.20.1.5", "10.20.2.5")
PATH_ENDS = "proto=rdma,port=20049,retry=0"


@pytest.mark.parametrize(
    ("version", "count", "rule", "engine", "expected"),
    [
        ("4.2", 2, {}, "", "max_connect=2"),
        ("4.1", 3, {}, "", "max_connect=3"),
        ("4", 2, {}, "", "max_connect=2"),
        # mount.nfs may find 4.2.
        (None, 4, {}, "", "max_connect=4"),
        # Without sessions nothing is trunked.
        ("3", 2, {}, "", "nconnect=2"),
        ("4.0", 2, {}, "", "nconnect=2"),
        ("4.2", 2, {"options": "nconnect=4"}, "", "max_connect=2,nconnect=4"),
        ("4.2", 2, {"options": "max_connect=1"}, "", "max_connect=1"),
        ("3", 2, {"options": "max_connect=8"}, "", "nconnect=2,max_connect=8"),
        ("4.2", 2, {}, "nconnect=8", "max_connect=2,nconnect=8"),
        ("4.2", 2, {}, "max_connect=8,hard", "max_connect=8,hard"),
        ("4.2", 2, {"options": "nconnect=4"}, "nconnect=8", "max_connect=2,nconnect=4"),
        ("4.2", 2, {"server_kind": "ontap"}, "rsize=8192",
         "max_connect=2,wsize=65536,rsize=8192"),
    ],
)  # fmt: skip
def test_a_connection_for_each_path(version, count, rule, engine, expected):
    paths = tuple(f"10.20.{n}.5" for n in range(count))
    chosen = match("prefer-rdma", paths=paths, **rule)
    choice = choose(chosen, parse(engine), readiness(READY), version)
    assert choice.first.extra_options == f"{expected},{PATH_ENDS}"
    assert choice.first.for_paths
    (note,) = (one for one in choice.notes if "paths" in one)
    assert "timeo" in note
    assert "retrans" in note


RULE_OPTIONS = st.sampled_from(["", "nconnect=4", "max_connect=3,hard", "rsize=65536"])
VERSION = st.sampled_from([None, "3", "4", "4.0", "4.1", "4.2"])


@given(
    st.sampled_from(TRANSPORTS),
    ENGINE,
    RULE_OPTIONS,
    st.booleans(),
    st.sampled_from([READY, UNKNOWN, NOT_READY]),
    VERSION,
)
def test_paths_change_nothing_but_mounts_over_rdma(
    transport, engine, options, v6, ready, version
):
    """Without paths, over TCP and over IPv6 all options are as ever."""

    def chosen(version, **more):
        rule = match(transport, options=options, **more)
        six = {"rdma_ipv6": v6, "tcp_ipv6": v6}
        return choose(rule, parse(engine), readiness(ready), version, **six)

    plain, moved = chosen(version), chosen(version, paths=PATHS)
    assert plain == chosen(None)
    assert moved.fallback == plain.fallback
    for attempt in filter(None, (plain.first, plain.fallback)):
        same = Attempt(attempt.transport, attempt.extra_options)
        assert attempt == same
    if moved.first is None or moved.first.transport != RDMA or v6:
        assert moved.first == plain.first
        return
    more = parse(moved.first.extra_options)
    ours = {"nconnect", "max_connect"} - parse(options).subjects()
    assert str(more.without(*ours)) == plain.first.extra_options
    assert more.conflicts() == ()
    assert moved.reason == plain.reason


def test_paths_are_no_use_for_a_server_with_an_ipv6_address():
    choice = choose(
        match("prefer-rdma", paths=PATHS), parse(""), readiness(READY), rdma_ipv6=True
    )
    assert choice.first.extra_options == "proto=rdma6,port=20049,retry=0"
    assert [note for note in choice.notes if "IPv6" in note]
