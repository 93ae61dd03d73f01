# SPDX-License-Identifier: GPL-2.0-or-later
"""SRP and iSER with real targets (LIO), over Soft-RoCE between two guests.

And SRP by the InfiniBand CM, over the InfiniBand fabric of one guest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from prepared_host import PreparedHost
from support.host import vdsm_iscsi

from lab import iser_target, modules
from lab.guest import Guest
from lab.infiniband import InfiniBand
from lab.qemu import Wire
from lab.soft_roce import SoftRoce
from lab.srp_target import CM_PORT, SERVICE_GUID, SrpServer
from ovirt_rdma.host.policy.texts import INTERFACE
from ovirt_rdma.host.system.commands import CommandFailed

SIZE = 64 << 20
ADDRESS = "10.99.0.1"
OTHER = SERVICE_GUID[:-1]
RDMA = "/sys/class/infiniband"
STATE = "/sys/class/srp_remote_ports/*/state"
POLICY = f"""\
version: 1
block:
  srp:
    - name: array
      id_ext: {SERVICE_GUID}
      ioc_guid: {SERVICE_GUID}
      dest: {ADDRESS}:{CM_PORT}
      fast_io_fail_tmo: 3
      dev_loss_tmo: off
      reconnect_delay: 2
"""
WRONG = f"""\
    - {{name: port, id_ext: {OTHER}1, ioc_guid: {OTHER}1, dest: {ADDRESS}:5556}}
    - {{name: ids, id_ext: {OTHER}2, ioc_guid: {OTHER}2, dest: {ADDRESS}:{CM_PORT}}}
    - {{name: absent, id_ext: {OTHER}3, ioc_guid: {OTHER}3, dest: 10.99.0.77:{CM_PORT}}}
"""


class Pair:
    """A target and a host that may log in to it."""

    def __init__(self, server: Guest, hypervisor: Guest) -> None:
        fabric = SoftRoce()
        server.wait_ready()
        fabric.bring_up(server, "eth0", [f"{ADDRESS}/24"])
        self.server = server
        target = SrpServer(server)
        target.add_disk(0, SIZE)
        target.serve("rxe0", 1, ADDRESS)
        hypervisor.wait_ready()
        fabric.bring_up(hypervisor, "eth0", ["10.99.0.2/24"])
        modules.load(hypervisor, "sd_mod", "ext4")
        self.guest = hypervisor
        self.host = PreparedHost(hypervisor, ())

    def load(self, policy: str) -> None:
        self.guest.run(
            "mkdir -p /etc/ovirt-rdma; cat > /etc/ovirt-rdma/policy.yaml",
            input=policy,
            check=True,
        )
        self.host.done("policy", "load")

    def document(self, *words: str, code: int = 0) -> Any:
        result = self.host.command("block", *words, "-o", "json")
        assert result.exit_code == code, result
        return json.loads(result.stdout)

    def run(self, line: str) -> str:
        return self.guest.run(line, check=True).stdout.strip()

    def tool(self, argv: Sequence[str]) -> str:
        """Run as Runner of host.system.commands does."""
        result = self.guest.run(list(argv), timeout=300)
        if result.exit_code:
            raise CommandFailed(result.stderr, result.exit_code)
        return result.stdout


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    wire = Wire(0)
    with ExitStack() as stack:
        server = Guest("server", nics=[wire.a], memory_mb=768)
        hypervisor = Guest("hypervisor", nics=[wire.b])
        for guest in (server, hypervisor):
            stack.callback(guest.kill)
            guest.power_on()
        yield Pair(server, hypervisor)


@pytest.mark.kernels("6.12")
def test_a_lun_from_login_to_logout(pair: Pair) -> None:
    pair.load(POLICY)
    assert [one["id"] for one in pair.document("check", code=3)["findings"]] == [
        "srp-not-logged-in"
    ]
    (login,) = pair.document("login")["logins"]
    assert (login["device"], login["port"], login["made"]) == ("rxe0", 1, True)
    (again,) = pair.document("login")["logins"]
    assert (again["logged_in"], again["made"]) == (True, False)

    (session,) = pair.document("list")["sessions"]
    assert session["timeouts"] == {
        "fast_io_fail_tmo": 3,
        "dev_loss_tmo": "off",
        "reconnect_delay": 2,
    }
    (lun,) = session["luns"]
    assert (lun["size"], lun["vendor"], lun["offered"]) == (SIZE, "LIO-ORG", False)
    device = f"/dev/{lun['device']}"
    assert lun["wwid"] == "3" + pair.run(
        f"cat /sys/block/{lun['device']}/device/wwid"
    ).removeprefix("naa.")

    written = pair.run(
        f"mkfs.ext4 -q {device}; mkdir -p /mnt/lun; mount {device} /mnt/lun;"
        "dd if=/dev/urandom of=/mnt/lun/f bs=1M count=8 status=none; sync;"
        "md5sum < /mnt/lun/f"
    )
    refused = pair.host.command("block", "logout", "array")
    assert refused.exit_code == 4
    assert f"{lun['device']}: mounted at /mnt/lun" in refused.stderr
    # The kernel's own answer to a second login is what `login` relies on.
    text = f"id_ext={SERVICE_GUID},ioc_guid={SERVICE_GUID},dest={ADDRESS}:{CM_PORT}"
    second = pair.guest.run(
        f"echo {text} > /sys/class/infiniband_srp/srp-rxe0-1/add_target"
    )
    assert "File exists" in second.stderr

    pair.run("umount /mnt/lun")
    assert len(pair.document("logout", "array")["sessions"]) == 1
    assert pair.document("list")["sessions"] == []
    assert pair.guest.run(f"test -e {device}").exit_code != 0
    pair.host.done("block", "login")
    pair.run("until [ -b /dev/sda ]; do sleep 0.1; done; mount /dev/sda /mnt/lun")
    assert pair.run("md5sum < /mnt/lun/f; umount /mnt/lun") == written


def test_wrong_targets_are_told_apart_and_the_right_one_is_logged_in(
    pair: Pair,
) -> None:
    pair.load(POLICY + WRONG)
    logins = {
        one["target"]: one["problems"]
        for one in pair.document("login", code=1)["logins"]
    }
    assert logins.pop("array") == []
    told = {name: problem["sentence"] for name, (problem,) in logins.items()}
    assert "nothing listens there" in told["port"]
    assert "no port with this id_ext and ioc_guid" in told["ids"]
    assert "no RDMA path" in told["absent"]


ISER_POLICY = f"""\
version: 1
block:
  iser:
    - {{name: array, portal: {ADDRESS}, iqn: {iser_target.IQN}}}
