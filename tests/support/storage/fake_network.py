# SPDX-License-Identifier: GPL-2.0-or-later
"""Simulate servers on a network that answers at once and records the questions."""

from __future__ import annotations

from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Step


class FakeNetwork:
    """Addresses of names, TCP ports that answer, and the answers of RDMA ports.

    ``rdma`` maps ``(address, port)`` to a verdict; all others refuse. ``mountds`` are
    addresses whose mountd answers.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, ...]] = {}
        self.tcp: set[tuple[str, int]] = set()
        self.rdma: dict[tuple[str, int], str] = {}
        self.mountds: set[str] = set()
        self.asked: list[tuple[str, ...]] = []

    def resolve(self, server: str, timeout_s: float) -> tuple[str, ...]:
        self.asked.append(("resolve", server))
        if ":" in server or server.replace(".", "").isdigit():
            return (server,)
        return self.names.get(server, ())

    def tcp_answers(self, address: str, port: int, timeout_s: float) -> bool:
        self.asked.append(("tcp", address, str(port)))
        return (address, port) in self.tcp

    def rdma_listener(self, address: str, port: int, timeout_s: float) -> Step:
        self.asked.append(("rdma", address, str(port)))
        verdict = self.rdma.get((address, port), NOT_READY)
        words = {
            READY: "accepts RDMA connections",
            NOT_READY: "refuses RDMA connections",
            UNKNOWN: "cannot be asked",
        }
        return Step("listener", verdict, f"{address} {words[verdict]}")

    def mountd(self, address: str, timeout_s: float) -> Step:
        self.asked.append(("mountd", address))
        if address in self.mountds:
            return Step("mountd", READY, "answers")
        return Step("mountd", NOT_READY, "dead", "go")
