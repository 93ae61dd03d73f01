# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the health of NFS mounts, why, and what to do; the network paths to their
servers; and what each mount did between two samples, for ``watch``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from ovirt_rdma.cli.output import Output, count, when
from ovirt_rdma.host.facts.statistics import Load, Statistics, load_between
from ovirt_rdma.storage.health.state import HealthState, MountHealth
from ovirt_rdma.storage.paths.state import PathsState, ServerPaths

TONES = {
    "ok": "good",
    "slow": "doubtful",
    "stalled": "bad",
    "dead": "bad",
    "unknown": "doubtful",
}


def print_health(
    mounts: tuple[MountHealth, ...], paths: Optional[PathsState], output: Output
) -> None:
    """Print a table, one sentence in all, and for each mount that is not ok, or has not
    all its paths, why, and what to do.
    """
    if not mounts:
        output.line("This host has no NFS mount.")
        return
    its = [paths.of_export(mount.export) if paths else None for mount in mounts]
    more = ["PATHS"] * any(its)
    output.table(
        ("HEALTH", "EXPORT", "TRANSPORT", "NFS", *more, "ANSWER", "CAUSE"),
        [
            (
                mount.state,
                mount.export,
                mount.transport or "unproven",
                mount.version or "-",
                *(_of_all(one) for _ in more),
                "-"
                if mount.answered_s is None
                else f"{mount.answered_s * 1000:.1f} ms",
                _cause(mount),
            )
            for mount, one in zip(mounts, its)
        ],
        TONES,
    )
    bad = [mount for mount in mounts if mount.state != "ok"]
    if bad:
        verb = "is" if len(bad) == 1 else "are"
        output.line(f"{len(bad)} of {count(len(mounts), 'mount')} {verb} not ok.")
    elif len(mounts) == 1:
        output.line("The mount is ok.")
    else:
        output.line(f"All {len(mounts)} mounts are ok.")
    # Mounts of one server fail together: said once.
    alike: dict[tuple[str, str, str], list[MountHealth]] = {}
    for mount in bad:
        said = mount.state, mount.sentence, mount.fix
        alike.setdefault(said, []).append(mount)
    for (state, sentence, fix), same in alike.items():
        verb = "is" if len(same) == 1 else "are"
        exports = " and ".join(mount.export for mount in same)
        output.text(f"{exports} {verb} {state}: {sentence}.")
        output.fix(fix)
        for seen in same[0].evidence:
            output.text(seen, "  ", "- ")
    print_flaws([one for one in dict.fromkeys(its) if one], output)


def _of_all(server: Optional[ServerPaths]) -> str:
    return f"{server.up}/{len(server.paths)}" if server else "-"


_PATH_TONES = {"up": "good", "down": "bad", "unproven": "doubtful"}


def print_paths(servers: Sequence[ServerPaths], output: Output) -> None:
    """Print a table, one sentence in all, what is wrong and what to do, and the last
    move to each server; problems first.
    """
    servers = sorted(servers, key=lambda one: (one.is_whole, one.up))
    output.table(
        ("SERVER", "PATH", "NETDEV", "STATE", "SINCE (UTC)", "CONNECTIONS", "BYTES"),
        [
            (
                server.server,
                path.address,
                path.netdev or "-",
                path.state,
                "-" if path.since is None else when(path.since)[:16],
                str(path.connections),
                "-" if path.share is None else f"{path.share:.0%}",
            )
            for server in servers
            for path in server.worst_first
        ],
        _PATH_TONES,
        minor=("SERVER", "SINCE (UTC)"),
    )
    paths = sum(len(server.paths) for server in servers)
    bad = paths - sum(server.up for server in servers)
    text = f"{bad} of {count(paths, 'path')} {'is' if bad == 1 else 'are'} not up"
    if not bad:
        whole = all(server.is_whole for server in servers)
        rest = "and all connections use their own" if whole else "but not all is well"
        text = f"All {paths} paths are up, {rest}"
    output.text(f"{text}.")
    print_flaws(servers, output)
    for server in servers:
        output.line()
        output.text(f"{server.server}: {', '.join(server.exports) or 'not mounted'}")
        moves, last = [("moves", f"{server.moves} since the daemon began")], server.last
        if last:
            took = "" if last.seconds is None else f", in {last.seconds:.1f} s"
            between = f"{last.source} to {last.target}{took or ', not connected'}"
            moves += [("last", f"{when(last.at)}, {between}"), ("why", last.reason)]
        output.fields(moves, indent="  ")