"""


@pytest.mark.faults
def test_iser_with_the_real_iscsiadm(pair: Pair) -> None:
    iser_target.serve(pair.server, ADDRESS)
    iser_target.start_iscsid(pair.guest)
    if pair.document("list")["sessions"]:
        pair.host.done("block", "logout", "--all")
    wrong = f"    - {{name: other, portal: {ADDRESS}, iqn: {iser_target.IQN}2}}\n"
    pair.load(ISER_POLICY + wrong)
    # A record of the operator's for another target stays as it is.
    other = f"-T {iser_target.IQN}:mine -p {ADDRESS}:3260 -I default"
    pair.run(f"iscsiadm -m node {other} -o new")
    kept = pair.run(f"iscsiadm -m node {other}")

    array, absent = pair.document("login", code=1)["logins"]
    assert (array["made"], array["problems"]) == (True, [])
    (problem,) = absent["problems"]
    # LIO closes the connection right after its refusal, which may not arrive.
    assert problem["id"] in {"iser-login-refused", "iser-target-silent"}
    portal = f"-p {ADDRESS}:3260 -I iser -o nonpersistent"
    targets = pair.run(f"iscsiadm -m discovery -t st {portal}")
    assert targets.endswith(f" {iser_target.IQN}")
    again = pair.document("login", "array")["logins"]
    assert [one["made"] for one in again] == [False]
    assert pair.run(f"iscsiadm -m node {other}") == kept

    (session,) = pair.document("list")["sessions"]
    assert (session["iqn"], session["interface"]) == (iser_target.IQN, INTERFACE)
    assert session["state"] == "LOGGED_IN"
    pair.run("until ls /dev/sd?; do sleep 0.1; done")
    disk = pair.run("ls /dev/sd?")
    write = "dd if=/dev/urandom of=/run/f bs=1M count=8 status=none"
    copy = f"dd if=/run/f of={disk} bs=1M oflag=direct status=none"
    read = f"dd if={disk} bs=1M count=8 iflag=direct status=none | cmp - /run/f"
    pair.run(f"{write} && {copy} && {read}")

    holder = pair.guest.start(["bash", "-c", f"exec 3< {disk}; sleep 1000"])
    pair.run(
        f"until ls -l /proc/*/fd/3 | grep -q {disk}; do sleep 0.1; done 2>/dev/null"
    )
    refused = pair.host.command("block", "logout", "array")
    assert (refused.exit_code, f"{disk[5:]}: process" in refused.stderr) == (4, True)
    holder.signal()
    pair.run(
        f"while ls -l /proc/*/fd/3 | grep -q {disk}; do sleep 0.1; done 2>/dev/null"
    )

    # What VDSM does for connections of the engine leaves record and session.
    own = f"iscsiadm -m node -T {iser_target.IQN} -p {ADDRESS}:3260 -I {INTERFACE}"
    pair.run(f"{own} -o update -n node.session.auth.password -v secret")
    record = pair.run(f"{own} -S")
    assert "node.startup = manual" in record
    assert "node.session.auth.password = secret" in record
    vdsm_iscsi.discover(pair.tool, f"{ADDRESS}:3260")
    for interface in ("default", "iser"):  # the second one is its trial login's
        words = (pair.tool, iser_target.IQN, f"{ADDRESS}:3260", interface)
        vdsm_iscsi.connect(*words)
        vdsm_iscsi.disconnect(*words)
        assert pair.run(f"{own} -S") == record
        assert pair.document("list")["sessions"] == [session]

    assert len(pair.document("logout", "array")["sessions"]) == 1
    assert pair.document("list")["sessions"] == []
    assert pair.run(f"{own} -S") == record


@pytest.mark.faults
def test_a_path_that_is_lost_and_returns(pair: Pair) -> None:
    pair.load(POLICY)
    pair.host.done("block", "login")
    before = pair.run("md5sum < /dev/sda")
    pair.server.run("ip link set eth0 down", check=True)
    read = "dd if=/dev/sda of=/dev/null bs=4k count=1 iflag=direct"
    assert "Input/output error" in pair.guest.run(read, timeout=300).stderr
    found = pair.document("check", code=3)["findings"]
    assert "srp-session-not-running" in [one["id"] for one in found]
    pair.server.run("ip link set eth0 up", check=True)
    pair.guest.run(f"until grep -q running {STATE}; do sleep 1; done", timeout=300)
    assert pair.run("echo 3 > /proc/sys/vm/drop_caches; md5sum < /dev/sda") == before


@pytest.mark.faults
def test_a_silent_target_ends_in_time_and_holds_up_no_other(pair: Pair) -> None:
    """The last of this module, because the target's RDMA device goes."""
    pair.load(f"{POLICY}{WRONG}  login_timeout: 2\n")
    if pair.document("list")["sessions"]:
        pair.host.done("block", "logout", "--all")
    pair.server.run("rdma link delete rxe0", check=True)
    logins = pair.document("login", "array", "ids", code=1)["logins"]
    assert [one["problems"][0]["sentence"] for one in logins] == [
        "the target does not answer within 2 s"
    ] * 2
    # Neither attempt is left in the kernel.
    assert pair.run("ls /sys/class/scsi_host") == ""


