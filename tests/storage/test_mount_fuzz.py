# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz mount options, mount's errors and the probe's answers: nothing is lost.

Many examples: make fuzz.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.mutation import mutated
from support.storage.nfs_mount_text import last_value, named_transport

from ovirt_rdma.host.export import (
    AUTO,
    ENGINE_LIMIT,
    PORT,
    RDMA,
    TRANSPORT,
    VERSIONS,
    MountOptions,
    OptionsProblem,
    engine_problems,
    option_string,
)
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.model import Route
from ovirt_rdma.host.policy.model import TCP, TRANSPORTS, NfsRule, RuleMatch
from ovirt_rdma.storage.messages import classify
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    UNKNOWN,
    Readiness,
    Step,
    local_steps,
    step_of,
)
from ovirt_rdma.storage.transport import STOCK, Attempt, choose, stock_warnings

DATA = Path(__file__).parents[1] / "data" / "facts"
DUMPS = [model.load(path) for path in sorted(DATA.glob("*.json"))]

# From nfs(5) and mount(8), and options that an admin may type in the engine.
ENGINE_OPTIONS = [
    "rdma,port=20049",
    "proto=rdma6,port=20049,nconnect=4,hard,lookupcache=pos",
    "tcp,rsize=1048576,wsize=1048576,sec=krb5p,actimeo=3,noac",
    'context="system_u:object_r:nfs_t:s0:c1,c2",nosharecache,lock,retry=2',
    "proto=udp,port=2049,local_lock=none,fsc,softreval,noatime,nodiratime,_netdev",
    "",
]
PIECES = st.sampled_from(
    [",", ",,", "=", " ", "rdma", "proto=", "port=", "port=00020049", "port=65536",
     "port=" + "9" * 5000, "retry=5", "no", "nolock", "v4.2", "nfsvers=4", "bg", "\t",
     "RDMA", "Proto=tcp", "x-systemd.automount", "\udcff", "\n", "٣", "port=٣"]
) | st.text(max_size=3)  # fmt: skip
ENGINE = mutated(ENGINE_OPTIONS, PIECES).filter(lambda text: text.count('"') % 2 == 0)
# VDSM looks for the locks.
LOCKS = st.lists(
    st.sampled_from(["", "lock", "nolock", "rdma", "port=20049", "hard", "locks"])
).map(",".join)
RULE_OPTIONS = st.sampled_from(
    ["", "nconnect=4", "rsize=65536,hard", 'context="a:b:c0,c1"', "noatime,lock"]
)

parse = MountOptions.parse


@st.composite
def choices(draw):
    """A rule, the engine's options, and the result of choose()."""
    transport = draw(st.sampled_from(TRANSPORTS))
    options, port = draw(RULE_OPTIONS), draw(st.sampled_from([20049, 20050]))
    rule = NfsRule(1, "r", "nas", "*", transport, port, options)
    verdict = draw(st.sampled_from([READY, UNKNOWN, NOT_READY]))
    families = {name: draw(st.booleans()) for name in ("rdma_ipv6", "tcp_ipv6")}
    return rule, families, Readiness((Step("listener", verdict, "seen"),))


@given(choices(), ENGINE)
def test_every_attempt_keeps_each_word_that_no_rule_names(made, engine):
    rule, families, readiness = made
    try:
        choice = choose(RuleMatch(rule, "s"), parse(engine), readiness, **families)
    except OptionsProblem as problem:
        assert problem.fix
        return
    named = parse(rule.options).subjects() | {TRANSPORT, PORT}
    if rule.transport != TCP:
        named |= {"retry"}
    kept = parse(engine).without(*named).normalised().items
    for attempt in filter(None, (choice.first, choice.fallback)):
        words = attempt.extra_options
        options = parse(words)
        assert options.items[: len(kept)] == kept
        assert str(options) == words
        assert options.conflicts() == ()
        for option in parse(rule.options).items:
            assert option in options.items
        # As mount.nfs reads it, without quotes.
        ipv6 = families["tcp_ipv6"]
        if attempt.transport == RDMA:
            ipv6 = families["rdma_ipv6"]
            assert last_value(words, "port") == str(rule.port)
        assert named_transport(words) == attempt.transport + ("6" if ipv6 else "")
        if rule.transport != TCP:
            assert last_value(words, "retry") == "0"


@given(choices(), ENGINE)
def test_choosing_again_from_what_was_chosen_changes_nothing(made, engine):
    rule, families, readiness = made
    with contextlib.suppress(OptionsProblem):
        first = choose(RuleMatch(rule, "s"), parse(engine), readiness, **families).first
        if first is not None:
            words = first.extra_options
            again = choose(
                RuleMatch(rule, "s"), parse(words), readiness, **families
            ).first
            options = [parse(o) for o in (words, again.extra_options)]
            assert set(options[0].items) == set(options[1].items)


@given(ENGINE, ENGINE, ENGINE)
def test_merging_is_idempotent_and_associative_in_what_wins(low, middle, high):
    base, mid, top = (parse(text) for text in (low, middle, high))
    merged = base.merged(mid)
    assert merged.merged(mid) == merged
    assert merged.merged(MountOptions()) == merged
    left, right = merged.merged(top), base.merged(mid.merged(top))
    assert set(left.items) == set(right.items)
    assert left.subjects() == base.subjects() | mid.subjects() | top.subjects()


