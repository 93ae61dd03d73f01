# SPDX-License-Identifier: GPL-2.0-or-later
"""The block under the real ansible-runner, with its events read as the engine does."""

from __future__ import annotations

import shutil

import pytest
from support.engine.host_deploy import deploy, make_collection
from support.engine.host_deploy_events import ERROR, NORMAL, WARNING

from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import installed

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

BEFORE = b"- name: theirs\n  ansible.builtin.command: /bin/true\n"
AFTER = b"- name: later\n  ansible.builtin.command: /bin/true\n"
SENTINEL = "ovirt-rdma: host is prepared (ovirt-rdma 0.9, policy sha256:1)"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return a function that runs the block between tasks of others."""
    monkeypatch.setattr(deploy_hook, "SETTINGS", str(tmp_path / "host-deploy.yml"))
    monkeypatch.setattr(deploy_hook, "POLICY_YAML", str(tmp_path / "policy.yaml"))
    collection = make_collection(tmp_path)

    def run(**variables):
        content = installed(BEFORE, str(collection)) + AFTER
        return deploy(tmp_path, content, **variables)

    run.top, run.collection = tmp_path, collection
    return run


def test_a_host_is_prepared(engine):
    (engine.top / "policy.yaml").write_text("version: 1\n")
    done = engine()
    assert done.installed
    assert (NORMAL, SENTINEL) in done.events
    warning = f"ovirt-rdma: attention: the policy is {engine.top}/policy.yaml"
    assert (WARNING, warning) in done.events
    assert done.texts.index("theirs") < done.texts.index(SENTINEL)
    assert done.texts[-1] == "later"


def test_a_failure_of_ours_is_an_event_and_ends_nothing(engine):
    done = engine(fails=True)
    assert done.installed
    failed = "ovirt-rdma: host is not prepared: the package is missing"
    assert (ERROR, failed) in done.events
    assert SENTINEL not in done.texts
    assert done.texts[-1] == "later"


def test_it_may_end_the_installation(engine):
    (engine.top / "host-deploy.yml").write_text("ovirt_rdma_on_failure: fail\n")
    done = engine(fails=True)
    assert not done.installed
    assert "later" not in done.texts


def test_a_missing_role_is_an_event(engine):
    content = installed(BEFORE, str(engine.collection)) + AFTER
    shutil.rmtree(engine.collection)
    done = deploy(engine.top, content)
    assert done.installed
    assert (
        ERROR,
        "ovirt-rdma: host is not prepared: the role is not on the engine",
    ) in done.events
    assert done.texts[-1] == "later"


@pytest.mark.selftest
def test_a_setting_that_is_not_defined_does_not_end_the_installation(engine):
    """ansible-core 2.14 evaluates all of them where one is asked for."""
    text = "ovirt_rdma_packages: ['{{ nobody_defines_this }}']\n"
    (engine.top / "host-deploy.yml").write_text(text)
    done = engine()
    assert done.installed
    assert SENTINEL in done.texts  # the stand-in does not use it
    assert done.texts[-1] == "later"


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        pytest.param("ovirt_rdma_on_failure: reprot", marks=pytest.mark.selftest),
        pytest.param("- a list\n", marks=pytest.mark.selftest),
        pytest.param("text", marks=pytest.mark.selftest),
    ],
)
def test_broken_settings_are_an_event_and_nothing_is_done(engine, text):
    (engine.top / "host-deploy.yml").write_text(text)
    done = engine()
    assert done.installed
    (sentence,) = [text for severity, text in done.events if severity == ERROR]
    assert "host-deploy.yml is invalid; fix: on the engine, ovirt-rdma" in sentence
    assert not any("install the package" in text for text in done.texts)
    assert done.texts[-1] == "later"


@pytest.mark.selftest
@pytest.mark.parametrize(
    "task",
    [
        "debug: {var: inventory_hostname}",
        "debug: {msg: [a, b]}",
        "{debug: {msg: '{{ item }}'}, loop: [1, 2]}",
        "debug: {msg: an ERROR}",
        "{block: [{command: /bin/false}], rescue: [{command: /bin/true}]}",
    ],
)
def test_traps_of_the_docs_end_the_installation(tmp_path, task):
    """docs/host-deploy.md has a table of them."""
    assert not deploy(tmp_path, f"- {task}\n".encode()).installed


@pytest.mark.selftest
@pytest.mark.parametrize(
    "task", ["debug: {msg: all is well}", 'debug: {msg: "[WARNING] it is warm"}']
)
def test_other_debug_tasks_do_not(tmp_path, task):
    assert deploy(tmp_path, f"- {task}\n".encode()).installed
