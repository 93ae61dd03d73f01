# SPDX-License-Identifier: GPL-2.0-or-later
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import problem

from ovirt_rdma.host.export import (
    MountOptions,
    OptionsProblem,
    engine_problems,
    is_rdma,
)

parse = MountOptions.parse

OPTION = st.sampled_from(
    [
        "", "rdma", "proto=rdma", "proto=rdma6", "proto=tcp", "tcp", "udp", "soft",
        "hard", "port=2049", "port=20049", "rsize=65536", "rsize=1048576", "nolock",
        "lock", "ac", "noac", "nconnect=4", "sec=sys", "vers=3", "nfsvers=4",
        'context="a:b:c0,c1"', "retry=0", "weird==", "=", "nosharecache",
    ]
)  # fmt: skip
LISTS = st.lists(OPTION, max_size=12).map(",".join)


@given(st.text())
def test_round_trip_loses_nothing(text):
    assert str(parse(text)) == text


@given(LISTS)
def test_normalising_twice_is_normalising_once(text):
    once = parse(text).normalised()
    assert once.normalised() == once
    assert once.conflicts() == ()


@given(LISTS)
def test_normalising_changes_nothing_that_mount_would_do(text):
    options = parse(text)
    for subject in options.subjects():
        assert options.normalised().last(subject) == options.last(subject)
    assert options.normalised().subjects() == options.subjects()


@given(LISTS, LISTS)
def test_what_is_laid_over_wins_and_nothing_else_changes(base, over):
    merged = parse(base).merged(parse(over))
    assert merged.conflicts() == ()
    for subject in merged.subjects():
        winner = parse(over).last(subject) or parse(base).last(subject)
        assert merged.last(subject) == winner


def test_merging_keeps_the_order_of_both_sides():
    merged = parse("hard,rsize=65536,sec=sys").merged(parse("nconnect=4,rsize=1048576"))
    assert str(merged) == "hard,sec=sys,nconnect=4,rsize=1048576"


def test_a_comma_in_quotes_does_not_split():
    options = parse('context="system_u:object_r:nfs_t:s0:c1,c2",rdma')
    assert [o.name for o in options.items] == ["context", "rdma"]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("rdma,proto=tcp", "rdma and proto=tcp contradict each other (transport); "
         "mount would silently use proto=tcp"),
        ("port=20049,rsize=1,port=2049", "port=20049 and port=2049 contradict each "
         "other (port); mount would silently use port=2049"),
        ("hard,soft", "hard and soft contradict each other (soft or hard); mount "
         "would silently use soft"),
        ("lock,nolock", "lock and nolock contradict each other (lock); mount would "
         "silently use nolock"),
        ("vers=3,nfsvers=4", "vers=3 and nfsvers=4 contradict each other (version); "
         "mount would silently use nfsvers=4"),
    ],
)  # fmt: skip
def test_conflicts(text, sentence):
    assert parse(text).conflicts() == (sentence,)


@pytest.mark.parametrize(
    "text", ["", "rdma,proto=rdma,port=20049,port=20049", "proto=tcp,tcp,soft", ",,"]
)
def test_the_same_thing_said_twice_is_no_conflict(text):
    assert parse(text).conflicts() == ()


@pytest.mark.parametrize(
    "text, netid",
    [
        ("", None),
        ("rdma", "rdma"),
        ("rdma,proto=tcp", "tcp"),
        ("tcp,rsize=1,proto=rdma6", "rdma6"),
        ("proto=", ""),
    ],
)
def test_winning_transport(text, netid):
    assert parse(text).netid == netid
    assert parse(text).wants_rdma is is_rdma(netid)


@pytest.mark.parametrize("text, port", [("", None), ("port=1,port=20049", 20049)])
def test_port(text, port):
    assert parse(text).port == port


@pytest.mark.parametrize(
    "text", ["port", "port=", "port=x", "port=65536", "port=²", f"port={'9' * 5000}"]
)
def test_bad_port_is_said(text):
    with problem("mount-option-port-invalid", repr(text)) as caught:
        _ = parse(text).port
    assert caught.type is OptionsProblem


@pytest.mark.parametrize("text", ["", "rdma,port=20049,nconnect=4", "x" * 500])
def test_what_the_engine_takes(text):
    assert engine_problems(text) == ()


def test_what_the_engine_refuses():
    (too_long,) = engine_problems("x" * 501)
    assert too_long.id == "mount-options-too-long"
    assert re.findall(r"\d+", too_long) == ["501", "500"]
    (names,) = engine_problems("rdma,timeo=30,VERS=3,clientaddr=1.2.3.4")
    assert names.id == "mount-option-refused-by-engine"
    assert "timeo, vers, clientaddr" in names
