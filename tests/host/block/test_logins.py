# SPDX-License-Identifier: GPL-2.0-or-later
"""Which SRP logins are missing, by which port; and why one failed."""

import errno
import itertools

import pytest

from ovirt_rdma.host.block.logins import failure, login_text, srp_logins, timeout_writes
from ovirt_rdma.host.collect.storage import Session
from ovirt_rdma.host.facts.devices import Gid, Netdev, PKey, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Route
from ovirt_rdma.host.policy.block import SrpTarget

GUID = "0002c90300fb1230"
GID = "fe800000000000000002c90300fb1231"
IB = SrpTarget(1, "array", GUID, GUID, GID, "0x7fff", GUID)
CM = SrpTarget(1, "array", GUID, GUID, dest="10.0.0.1:5555")
PREFIXES = ("fe80:0000:0000:0000", "fec0:0000:0000:0001")


def port(
    number,
    state="ACTIVE",
    layer="InfiniBand",
    prefix=PREFIXES[0],
    netdev=None,
    pkey="0xffff",
):
    gid = Gid(0, f"{prefix}:0002:c903:00fb:123{number}", None, netdev)
    return RdmaPort(number, state, "LinkUp", layer, pkeys=(PKey(0, pkey),), gids=(gid,))


def device(name, *ports):
    return RdmaDevice(name, "CA", "0002:c903:00fb:1230", ports=ports)


def wanted(target, devices, routes=(), sessions=(), netdevs=()):
    found = srp_logins([target], devices, netdevs, routes, sessions)
    return [
        (one.problem.id, str(one.problem)) if one.problem else one.title
        for one in found
    ]


def test_each_active_port_in_the_subnet_logs_in_by_the_infiniband_cm():
    devices = [
        device("mlx4_0", port(1), port(2, "DOWN")),
        device("mlx4_1", port(1, prefix=PREFIXES[1]), port(2)),
        device("mlx5_0", port(1, layer="Ethernet")),
    ]
    assert wanted(IB, devices) == ["srp 'array' by mlx4_0/1", "srp 'array' by mlx4_1/2"]


@pytest.mark.parametrize(
    ("keys", "ports"),
    [
        ({"device": "mlx4_1"}, ["mlx4_1/1", "mlx4_1/2"]),
        ({"device": "mlx4_*", "port": 2}, ["mlx4_0/2", "mlx4_1/2"]),
        ({"port": 1}, ["mlx4_0/1", "mlx4_1/1"]),
    ],
)
def test_device_and_port_name_the_local_ports(keys, ports):
    devices = [device(name, port(1), port(2)) for name in ("mlx4_0", "mlx4_1")]
    target = SrpTarget(1, "a", GUID, GUID, GID, "0x7fff", GUID, **keys)
    assert wanted(target, devices) == [f"srp 'a' by {one}" for one in ports]


@pytest.mark.parametrize(
    ("devices", "id", "names"),
    [
        ([], "srp-no-infiniband-port", ""),
        ([device("rxe0", port(1, layer="Ethernet"))], "srp-no-infiniband-port", "dest"),
        (
            [device("mlx4_0", port(1, "INIT"))],
            "srp-port-not-active",
            "mlx4_0/1 is INIT",
        ),
        ([device("mlx4_0", port(1, prefix=PREFIXES[1]))], "srp-other-subnet", GID[:16]),
        ([device("mlx4_0", port(1, pkey="0x8001"))], "srp-not-in-partition", "0x7fff"),
    ],
)
def test_without_a_port_the_reason_is_said(devices, id, names):
    ((found, sentence),) = wanted(IB, devices)
    assert found == id
    assert names in sentence


def test_the_rdma_cm_logs_in_by_the_port_of_the_route():
    devices = [
        device("mlx5_0", port(1, layer="Ethernet", netdev="eth0")),
        device("mlx5_1", port(1, layer="Ethernet", netdev="bond0")),
    ]
    routes = [Route("10.0.0.1", "bond0", "10.0.0.2")]
    assert wanted(CM, devices, routes) == ["srp 'array' by mlx5_1/1"]


