# SPDX-License-Identifier: GPL-2.0-or-later
"""Password and token are sent to the engine's login, and never shown."""

from __future__ import annotations

import logging

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import NoContentType, Status
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.cli.engine import hosts
from tools.verbs import verbs

pytestmark = pytest.mark.hypervisor

PASSWORD = "s3cret&of%admin"
# Each token of the double ends in "of-the-double".


@pytest.fixture
def double():
    world = sample_world(hosts=2, addon=True)
    world.passwords = dict.fromkeys(world.passwords, PASSWORD)
    with EngineDouble(world) as made:
        yield made


@pytest.fixture
def log(tmp_path):
    """A log with all messages of ovirt_rdma and the SDK."""
    file = tmp_path / "log"
    handler = logging.FileHandler(file)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield file
    root.removeHandler(handler)
    root.setLevel(level)
    handler.close()


def bug(*words, **more):
    raise RuntimeError("a bug")


@pytest.mark.parametrize("way", ["well", "denied", "odd", "bug", "change"])
def test_no_secret_is_shown(capsys, monkeypatch, tmp_path, double, log, way):
    monkeypatch.setenv("OVIRT_RDMA_DEBUG", "1")
    words = ["hosts", "list", "-o", "json"]
    if way == "denied":
        double.fail_next("GET", "/hosts", Status(403, "Not allowed."))
    elif way == "odd":
        double.fail_next("GET", "/hosts", NoContentType, times=99)
    elif way == "bug":
        monkeypatch.setattr(hosts, "hosts_named", bug)
    elif way == "change":
        policy = tmp_path / "policy.yaml"
        policy.write_text("version: 1\n")
        words = ["policy", "push", str(policy), "--hosts", "*", "-y"]
    result = run_engine(capsys, double, DoubleDoor(double.world), *words)
    assert result.code == (0 if way in ("well", "change") else 1)
    assert ("Traceback" in result.err) == (way == "bug")
    sent = "".join(f"{one.path}{one.query}{one.body}" for one in double.requests)
    shown = result.out + result.err + log.read_text() + sent
    for secret in ("s3cret", "of-the-double"):
        assert secret not in shown


def test_no_verb_takes_a_password_on_the_command_line():
    for name, one in verbs("ovirt-rdma").items():
        options = {word for each in one.arguments for word in each.option_strings}
        assert "--password" not in options, name
