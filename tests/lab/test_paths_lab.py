# SPDX-License-Identifier: GPL-2.0-or-later
"""Two paths to one server, and a cable out: no write fails, and data is right.

Real kernels, Soft-RoCE on two links, and a fabric with two ports an HCA. Guests are
emulated: how long a write waited is measured by ``bench`` (bench/paths.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import topology
from lab.ib_pair import ib_pair
from lab.infiniband import InfiniBand
from lab.two_paths import (
    CLIENT,
    ENDS,
    SERVER,
    InfiniBandCables,
    RoceCables,
    TwoPaths,
    moved,
    whole,
)

pytestmark = pytest.mark.kernels("6.1", "6.12")
FAULTS = pytest.mark.faults
# Each pull and return of a cable; 0 failed writes and 0 differences among them all.
CYCLES = 100


@pytest.fixture(scope="module")
def lab(kernel: str) -> Iterator[topology.Topology]:
    with topology.two_guests(spare_wires=1) as found:
        yield found


@pytest.fixture(scope="module")
def roce(lab: topology.Topology) -> TwoPaths:
    return TwoPaths(lab.hypervisor, RoceCables(lab))


@pytest.fixture(scope="module")
def infiniband(kernel: str) -> Iterator[TwoPaths]:
    with ib_pair(InfiniBand(ports=2)) as pair:
        yield TwoPaths(pair.hypervisor, InfiniBandCables(pair))


@contextmanager
def _written(paths: TwoPaths) -> Iterator[None]:
    """Write meanwhile: no write fails, and data is right."""
    with paths.writers() as result:
        yield
    found = result["error"], result["differences"]
    assert found == (None, 0), f"{result}\n{paths.log()}"
    assert result["writes"] > 100


def _pulled(paths: TwoPaths, end: str, path: int) -> None:
    """Pull a cable and plug it in, while others look."""
    paths.cables.pull(end, path)
    state = paths.waits_for(moved)
    other = paths.addresses[1 - path]
    assert state["paths"][path]["state"] == "down"
    assert state["last"]["target"] == other
    time.sleep(2)
    assert other in paths.places()
    # The port may be DOWN before its netdev has no link: the reason is the first sign,
    # while the state shows the present one. The journal has both.
    signs = paths.addresses[path], state["last"]["reason"]
    assert "{} is down: {}\n".format(*signs) in paths.log() + "\n"
    paths.cables.plug(end, path)
    paths.waits_for(whole)


def test_a_cable_is_pulled_at_each_end(infiniband: TwoPaths, kernel: str) -> None:
    """The smoke of `make check`."""
    with infiniband.mounted("4.2" if kernel == "6.12" else "3"):
        with _written(infiniband):
            _pulled(infiniband, CLIENT, 0)
            _pulled(infiniband, SERVER, 1)
        shown = infiniband.said("ovirt-rdma-host nfs paths")
        assert "All 2 paths are up, and all connections use their own." in shown


@FAULTS
@pytest.mark.parametrize(
    ("fabric", "version"),
    [
        *(("roce", version) for version in ("3", "4.1", "4.2")),
        *(("infiniband", version) for version in ("3", "4.2")),
    ],
)
def test_each_cable_with_each_version(
    request: pytest.FixtureRequest, fabric: str, version: str
) -> None:
    paths: TwoPaths = request.getfixturevalue(fabric)
    with paths.mounted(version), _written(paths):
        for end in ENDS:
            for path in (0, 1):
                _pulled(paths, end, path)


@FAULTS
@pytest.mark.parametrize("version", ["3", "4.2"])
def test_many_cycles(infiniband: TwoPaths, version: str) -> None:
    chosen = random.Random(version)
    with infiniband.mounted(version), _written(infiniband):
        for _ in range(CYCLES):
            end, path = chosen.choice(ENDS), chosen.choice((0, 1))
            infiniband.cables.pull(end, path)
            time.sleep(chosen.uniform(0, 8))
            infiniband.cables.plug(end, path)
            time.sleep(chosen.uniform(0, 8))
        # What failed often comes home late.
        infiniband.waits_for(whole, 1500)


@FAULTS
def test_a_cable_that_flaps(infiniband: TwoPaths) -> None:
    with infiniband.mounted(), _written(infiniband):
        for _ in range(10):
            infiniband.cables.pull(CLIENT, 0)
            time.sleep(3)
            infiniband.cables.plug(CLIENT, 0)
            time.sleep(3)
        moves = infiniband.state()["moves"]
    # It comes home later each time.
    assert moves <= 10


@FAULTS
def test_both_cables_out_and_one_back(infiniband: TwoPaths) -> None:
    with infiniband.mounted(), _written(infiniband):
        for path in (0, 1):
            infiniband.cables.pull(CLIENT, path)
        state = infiniband.waits_for(
            lambda state: all(path["state"] == "down" for path in state["paths"])
        )
        assert all(path["fix"] for path in state["paths"])
        infiniband.cables.plug(CLIENT, 1)
        infiniband.waits_for(moved)
        time.sleep(10)


@FAULTS
def test_the_server_restarts_in_the_middle_of_a_move(
    roce: TwoPaths, lab: topology.Topology
) -> None:
    with roce.mounted(), _written(roce):
        roce.cables.pull(SERVER, 0)
        time.sleep(1)
        lab.nfs.restart()
        roce.waits_for(moved)
        roce.cables.plug(SERVER, 0)
        roce.waits_for(whole)


@FAULTS
def test_another_machine_takes_the_address(
    roce: TwoPaths, lab: topology.Topology
) -> None:
    """Another hardware address, and no server of ours: nothing is moved there."""
    address = roce.addresses[1]
    take = (
        f"ip address del {address}/24 dev eth1; "
        "ip link add taken link eth1 type macvlan; "
        f"ip address add {address}/24 dev taken; ip link set taken up; "
        f"arping -U -c 2 -I taken {address} || true"
    )
    back = f"ip link del taken; ip address add {address}/24 dev eth1"
    with roce.mounted():
        # Without a connection there, only the address is looked at.
        roce.cables.pull(CLIENT, 1)
        roce.waits_for(moved)
        lab.server.run(take, check=True)
        try:
            roce.said("ip neigh flush dev eth1")
            roce.cables.plug(CLIENT, 1)
            time.sleep(15)
            state = roce.state()
            assert state["paths"][1]["state"] != "up", state
            assert state["paths"][1]["connections"] == 0
        finally:
            lab.server.run(back, check=True)
            roce.said("ip neigh flush dev eth1")
        roce.waits_for(whole, 600)


@FAULTS
def test_what_an_administrator_does_meanwhile(infiniband: TwoPaths) -> None:
    with infiniband.mounted():
        with _written(infiniband):
            infiniband.cables.pull(CLIENT, 0)
            infiniband.waits_for(moved)
            # The policy has no paths any more: what was moved stays where it works.
            infiniband.load_policy(paths=False)
            deadline = time.monotonic() + 120
            while infiniband.state() and time.monotonic() < deadline:
                time.sleep(0.5)
            assert infiniband.state() == {}
            where = infiniband.said(
                "cat /sys/kernel/sunrpc/xprt-switches/*/*-rdma/dstaddr"
            )
            assert set(where.split()) == {infiniband.addresses[1]}
            infiniband.load_policy()
            infiniband.waits_for(moved)
        # Unmounted while it is away.
        infiniband.unmount()
        deadline = time.monotonic() + 60
        while infiniband.state() and time.monotonic() < deadline:
            time.sleep(0.5)
        assert infiniband.state() == {}
        assert "Traceback" not in infiniband.log()


@FAULTS
def test_a_netdev_that_is_renamed(infiniband: TwoPaths) -> None:
    """Soft-RoCE never comes back after its netdev was down."""
    with infiniband.mounted(), _written(infiniband):
        rename = "ip link set {0} down; ip link set {0} name {1}; ip link set {1} up"
        for old, new in (("ib1", "storage1"), ("storage1", "ib1")):
            infiniband.said(rename.format(old, new))
            infiniband.waits_for(
                lambda state, new=new: (
                    whole(state) and state["paths"][1]["netdev"] == new
                )
            )


@FAULTS
def test_a_host_that_sleeps(roce: TwoPaths) -> None:
    with roce.mounted(), _written(roce):
        roce.cables.pull(SERVER, 0)
        roce.hypervisor.monitor.freeze()
        time.sleep(30)
        roce.hypervisor.monitor.thaw()
        roce.waits_for(moved)
        roce.cables.plug(SERVER, 0)
        roce.waits_for(whole)


@FAULTS
@pytest.mark.parametrize("after", [0.5, 2, 3, 4, 5, 6, 8])
def test_the_daemon_is_killed_in_the_middle_of_a_move(
    infiniband: TwoPaths, after: float
) -> None:
    """Nothing is left, and the next daemon continues."""
    with infiniband.mounted(), _written(infiniband):
        infiniband.cables.pull(SERVER, 0)
        time.sleep(after)
        infiniband.said("pkill -KILL -f 'host unit daemon$'; true")
        # What systemd runs then (ExecStopPost).
        infiniband.said("ovirt-rdma-host unit daemon-ended")
        assert infiniband.left_over() == ""
        with infiniband.daemon():
            infiniband.waits_for(moved)
            infiniband.cables.plug(SERVER, 0)
            infiniband.waits_for(whole)


@FAULTS
def test_a_daemon_that_is_stopped_moves_when_it_continues(infiniband: TwoPaths) -> None:
    with infiniband.mounted(), _written(infiniband):
        infiniband.said("pkill -STOP -f 'host unit daemon$'")
        infiniband.cables.pull(CLIENT, 0)
        time.sleep(5)
        infiniband.said("pkill -CONT -f 'host unit daemon$'")
        infiniband.waits_for(moved)
