#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Check whether ADDRESS accepts RDMA CM connections on PORT.

The system's Python runs this as a separate program: pyverbs must not be loaded into
vdsmd, and a connect without an answer blocks without limit, so the parent kills it at
the deadline. It needs only the standard library and pyverbs.

It prints ``ready`` just before it connects, then one JSON object on one line:
``{"verdict": V, "detail": text}``, where V is ``listening``, ``refused``,
``no route``, ``no pyverbs`` or ``unknown``.
The exit code is 0 for every answer, and 2 for a usage error.
"""

import json
import sys
import time
from typing import Any, Callable

# rdma_cma.h: enum rdma_cm_event_type and enum rdma_port_space.
ADDR_RESOLVED = 0
ROUTE_RESOLVED = 2
CONNECT_RESPONSE = 5
UNREACHABLE = 7
REJECTED = 8
ESTABLISHED = 9
RDMA_PS_TCP = 0x0106
# For the address and for the route, each.
RESOLVE_TIMEOUT_MS = 2000
# A refused connection is tried again: a probe has no queue pair, so all probes of a
# host send queue pair number 0, and of two at once a server takes the second for a
# stale connection and rejects it (drivers/infiniband/core/cm.c, cm_match_req).
PAUSES_S = (0.0, 0.1, 0.2, 0.4)

Answer = tuple[str, str]


def ask(address: str, port: int, ready: Callable[[], None] = lambda: None) -> Answer:
    """Connect, and return the verdict and the detail. Calls ``ready`` once pyverbs is
    loaded.
    """
    try:
        from pyverbs import cmid  # noqa: PLC0415 - a missing module is an answer
        from pyverbs.pyverbs_error import PyverbsError  # noqa: PLC0415
    except ImportError as error:
        return "no pyverbs", f"python3-pyverbs cannot be used: {error}"
    finally:
        ready()
    answer = ("unknown", "no connection was tried")
    for pause in PAUSES_S:
        time.sleep(pause)
        answer = _attempt(cmid, PyverbsError, address, port)
        if answer[0] != "refused":
            break
    return answer


def _attempt(
    cmid: Any, error_class: type[Exception], address: str, port: int
) -> Answer:
    try:
        channel = cmid.CMEventChannel()
        connection = cmid.CMID(creator=channel)
    except error_class as error:
        return "unknown", f"this host has no RDMA CM: {error}"
    try:
        target = _destination(cmid, address, port)
        connection.resolve_addr(target, RESOLVE_TIMEOUT_MS)
        if _event(cmid, channel) != ADDR_RESOLVED:
            return "no route", f"no RDMA device leads to {address}"
        connection.resolve_route(RESOLVE_TIMEOUT_MS)
        if _event(cmid, channel) != ROUTE_RESOLVED:
            return "no route", f"there is no RDMA path to {address}"
        try:
            connection.connect(cmid.ConnParam())
        except error_class as error:
            # iWARP needs a queue pair to connect, and the probe creates none.
            reason = f"RDMA CM does not connect without a queue pair: {error}"
            return "unknown", reason
        event = _event(cmid, channel)
    except error_class as error:
        return "no route", f"RDMA CM cannot reach {address}: {error}"
    listening = "listening", f"{address} accepts RDMA connections on port {port}"
    answers = {
        CONNECT_RESPONSE: listening,
        ESTABLISHED: listening,
        REJECTED: ("refused", f"{address} refuses RDMA connections on port {port}"),
        UNREACHABLE: ("no route", f"{address} does not answer RDMA connections"),
    }
    return answers.get(event, ("unknown", f"RDMA CM answered with event {event}"))


def _event(cmid: Any, channel: Any) -> int:
    received = cmid.CMEvent(channel)
    kind = int(received.event_type)
    received.ack_cm_event()
    return kind


def _destination(cmid: Any, address: str, port: int) -> Any:
    # The keyword for the port differs between releases of pyverbs.
    try:
        return cmid.AddrInfo(dst=address, dst_service=str(port), port_space=RDMA_PS_TCP)
    except TypeError:
        return cmid.AddrInfo(dst=address, service=str(port), port_space=RDMA_PS_TCP)


def main(arguments: list[str]) -> int:
    """Print the answer for ADDRESS and PORT."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        print("usage: rdma_cm_probe.py ADDRESS PORT", file=sys.stderr)
        return 2
    verdict, detail = ask(
        arguments[0], int(arguments[1]), lambda: print("ready", flush=True)
    )
    print(json.dumps({"verdict": verdict, "detail": detail}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