def test_the_rdma_cm_logs_in_over_ipoib():
    devices = [device("mlx4_0", port(1), port(2))]
    ib1 = Netdev("ib1", 32, 2044, "80:00", "up", rdma_device="mlx4_0", rdma_port=2)
    routes = [Route("10.0.0.1", "ib1", "10.0.0.2")]
    assert wanted(CM, devices, routes, netdevs=[ib1]) == ["srp 'array' by mlx4_0/2"]


@pytest.mark.parametrize(
    ("route", "keys", "id"),
    [
        (None, {}, "srp-route-unknown"),
        (Route("10.0.0.1", problem="unreachable"), {}, "srp-no-route"),
        (Route("10.0.0.1", "eth9"), {}, "srp-route-without-rdma"),
        (
            Route("10.0.0.1", "eth0"),
            {"device": "mlx5_1"},
            "srp-route-through-other-port",
        ),
        (Route("10.0.0.1", "eth0"), {"port": 2}, "srp-route-through-other-port"),
    ],
)
def test_without_a_route_through_rdma_the_reason_is_said(route, keys, id):
    devices = [device("mlx5_0", port(1, layer="Ethernet", netdev="eth0"))]
    target = SrpTarget(1, "a", GUID, GUID, dest="10.0.0.1:5555", **keys)
    ((found, _),) = wanted(target, devices, [route] if route else [])
    assert found == id


def session(**keys):
    own = {"device": "mlx4_0", "port": 1, "id_ext": GUID, "ioc_guid": GUID, "host": 3}
    return Session("srp", state="running", **{**own, **keys})


@pytest.mark.parametrize(
    ("keys", "is_it"),
    [
        ({}, True),
        ({"port": 2}, False),
        ({"device": "mlx4_1"}, False),
        ({"ioc_guid": "0002c90300fb1238"}, False),
        ({"id_ext": "0002c90300fb1238"}, False),
    ],
)
def test_a_session_is_recognized_as_the_kernel_does(keys, is_it):
    devices = [device("mlx4_0", port(1))]
    (login,) = srp_logins([IB], devices, (), (), [session(**keys)])
    assert (login.session is not None) is is_it


def test_a_session_belongs_to_one_of_two_logins_that_the_kernel_takes_for_one():
    """Without initiator_ext it is zero."""
    second = SrpTarget(2, "b", GUID, GUID, GID, "0x7fff", GUID, initiator_ext="0" * 16)
    devices = [device("mlx4_0", port(1))]
    logins = srp_logins([IB, second], devices, (), (), [session()])
    assert [login.session is not None for login in logins] == [True, False]


EXTENSION = "0" * 15 + "2"


@pytest.mark.parametrize(
    ("initiators", "hosts"),
    [
        # Unknown, as of sessions that srp_daemon made: all are there, or it is unknown
        # whose they are.
        ((), (None, None)),
        ((None,), (None, None)),
        ((None, None), (3, 4)),
        ((EXTENSION,), (None, 3)),
        (("0" * 16,), (3, None)),
        ((EXTENSION, None), (4, 3)),
        ((EXTENSION, "0" * 16), (4, 3)),
        # A third login, of no target.
        (("0" * 15 + "3",), (None, None)),
    ],
)
def test_a_session_belongs_to_one_of_two_paths_by_the_same_port(initiators, hosts):
    """They differ in initiator_ext, which the kernel does not show."""
    second = SrpTarget(2, "b", GUID, GUID, GID, "0x7fff", GUID, initiator_ext=EXTENSION)
    devices = [device("mlx4_0", port(1))]
    there = [
        session(host=3 + number, initiator_ext=known)
        for number, known in enumerate(initiators)
    ]
    logins = srp_logins([IB, second], devices, (), (), there)
    assert tuple(one.session and one.session.host for one in logins) == hosts


def test_the_login_is_in_the_kernels_words():
    target = SrpTarget(
        1,
        "a",
        GUID,
        "0" * 15 + "1",
        GID,
        "0x7fff",
        GUID,
        initiator_ext="0" * 15 + "2",
        options=(("ch_count", 1), ("queue_size", 128)),
    )
    assert login_text(target) == (
        f"id_ext={GUID},ioc_guid=0000000000000001,dgid={GID},pkey=7fff,"
        f"service_id={GUID},initiator_ext=0000000000000002,ch_count=1,queue_size=128"
    )
    assert login_text(CM) == f"id_ext={GUID},ioc_guid={GUID},dest=10.0.0.1:5555"


