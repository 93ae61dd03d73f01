# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure connecting exports of a server without RDMA: ours and stock VDSM.

It runs in the lab, with real kernels and real mounts. The two runs of stock VDSM for
each server are made at the same time, in separate guests, because they only wait.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bench.report import Section, Table, Verdict
from bench.spread import Spread, durations
from lab.problem import LabProblem
from lab.topology import SERVER_ADDRESSES, Topology, one_guest
from lab.vdsm_daemon import CONNECT_TIMEOUT, VdsmDaemon
from ovirt_rdma.storage.readiness import BURST_GAP_S

OURS = (1, 2, 20)
STOCK = (1, 2)
# Issue 3: how many times as fast as stock, and with how many exports.
LIMIT, LIMIT_EXPORTS = 18.0, 20
_MOUNT_FAILED = 477


@dataclass(frozen=True)
class Server:
    """The server of the exports, and what is wrong with it."""

    address: str
    what: str


WITHOUT_LISTENER = Server(
    SERVER_ADDRESSES[0].partition("/")[0], "no RDMA listener (the NFS server is up)"
)
DEAD = Server("10.99.0.77", "dead address")
SERVERS = (WITHOUT_LISTENER, DEAD)

POLICY = """\
version: 1
nfs:
  rules:
    - server: 10.99.0.0/24
      transport: require-rdma
"""

# After this pause a server that refused is asked again.
PAUSE_S = BURST_GAP_S + 1

TITLE = "A connect that fails: against stock VDSM"
_TEXT = f"""
    One connectStorageServer call that cannot succeed, as the engine sees it:
    {{code}} in an emulated guest, NFS 4.2, real mount.nfs, Soft-RoCE.
    Ours: the rule says require-rdma, with the policy's defaults; each call begins
    {PAUSE_S:.0f} s after the one before, so that none has its answers. Stock: vdsmd
    without ovirt-rdma, the engine sends `rdma,port=20049`. Stock was measured once
    with 1 and with 2 exports; {LIMIT_EXPORTS} are extrapolated linearly from
    these, because VDSM mounts one after the other; for the dead address that is rough,
    because mount.nfs sometimes ends early there. The engine waits
    {CONNECT_TIMEOUT:.0f} s for the whole call, which is taken as stock's end."""

# Seconds, by server and number of exports.
Seconds = dict[tuple[Server, int], Spread]


@dataclass(frozen=True)
class Stock:
    """The duration of stock VDSM with one and with two exports, in seconds."""

    one: float
    two: float

    def extrapolated(self, exports: int) -> float:
        """Extrapolate linearly: VDSM's connect_all mounts one after the other.

        The result is never less than the time of one export.
        """
        line = self.one + (exports - 1) * (self.two - self.one)
        return max(line, self.one)

    def until_the_engine_ends_it(self, exports: int) -> float:
        """Return that time, at most the engine's timeout."""
        return min(self.extrapolated(exports), CONNECT_TIMEOUT)


def section(rounds: int) -> Section:
    """Measure and return the results; without VDSM_SOURCE stock is left out.

    Raises LabProblem if the lab does not work or a connect does not fail.
    """
    stock = _measure_stock() if _real_vdsm() else {}
    return judged(_measure_ours(rounds), stock)


def skipped() -> Section:
    """Return the section of a run without the lab."""
    text = _text(real=_real_vdsm())
    return Section(TITLE, text, left_out="all of it, because of --without-lab.")


def _real_vdsm() -> bool:
    """Whether guests get VDSM's own source instead of the project's double."""
    return bool(os.environ.get("VDSM_SOURCE"))


def _text(*, real: bool) -> str:
    double = "this project's double of VDSM's storage code"
    return _TEXT.format(code="VDSM's storage code" if real else double)


def judged(ours: Seconds, stock: dict[Server, Stock]) -> Section:
    """Make tables and verdicts of the measurements; pure.

    ``stock`` is empty without VDSM's source.
    """
    heads = ("server", "who", "exports", "median", "min", "max", "how")
    rows: list[tuple[str, ...]] = []
    verdicts = []
    for server in SERVERS:
        for exports in OURS:
            spread = ours[server, exports]
            times = len(spread.values)
            how = "measured once" if times == 1 else f"measured {times} times"
            rows.append((server.what, "ours", str(exports), *durations(spread), how))
        if server in stock:
            rows += _stock_rows(server, stock[server])
            seconds = ours[server, LIMIT_EXPORTS].median
            verdicts.append(_verdict(server, seconds, stock[server]))
    left_out = ""
    if not stock:
        left_out = (
            "stock VDSM, and every ratio. Without VDSM_SOURCE the rival would be this "
            "project's own double of VDSM; `VDSM_SOURCE=../vdsm make bench` measures "
            "against the real one."
        )
    return Section(
        TITLE,
        _text(real=bool(stock)),
        (Table(heads, tuple(rows)),),
        tuple(verdicts),
        left_out,
    )


