# SPDX-License-Identifier: GPL-2.0-or-later
"""Test which cause is named for a server that is silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.storage.seen_mount import (
    FAST,
    LISTENS,
    MUTE,
    NO_RDMA_CM,
    PORT_DOWN,
    REFUSED,
    ROUTE,
    load,
    seen,
    signs,
)

from ovirt_rdma.storage.health.signs import (
    ABSENT,
    ACCEPTS,
    REFUSES,
    SILENT,
    UNREACHABLE,
    Answer,
)
from ovirt_rdma.storage.health.state import (
    DEAD,
    FABRIC,
    HOST,
    OK,
    PATH,
    SERVER,
    SLOTS,
    SLOW,
    STALLED,
    UNKNOWN,
)
from ovirt_rdma.storage.health.verdict import DEAD_S, judge, needs_signs
from ovirt_rdma.storage.readiness import NOT_READY, Step, server_side_fix

SILENCE = {
    # name: what was seen, then state, cause, certain, reason
    "cable out": (
        seen(its=signs(SILENT, carrier=False, ports_down=("mlx5_0/1 is DOWN",))),
        (DEAD, PATH, True, "link-down"),
    ),
    "cable out, and the address went with it": (
        seen(
            its=signs(
                SILENT,
                steps=(Step("route", NOT_READY, "no route to 10.0.0.1", "see"),),
                netdev=None,
                carrier=None,
                devices=(),
                ports_down=("mlx5_0/1 is DOWN",),
            )
        ),
        (DEAD, PATH, False, "link-down"),
    ),
    "the address is gone, and a port that was never cabled is down": (
        seen(
            its=signs(
                SILENT,
                steps=(ROUTE, Step("port", NOT_READY, "no port has 10.0.0.2", "see")),
                devices=(),
                ports_down=("mlx5_1/1 is DOWN",),
            )
        ),
        (DEAD, HOST, False, "host-not-ready"),
    ),
    "no route of a TCP mount, and an RDMA port is down": (
        seen(
            its=signs(
                UNREACHABLE,
                steps=(Step("route", NOT_READY, "no route to 10.0.0.1", "see"),),
                netdev=None,
                carrier=None,
                devices=(),
                ports_down=("mlx5_1/1 is DOWN",),
            ),
            transport="tcp",
        ),
        (DEAD, HOST, True, "host-not-ready"),
    ),
    "cable out, and another port has no subnet manager": (
        seen(
            its=signs(
                SILENT,
                carrier=False,
                ports_down=("mlx5_0/1 is DOWN", "mlx4_0/1 is INIT"),
                waits_for_sm=True,
            )
        ),
        (DEAD, PATH, True, "link-down"),
    ),
    "cable out of a TCP mount": (
        seen(its=signs(SILENT, carrier=False), transport="tcp"),
        (DEAD, PATH, True, "link-down"),
    ),
    "no subnet manager": (
        seen(
            its=signs(
                SILENT,
                steps=(ROUTE, PORT_DOWN),
                carrier=False,
                infiniband=True,
                ports_down=("mlx5_0/1 is INIT",),
                waits_for_sm=True,
            )
        ),
        (DEAD, FABRIC, True, "port-without-sm"),
    ),
    "device gone": (
        seen(
            its=signs(
                steps=(ROUTE, Step("port", NOT_READY, "no RDMA device", "driver")),
                devices=(),
                listener=MUTE,
            )
        ),
        (DEAD, HOST, True, "host-not-ready"),
    ),
    "no route": (
        seen(
            its=signs(
                UNREACHABLE,
                steps=(Step("route", NOT_READY, "no route to 10.0.0.1", "see"),),
                netdev=None,
                carrier=None,
            )
        ),
        (DEAD, HOST, True, "host-not-ready"),
    ),
    "listener gone": (
        seen(its=signs(ACCEPTS, REFUSED)),
        (DEAD, SERVER, True, "listener-gone"),
    ),
    "RDMA is refused, and a firewall holds back TCP": (
        seen(its=signs(ABSENT, REFUSED)),
        (DEAD, SERVER, False, "service-down"),
    ),
    "NFS service stopped": (
        seen(its=signs(REFUSES, REFUSED)),
        (DEAD, SERVER, True, "service-down"),
    ),
    "NFS service stopped, TCP mount": (
        seen(its=signs(REFUSES), transport="tcp"),
        (DEAD, SERVER, True, "service-down"),
    ),
    # A Linux server then accepts no RDMA connection either.
    "NFS threads hang": (
        seen(its=signs(ACCEPTS, MUTE, replied=False)),
        (STALLED, SERVER, True, "nfs-stuck"),
    ),
    "NFS threads hang, and RDMA is accepted without them": (
        seen(its=signs(ACCEPTS, LISTENS, replied=False)),
        (STALLED, SERVER, True, "nfs-stuck"),
    ),
    "NFS threads have work for minutes": (
        seen(
            its=signs(ACCEPTS, LISTENS, replied=False),
            load=load(data=(1500, 10.0, 2500.0)),
        ),
        (STALLED, SERVER, False, "nfs-stuck"),
    ),
    "the connection ended before a call was answered": (
        seen(its=signs(ACCEPTS, LISTENS)),
        (STALLED, SERVER, False, "nfs-stuck"),
    ),
    "calls are answered, but none for the export": (
        seen(its=signs(ACCEPTS, LISTENS, replied=True)),
        (STALLED, SERVER, False, "export-stuck"),
    ),
    "the lookup waits behind many writes for a slot": (
        seen(
            its=signs(ACCEPTS, LISTENS, replied=True),
            load=load(data=(20000, 2500.0, 64.0), backlog=800.0),
            siblings_answer=True,
        ),
        (STALLED, SLOTS, False, "slots-used-up"),
    ),
    "the lookup waits behind slow reads": (
        seen(
            its=signs(ACCEPTS, LISTENS, replied=True),
            load=load(data=(1500, 10.0, 2500.0)),
        ),
        (STALLED, SERVER, False, "disk-slow"),
    ),
    "the first packet of a TCP connection was lost": (
        seen(its=signs(ACCEPTS, took=1.03), transport="tcp"),
        (STALLED, PATH, False, "path-slow"),
    ),
    "one export hangs": (
        seen(its=signs(ACCEPTS, LISTENS), siblings_answer=True),
        (STALLED, SERVER, True, "export-stuck"),
    ),
    "one export hangs, and RDMA cannot be asked": (
        seen(its=signs(ACCEPTS, NO_RDMA_CM, replied=True), siblings_answer=True),
        (STALLED, SERVER, True, "export-stuck"),
    ),
    "the path loses so much that the question is late": (
        seen(its=signs(ACCEPTS, LISTENS), errors={"completer_retry_err": 40}),
        (STALLED, PATH, False, "path-lossy"),
    ),
    # 5 % loss between guests: the first looks, while Soft-RoCE waits to send again.
    "the path loses packets, and the connection waits": (
        seen(its=signs(ACCEPTS, LISTENS), errors={"completer_retry_err": 2}),
        (STALLED, PATH, False, "path-lossy"),
    ),
    "the path loses packets of RDMA CM too, so the server refuses": (
        seen(
            its=signs(ACCEPTS, REFUSED),
            errors={"completer_retry_err": 6, "duplicate_request": 2},
            error_looks=4,
        ),
        (STALLED, PATH, False, "path-lossy"),
    ),
    "the path loses packets of RDMA CM too, so nothing is answered": (
        seen(
            its=signs(ACCEPTS, MUTE), errors={"completer_retry_err": 3}, error_looks=3
        ),
        (STALLED, PATH, False, "path-lossy"),
    ),
    "the path loses packets of RDMA CM too, and some of the server come again": (
        seen(
            its=signs(ACCEPTS, MUTE, replied=True),
            errors={"completer_retry_err": 4, "duplicate_request": 26},
            error_looks=2,
        ),
        (STALLED, PATH, False, "path-lossy"),
    ),
    "listener gone, and the connection ended over two looks": (
        seen(
            its=signs(ACCEPTS, REFUSED),
            errors={"completer_retry_err": 4},
            error_looks=2,
        ),
        (DEAD, SERVER, True, "listener-gone"),
    ),
    # As recorded between guests: +1 in the first two looks.
    "the address moved, and packets to it were lost": (
        seen(
            its=signs(ACCEPTS, MUTE), errors={"completer_retry_err": 2}, error_looks=2
        ),
        (STALLED, SERVER, False, "rdma-lost"),
    ),
    "server off, and packets to it were lost": (
        seen(its=signs(SILENT, MUTE), errors={"completer_retry_err": 9}, error_looks=3),
        (STALLED, SERVER, False, "server-silent"),
    ),
    "NFS threads hang, and the cable had an error": (
        seen(its=signs(ACCEPTS, LISTENS), errors={"symbol_error": 1}),
        (STALLED, SERVER, False, "nfs-stuck"),
    ),
    # mlx5 counts it for all connections of the port: of other servers too.
    "NFS threads hang, and packets were lost": (
        seen(its=signs(ACCEPTS, LISTENS, replied=False), errors={"out_of_sequence": 5}),
        (STALLED, SERVER, False, "nfs-stuck"),
    ),
    "the path loses so much that the question is late, TCP mount": (
        seen(its=signs(ACCEPTS), errors={"symbol_error": 9}, transport="tcp"),
        (STALLED, PATH, False, "path-lossy"),
    ),
    "listener gone, and packets to other servers were lost": (
        seen(its=signs(ACCEPTS, REFUSED), errors={"out_of_sequence": 3}),
        (DEAD, SERVER, True, "listener-gone"),
    ),
    "NFS stopped, and RDMA of other mounts is sent again": (
        seen(
            its=signs(REFUSES, REFUSED),
            errors={"completer_retry_err": 9},
            error_looks=3,
        ),
        (DEAD, SERVER, True, "service-down"),
    ),
    "one export hangs, and packets were sent again": (
        seen(
            its=signs(ACCEPTS, LISTENS),
            errors={"completer_retry_err": 9},
            error_looks=3,
            siblings_answer=True,
        ),
        (STALLED, SERVER, False, "export-stuck"),
    ),
    "NFS threads hang, TCP mount": (
        seen(its=signs(ACCEPTS, replied=False), transport="tcp"),
        (STALLED, SERVER, True, "nfs-stuck"),
    ),
    "the address moved to a port without RDMA, RoCE": (
        seen(its=signs(ACCEPTS, MUTE, replied=True)),
        (STALLED, SERVER, False, "rdma-lost"),
    ),
    "RDMA does not pass, InfiniBand": (
        seen(its=signs(ACCEPTS, MUTE, infiniband=True)),
        (STALLED, FABRIC, False, "fabric-lost"),
    ),
    "the server is silent, the only one": (
        seen(its=signs(SILENT, MUTE)),
        (STALLED, SERVER, False, "server-silent"),
    ),
    "the server is silent, others are not": (
        seen(its=signs(SILENT, MUTE), others_answer=True),
        (STALLED, SERVER, True, "server-silent"),
    ),
    "all servers are silent": (
        seen(its=signs(SILENT, MUTE), others_answer=False),
        (STALLED, PATH, False, "all-servers-silent"),
    ),
    "no machine has the address: the server was switched off": (
        seen(its=signs(ABSENT, MUTE)),
        (STALLED, SERVER, False, "server-silent"),
    ),
    "a firewall rejects as if nobody had the address": (
        seen(its=signs(ABSENT, MUTE), others_answer=True),
        (STALLED, SERVER, False, "server-silent"),
    ),
    "a router knows no way": (
        seen(its=signs(UNREACHABLE, MUTE)),
        (DEAD, PATH, False, "unreachable"),
    ),
    "silent, without rdma_ucm": (
        seen(its=signs(SILENT, NO_RDMA_CM)),
        (STALLED, SERVER, False, "server-silent"),
    ),
    "the kernel gave up": (
        seen(Answer(seconds=0.1, error="EIO"), signs(SILENT, MUTE)),
        (DEAD, SERVER, False, "server-silent"),
    ),
    "silent for long": (
        seen(its=signs(SILENT, MUTE), silent_s=DEAD_S),
        (DEAD, SERVER, False, "server-silent"),
    ),
    "an earlier question still waits": (
        seen(Answer(late=True, stuck_s=DEAD_S), signs(ACCEPTS, MUTE, replied=False)),
        (DEAD, SERVER, True, "nfs-stuck"),
    ),
    "nobody looked": (seen(), (STALLED, UNKNOWN, False, "no-answer")),
}


@pytest.mark.parametrize("name", SILENCE)
def test_silence(name):
    what, expected = SILENCE[name]
    health = judge(what)
    assert (health.state, health.cause, health.certain, health.reason) == expected
    assert needs_signs(what)
    if health.reason == "host-not-ready":
        said = {step.detail: step.fix for step in what.signs.steps if step.fix}
        assert said == {health.sentence: health.fix}
    else:
        assert "nas1" in health.sentence or health.reason == "port-without-sm"
    assert health.fix
    assert health.answered_s is None


def test_nothing_is_said_of_tcp_that_was_not_seen():
    """A firewall may hide that only the RDMA listener is gone."""
    stopped = judge(seen(its=signs(REFUSES, REFUSED)))
    hidden = judge(seen(its=signs(ABSENT, REFUSED)))
    assert (stopped.sentence, stopped.fix) == (
        "nas1 (10.0.0.1) is up, but its NFS service is stopped: it refuses connections",
        "start the NFS service of the server: systemctl start nfs-server",
    )
    assert (hidden.sentence, hidden.fix) == (
        "nas1 (10.0.0.1) is up, but refuses RDMA on port 20049, and answers no TCP: "
        "its NFS service is stopped, or its RDMA listener is gone and a firewall holds "
        "back TCP",
        server_side_fix(20049),
    )


@pytest.mark.parametrize(
    ("answer", "state", "cause", "reason"),
    [
        (Answer(seconds=0.1, error="ESTALE"), DEAD, SERVER, "export-gone"),
        (
            Answer(seconds=0.1, read_s=0.1, read_error="ESTALE"),
            DEAD,
            SERVER,
            "export-gone",
        ),
        (
            Answer(seconds=0.1, read_s=1, read_error="EIO"),
            DEAD,
            SERVER,
            "answer-is-error",
        ),
        (Answer(seconds=0.1, error="EINVAL"), UNKNOWN, UNKNOWN, "answer-is-error"),
        (Answer(problem="no process"), UNKNOWN, UNKNOWN, "not-asked"),
    ],
)
def test_answers_that_are_errors(answer, state, cause, reason):
    health = judge(seen(answer))
    assert (health.state, health.cause, health.reason) == (state, cause, reason)


HALF = Answer(seconds=0.002, read_late=True)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (seen(HALF, signs(replied=True)), (STALLED, SERVER, False, "data-stuck")),
        (
            seen(replace(HALF, stuck_s=DEAD_S), signs()),
            (DEAD, SERVER, False, "data-stuck"),
        ),
        # The path loses packets, of which a read has more than a lookup.
        (
            seen(HALF, signs(), errors={"packet_seq_err": 3}),
            (STALLED, PATH, False, "path-lossy"),
        ),
        # The lookup is late too, or other reads are answered: the read is only slower.
        (
            seen(replace(HALF, seconds=1.2), signs(took=1.1)),
            (SLOW, PATH, True, "path-slow"),
        ),
        (
            seen(HALF, signs(), load=load(data=(40, 1.0, 900.0))),
            (SLOW, SERVER, False, "disk-slow"),
        ),
        # Slow, and the read has waited for long, or no data is answered.
        (
            seen(replace(HALF, seconds=0.6, stuck_s=100.0), signs()),
            (DEAD, SERVER, False, "server-slow"),
        ),
        (
            seen(HALF, signs(), load=load(other=(9, 200.0, 1.0), sent_again=1)),
            (STALLED, SERVER, False, "connection-reset"),
        ),
        # One wait for an acknowledgement, unless another export answers.
        (
            seen(HALF, signs(), errors={"local_ack_timeout_err": 1}),
            (STALLED, PATH, False, "path-lossy"),
        ),
        (
            seen(
                HALF,
                signs(),
                errors={"local_ack_timeout_err": 9},
                siblings_answer=True,
            ),
            (STALLED, SERVER, False, "data-stuck"),
        ),
    ],
)
def test_a_read_that_hangs_although_the_lookup_is_answered(what, expected):
    health = judge(what)
    assert (health.state, health.cause, health.certain, health.reason) == expected
    assert needs_signs(what)
    assert health.answered_s == what.answer.seconds


def test_the_evidence_of_a_read_that_hangs():
    assert judge(seen(HALF)).evidence == (
        "lookup: 2.0 ms",
        "read: no answer within 2 s",
    )
    assert judge(seen(replace(HALF, stuck_s=31.0))).evidence == (
        "a read has waited in the kernel for 31 s",
        "lookup: 2.0 ms",
    )


def test_a_refusal_is_an_answer():
    health = judge(seen(Answer(seconds=0.01, error="EACCES")))
    assert (health.state, health.cause) == (OK, None)
    assert "(EACCES)" in health.sentence
    assert health.evidence == ("lookup: 10.0 ms (EACCES)",)


def test_the_evidence_is_named():
    what = seen(
        its=signs(SILENT, MUTE),
        load=load(data=(8, 1.0, 30.0), connects=2, sent_again=5, timeouts=3),
        backlog=4,
        errors={"link_downed": 1},
    )
    assert judge(what).evidence == (
        "lookup: no answer within 2 s",
        "8 calls in 10 s: 1.0 ms in the queue, 30.0 ms to the server and back",
        "connects +2, sent again +5, timeouts +3",
        "4 calls wait for a slot",
        "port error link_downed +1",
        "TCP port 2049: no answer",
        "RDMA: 10.0.0.1 did not answer within 2 s",
    )


# Test which cause is named for a server that answers late: a row for each way.


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
