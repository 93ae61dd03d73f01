# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from command_line import FACTS
from host_fake_hosts import connectx5_roce, soft_roce

from ovirt_rdma.host import facts_file

BRIDGE = """\
host     hv1
kernel   5.14.0-427.13.1.el9_4.x86_64
up for   1 h 0 min
modules  ib_cm, ib_core, ib_uverbs, iw_cm, lockd, mlx5_core, mlx5_ib, nfs, nfsv3, \
nfsv4, rdma_cm, rdma_ucm, rpcrdma, sunrpc

RDMA ports
DEVICE       PORT  STATE   LINK LAYER  RATE      NETDEVS                    DRIVER
mlx5_bond_0  1     ACTIVE  Ethernet    100 Gb/s  bond0, bond0.100, storage  \
mlx5_core 0000:3b:00.0

netdevs
NETDEV     STATE    MTU    DRIVER     BELOW IT              ADDRESSES
bond0      up       9000   bond       ens1f0np0, ens1f1np1  -
bond0.100  up       9000   vlan       bond0                 -
ens1f0np0  up       9000   mlx5_core  -                     -
ens1f1np1  up       9000   mlx5_core  -                     -
lo         unknown  65536  -          -                     127.0.0.1/8, ::1/128
storage    up       9000   bridge     bond0.100             10.0.0.2/24, fd00::2/64

routes
TO        NETDEV   FROM      GATEWAY
10.0.0.1  storage  10.0.0.2  -

NFS mounts
EXPORT          MOUNTED AT                            NFS  PROTOCOL  TRANSPORTS
10.0.0.1:/data  /rhev/data-center/mnt/10.0.0.1:_data  4.2  rdma      rdma
"""


def test_table(call):
    result = call("facts", "--facts", str(FACTS / "connectx5-roce-bridge.json"))
    assert (result.code, result.out, result.err) == (0, BRIDGE, "")


@pytest.mark.parametrize("path", sorted(FACTS.glob("*.json")), ids=lambda p: p.stem)
def test_json_is_the_facts_file_again(call, path):
    result = call("facts", "--facts", str(path), "-o", "json")
    assert result.out == path.read_text()
    assert list(result.document)[:2] == ["schema_version", "kind"]
    as_yaml = call("facts", "--facts", str(path), "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == result.document


def test_a_host_without_anything(host):
    result = host("facts")
    assert result.code == 0
    assert "RDMA ports: none\n" in result.out
    assert "NFS mounts: none\n" in result.out
    assert "could not be read\n" in result.out
    assert host("facts", "-o", "json").document["rdma_devices"] == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (59.9, "0 min"),
        (3600 * 2 + 61, "2 h 1 min"),
        (86400, "1 day 0 h"),
        (2 * 86400 + 3600, "2 days 1 h"),
    ],
)
def test_uptime(call, tmp_path, seconds, shown):
    facts = replace(soft_roce(tmp_path).reader().facts(), uptime_s=seconds)
    path = tmp_path / "f.json"
    path.write_text(facts_file.to_json(facts))
    assert f"up for   {shown}\n" in call("facts", "--facts", str(path)).out


def test_bytes_that_are_no_utf8_and_terminal_controls_do_not_reach_the_terminal(
    call, tmp_path
):
    root = connectx5_roce(tmp_path)
    root.nfs_mount("nas:/\udcff", "/mnt/\x1b[2J\udcff")
    path = tmp_path / "f.json"
    path.write_text(facts_file.to_json(root.reader().facts()))
    shown = call("facts", "--facts", str(path)).out
    assert "/mnt/\\x1b[2J\\udcff" in shown
    assert shown.replace("\n", "").isprintable()
    dumped = call("facts", "--facts", str(path), "-o", "json")
    assert dumped.document["nfs_mounts"][0]["mountpoint"] == "/mnt/\x1b[2J\udcff"
    as_yaml = yaml.safe_load(call("facts", "--facts", str(path), "-o", "yaml").out)
    assert as_yaml == json.loads(dumped.out)