def _stock_rows(server: Server, stock: Stock) -> list[tuple[str, ...]]:
    rows = [
        (server.what, "stock", str(number), *_single(seconds), "measured once")
        for number, seconds in ((1, stock.one), (2, stock.two))
    ]
    seconds = stock.until_the_engine_ends_it(LIMIT_EXPORTS)
    how = f"extrapolated: {stock.extrapolated(LIMIT_EXPORTS):.0f} s"
    if seconds < stock.extrapolated(LIMIT_EXPORTS):
        how += ", cut by the engine"
    number = str(LIMIT_EXPORTS)
    return [*rows, (server.what, "stock", number, *_single(seconds), how)]


def _single(seconds: float) -> tuple[str, str, str]:
    return durations(Spread((seconds,)))


def _verdict(server: Server, seconds: float, stock: Stock) -> Verdict:
    theirs = stock.until_the_engine_ends_it(LIMIT_EXPORTS)
    ratio = theirs / seconds
    sentence = (
        f"{LIMIT_EXPORTS} exports, {server.what}: refused after {seconds:.1f} s, "
        f"stock's end is at {theirs:.0f} s, {ratio:.0f} times as long; "
    )
    if server == WITHOUT_LISTENER:
        sentence += f"promised: at least {LIMIT:.0f} times."
    else:
        sentence += f"nothing is promised here, our own limit is {LIMIT:.0f} times."
    return Verdict(ratio >= LIMIT, sentence)


def _measure_stock() -> dict[Server, Stock]:
    print("  stock VDSM: 4 guests in parallel, some 5 minutes", flush=True)
    cases = [(server, exports) for server in SERVERS for exports in STOCK]
    with ExitStack() as stack, ThreadPoolExecutor(len(cases)) as pool:
        labs = [stack.enter_context(one_guest(rdma_port=None)) for _ in cases]
        try:
            seconds = dict(zip(cases, pool.map(_stock, cases, labs), strict=True))
        except BaseException:
            # Leaving the pool waits for the others; let them end at once.
            for lab in labs:
                lab.hypervisor.kill()
            raise
    return {
        server: Stock(*(seconds[server, exports] for exports in STOCK))
        for server in SERVERS
    }


def _stock(case: tuple[Server, int], lab: Topology) -> float:
    server, exports = case
    vdsmd = VdsmDaemon(lab.hypervisor)
    vdsmd.start()
    _expect(not vdsmd.about().nfs_class.startswith("ovirt_rdma"), "vdsmd is stock")
    return _connect(vdsmd, server, exports, mnt_options="rdma,port=20049")


def _measure_ours(rounds: int) -> Seconds:
    print(f"  ours: {rounds} rounds, some {40 * rounds + 30} s", flush=True)
    values: dict[tuple[Server, int], list[float]] = {}
    with one_guest(rdma_port=None) as lab:
        vdsmd = VdsmDaemon(lab.hypervisor)
        vdsmd.load_policy(POLICY)
        vdsmd.start()
        for _ in range(rounds):
            for server in SERVERS:
                for exports in OURS:
                    time.sleep(PAUSE_S)
                    seconds = _connect(vdsmd, server, exports, status=_MOUNT_FAILED)
                    values.setdefault((server, exports), []).append(seconds)
        vdsmd.stop()
    return {case: Spread(tuple(seconds)) for case, seconds in values.items()}


def _connect(
    vdsmd: VdsmDaemon,
    server: Server,
    exports: int,
    *,
    status: int = 0,
    **keys: str,
) -> float:
    """Return the seconds of one call; all of it must fail, with ``status`` if not 0."""
    outcome = vdsmd.connect(
        *(
            {"connection": f"{server.address}:/srv/vm{number}", **keys}
            for number in range(exports)
        )
    )
    good = all(code == (status or code) and code for code in outcome.statuses)
    _expect(good, f"{exports} exports of {server.address} fail: {outcome}")
    return outcome.seconds


def _expect(fact: bool, what: str) -> None:
    if not fact:
        raise LabProblem(f"not as expected: {what}")
