#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask whether anything accepts RDMA CM connections at ADDRESS PORT.

Run as a program of its own, by the system's Python, because pyverbs must not be
loaded into vdsmd and because an unanswered connect blocks without limit: the
parent kills it at the deadline. It needs the standard library and pyverbs only.

Prints ``ready`` once it is about to knock, then one JSON object on one line:
``{"verdict": V, "detail": text}``, where V is ``listening``, ``refused``,
``no route``, ``no pyverbs`` or ``unknown``.
Exit code 0 whatever the answer; 2 for wrong arguments.
"""

import json
import sys
import time
from typing import Any

# rdma_cma.h: enum rdma_cm_event_type and enum rdma_port_space.
ADDR_RESOLVED = 0
ROUTE_RESOLVED = 2
CONNECT_RESPONSE = 5
UNREACHABLE = 7
REJECTED = 8
ESTABLISHED = 9
RDMA_PS_TCP = 0x0106
# For each resolution.
RESOLVE_TIMEOUT_MS = 2000
# A refusal is asked again: without a queue pair all probes of a host have the same
# number for it, 0, and a server takes the second of two at once for a stale
# connection and rejects it (drivers/infiniband/core/cm.c, cm_match_req).
PAUSES_S = (0.0, 0.1, 0.2, 0.4)

Answer = tuple[str, str]


def knock(address: str, port: int) -> Answer:
    """Connect, and return the verdict and the detail."""
    try:
        from pyverbs import cmid  # noqa: PLC0415 - its absence is an answer
        from pyverbs.pyverbs_error import PyverbsError  # noqa: PLC0415
    except ImportError as error:
        return "no pyverbs", f"python3-pyverbs cannot be used: {error}"
    finally:
        print("ready", flush=True)
    answer = ("unknown", "nobody knocked")
    for pause in PAUSES_S:
        time.sleep(pause)
        answer = _connect(cmid, PyverbsError, address, port)
        if answer[0] != "refused":
            break
    return answer


def _connect(
    cmid: Any, error_class: type[Exception], address: str, port: int
) -> Answer:
    try:
        channel = cmid.CMEventChannel()
        connection = cmid.CMID(creator=channel)
    except error_class as error:
        return "unknown", f"this host has no RDMA CM: {error}"
    try:
        return _converse(cmid, error_class, channel, connection, (address, port))
    except error_class as error:
        return "no route", f"RDMA CM cannot reach {address}: {error}"


def _converse(
    cmid: Any,
    error_class: type[Exception],
    channel: Any,
    connection: Any,
    target: tuple[str, int],
) -> Answer:
    address, port = target
    connection.resolve_addr(_destination(cmid, address, port), RESOLVE_TIMEOUT_MS)
    if _event(cmid, channel) != ADDR_RESOLVED:
        return "no route", f"no RDMA device leads to {address}"
    connection.resolve_route(RESOLVE_TIMEOUT_MS)
    if _event(cmid, channel) != ROUTE_RESOLVED:
        return "no route", f"there is no RDMA path to {address}"
    try:
        connection.connect(cmid.ConnParam())
    except error_class as error:
        # iWARP wants a queue pair for that, which a probe has no use for.
        return "unknown", f"RDMA CM does not connect without a queue pair: {error}"
    event = _event(cmid, channel)
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
    # The port's keyword differs between releases of pyverbs.
    try:
        return cmid.AddrInfo(dst=address, dst_service=str(port), port_space=RDMA_PS_TCP)
    except TypeError:
        return cmid.AddrInfo(dst=address, service=str(port), port_space=RDMA_PS_TCP)


def main(arguments: list[str]) -> int:
    """Take ADDRESS and PORT, print the answer."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        print("usage: rdma_cm_probe.py ADDRESS PORT", file=sys.stderr)
        return 2
    verdict, detail = knock(arguments[0], int(arguments[1]))
    print(json.dumps({"verdict": verdict, "detail": detail}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
