# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the objects of the engine that an operator names. Pure.

For a wrong name the error suggests the nearest ones, for an ambiguous name the data
centers that have it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Optional, Protocol, TypeVar

from ovirt_rdma.engine_sdk_tools.model import (
    DataCenter,
    Domain,
    Engine,
    Host,
    Network,
)
from ovirt_rdma.host.errors import UsageProblem, did_you_mean

_NEAREST = 3
# Longer lists are not printed: 250 hosts would not help.
_LISTED = 12


class NameProblem(UsageProblem):
    """No object has this name, or several have it (exit code 2)."""


class Named(Protocol):
    """An object with a name and the engine's id."""

    @property
    def id(self) -> str:
        """The engine's id."""

    @property
    def name(self) -> str:
        """The name that people use."""


T = TypeVar("T", bound=Named)


def pick(
    kind: str,
    name: str,
    candidates: Iterable[T],
    data_center: Optional[str] = None,
    data_centers: Sequence[DataCenter] = (),
) -> T:
    """Return the candidate with the name or id ``name``.

    ``kind`` is its noun for messages: "storage domain". ``data_center`` is the name or
    id of the data center that it must belong to; ``data_centers`` are all of them.
    Raises NameProblem if none or several match.
    """
    wanted = None
    if data_center is not None:
        wanted = pick("data center", data_center, data_centers).id
    every = tuple(candidates)
    matches = [
        candidate for candidate in every if name in (candidate.name, candidate.id)
    ]
    inside = [match for match in matches if wanted in (None, _data_center(match))]
    if len(inside) == 1:
        return inside[0]
    names = {center.id: center.name for center in data_centers}
    if inside:
        places = _joined(_place(match, names) for match in inside)
        raise NameProblem(
            "name-ambiguous",
            f"{kind} {name!r} is ambiguous: {places} have one each",
            f"add --datacenter {names.get(_data_center(inside[0]), 'NAME')}",
        )
    if matches:
        places = _joined(_place(match, names) for match in matches)
        raise NameProblem(
            "name-in-other-data-center",
            f"{kind} {name!r} is in {places}, not in data center "
            f"{names.get(wanted or '', data_center)!r}",
            "omit --datacenter, or give the right one",
        )
    known = [each.name for each in every if wanted in (None, _data_center(each))]
    raise NameProblem(
        "name-unknown", f"there is no {kind} {name!r}", nearest(name, known)
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint with the nearest of ``names``, or a short list of all."""
    near = did_you_mean(name, names, _NEAREST)
    if near:
        return near
    if not names:
        return "the engine shows none to this user"
    # Several data centers may each have the same name.
    known = sorted(set(names))
    if len(known) > _LISTED:
        return "see the administration portal for the names"
    return f"available: {', '.join(known)}"


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """Return up to ``most`` names with commas, and the number of the others."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts names with their numbers: hv2 before hv10."""
    return tuple(
        # int() refuses numbers of more than 4300 digits.
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
        if part
    )


def data_center_named(engine: Engine, name: str) -> DataCenter:
    """Return the data center; raises NameProblem."""
    return pick("data center", name, engine.data_centers)


def domain_named(
    engine: Engine, name: str, data_center: Optional[str] = None
) -> Domain:
    """Return the storage domain, of any storage type; raises NameProblem."""
    return pick(
        "storage domain", name, engine.domains, data_center, engine.data_centers
    )


def network_named(
    engine: Engine, name: str, data_center: Optional[str] = None
) -> Network:
    """Return the logical network of an engine that was read with its networks; raises
    NameProblem.
    """
    networks = engine.networks or ()
    return pick("network", name, networks, data_center, engine.data_centers)


def hosts_named(
    engine: Engine, names: Iterable[str], data_center: Optional[str] = None
) -> tuple[Host, ...]:
    """Return the hosts that match ``names``, each once, in the engine's order; all
    hosts for no names.

    A name may be an id, an address, a glob with ``*``, ``?`` or ``[``, or several of
    these with commas. ``data_center`` (name or id) limits them to its hosts. Raises
    NameProblem with all names that match no host.
    """
    candidates = engine.hosts
    if data_center is not None:
        candidates = engine.hosts_of(data_center_named(engine, data_center).id)
    patterns = [part.strip() for text in names for part in text.split(",")]
    patterns = [pattern for pattern in patterns if pattern]
    if not patterns:
        return candidates
    chosen: set[str] = set()
    wrong = []
    for pattern in patterns:
        matches = {host.id for host in candidates if _matches(pattern, host)}
        chosen |= matches
        if not matches:
            wrong.append(pattern)
    if wrong:
        known = [host.name for host in candidates]
        where = f" in data center {data_center!r}" if data_center else ""
        raise NameProblem(
            "host-unknown",
            f"there is no host {_joined((repr(w) for w in wrong), 'or')}{where}",
            "; ".join(dict.fromkeys(nearest(pattern, known) for pattern in wrong)),
        )
    return tuple(host for host in candidates if host.id in chosen)


def _matches(pattern: str, host: Host) -> bool:
    if pattern in (host.name, host.id, host.address):
        return True
    glob = any(character in pattern for character in "*?[")
    return glob and fnmatch.fnmatchcase(host.name, pattern)


def _data_center(named: object) -> str:
    return str(getattr(named, "data_center", None) or "")


def _place(named: Named, names: dict[str, str]) -> str:
    center = _data_center(named)
    return f"data center {names.get(center, center)!r}" if center else "no data center"


def _joined(texts: Iterable[str], conjunction: str = "and") -> str:
    *first, last = texts
    return f"{', '.join(first)} {conjunction} {last}" if first else last
