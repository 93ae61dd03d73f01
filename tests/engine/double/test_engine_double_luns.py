# SPDX-License-Identifier: GPL-2.0-or-later
"""The double's LUNs, and domains on them, as the engine has them."""

from __future__ import annotations

import pytest
from engine_double.luns import SimLun, luns_of
from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.domains.lun_plan import read_luns
from ovirt_rdma.engine_sdk_tools.reader import read_engine

pytestmark = pytest.mark.engine

WWID = "36001405aaaaaaaaaaaaaaaaaaaaaaa00"


@pytest.fixture
def lun(double):
    luns_of(double.world)[WWID] = found = SimLun(WWID)
    return found


def add(session, double, *units):
    host = types.Host(id=double.world.host("host01").id)
    storage = types.HostStorage(type=types.StorageType.FCP, logical_units=[*units])
    kind = types.StorageDomainType.DATA
    domain = types.StorageDomain(name="new", type=kind, host=host, storage=storage)
    call = Call("storagedomains", "add", "adding", {"storage_domain": domain}, "new")
    return session.perform(call)


@pytest.mark.engine_does("LUN-01")
def test_a_lun_is_shown_with_what_the_engine_has_on_it(session, double, lun):
    lun.domain, lun.status = double.world.domain("data1").id, "used"
    host = read_engine(session).hosts[0]
    (shown,) = read_luns(session, [host], host)[host.id]
    assert (shown.id, shown.type, shown.status) == (WWID, "fcp", "used")
    assert shown.domain == lun.domain


@pytest.mark.engine_does("LUN-02")
def test_luns_of_a_host_that_is_not_up_cannot_be_listed(session, double, lun):
    host = read_engine(session).hosts[0]
    double.world.host(host.name).status = "maintenance"
    with pytest.raises(EngineProblem, match="is not UP"):
        read_luns(session, [host])


@pytest.mark.engine_does("LUN-03")
def test_a_domain_wants_a_lun(session, double, lun):
    with pytest.raises(EngineProblem, match="at least one LUN"):
        add(session, double)


@pytest.mark.engine_does("LUN-04")
def test_a_lun_in_use_is_refused_by_the_engine(session, double, lun):
    lun.disk = "d1"
    with pytest.raises(EngineProblem, match=WWID):
        add(session, double, types.LogicalUnit(id=WWID))


@pytest.mark.engine_does("LUN-05")
def test_a_volume_group_of_others_is_found_by_vdsm(session, double, lun):
    lun.status = "used"
    with pytest.raises(EngineProblem, match="volume group"):
        add(session, double, types.LogicalUnit(id=WWID))
    assert 957 in [event.code for event in double.world.log.events]
