# SPDX-License-Identifier: GPL-2.0-or-later
"""InfiniBand GUIDs that are not unique: in the whole matrix of ``hosts check``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine.told_hosts import engine, facts, host, report
from support.golden.golden_hosts import DATA

from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.fleet.check import (
    COLUMNS,
    guids_of,
    row_of,
    shared_guids,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, OK
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import VfPort, VirtualFunction

pytestmark = pytest.mark.engine

# mlx5_0 has 8 VFs: 0 to 5 have a GUID that is node's and port's, 6 and 7 have none;
# 4 and 5 are mlx5_1 and mlx5_2 on the host.
WITH_VFS = model.load(DATA / "virtual-functions" / "facts.json")
VF_4 = "0011:2233:4455:6601"


def other(facts):
    """Return the facts of another machine: no GUID is the same."""
    text = model.to_json(facts)
    for known in ("0011:2233:4455", "ec0d:9a03:007d"):
        text = text.replace(known, known[:-2] + "ff")
    return model.from_json_dict(json.loads(text), "other")


def with_vf(facts, number, node, port):
    """Return ``facts`` with the GUIDs of a VF of the first adapter with VFs."""
    adapters = []
    for adapter in facts.adapters:
        vfs = tuple(
            replace(vf, node_guid=node, ports=(VfPort(1, port),))
            if vf.number == number
            else vf
            for vf in adapter.virtual_functions
        )
        adapters.append(replace(adapter, virtual_functions=vfs))
    return replace(facts, adapters=tuple(adapters))


def ports_cells(**told):
    """Return the cell ``rdma ports`` of each host of the matrix, by name."""
    hosts = [host(name) for name in told]
    rows = [row_of(one, report(one.name, facts=told[one.name]), None) for one in hosts]
    cells = check.check(engine(*hosts), rows, None).cells
    at = COLUMNS.index("rdma ports")
    return {one.name: row[at] for one, row in zip(hosts, cells)}


def test_hosts_whose_guids_differ_are_good():
    cells = ports_cells(hv1=WITH_VFS, hv2=other(WITH_VFS))
    assert {cell.verdict for cell in cells.values()} == {OK}
    assert cells["hv1"].text == "2 of 3"


def test_one_guid_of_vfs_on_two_hosts_fails_on_both_and_on_no_third():
    theirs = with_vf(other(WITH_VFS), 7, "0011:2233:44ff:0001", VF_4)
    cells = ports_cells(hv1=WITH_VFS, hv2=theirs, hv3=facts())
    assert [cells[name].verdict for name in cells] == [FAIL, FAIL, OK]
    for name in ("hv1", "hv2"):
        assert cells[name].sentence == (
            "VF 4 of mlx5_0 on hv1 and VF 7 of mlx5_0 on hv2 have the same GUID "
            "0011:2233:4455:6601"
        )
        assert cells[name].text == "2 of 3"
        assert "guids: derived" in cells[name].fix


def test_a_vf_with_the_guid_of_a_port_of_another_host():
    port = WITH_VFS.rdma_devices[0].ports[0].guid
    theirs = with_vf(other(WITH_VFS), 0, port.upper(), "0011:2233:44ff:0001")
    cells = ports_cells(hv1=WITH_VFS, hv2=theirs)
    assert "mlx5_0/1 on hv1 and VF 0 of mlx5_0 on hv2" in cells["hv1"].sentence
    assert "guids: derived" in cells["hv1"].fix


def test_one_host_with_one_guid_twice():
    twice = with_vf(WITH_VFS, 6, "0011:2233:44aa:0001", VF_4)
    (cell,) = ports_cells(hv1=twice).values()
    assert cell.verdict == FAIL
    assert "VF 4 of mlx5_0 on hv1 and VF 6 of mlx5_0 on hv1" in cell.sentence


def test_one_machine_that_the_engine_has_twice():
    cells = ports_cells(hv1=WITH_VFS, hv2=WITH_VFS)
    sentence = cells["hv2"].sentence
    assert sentence.count("have the same GUID") == 3
    # The PF, whose port has the node's GUID, and 6 VFs.
    assert sentence.endswith(" and 4 more")
    assert "if both are one machine" in cells["hv2"].fix


def test_what_the_ports_have_themselves_is_kept():
    down = tuple(
        replace(d, ports=tuple(replace(p, state="DOWN") for p in d.ports))
        for d in WITH_VFS.rdma_devices
    )
    cells = ports_cells(hv1=replace(WITH_VFS, rdma_devices=down), hv2=WITH_VFS)
    assert cells["hv1"].sentence.startswith("mlx5_0/1 is DOWN, ")
    assert "have the same GUID" in cells["hv1"].sentence
    assert cells["hv1"].fix.startswith("check the cable")


@pytest.mark.parametrize("name", ["connectx-6-dx-roce", "everything-off", "two-hcas"])
def test_no_golden_host_has_a_guid_twice(name):
    """RoCE ports, whose GUIDs no subnet manager sees, do not count."""
    found = model.load(DATA / name / "facts.json")
    assert not shared_guids([guids_of("hv1", found)])
    if name == "connectx-6-dx-roce":
        assert not guids_of("hv1", found)


def test_vfs_without_guids_are_nobodys():
    zero = "0000:0000:0000:0000"
    (pf, *rest) = WITH_VFS.adapters
    new = tuple(
        VirtualFunction(n, f"0000:5e:00.{n + 1}", node_guid=zero) for n in range(3)
    )
    new = tuple(replace(vf, ports=(VfPort(1, zero),)) for vf in new)
    found = replace(WITH_VFS, adapters=(replace(pf, virtual_functions=new), *rest))
    assert zero not in guids_of("hv1", found)
