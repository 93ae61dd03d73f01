#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Check whether ADDRESS accepts RDMA CM connections on PORT.

A separate program, because a connect without an answer ends late, and a kernel that
waits for an adapter may not end at all: the parent kills it at the deadline, and vdsmd
has no thread that hangs. It needs only the standard library, and speaks to the kernel
itself: include/uapi/rdma/rdma_user_cm.h, ABI version 4, and
drivers/infiniband/core/ucma.c.

It prints ``ready`` just before it connects, then one JSON object on one line:
``{"verdict": V, "detail": text}``, where V is ``listening``, ``refused``, ``stale``,
``no route`` or ``unknown``.
The exit code is 0 for every answer, and 2 for a usage error.
"""

import array
import json
import os
import socket
import struct
import sys
import time
from contextlib import closing

DEVICE = "/dev/infiniband/rdma_cm"
# enum rdma_cm_event_type (include/rdma/rdma_cm.h).
ADDR_RESOLVED = 0
ROUTE_RESOLVED = 2
CONNECT_RESPONSE = 5
UNREACHABLE = 7
REJECTED = 8
# Commands of rdma_user_cm.h.
CREATE_ID, RESOLVE_IP, RESOLVE_ROUTE, CONNECT, GET_EVENT = 0, 3, 4, 6, 12
RDMA_PS_TCP = 0x0106
# For the address and for the route, each.
RESOLVE_TIMEOUT_MS = 2000
# struct rdma_ucm_conn_param: no queue pair, no private data, one RDMA read each way,
# five retries; valid.
_PARAMETERS = struct.pack("=II256x8B", 0, 0, 0, 0, 1, 1, 0, 5, 5, 1)
# enum ib_cm_rej_reason (include/rdma/ib_cm.h), the status of REJECTED.
STALE_CONNECTION = 10
# A probe has no queue pair, so all probes of a host send queue pair number 0, and a
# server rejects it as stale while it knows another one (drivers/infiniband/core/cm.c,
# cm_match_req): for moments if two are asked at once, so it is tried again; for 16
# times 4.3 s if an earlier one's end was lost, as by a server that was frozen. With the
# number of a queue pair in use it would end that one's connection.
PAUSES_S = (0.0, 0.1, 0.2, 0.4)

Answer = tuple[str, str]


def ask(address: str, port: int) -> Answer:
    """Connect, and return the verdict and the detail."""
    answer = ("unknown", "no connection was tried")
    for pause in PAUSES_S:
        time.sleep(pause)
        answer = _attempt(address, port)
        if answer[0] != "stale":
            break
    return answer


def _attempt(address: str, port: int) -> Answer:
    try:
        connection = Connection()
    except OSError as error:
        return "unknown", f"this host has no RDMA CM: {DEVICE}: {error.strerror}"
    with closing(connection):
        try:
            if connection.resolve_address(address, port) != ADDR_RESOLVED:
                return "no route", f"no RDMA device leads to {address}"
            if connection.resolve_route() != ROUTE_RESOLVED:
                return "no route", f"there is no RDMA path to {address}"
        except OSError as error:
            reason = f"RDMA CM cannot reach {address}: {error.strerror}"
            return "no route", reason
        try:
            event = connection.connect()
        except OSError as error:
            # iWARP needs a queue pair to connect, and the probe creates none.
            reason = "RDMA CM does not connect without a queue pair"
            return "unknown", f"{reason}: {error.strerror}"
    listening = "listening", f"{address} accepts RDMA connections on port {port}"
    rejected = "refused", f"{address} refuses RDMA connections on port {port}"
    if connection.status == STALE_CONNECTION:
        reason = "waits for the end of an earlier question of this host"
        rejected = "stale", f"{address} {reason}, for a minute or two"
    answers = {
        CONNECT_RESPONSE: listening,
        REJECTED: rejected,
        UNREACHABLE: ("no route", f"{address} does not answer RDMA connections"),
    }
    return answers.get(event, ("unknown", f"RDMA CM answered with event {event}"))


class Connection:
    """An RDMA CM id without a queue pair. Its steps return the event that ends them,
    and wait for that as long as the kernel does; ``status`` is that event's. Raises
    OSError.
    """

    def __init__(self) -> None:
        self.status = 0
        # The kernel answers there. Its largest answer has some 340 bytes
        # (struct rdma_ucm_event_resp).
        self._answer = array.array("B", bytes(512))
        self._file = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Without a number of ours, here 1, there are no events.
            pointer = self._answer.buffer_info()[0]
            self._command(CREATE_ID, "=QQHB5x", 1, pointer, RDMA_PS_TCP, 0)
            (self._id,) = struct.unpack_from("=I", self._answer)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End it; the kernel ends what a server has accepted."""
        os.close(self._file)

    def resolve_address(self, address: str, port: int) -> int:
        """Look for the RDMA device that leads to ``address``."""
        family, _, _, _, to = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        host, _, *rest = to
        # struct sockaddr_in, or sockaddr_in6: port and addresses are big-endian.
        wanted = struct.pack("=H", family) + struct.pack("!H", port)
        wanted += bytes(4 if rest else 0)
        wanted += socket.inet_pton(family, str(host).partition("%")[0])
        wanted += struct.pack("=I", rest[-1]) if rest else b""
        ends = self._id, RESOLVE_TIMEOUT_MS
        return self._step(RESOLVE_IP, "=28x28sII", wanted, *ends)

    def resolve_route(self) -> int:
        """Look for the way to the address."""
        return self._step(RESOLVE_ROUTE, "=II", self._id, RESOLVE_TIMEOUT_MS)

    def connect(self) -> int:
        """Connect to the port."""
        return self._step(CONNECT, "=272sI4x8x", _PARAMETERS, self._id)

    def _step(self, command: int, form: str, *values: object) -> int:
        self._command(command, form, *values)
        self._command(GET_EVENT, "=Q", self._answer.buffer_info()[0])
        # Behind our number and the kernel's.
        event, self.status = struct.unpack_from("=Ii", self._answer, 12)
        return int(event)

    def _command(self, command: int, form: str, *values: object) -> None:
        content = struct.pack(form, *values)
        sizes = len(content), len(self._answer)
        os.write(self._file, struct.pack("=IHH", command, *sizes) + content)


def main(arguments: list[str]) -> int:
    """Print the answer for ADDRESS and PORT."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        print("usage: rdma_cm_probe.py ADDRESS PORT", file=sys.stderr)
        return 2
    print("ready", flush=True)
    verdict, detail = ask(arguments[0], int(arguments[1]))
    print(json.dumps({"verdict": verdict, "detail": detail}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
