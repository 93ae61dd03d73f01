# SPDX-License-Identifier: GPL-2.0-or-later
"""Statistics of hosts and nics: the ones that the engine has.

HostStatisticalQuery.java, HostNicStatisticalQuery.java. A test sets values in
``host.more["statistics"]`` (name to number); NFS over RDMA goes past a nic's counters.
"""

from __future__ import annotations

from typing import Any

from ovirtsdk4 import types

from engine_double.answers import listed
from engine_double.hosts_of_the_world import SimHost, SimNic
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import World, new_id

_GAUGE, _COUNTER = types.StatisticKind.GAUGE, types.StatisticKind.COUNTER
_BYTES, _PERCENT = types.StatisticUnit.BYTES, types.StatisticUnit.PERCENT
_OF_HOST = (
    ("memory.total", _BYTES),
    ("memory.used", _BYTES),
    ("memory.free", _BYTES),
    ("memory.shared", _BYTES),
    ("swap.total", _BYTES),
    ("swap.free", _BYTES),
    ("swap.used", _BYTES),
    ("cpu.current.user", _PERCENT),
    ("cpu.current.system", _PERCENT),
    ("cpu.current.idle", _PERCENT),
    ("boot.time", types.StatisticUnit.NONE),
)
_RATE = types.StatisticUnit.BYTES_PER_SECOND
_OF_NIC = (
    ("data.current.rx", _GAUGE, _RATE),
    ("data.current.tx", _GAUGE, _RATE),
    ("data.total.rx", _COUNTER, _BYTES),
    ("data.total.tx", _COUNTER, _BYTES),
    ("errors.total.rx", _COUNTER, types.StatisticUnit.COUNT_PER_SECOND),
    ("errors.total.tx", _COUNTER, types.StatisticUnit.COUNT_PER_SECOND),
)


@followed("hosts", "statistics")
def statistics_of(world: World, host: SimHost) -> list[types.Statistic]:
    """The host's statistics as the API shows them."""
    values = {"memory.total": host.memory, **host.more.get("statistics", {})}
    where = f"/hosts/{host.id}/statistics"
    return [
        _shown(where, name, _GAUGE, unit, values.get(name, 0))
        for name, unit in _OF_HOST
    ]


def _of_nic(host: SimHost, nic: SimNic) -> list[types.Statistic]:
    values = host.more.get("statistics", {})
    where = f"/hosts/{host.id}/nics/{nic.id}/statistics"
    return [
        _shown(where, name, kind, unit, values.get(f"{nic.name} {name}", 0))
        for name, kind, unit in _OF_NIC
    ]


@route("GET", "/hosts/{host}/statistics", query=("max",))
def list_of_host(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("statistics", call.first(statistics_of(call.world, host)))


@route("GET", "/hosts/{host}/nics/{nic}/statistics", query=("max",))
def list_of_nic(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    nic = known({nic.id: nic for nic in host.nics}, call.ids["nic"])
    return listed("statistics", call.first(_of_nic(host, nic)))


def _shown(where: str, name: str, kind: Any, unit: Any, value: float) -> Any:
    own = new_id(f"statistic {name}")
    return with_href(
        types.Statistic(
            id=own,
            name=name,
            kind=kind,
            unit=unit,
            type=types.ValueType.INTEGER,
            values=[types.Value(datum=float(value))],
        ),
        f"{where}/{own}",
    )
