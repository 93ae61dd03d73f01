# SPDX-License-Identifier: GPL-2.0-or-later
"""Names that an operator typed, found among what the engine has. Pure.

A wrong name gets the nearest ones, an ambiguous one the data centers that have it.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import Optional, Protocol, TypeVar

from ovirt_rdma.engine_sdk_tools.model import DataCenter, Domain, Engine, Host
from ovirt_rdma.host.errors import UsageProblem

_NEAREST = 3
# More are not listed: a list of 250 hosts is no hint.
_LISTED = 12


class NameProblem(UsageProblem):
    """There is no such thing, or there are several (exit code 2)."""


class Named(Protocol):
    """What has a name and the engine's id."""

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
    """Return the one of ``candidates`` that is called ``name``, or has it for an id.

    ``kind`` is what to call it: "storage domain". ``data_center`` is the name or id of
    the data center that it must be in, of ``data_centers``, which also give sentences
    their names. Raises NameProblem where none or several fit.
    """
    wanted = None
    if data_center is not None:
        wanted = pick("data center", data_center, data_centers).id
    every = tuple(candidates)
    found = [one for one in every if name in (one.name, one.id)]
    inside = [one for one in found if wanted in (None, _data_center(one))]
    if len(inside) == 1:
        return inside[0]
    names = {center.id: center.name for center in data_centers}
    if inside:
        where = _joined(_place(one, names) for one in inside)
        raise NameProblem(
            "name-ambiguous",
            f"{kind} {name!r} is ambiguous: {where} have one each",
            f"say which: --datacenter {names.get(_data_center(inside[0]), 'NAME')}",
        )
    if found:
        where = _joined(_place(one, names) for one in found)
        raise NameProblem(
            "name-in-other-data-center",
            f"{kind} {name!r} is in {where}, not in data center "
            f"{names.get(wanted or '', data_center)!r}",
            "leave out --datacenter, or give the right one",
        )
    raise NameProblem(
        "name-unknown",
        f"there is no {kind} {name!r}",
        nearest(
            name, [one.name for one in every if wanted in (None, _data_center(one))]
        ),
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """Say which of ``names`` may have been meant; all of them where they are few."""
    lowered = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lowered, n=_NEAREST)
    if near:
        return f"did you mean {_joined((lowered[one] for one in near), 'or')}?"
    if not names:
        return "the engine has none that this user may see"
    # Several data centers may have the same name once each.
    known = sorted(set(names))
    if len(known) > _LISTED:
        return "look it up in the administration portal"
    return f"there are: {', '.join(known)}"


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """Return the names with commas, those after ``most`` as a number."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def data_center_named(engine: Engine, name: str) -> DataCenter:
    """Return the data center; raises NameProblem."""
    return pick("data center", name, engine.data_centers)


def domain_named(
    engine: Engine, name: str, data_center: Optional[str] = None
) -> Domain:
    """Return the storage domain, on files or not; raises NameProblem."""
    return pick(
        "storage domain", name, engine.domains, data_center, engine.data_centers
    )


def hosts_named(
    engine: Engine, names: Iterable[str], data_center: Optional[str] = None
) -> tuple[Host, ...]:
    """Return the hosts that ``names`` name, each once, in the engine's order.

    A name may be an id, and one with ``*``, ``?`` or ``[`` in it a glob; a text may
    have several with commas between them. Without names: all. ``data_center`` (name
    or id) leaves out the hosts of others. Raises NameProblem with every name that
    names no host.
    """
    candidates = engine.hosts
    if data_center is not None:
        candidates = engine.hosts_of(data_center_named(engine, data_center).id)
    words = [word.strip() for text in names for word in text.split(",")]
    words = [word for word in words if word]
    if not words:
        return candidates
    chosen: set[str] = set()
    wrong = []
    for word in words:
        found = {host.id for host in candidates if _means(word, host)}
        chosen |= found
        if not found:
            wrong.append(word)
    if wrong:
        known = [host.name for host in candidates]
        where = f" in data center {data_center!r}" if data_center else ""
        raise NameProblem(
            "host-unknown",
            f"no host is called {_joined((repr(w) for w in wrong), 'or')}{where}",
            "; ".join(dict.fromkeys(nearest(word, known) for word in wrong)),
        )
    return tuple(host for host in candidates if host.id in chosen)


def _means(word: str, host: Host) -> bool:
    if word in (host.name, host.id, host.address):
        return True
    glob = any(character in word for character in "*?[")
    return glob and fnmatch.fnmatchcase(host.name, word)


def _data_center(one: object) -> str:
    return str(getattr(one, "data_center", None) or "")


def _place(one: Named, names: dict[str, str]) -> str:
    center = _data_center(one)
    return f"data center {names.get(center, center)!r}" if center else "no data center"


def _joined(texts: Iterable[str], word: str = "and") -> str:
    *first, last = texts
    return f"{', '.join(first)} {word} {last}" if first else last