def accepts(fast, loss, delay):
    """srp_tmo_valid() of drivers/scsi/scsi_transport_srp.c; -1 is off."""
    if max(fast, loss, delay) < 0 or delay == 0 or fast > 600:
        return False
    return not (fast < 0 and loss > 600) and not (0 <= loss <= fast)


def test_each_write_of_a_timeout_is_accepted_on_the_way_to_any_valid_end():
    values = ("off", 1, 20, 600, 700)
    number = lambda value: -1 if value == "off" else value  # noqa: E731
    valid = [
        three
        for three in itertools.product(values, repeat=3)
        if accepts(*map(number, three))
    ]
    assert len(valid) > 20
    names = ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")
    for now, end in itertools.product(valid, repeat=2):
        target = SrpTarget(
            1, "a", GUID, GUID, dest="10.0.0.1:1", **dict(zip(names, end))
        )
        have = dict(zip(names, now))
        for name, value in timeout_writes(now, target):
            have[name] = value
            assert accepts(*(number(have[key]) for key in names)), (now, end, name)
        assert tuple(have.values()) == end
        if now == end:
            assert timeout_writes(now, target) == []


def test_a_timeout_that_the_target_leaves_out_is_not_written():
    target = SrpTarget(1, "a", GUID, GUID, dest="10.0.0.1:1", fast_io_fail_tmo=5)
    assert timeout_writes((15, 600, 10), target) == [("fast_io_fail_tmo", 5)]


LOG = """\
[   94.993004] scsi host7: ib_srp: REJ received
[   94.993104] scsi host7: ib_srp: SRP LOGIN REJECTED, reason 0x00010003
[   94.994109] scsi host7: ib_srp: Connection 0/1 to 10.0.0.9 failed
[   94.996004] scsi host4: ib_srp: REJ received
[   94.996104] scsi host4: {}
[   94.997109] scsi host4: ib_srp: Connection 0/1 to 10.0.0.1 failed
[   94.998104] scsi host7:   REJ reason 0x1
""".splitlines()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ib_srp: SRP LOGIN REJECTED, reason 0x00010006", "access list"),
        ("ib_srp: SRP LOGIN REJECTED, reason 0x00010001", "not enabled"),
        ("ib_srp: SRP LOGIN REJECTED, reason 0x00019999", "0x00019999"),
        ("ib_srp: SRP_LOGIN_REJ: requested max_it_iu_len too large", "max_it_iu_size"),
        ("  REJ reason 0x8", "nothing listens"),
        ("  REJ reason 0x77", "119"),
        ("ib_srp: Sending CM REQ failed", "did not answer"),
        ("ib_srp: something new", "no reason"),
    ],
)
def test_a_refusal_is_explained_from_the_lines_of_its_own_login(line, words):
    log = [one.format(line) for one in LOG]
    sentence = failure(errno.ECONNRESET, CM, log)
    assert sentence.id == "srp-login-refused"
    assert words in sentence


def test_a_refusal_by_the_infiniband_cm_names_the_gid():
    log = [
        "scsi host1: ib_srp: SRP LOGIN from a to b REJECTED, reason 0x00010006",
        "scsi host1: ib_srp: Connection 0/2 to fe80:0000:0000:0000:0002:c903:00fb:1231"
        " failed",
        "scsi host2:   REJ reason 0x8",
    ]
    assert "access list" in failure(errno.ECONNRESET, IB, log)


@pytest.mark.parametrize(
    ("number", "id"),
    [
        (errno.EHOSTUNREACH, "srp-target-silent"),
        (errno.ENXIO, "srp-target-silent"),
        (errno.ETIMEDOUT, "srp-target-silent"),
        (errno.EINVAL, "srp-login-invalid"),
        (errno.ENOENT, "srp-not-in-partition"),
        (errno.ENOMEM, "srp-login-failed"),
    ],
)
def test_other_errors_are_sentences(number, id):
    assert failure(number, CM, []).id == id


def test_a_path_that_the_subnet_manager_does_not_know():
    log = ["scsi host1: ib_srp: Path record query failed: sgid fe80::, dgid fe80::"]
    assert failure(errno.EINVAL, IB, log).id == "srp-no-path"
