# SPDX-License-Identifier: GPL-2.0-or-later
"""Pull the cables of two network paths in guests, and weigh the daemon there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.paths_program import python_start
from bench.rounds import BenchmarkFailed
from bench.spread import Spread
from lab.topology import EXPORT_PATH, two_guests
from lab.two_paths import (
    CLIENT,
    ENDS,
    PLACE,
    SERVER,
    RoceCables,
    TwoPaths,
    moved,
    whole,
)
from lab.vdsm_daemon import VdsmDaemon

WRITERS, MOUNTS = 4, 20
OURS, STOCK = "with paths", "stock"
OUT, RETURN = "the {}'s cable out", "the {}'s cable in again"
STOCK_OPTIONS = (
    "rdma,port=20049,soft,nosharecache,timeo=30,retrans=2,nfsvers=4,minorversion=2"
)
SHARE_S, WINDOW_S = 6, 20
# Seconds, with generous room. Nobody looks meanwhile: a command costs much of an
# emulated processor.
_OUT_S, _RETURN_S, _AFTER_S = {CLIENT: 6, SERVER: 12}, 6, 2
_STOCK_S, _START_S = 12, 10
_PROGRAM = Path(__file__).with_name("paths_program.py").read_text(encoding="utf-8")
_FOLDER = "/rhev/data-center/mnt/nas:_srv_vm"
_SENT = "cat /sys/class/net/eth[01]/statistics/tx_bytes"


@dataclass(frozen=True)
class Writes:
    """What writers saw: the longest write in seconds, alone and in small RPCs, the
    error that ended one, and blocks that were not as written (None after an error).
    """

    longest: float
    in_rpcs: float
    error: str | None
    differences: int | None

    @property
    def failed(self) -> bool:
        """Whether a write failed, or was not what was read back."""
        return self.error is not None or self.differences != 0


@dataclass(frozen=True)
class Cost:
    """The daemon in each window: CPU time in seconds, memory in bytes; and the CPU time
    of a bare Python there.
    """

    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    python: tuple[float, ...]

    @property
    def shares(self) -> Spread:
        """Its parts of a CPU."""
        return Spread(tuple(seconds / WINDOW_S for seconds in self.cpu))

    @property
    def starts(self) -> Spread:
        """In how many starts of a bare Python a second that is."""
        pairs = zip(self.shares.values, self.python, strict=True)
        return Spread(tuple(share / python for share, python in pairs))


@dataclass
class Measured:
    """``writes`` by what happened and by whom, the first path's ``shares`` of the
    bytes, times of a ``small`` RPC, the daemon's ``costs`` with paths and without, and
    the CPU time of a bare ``python`` on this machine.
    """

    writes: dict[tuple[str, str], list[Writes]] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)
    small: list[float] = field(default_factory=list)
    costs: dict[bool, Cost] = field(default_factory=dict)
    python: float = 0.0


def measured(rounds: int) -> Measured:
    """Measure so many times. Raises LabProblem, BenchmarkFailed."""
    found = Measured(python=python_start())
    with two_guests(spare_wires=1) as lab:
        site = TwoPaths(lab.hypervisor, RoceCables(lab))
        try:
            for number in range(rounds):
                print(f"  bench.paths: round {number + 1} of {rounds}", flush=True)
                _round(site, number, found)
            print(f"  bench.paths: {MOUNTS} mounts", flush=True)
            for number in range(1, MOUNTS + 1):
                lab.nfs.add_export(f"/srv/vm{number}")
            _daemon(site, rounds, found)
        except AssertionError as problem:
            raise BenchmarkFailed(f"the paths are not as expected: {problem}") from None
    return found


def _round(site: TwoPaths, number: int, found: Measured) -> None:
    """Pull a cable at each end, each of another path, with paths and with stock."""
    with site.mounted():
        site.said(f"head -c 4096 /dev/urandom > {PLACE}/small")
        found.small.append(_in_guest(site, f"small {PLACE}/small"))
        for end, path in zip(ENDS, (number % 2, 1 - number % 2), strict=True):
            with site.writers(WRITERS) as out:
                before = _sent(site)
                time.sleep(SHARE_S)
                after = _sent(site)
                site.cables.pull(end, path)
                time.sleep(_OUT_S[end])
                site.waits_for(moved)
            with site.writers(WRITERS) as back:
                site.cables.plug(end, path)
                time.sleep(_RETURN_S)
                site.waits_for(whole)
                # The connections are new then; writers end with what waits for them.
                time.sleep(_AFTER_S)
            grown = [new - old for old, new in zip(before, after, strict=True)]
            found.shares.append(grown[0] / sum(grown))
            _note(found, OUT.format(end), OURS, out)
            _note(found, RETURN.format(end), OURS, back)
    for end in ENDS:
        site.said(f"mount -t nfs -o {STOCK_OPTIONS} {site.export} {PLACE}")
        try:
            with site.writers(WRITERS) as out:
                time.sleep(1)
                site.cables.pull(end, 0)
                time.sleep(_STOCK_S)
        finally:
            site.cables.plug(end, 0)
            site.unmount()
        _note(found, OUT.format(end), STOCK, out)


def _note(found: Measured, what: str, who: str, said: Mapping[str, Any]) -> None:
    if "longest" not in said:
        raise BenchmarkFailed(f"{what}, {who}: the writers failed: {said['stderr']}")
    longest = said["longest"]
    of = longest, longest / found.small[-1], said["error"], said["differences"]
    found.writes.setdefault((what, who), []).append(Writes(*of))


def _daemon(site: TwoPaths, windows: int, found: Measured) -> None:
    """Measure the daemon with and without paths, beside vdsmd as on each hypervisor;
    both have the same mounts.
    """
    vdsmd = VdsmDaemon(site.hypervisor)
    vdsmd.start()
    shown = site.said(
        f"ovirt-rdma-host nfs mount-options {site.export} --nfs-version 4.2 -o json"
    )
    options = json.loads(shown)["options"]
    every = f"for n in $(seq {MOUNTS}); do "
    server = site.export[: -len(EXPORT_PATH)]
    mount = f"mount -t nfs -o {options} {server}/srv/vm$n {_FOLDER}$n"
    site.said(f"set -e; {every} mkdir -p {_FOLDER}$n; {mount}; done")
    try:
        for paths in (True, False):
            site.load_policy(paths=paths)
            with site.daemon():
                if paths:
                    site.waits_for(lambda s: whole(s) and len(s["exports"]) == MOUNTS)
                find = "pgrep -o -f 'host unit daemon$'"
                pid = site.said(f"until {find}; do sleep 1; done; sleep {_START_S}")
                words = f"processes {pid} {WINDOW_S} {windows}"
                cost = _in_guest(site, words)
            found.costs[paths] = Cost(
                *(tuple(cost[name]) for name in ("cpu", "memory", "python"))
            )
    finally:
        site.said(f"{every} umount -f -l {_FOLDER}$n; done")
        vdsmd.stop()


def _in_guest(site: TwoPaths, words: str) -> Any:
    return json.loads(site.said(f"/usr/bin/python3 -I -S - {words}", _PROGRAM))


def _sent(site: TwoPaths) -> list[int]:
    return [int(line) for line in site.said(_SENT).split()]
