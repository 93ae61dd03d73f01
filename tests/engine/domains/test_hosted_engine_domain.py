# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the hosted engine's domain by its disks, whatever its name is."""

from __future__ import annotations

import pytest
from engine_double import EngineDouble, Status, sample_world
from engine_double.sample import new_id
from engine_double.world import SimDataCenter
from support.engine.engine_command_line import open_session

from ovirt_rdma.engine_sdk_tools.reader import read_engine

pytestmark = pytest.mark.engine

OTHER = "engine_data"


def world_of(name="hosted_storage", **words):
    return sample_world(
        hosts=2, hosted_engine=True, hosted_engine_name=name, iso=True, **words
    )


def known(double, clock, times=1):
    """Return the names of the hosted engine's domains, and the problems."""
    with open_session(double, clock) as session:
        for _ in range(times):
            engine = read_engine(session)
    names = [domain.name for domain in engine.domains if domain.hosted_engine]
    return names, engine.problems


def asked(double):
    """Return the names of the domains whose disks were read."""
    names = {domain.id: domain.name for domain in double.world.domains.values()}
    found = (seen.path.split("/") for seen in double.requests)
    return sorted(names[parts[2]] for parts in found if parts[-1] == "disks")


@pytest.mark.engine_does("DOMAIN-16")
@pytest.mark.parametrize("name", ["hosted_storage", OTHER])
def test_its_disks_tell_which_it_is(clock, name):
    with EngineDouble(world_of(name)) as double:
        assert known(double, clock) == ([name], ())


def test_the_usual_name_alone_is_nothing(clock):
    world = world_of(OTHER, domains=("hosted_storage", "data1"))
    with EngineDouble(world) as double:
        assert known(double, clock) == ([OTHER], ())


def test_without_a_host_of_the_hosted_engine_there_is_none(clock):
    with EngineDouble(sample_world(hosts=2, domains=("hosted_storage",))) as double:
        assert known(double, clock) == ([], ())
        assert asked(double) == []


def test_one_call_will_do_where_it_has_its_usual_name(clock):
    names = [f"data{number}" for number in range(20)]
    with EngineDouble(world_of(domains=names)) as double:
        known(double, clock)
        assert asked(double) == ["hosted_storage"]


def test_a_session_asks_once(clock):
    world = world_of(OTHER, domains=("data1", "data2"), iscsi=True)
    with EngineDouble(world) as double:
        assert known(double, clock, times=3) == ([OTHER], ())
        # An ISO domain or one on block storage cannot be the hosted engine's.
        assert {OTHER} <= {*asked(double)} <= {"data1", "data2", OTHER}
        assert len(asked(double)) == len({*asked(double)})
        assert known(double, clock) == ([OTHER], ())


def test_domains_of_other_data_centers_are_not_asked(clock):
    world = world_of(OTHER)
    far = SimDataCenter(new_id("far"), "far")
    world.data_centers[far.id] = far
    world.domain("data2").data_center = far.id
    with EngineDouble(world) as double:
        assert known(double, clock) == ([OTHER], ())
        assert {OTHER} <= {*asked(double)} <= {"data1", OTHER}


@pytest.mark.parametrize("code", [403, 404, 500])
def test_disks_that_cannot_be_read_leave_the_name(clock, code):
    with EngineDouble(world_of()) as double:
        double.fail_next("GET", "/disks$", Status(code))
        names, problems = known(double, clock)
    assert names == ["hosted_storage"]
    assert len(problems) == 1
    assert "because of its name: " in problems[0]
    assert "reading the disks of hosted_storage failed" in problems[0]


def test_and_where_there_is_no_such_name_nothing_is_known(clock):
    with EngineDouble(world_of(OTHER)) as double:
        double.fail_next("GET", "/disks$", Status(403), times=9)
        names, problems = known(double, clock)
    assert names == []
    assert "hosted engine's domain is unknown: reading" in problems[0]


def test_disks_from_before_they_had_such_types_leave_the_name(clock):
    world = world_of()
    world.kind.add("DOMAIN-16")
    with EngineDouble(world) as double:
        names, problems = known(double, clock)
    assert names == ["hosted_storage"]
    assert "because of its name: none of its disks" in problems[0]


def test_a_hosted_engine_on_blocks_has_no_domain_on_files(clock):
    world = sample_world(hosts=2, iscsi=True)
    world.host("host01").hosted_engine = True
    with EngineDouble(world) as double:
        assert known(double, clock) == ([], ())
