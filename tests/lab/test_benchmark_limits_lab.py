# SPDX-License-Identifier: GPL-2.0-or-later
"""Plant one limit at a time on real kernels, and see that ``bench`` names it.

Emulated processors are slow, so each plant is far below what they can do. They, and the
four nfsd threads of the lab's server, may be named beside it: they are limits too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from measured_host import EXPORT_PATH, MeasuredHost

from lab import modules
from lab.ib_pair import IbPair, ib_pair
from lab.infiniband import set_up
from lab.topology import NETDEV, Topology

pytestmark = pytest.mark.faults

READS, WRITES, SMALL = "large reads", "large writes", "small requests"
SLOW_PATH = "/srv/slow"
_SLOTS = "/proc/sys/sunrpc/rdma_slot_table_entries"
# Ethernet frames that carry the largest packets of RoCE, and usual ones.
_WIDE, _USUAL = 4200, 1500
# A memory disk whose reads are answered after "$1" ms, without the journal that would
# hold them up. What was read is forgotten, as if the disk were larger than the memory.
_SLOW_DISK = f"""
set -e
modprobe -a brd dm_delay
mkfs.ext4 -q -F -O ^has_journal /dev/ram0
sectors=$(blockdev --getsz /dev/ram0)
echo "0 $sectors delay /dev/ram0 0 $1 /dev/ram0 0 0" | dmsetup create slow
mkdir -p /nfsroot{SLOW_PATH}
mount /dev/dm-0 /nfsroot{SLOW_PATH}
"""
_NO_DISK = f"""
set -e
exportfs -f
umount /nfsroot{SLOW_PATH}
dmsetup remove slow
modprobe -r brd
"""
# The evidence of a server that answers few requests at a time.
_THREADS = "requests under way are answered"
_FORGET = "while sleep 0.3; do echo 1 > /proc/sys/vm/drop_caches; done"


@dataclass(frozen=True)
class Plant:
    """A planted limit: the ``kind`` that should be named for the ``loads``.

    ``beside``: what bench is known to blame too, although it is sound
    """

    kind: str
    loads: tuple[str, ...]
    planted: Callable[[Any], Any]
    words: str = ""
    path: str = EXPORT_PATH
    beside: tuple[str, ...] = ()


def _both(lab: Topology, line: str) -> None:
    for guest in (lab.hypervisor, lab.server):
        guest.run(line, check=True)


@contextmanager
def _wire(lab: Topology, discipline: str) -> Iterator[None]:
    _both(lab, f"tc qdisc add dev {NETDEV} root {discipline}")
    try:
        yield
    finally:
        _both(lab, f"tc qdisc del dev {NETDEV} root")


@contextmanager
def _other_work(lab: Topology) -> Iterator[None]:
    work = lab.hypervisor.start("while :; do :; done")
    try:
        yield
    finally:
        work.signal()


@contextmanager
def _no_listener(lab: Topology) -> Iterator[None]:
    lab.nfs.restart(rdma_port=None)
    try:
        yield
    finally:
        lab.nfs.restart()


@contextmanager
def _slow_disk(lab: Topology, delay_ms: int, threads: int = 4) -> Iterator[None]:
    make = ["bash", "-c", _SLOW_DISK, "disk", str(delay_ms)]
    lab.server.run(make, check=True)
    lab.nfs.add_export(SLOW_PATH)
    lab.server.run(f"exportfs -f; rpc.nfsd {threads}", check=True)
    forget = lab.server.start(_FORGET)
    try:
        yield
    finally:
        forget.signal()
        lab.server.run("rpc.nfsd 4", check=True)
        lab.server.run(_NO_DISK, check=True)


@contextmanager
def _slots(pair: IbPair) -> Iterator[None]:
    # RPCRDMA_MIN_SLOT_TABLE: the kernel takes no fewer.
    pair.hypervisor.run(f"echo 4 > {_SLOTS}", check=True)
    try:
        yield
    finally:
        pair.hypervisor.run(f"echo 128 > {_SLOTS}", check=True)


ON_SOFT_ROCE = {
    # Slower, 32 requests of 1 MiB take longer than timeo.
    "rate": Plant(
        "link-rate",
        (READS, WRITES),
        lambda lab: _wire(lab, "tbf rate 32mbit burst 64k limit 16m"),
    ),
    # Chance decides which loads lose more than TCP bears.
    "loss": Plant("losses", (), lambda lab: _wire(lab, "netem limit 20000 loss 0.1%")),
    "processor": Plant("cpu", (READS, WRITES, SMALL), _other_work),
    # On an overloaded machine TCP sends some segments again that are only late.
    "slow disk": Plant(
        "server",
        (SMALL,),
        lambda lab: _slow_disk(lab, 100),
        path=SLOW_PATH,
        beside=("losses",),
    ),
    "one nfsd thread": Plant(
        "server", (SMALL,), lambda lab: _slow_disk(lab, 40, 1), path=SLOW_PATH
    ),
}


ON_INFINIBAND = {
    "slots": Plant("slots", (WRITES, SMALL), _slots),
}


def _check(host: MeasuredHost, plant: Plant) -> None:
    """Measure with ``plant``, and look at the limits of both transports."""
    with plant.planted(host.lab):
        verdict = host.measured(plant.words, plant.path)["verdict"]
    limits = (*verdict["rdma_limits"], *verdict["limits"])
    right = [one for one in limits if one["kind"] == plant.kind]
    assert right
    assert {load for one in right for load in one["loads"]} >= set(plant.loads)
    _nothing_sound_is_blamed(limits, plant.kind, *plant.beside)


def _nothing_sound_is_blamed(limits: Iterable[Any], *planted: str) -> None:
    for one in limits:
        threads = one["kind"] == "server" and _THREADS in one["evidence"]
        assert threads or one["kind"] in ("cpu", *planted), one


@pytest.fixture(scope="module")
def on_soft_roce(two_guests: Topology) -> Iterator[MeasuredHost]:
    for guest in (two_guests.hypervisor, two_guests.server):
        modules.load(guest, "sch_tbf", "sch_netem")
    _both(two_guests, f"ip link set {NETDEV} mtu {_WIDE}")
    yield MeasuredHost(two_guests)
    _both(two_guests, f"ip link set {NETDEV} mtu {_USUAL}")


@pytest.fixture(scope="module")
def on_infiniband() -> Iterator[MeasuredHost]:
    with ib_pair(cpus=2) as pair:
        yield MeasuredHost(pair)


@pytest.mark.parametrize("name", ON_SOFT_ROCE)
def test_a_limit_is_named_on_soft_roce(on_soft_roce: MeasuredHost, name: str) -> None:
    _check(on_soft_roce, ON_SOFT_ROCE[name])


@pytest.mark.parametrize("name", ON_INFINIBAND)
def test_a_limit_is_named_on_infiniband(on_infiniband: MeasuredHost, name: str) -> None:
    _check(on_infiniband, ON_INFINIBAND[name])


def test_without_an_rdma_listener_only_tcp_is_measured(
    on_soft_roce: MeasuredHost,
) -> None:
    with _no_listener(on_soft_roce.lab):
        found = on_soft_roce.measured()
    (why,) = found["skipped"]
    assert re.search("^RDMA was not measured: .* refuses RDMA connections", why)
    verdict = found["verdict"]
    assert verdict["better"] == "unknown"
    assert verdict["sentence"].startswith("only TCP was measured")
    _nothing_sound_is_blamed(verdict["limits"])


def test_a_path_beside_the_fabric_is_named(on_infiniband: MeasuredHost) -> None:
    pair = on_infiniband.lab
    veth = "ip link add beside0 type veth peer name beside1"
    own = "ip address add 10.96.0.2/24 dev beside0; ip link set beside0 up"
    pair.hypervisor.run(f"{veth} && {own}", check=True)
    pair.server.take("beside1")
    set_up(pair.server, "beside1", ["10.96.0.1/24"])
    try:
        found = on_infiniband.measured(server="10.96.0.1")
    finally:
        pair.hypervisor.run("ip link delete beside0", check=True)
    (why,) = found["skipped"]
    assert re.search("no RDMA port owns .* on beside0 .*mlx4_", why)
    verdict = found["verdict"]
    assert verdict["sentence"].startswith("only TCP was measured")
    _nothing_sound_is_blamed(verdict["limits"])


def test_rdma_is_quicker_on_infiniband_and_nothing_is_blamed(
    on_infiniband: MeasuredHost,
) -> None:
    verdict = on_infiniband.measured()["verdict"]
    assert verdict["better"] == "rdma", verdict
    assert verdict["sentence"].startswith("RDMA reads ")
    assert {one["kind"] for one in verdict["limits"]} <= {"cpu"}


def test_tcp_is_quicker_than_soft_roce_and_nothing_is_blamed(
    on_soft_roce: MeasuredHost,
) -> None:
    verdict = on_soft_roce.measured()["verdict"]
    assert verdict["better"] == "tcp", verdict
    found = (*verdict["limits"], *verdict["rdma_limits"])
    assert {one["kind"] for one in found} <= {"cpu"}
