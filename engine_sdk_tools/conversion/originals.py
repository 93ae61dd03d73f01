# SPDX-License-Identifier: GPL-2.0-or-later
"""What was before the first of several conversions to one goal. Pure.

A conversion that has ended may be followed by another, for hosts that came later or for
one domain more. A failure of it goes back to what it found itself; a revert goes back
to what the first one found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.conversion.state import (
    CONVERTED,
    FORWARD,
    TODO,
    ConversionState,
    DomainRecord,
    HostRecord,
)


def keeping(
    state: ConversionState, earlier: Sequence[ConversionState]
) -> ConversionState:
    """Return ``state``, which begins, with the originals of ``earlier`` conversions of
    its domains to its goal, the latest first.
    """
    origin = state
    for one in earlier:
        ended = one.stage == CONVERTED
        origin = _joined(origin, with_originals(one) if ended else _first(one))
    if not earlier:
        return state
    return replace(state, first_domains=origin.domains, first_hosts=origin.hosts)


def with_originals(state: ConversionState) -> ConversionState:
    """Return ``state`` as if it were the first of its kind, for a revert: with what
    was found then, and with all hosts that were converted since.
    """
    if not state.first_domains:
        return state
    rows = {domain.id: domain for domain in state.first_domains}
    domains = tuple(
        replace(d, options=rows[d.id].options, touched=d.touched or rows[d.id].touched)
        for d in state.domains
    )
    since = [n for n, domain in enumerate(domains) if rows[domain.id].touched]
    first = {host.id: host for host in state.first_hosts}
    hosts = [_again(h, first.pop(h.id, None), since, domains) for h in state.hosts]
    hosts += first.values()
    return replace(
        state,
        domains=domains,
        hosts=tuple(hosts),
        blind=state.blind and not any(host.push for host in hosts),
        first_domains=(),
        first_hosts=(),
    )


def _first(state: ConversionState) -> ConversionState:
    """What was before a conversion that was taken back, and is so again."""
    return replace(state, domains=state.first_domains, hosts=state.first_hosts)


def _again(
    host: HostRecord,
    first: Optional[HostRecord],
    since: Collection[int],
    domains: Sequence[DomainRecord],
) -> HostRecord:
    if first is None:
        # It came in while this conversion stood still.
        first = _late(host, since, len(domains))
    # Its own rule makes its mounts, also after the revert.
    own = first.push and first.policy == first.wanted
    return replace(
        first,
        name=host.name,
        found=host.found,
        goal=FORWARD,
        stage=TODO,
        touched=first.touched or host.ours or (host.touched and not own),
        ours=host.ours,
    )


def _joined(origin: ConversionState, earlier: ConversionState) -> ConversionState:
    """Return ``origin`` with what ``earlier`` has found, where that still counts."""
    rows = {domain.id: domain for domain in earlier.domains}
    numbers = {domain.id: n for n, domain in enumerate(earlier.domains)}
    places = {n: numbers[d.id] for n, d in enumerate(origin.domains) if d.id in numbers}
    known = {h.id: h for h in earlier.hosts if h.touched or any(h.transports)}
    count = len(origin.domains)
    hosts = []
    for host in origin.hosts:
        first = known.pop(host.id, None)
        if first is None:
            hosts.append(_late(host, places, count))
        else:
            hosts.append(_known(host, first, places, count))
    for gone in known.values():
        none = replace(gone, transports=())
        hosts.append(_known(none, gone, places, count))
    domains = tuple(_row(domain, rows.get(domain.id)) for domain in origin.domains)
    return replace(origin, domains=domains, hosts=tuple(hosts))


def _row(domain: DomainRecord, first: Optional[DomainRecord]) -> DomainRecord:
    # One that is not as the earlier left it was set by hand: that is to come back.
    if first is None or domain.options != domain.wanted:
        return domain
    return replace(domain, options=first.options, touched=True)


def _late(host: HostRecord, since: Collection[int], count: int) -> HostRecord:
    """A host that was not there: what it was mounted over came of the new rows, unless
    its own policy has the rules. So after a revert it goes with the others.
    """
    before = host.transports or (None,) * count
    mine = tuple(None if n in since else t for n, t in enumerate(before))
    own = host.push and host.policy == host.wanted
    by_row = not own and any(before[n] for n in since)
    return replace(host, transports=mine, touched=host.touched or by_row)


def _known(
    host: HostRecord, first: HostRecord, places: dict[int, int], count: int
) -> HostRecord:
    then = first.transports or (None,) * (1 + max(places.values(), default=0))
    now = host.transports or (None,) * count
    mine = tuple(then[places[n]] if n in places else now[n] for n in range(count))
    return replace(_policy(host, first), transports=mine, touched=True)


def _policy(host: HostRecord, first: HostRecord) -> HostRecord:
    """The policy of ``host`` that a revert puts back."""
    theirs = replace(
        host,
        push=first.push,
        policy=first.policy,
        wanted=first.wanted,
        digest=first.digest,
    )
    if not host.push:
        return theirs
    if not first.push:
        return host
    if host.policy in (first.wanted, first.policy):
        between = () if host.policy is None else (host.policy,)
        return replace(host, policy=first.policy, between=(*host.between, *between))
    # Somebody changed it since. With our rule in it, it is none to go back to: the
    # revert says so, and leaves it. Without, it is what this conversion found.
    return theirs if host.policy == host.wanted else host