def print_flaws(servers: Iterable[ServerPaths], output: Output) -> None:
    """Print what is wrong with the paths to each server, and what to do."""
    for server in servers:
        for clause, fix in server.flaws:
            output.text(f"{server.server}: {clause}.")
            output.fix(fix)


def _cause(mount: MountHealth) -> str:
    if mount.cause is None:
        return "-"
    return mount.cause if mount.certain else f"{mount.cause}, probably"


# The name in the document, the value; heading and format in the table of those that
# are shown there. Times are means of the calls that ended between the samples.
_COLUMNS: tuple[tuple[str, Callable[[Load], float], str, str], ...] = (
    ("seconds", lambda load: load.seconds, "", ""),
    ("calls", lambda load: load.count / load.seconds, "CALLS/S", "{:.0f}"),
    ("received_bytes", lambda load: _per_s(load, "bytes_received"), "READ", "MB"),
    ("sent_bytes", lambda load: _per_s(load, "bytes_sent"), "WRITE", "MB"),
    ("rtt_ms", lambda load: load.mean("rtt_ms"), "RTT", "ms"),
    ("execute_ms", lambda load: load.mean("execute_ms"), "EXEC", "ms"),
    ("queue_ms", lambda load: load.mean("queue_ms"), "QUEUE", "ms"),
    ("on_wire", lambda load: load.on_wire, "", ""),
    ("backlog", lambda load: load.backlog, "BACKLOG", "{:.0f}"),
    ("connects", lambda load: load.connects, "CONN", "+{}"),
    ("sent_again", lambda load: load.sent_again, "RETR", "+{}"),
    ("timeouts", lambda load: load.total("timeouts"), "", ""),
)
_SHOWN = [(name, heading, form) for name, _, heading, form in _COLUMNS if heading]


def _per_s(load: Load, name: str) -> float:
    return load.total(name) / load.seconds


def rows(
    before: Statistics,
    after: Statistics,
    state: Optional[HealthState],
    paths: Optional[PathsState] = None,
) -> list[dict[str, Any]]:
    """Return what each mount of the second sample did, for programs, in the kernel's
    order: rates per second, times in milliseconds; None for a mount without an earlier
    sample. ``health`` is None if nobody watches it, ``paths`` if it has none. Pure.
    """
    earlier = {mount.mountpoint: mount for mount in before.mounts}
    health = {one.mountpoint: one.state for one in state.mounts} if state else {}
    seconds, found = after.taken_s - before.taken_s, []
    for mount in after.mounts:
        load = load_between(earlier.get(mount.mountpoint), mount, seconds)
        names = {one.protocol for one in mount.transports}
        its = paths.of_export(mount.source) if paths else None
        row = {
            "export": mount.source,
            "mountpoint": mount.mountpoint,
            "transport": "mixed" if len(names) > 1 else "".join(names) or "unknown",
            "health": health.get(mount.mountpoint),
            "paths": _of_all(its) if its else None,
            "in_use": [p.address for p in its.paths if p.connections] if its else None,
        }
        done = {name: value(load) if load else None for name, value, *_ in _COLUMNS}
        found.append({**row, **done})
    return found


def print_rows(
    found: Sequence[dict[str, Any]], problems: Sequence[str], output: Output
) -> None:
    """Print a table."""
    output.line(f"{when(time.time())}; MB/s, times in ms")
    if found:
        headings = [heading for _, heading, _ in _SHOWN]
        more = ["PATHS"] * any(row["paths"] for row in found)
        output.table(
            ("HEALTH", "XPRT", *more, *headings, "EXPORT"),
            [
                (
                    row["health"] or "-",
                    row["transport"],
                    *(row["paths"] or "-" for _ in more),
                    *(_cell(row, name, form) for name, _, form in _SHOWN),
                    row["export"],
                )
                for row in found
            ],
            TONES,
            minor=("EXPORT", "RETR", "CONN"),
        )
    else:
        output.line("This host has no NFS mount.")
    for sentence in problems:
        output.text(f"note: {sentence}")


def _cell(row: dict[str, Any], name: str, form: str) -> str:
    value = row[name]
    if value is None or (form == "ms" and not row["calls"]):
        return "-"
    if form in ("ms", "MB"):
        return f"{value / 1e6 if form == 'MB' else value:.1f}"
    return form.format(value) if value or "+" not in form else "0"
