# SPDX-License-Identifier: GPL-2.0-or-later
"""Run each example as its reader would: as a program with its arguments."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import Clock
from support.engine.engine_door import DoubleDoor
from support.engine.told_hosts import SERVER, rules
from test_engine_api_docs import no_waits

from ovirt_rdma.engine_sdk_tools.api import session
from ovirt_rdma.engine_sdk_tools.hosts import ansible

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).parents[2] / "examples"
POLICY = rules("prefer-rdma")


class Site:
    """An engine with three hosts, and examples that use it."""

    def __init__(
        self, double: EngineDouble, folder: Path, capsys: pytest.CaptureFixture
    ) -> None:
        self.world = double.world
        self._folder = folder
        self._double = double
        self._capsys = capsys

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """Run an example; return its exit code and what it printed."""
        clock, true_session = Clock(), session.Session

        def quick(settings: object) -> session.Session:
            return true_session(settings, clock=clock, sleep=clock.sleep)

        with (
            no_waits(self._double, self._folder),
            mock.patch.object(session, "Session", quick),
            mock.patch.object(
                ansible, "AnsibleHosts", lambda access, **_: DoubleDoor(self.world)
            ),
            mock.patch.object(sys, "argv", [name, *words]),
        ):
            try:
                runpy.run_path(str(EXAMPLES / name), run_name="__main__")
                code = 0
            except SystemExit as end:
                code = end.code or 0
        return code, self._capsys.readouterr().out


@pytest.fixture
def site(capsys, tmp_path):
    world = sample_world(hosts=3, domains=("data1",), addon=True)
    with EngineDouble(world) as double:
        yield Site(double, tmp_path, capsys)
        assert double.strict_errors == []


def test_list_domains(site):
    assert site.run("list_domains.py") == (
        0,
        "data1 is active: the engine asks for tcp\n",
    )


def test_verify_domains(site):
    assert site.run("verify_domains.py") == (0, "")
    site.world.host("host02").reachable = False
    code, said = site.run("verify_domains.py")
    assert code == 3
    assert said.startswith("host02, data1: ")
    assert "\n  fix: " in said


def test_check_hosts(site):
    site.world.host("host02").rdma_ready = False
    code, said = site.run("check_hosts.py")
    assert code == 0
    assert "host02: not ready\n" in said
    assert "  host: " in said


def test_push_policy(site, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    site.world.host("host03").status = "maintenance"
    code, said = site.run("push_policy.py", str(file))
    assert code == 0
    assert re.fullmatch(r"(host0[12]: sha256:[0-9a-f]{64}\n){2}", said)
    assert site.world.host("host01").policy_text == POLICY
    assert site.world.host("host03").policy_text == ""


def test_create_domain(site):
    words = ("data2", "nfs2.example.com:/exports/data2", "dc1")
    code, said = site.run("create_domain.py", *words)
    assert code == 0
    assert said.count("runs over rdma") == 3
    assert said.endswith("verified on all hosts\n")
    # A second request with another export is refused with the reason.
    words = ("data2", "nfs2.example.com:/exports/x", "dc1")
    code, said = site.run("create_domain.py", *words)
    assert code == 3
    assert "the domain data2 already exists" in said


def test_convert_domain_rolling_cut_off_and_again(site):
    site.world.host("host03").stuck_vms = ["vm1"]
    site.world.host("host03").vms = ["vm1"]
    code, said = site.run("convert_domain_rolling.py", "data1")
    assert code == 1
    assert "stopped: " in said
    site.world.host("host03").stuck_vms = []
    code, said = site.run("convert_domain_rolling.py", "data1")
    assert (code, said.splitlines()[-1]) == (0, "converted")
    assert "moving host03 to maintenance\n" in said
    assert "moving host02 to maintenance\n" not in said
    export = f"{SERVER}:/exports/data1"
    assert {h.mounts[export] for h in site.world.hosts.values()} == {"rdma"}


def test_networks(site):
    code, said = site.run("create_network.py", "storage", "dc1")
    assert code == 0
    assert said.startswith("MTU 2044: ")
    assert said.endswith("storage is in cl1\n")
    code, said = site.run("attach_network.py", "storage", "ib0", "10.20.0.11/24")
    assert code == 0
    assert "host03: attach ib0 10.20.0.13/24\n" in said
    assert said.endswith("host03: done\n")


def test_each_example_is_in_the_list_and_run_here():
    listed = re.findall(r"^\| `(\w+\.py)`", (EXAMPLES / "README.md").read_text(), re.M)
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert sorted(listed) == sorted(there)
    here = Path(__file__).read_text()
    assert [name for name in listed if f'site.run("{name}"' not in here] == []
