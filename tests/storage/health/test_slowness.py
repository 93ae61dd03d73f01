# SPDX-License-Identifier: GPL-2.0-or-later
"""Test which cause is named for a server that answers late: a row for each way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.storage.seen_mount import FAST, load, seen, signs

from ovirt_rdma.storage.health.signs import Answer
from ovirt_rdma.storage.health.state import (
    FABRIC,
    OK,
    PATH,
    SERVER,
    SLOTS,
    SLOW,
)
from ovirt_rdma.storage.health.verdict import judge, needs_signs

SLOWNESS = {
    "slots 2 and a deep queue": (
        seen(
            FAST,
            load=load(data=(1000, 300.0, 20.0), backlog=30.0),
            backlog=31,
        ),
        (SLOTS, True, "slots-used-up"),
    ),
    "the server allows no more": (
        seen(FAST, load=load(data=(1000, 300.0, 20.0))),
        (SLOTS, False, "credits-used-up"),
    ),
    # TCP has neither credits nor, with NFS 3, a session.
    "the socket takes no more": (
        seen(FAST, load=load(data=(1000, 620.0, 40.0)), transport="tcp"),
        (PATH, False, "link-full"),
    ),
    # 5 % loss between guests: calls waited for the connection, not for a slot.
    "a lossy path that broke the connection": (
        seen(
            FAST,
            signs(),
            load=load(data=(30, 1614.2, 50.0), connects=2, sent_again=6),
            errors={"completer_retry_err": 4, "duplicate_request": 6},
        ),
        (PATH, False, "path-lossy"),
    ),
    "a lossy path that broke the connection before this look": (
        seen(
            FAST,
            signs(),
            load=load(data=(10, 2077.9, 283.6), sent_again=1),
            errors={"completer_retry_err": 3},
        ),
        (PATH, False, "path-lossy"),
    ),
    "a lossy path that broke the connection, with few errors": (
        seen(
            Answer(seconds=1.31),
            signs(replied=True),
            load=load(data=(6, 4203.8, 2.5), connects=1, sent_again=4),
            errors={"completer_retry_err": 2},
        ),
        (PATH, False, "path-lossy"),
    ),
    # 200 ms of delay between guests.
    "a slow path that broke the connection": (
        seen(
            Answer(seconds=0.246),
            signs(took=0.244),
            load=load(data=(46, 547.6, 330.6), connects=1, sent_again=3),
            errors={"completer_retry_err": 1},
        ),
        (PATH, True, "path-slow"),
    ),
    "slots 2 after a reset": (
        seen(
            FAST,
            load=load(data=(1000, 300.0, 20.0), backlog=30.0, connects=1),
        ),
        (SLOTS, True, "slots-used-up"),
    ),
    "one NFS thread": (
        seen(
            Answer(seconds=0.9),
            signs(took=0.002),
            load=load(data=(400, 1.0, 400.0)),
        ),
        (SERVER, True, "server-slow"),
    ),
    "late without load": (
        seen(Answer(seconds=0.9), signs(took=0.002), load=load()),
        (SERVER, False, "server-slow"),
    ),
    "a slow disk": (
        seen(FAST, signs(), load=load(data=(20, 1.0, 1500.0))),
        (SERVER, False, "disk-slow"),
    ),
    "a slow disk, by the read": (
        seen(Answer(seconds=0.002, read_s=1.2), signs(), load=load()),
        (SERVER, True, "disk-slow"),
    ),
    "a slow path": (
        seen(Answer(seconds=0.8), signs(took=0.4), load=load()),
        (PATH, True, "path-slow"),
    ),
    "a slow path, and each reconnect takes longer": (
        seen(Answer(seconds=0.6), signs(took=0.2), load=load()),
        (PATH, True, "path-slow"),
    ),
    "a slow path, and a lookup is one round trip": (
        seen(Answer(seconds=0.2), signs(took=0.2), load=load()),
        (PATH, True, "path-slow"),
    ),
    "a lossy path": (
        seen(
            Answer(seconds=1.1),
            signs(took=0.3),
            load=load(data=(20, 1.0, 300.0)),
            errors={"completer_retry_err": 7},
        ),
        (PATH, False, "path-lossy"),
    ),
    "a lossy fabric": (
        seen(
            Answer(seconds=1.1),
            signs(infiniband=True),
            errors={"symbol_error": 7},
        ),
        (FABRIC, False, "path-lossy"),
    ),
    "the server resets the connection": (
        seen(FAST, signs(), load=load(data=(90, 1.0, 30.0), connects=2, sent_again=12)),
        (SERVER, False, "connection-reset"),
    ),
    "the server has reset the connection before this look": (
        seen(FAST, signs(), load=load(data=(9, 3191.0, 268.7), sent_again=3)),
        (SERVER, False, "connection-reset"),
    ),
}


@pytest.mark.parametrize("name", SLOWNESS)
def test_slowness(name):
    what, expected = SLOWNESS[name]
    health = judge(what)
    assert health.state == SLOW
    assert (health.cause, health.certain, health.reason) == expected
    assert needs_signs(what)
    assert health.fix
    assert health.answered_s == what.answer.seconds


SOUND = {
    "idle": seen(FAST, load=load()),
    "the first look": seen(FAST),
    # Deep queues at a disk that is busy, but not slow.
    "full load": seen(
        Answer(seconds=0.1),
        load=load(data=(9000, 60.0, 250.0), other=(50, 0.1, 2.0)),
    ),
    # An idle RDMA connection is closed after 5 minutes, and made again.
    "after a pause": seen(FAST, load=load(other=(3, 80.0, 2.0), connects=1)),
    "one slow call": seen(FAST, load=load(data=(1, 0.0, 900.0))),
    "a short queue": seen(FAST, load=load(data=(3, 400.0, 2.0))),
    # The queue is long because the server is: slots are not the reason.
    "as long as the server": seen(FAST, load=load(data=(100, 200.0, 300.0))),
}


@pytest.mark.parametrize("took", [0.001, 0.1])
def test_a_late_answer_by_a_fast_path_is_no_alarm(took):
    """The path is measured, though."""
    what = seen(Answer(seconds=0.2), load=load(data=(9000, 60.0, 250.0)))
    assert needs_signs(what)
    assert judge(replace(what, signs=signs(took=took))).state == OK


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_mount_raises_no_alarm(name):
    what = SOUND[name]
    health = judge(what)
    assert (health.state, health.cause, health.reason, health.fix) == (OK, None, "", "")
    assert not needs_signs(what)