IB_POLICY = """\
version: 1
block:
  srp:
"""
IB_TARGET = (
    '    - {{name: {}, id_ext: {}, ioc_guid: {}, dgid: "{}", pkey: {}, service_id: {}, '
    "device: mlx4_0}}\n"
)


@pytest.mark.faults
def test_the_infiniband_cm_over_the_fabric() -> None:
    with Guest("hypervisor") as guest:
        guest.wait_ready()
        InfiniBand(hcas=2).load(guest)
        modules.load(guest, "sd_mod")
        own, gid = (
            guest.run(f"cat {RDMA}/{name}/ports/1/gids/0", check=True).stdout.strip()
            for name in ("mlx4_0", "mlx4_1")
        )
        server = SrpServer(guest)
        server.add_disk(0, SIZE)
        server.serve("mlx4_1", 1, own[-len("0002:c903:00fb:1231") :])
        host = PreparedHost(guest, ())
        good = SERVICE_GUID
        rows = [
            ("array", good, gid, "0xffff", good),
            ("ids", f"{OTHER}1", gid, "0xffff", good),
            ("service", f"{OTHER}2", gid, "0xffff", f"{OTHER}9"),
            ("partition", f"{OTHER}3", gid, "0x8005", good),
            ("gid", f"{OTHER}4", f"{gid[:-4]}9999", "0xffff", good),
        ]
        policy = IB_POLICY + "".join(
            IB_TARGET.format(name, good, *rest) for name, *rest in rows
        )
        file = "/etc/ovirt-rdma/policy.yaml"
        guest.run(f"mkdir -p /etc/ovirt-rdma; cat > {file}", input=policy, check=True)
        host.done("policy", "load")
        result = host.command("block", "login", "-o", "json")
        assert result.exit_code == 1
        problems = {
            one["target"]: [problem["sentence"] for problem in one["problems"]]
            for one in json.loads(result.stdout)["logins"]
        }
        assert problems.pop("array") == []
        told = {name: sentence for name, (sentence,) in problems.items()}
        assert "no port with this id_ext and ioc_guid" in told["ids"]
        assert "nothing listens there" in told["service"]
        assert "does not have the partition 0x8005" in told["partition"]
        assert "knows no path" in told["gid"]

        (session,) = json.loads(host.done("block", "list", "-o", "json"))["sessions"]
        assert session["dgid"] == gid.replace(":", "")
        assert [lun["size"] for lun in session["luns"]] == [SIZE]
        write = "dd if=/dev/urandom of=/run/f bs=1M count=8 status=none"
        copy = "dd if=/run/f of=/dev/sda bs=1M oflag=direct status=none"
        read = "dd if=/dev/sda bs=1M count=8 iflag=direct status=none | cmp - /run/f"
        guest.run(f"{write} && {copy} && {read}", check=True)
        assert "logged out" in host.done("block", "logout", "--all")
