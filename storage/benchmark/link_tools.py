# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure the link to another host with perftest and iperf3: the command lines,
and what these tools print. Pure.

The operator starts the servers on the other host (:data:`SERVERS`). Outputs: perftest
src/perftest_parameters.h (RESULT_FMT_G, REPORT_FMT_JSON), iperf3 3.x with -J.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ovirt_rdma.host.mount_options import RDMA, TCP
from ovirt_rdma.host.system.json_codec import UnreadableJson, json_value

SECONDS = 3
# With -D, perftest leaves out a quarter of the time at each end, rounded down to whole
# seconds (perftest_parameters.c, margin).
_COUNTED_S = SECONDS - 2 * (SECONDS // 4)


class NotUnderstood(ValueError):
    """The output has no result; the text says why."""


@dataclass(frozen=True)
class LinkTest:
    """A test of a tool: ``test`` is ``read``, ``write`` or ``stream``.

    ``server`` is the command to start on the other host, which ends after one test if
    ``server_ends``; ``parse`` returns bytes per second or raises NotUnderstood.
    """

    tool: str
    test: str
    transport: str
    server: str
    options: tuple[str, ...]
    parse: Callable[[str], float]
    server_ends: bool = False

    def arguments(self, peer: str) -> tuple[str, ...]:
        """Return the command for the server ``peer``."""
        return (self.tool, *self.options, peer)


def perftest(text: str) -> float:
    """Return bytes per second from ``ib_read_bw --report_gbits``.

    Its JSON goes into a file, older versions have none, and with -S it is invalid; the
    table is the same in all of them. Where perftest cannot measure the rate of the
    processor's clock (a virtual machine), it prints 0 for each rate (get_clock.c,
    get_cpu_mhz). Then the rate is that of its messages in the time that it counts.
    """
    lines = iter(text.splitlines())
    heading = next((line for line in lines if "BW average" in line), None)
    if heading is None:
        raise NotUnderstood(_why(text))
    # Gb/sec, or Gb/s in 4.x; MiB/sec, or MB/sec (which is MiB too), without the option.
    unit = re.search(r"BW average\[(Gb|MiB|MB)/s(?:ec)?\]", heading)
    for line in lines:
        words = line.split()
        # bytes [sl] iterations peak average rate [CPU]: count from the heading.
        at = 3 + ("#sl" in heading)
        if len(words) > at and words[0].isascii() and words[0].isdigit():
            size, messages = _decimal(words[0]), _decimal(words[at - 2])
            value = _decimal(words[at])
            if value is not None and unit:
                factor = 1e9 / 8 if unit[1] == "Gb" else float(1 << 20)
                counted = (size or 0.0) * (messages or 0.0) / _COUNTED_S
                return _positive(value * factor or counted)
    raise NotUnderstood("its table has no average")


def iperf3(text: str) -> float:
    """Return the received bytes per second from ``iperf3 -J``."""
    try:
        whole = _object(text)
    except UnreadableJson as error:
        raise NotUnderstood(str(error)) from None
    if isinstance(whole.get("error"), str):
        raise NotUnderstood(_why(whole["error"]))
    end = whole.get("end")
    received = end.get("sum_received") if isinstance(end, dict) else None
    bits = received.get("bits_per_second") if isinstance(received, dict) else None
    if not isinstance(bits, (int, float)) or isinstance(bits, bool):
        raise NotUnderstood("its JSON has no end.sum_received")
    return _positive(bits / 8)


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in what iperf3 printed; empty if it is none."""
    start = max(text.find("{"), 0)
    value = json_value(text[start:].encode("utf-8", "surrogateescape"))
    return value if isinstance(value, dict) else {}


def _decimal(text: str) -> Optional[float]:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{0,9})?", text) else None


def _positive(rate: float) -> float:
    if rate <= 0:
        raise NotUnderstood("nothing was received")
    return rate


# By getopt_long(3).
_OPTION = re.compile(r"(unrecognized|unknown|invalid) option", re.IGNORECASE)


def reason(stdout: str, stderr: str, otherwise: str) -> str:
    """Return why a tool failed, in one line of what it printed.

    An option that a version lacks is named first, and the usage comes after it
    (perftest 4.5, iperf3 3.12). Else the last line is the reason. iperf3 3.16 and later
    has it in its JSON alone, whose last line is a brace.
    """
    with contextlib.suppress(UnreadableJson):
        error = _object(stdout).get("error")
        if isinstance(error, str) and error.strip():
            return _why(error)
    for line in (*stderr.splitlines(), *stdout.splitlines()):
        if _OPTION.search(line):
            return line.strip()[:200]
    printed = next((text for text in (stderr, stdout) if text.strip()), otherwise)
    return _why(printed)


def _why(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


# -R: RDMA CM chooses the device by the route, as NFS does. -F: a processor whose
# frequency changes is a warning, not an error. -D: seconds.
_PERFTEST = ("-R", "-F", "--report_gbits", "-D", str(SECONDS))
_IPERF3 = ("-J", "-t", str(SECONDS), "-c")
TESTS = (
    LinkTest("ib_read_bw", "read", RDMA, "ib_read_bw -R", _PERFTEST, perftest, True),
    LinkTest("ib_write_bw", "write", RDMA, "ib_write_bw -R", _PERFTEST, perftest, True),
    LinkTest("iperf3", "stream", TCP, "iperf3 -s", _IPERF3, iperf3),
)
