# SPDX-License-Identifier: GPL-2.0-or-later
"""Test QEMU's monitor: its commands, and the handling of its answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lab.guest import Guest
from lab.monitor import Monitor
from lab.problem import GuestDied, LabProblem

pytestmark = pytest.mark.selftest

GREETING = {"QMP": {"version": {}, "capabilities": []}}
DONE: dict[str, Any] = {"return": {}}


class Qemu:
    """The other end: sends the greeting, then a list of lines for each command."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        ours, self._end = socket.socketpair()
        self.monitor = Monitor("server", ours)
        self.asked: list[dict[str, Any]] = []
        self._answers = [[DONE], *answers]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._end, self._end.makefile("rwb", buffering=0) as stream:
            self._say(stream, GREETING)
            for lines in self._answers:
                request = stream.readline()
                if not request:
                    return
                self.asked.append(json.loads(request))
                for line in lines:
                    self._say(stream, line)

    def _say(self, stream: Any, line: dict[str, Any]) -> None:
        stream.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        self.monitor.close()
        self._thread.join(10)


@pytest.fixture
def closing() -> Iterator[list[Qemu]]:
    made: list[Qemu] = []
    yield made
    for qemu in made:
        qemu.close()


def test_a_cable_is_pulled_and_plugged_by_the_nics_name(closing: list[Qemu]) -> None:
    qemu = Qemu([DONE], [DONE])
    closing.append(qemu)
    qemu.monitor.pull_cable()
    qemu.monitor.plug_cable(1)
    assert [request["execute"] for request in qemu.asked] == [
        "qmp_capabilities",
        "set_link",
        "set_link",
    ]
    assert [request["arguments"] for request in qemu.asked[1:]] == [
        {"name": "net0", "up": False},
        {"name": "net1", "up": True},
    ]


def test_events_are_no_answers(closing: list[Qemu]) -> None:
    event = {"event": "STOP", "timestamp": {}}
    qemu = Qemu([event, DONE], [event, {"error": {"desc": "no such thing"}}])
    closing.append(qemu)
    qemu.monitor.freeze()
    with pytest.raises(LabProblem, match="server: QEMU's cont failed: no such thing"):
        qemu.monitor.thaw()


def test_a_qemu_that_has_ended_is_a_sentence(closing: list[Qemu]) -> None:
    qemu = Qemu()
    closing.append(qemu)
    with pytest.raises(LabProblem, match="server: QEMU's stop was not answered"):
        qemu.monitor.freeze()


def test_a_guest_that_is_off_has_no_monitor() -> None:
    with pytest.raises(GuestDied, match="server is off"):
        Guest("server").monitor.freeze()