@given(ENGINE | st.text())
def test_engine_options_are_judged_in_sentences(text):
    assert (len(text) > ENGINE_LIMIT) == any(
        sentence.id == "mount-options-too-long" for sentence in engine_problems(text)
    )
    try:
        sentences = stock_warnings(parse(text))
    except OptionsProblem as problem:
        assert problem.fix
        assert len(str(problem).splitlines()) == 1
    else:
        assert all(sentences)


@given(ENGINE | st.text(), st.booleans())
def test_an_export_without_rule_gets_the_engines_own_text(engine, ipv6):
    readiness = Readiness((Step("listener", NOT_READY, "seen"),))
    choice = choose(None, parse(engine), readiness, tcp_ipv6=ipv6)
    assert choice.first == Attempt(STOCK, engine)
    assert (choice.fallback, choice.notes) == (None, ())


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    version=st.sampled_from(VERSIONS),
    extra=ENGINE | LOCKS,
    timeout=st.integers(0, 10**6),
    retrans=st.integers(0, 100),
)
def test_stock_options_are_vdsms_own(vdsm, version, extra, timeout, retrans):
    version = None if version == AUTO else version
    stock = vdsm.storage_server.NFSConnection(
        id="1",
        export="10.0.0.1:/e",
        timeout=timeout,
        retrans=retrans,
        version=version,
        extraOptions=extra,
    )
    assert option_string(version, extra, timeout, retrans) == stock._mountCon.options


WORDS = [
    b"mount.nfs: Connection refused\n",
    b"mount.nfs: access denied by server while mounting 10.0.0.1:/data\n",
    b"mount.nfs: mounting 10.0.0.1:/data failed, reason given by server: No such file "
    b"or directory\nmount.nfs: Operation not permitted\n",
    b"mount.nfs: an incorrect mount option was specified for /rhev/data-center/mnt/x\n",
    b"mount.nfs: rpc.statd is not running but is required for remote locking.\n"
    b"mount.nfs: Either use '-o nolock' to keep locks local, or start statd.\n",
]
MOUNT_PIECES = st.sampled_from(
    [b"\n", b"\r", b"\xff", b"\x00", b"\xc2\x85", b"mount.nfs: ", b"Protocol error"]
) | st.binary(max_size=3)


@given(mutated(WORDS, MOUNT_PIECES) | st.binary(), st.booleans())
def test_whatever_mount_says_is_shown_in_one_line_and_explained(stderr, over_rdma):
    failure = classify(stderr, over_rdma)
    assert failure.meaning
    assert len(failure.text.splitlines()) == 1
    if stderr in WORDS[:2]:
        assert failure.about_export is (stderr == WORDS[1])
    if not over_rdma:
        assert "rdma" not in (failure.fix + failure.meaning).lower()


ANSWERS = [
    json.dumps({"verdict": verdict, "detail": "10.0.0.1 said so"})
    for verdict in ("listening", "refused", "no route", "unknown")
]
JSON = st.sampled_from(
    ["[", "{", "}", '"', "null", "7", "[" * 3000, "9" * 5000, '"verdict"', "\x00"]
) | st.text(max_size=3)


@given(mutated(ANSWERS, JSON))
def test_only_a_whole_answer_says_ready_or_not(answer):
    step = step_of(answer, "10.0.0.1", 20049)
    assert step.name == "listener"
    assert step.detail
    if step.verdict == READY:
        assert json.loads(answer)["verdict"] == "listening"
    elif step.verdict == NOT_READY:
        assert json.loads(answer)["verdict"] in ("refused", "no route")


# Readiness with facts of real guests and HCAs, with changes

STATES = st.sampled_from(["ACTIVE", "DOWN", "INIT", "unknown"])


@st.composite
def changed_facts(draw):
    """A dump with changed ports, GIDs, netdevs and routes."""
    facts = draw(st.sampled_from(DUMPS))
    other = draw(st.sampled_from(DUMPS))
    devices = []
    for device in facts.rdma_devices:
        ports = [
            dataclasses.replace(
                port,
                state=draw(STATES) if draw(st.booleans()) else port.state,
                gids=tuple(draw(st.permutations(port.gids)))[: draw(st.integers(0, 9))],
            )
            for port in device.ports
        ]
        devices.append(dataclasses.replace(device, ports=tuple(ports)))
    route = Route(
        "10.0.0.1",
        draw(st.sampled_from([None, "lo", *(dev.name for dev in facts.netdevs)])),
        draw(st.sampled_from([None, "10.0.0.2", "10.98.0.2", "fd00::2", "fe80::1%x"])),
    )
    return dataclasses.replace(
        facts,
        rdma_devices=tuple(devices),
        netdevs=draw(st.sampled_from([facts.netdevs, other.netdevs])),
        routes=draw(st.sampled_from([(), (route,), facts.routes])),
    ), route


@given(changed_facts())
def test_readiness_only_says_ready_where_an_active_port_owns_the_address(made):
    facts, route = made
    readiness = Readiness(local_steps(facts, route))
    assert readiness.reason
    if readiness.verdict == READY:
        step = readiness.steps[-1]
        device, number = step.detail.split(" ")[0].split("/")
        (port,) = (
            port
            for found in facts.rdma_devices
            if found.name == device
            for port in found.ports
            if port.number == int(number)
        )
        assert route.source in step.detail
        assert port.gids
        assert "ACTIVE" in step.detail
    elif readiness.verdict == NOT_READY:
        assert readiness.fix
