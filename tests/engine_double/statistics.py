# SPDX-License-Identifier: GPL-2.0-or-later
"""Statistics of hosts and nics: the ones that the engine has.

A test sets values in ``host.more["statistics"]`` (name to number); NFS over RDMA goes
past a nic's counters.
"""

from __future__ import annotations

from typing import Any

from ovirtsdk4 import types

from engine_double.answers import listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost, SimNic
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import World, new_id

NAMES = behaviour(
    "HOST-28",
    "Hosts and nics have statistics of these names and units, each with one value, 0 "
    "where nothing is known.",
    "restapi/resource/HostStatisticalQuery.java:41-58",
    "restapi/resource/HostNicStatisticalQuery.java:15-44",
)

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
    ("ksm.cpu.current", _PERCENT),
    ("cpu.current.user", _PERCENT),
    ("cpu.current.system", _PERCENT),
    ("cpu.current.idle", _PERCENT),
    ("cpu.load.avg.5m", _PERCENT),
    ("boot.time", types.StatisticUnit.NONE),
)
_RATE = types.StatisticUnit.BYTES_PER_SECOND
_OF_NIC = (
    ("data.current.rx", _GAUGE, _RATE),
    ("data.current.tx", _GAUGE, _RATE),
    ("data.current.rx.bps", _GAUGE, types.StatisticUnit.BITS_PER_SECOND),
    ("data.current.tx.bps", _GAUGE, types.StatisticUnit.BITS_PER_SECOND),
    ("data.total.rx", _COUNTER, _BYTES),
    ("data.total.tx", _COUNTER, _BYTES),
    ("errors.total.rx", _COUNTER, types.StatisticUnit.NONE),
    ("errors.total.tx", _COUNTER, types.StatisticUnit.NONE),
)


@followed("hosts", "statistics")
def statistics_of(world: World, host: SimHost) -> list[types.Statistic]:
    """The host's statistics as the API shows them."""
    values = {"memory.total": host.memory, **host.more.get("statistics", {})}
    where = f"/hosts/{host.id}/statistics"
    return [
        _shown(where, name, _GAUGE, unit, values.get(name, 0))
        for name, unit in _OF_HOST
        if world.does(NAMES) or name in values
    ]


def _of_nic(world: World, host: SimHost, nic: SimNic) -> list[types.Statistic]:
    values = host.more.get("statistics", {})
    where = f"/hosts/{host.id}/nics/{nic.id}/statistics"
    return [
        _shown(where, name, kind, unit, values.get(f"{nic.name} {name}", 0))
        for name, kind, unit in _OF_NIC
        if world.does(NAMES) or f"{nic.name} {name}" in values
    ]


@route("GET", "/hosts/{host}/statistics", query=("max",))
def list_of_host(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("statistics", call.first(statistics_of(call.world, host)))


@route("GET", "/hosts/{host}/nics/{nic}/statistics", query=("max",))
def list_of_nic(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    nic = known({nic.id: nic for nic in host.nics}, call.ids["nic"])
    return listed("statistics", call.first(_of_nic(call.world, host, nic)))


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
