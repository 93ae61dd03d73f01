# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide VDSM's hook runner, the double's or VDSM_SOURCE's, with a fake root."""

from __future__ import annotations

import importlib

import pytest
from support.host.hook_host import HookHost
from support.storage.vdsm_under_test import load_vdsm


@pytest.fixture(scope="session")
def runner_module():
    load_vdsm()
    return importlib.import_module("vdsm.common.hooks")


@pytest.fixture(scope="session")
def hook_error(runner_module):
    return importlib.import_module("vdsm.common.exception").HookError


@pytest.fixture
def host(tmp_path):
    return HookHost(tmp_path / "root")


@pytest.fixture
def vdsm(runner_module, host, monkeypatch, tmp_path):
    """VDSM's hooks module, which runs the hooks of ``host``.

    Its data files are in a separate folder, so that a test finds those that are left.
    """
    monkeypatch.setattr(runner_module, "P_VDSM_HOOKS", str(host.hooks))
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    # As in vdsmd: its own folder first, with a sitecustomize that must not run here.
    libexec = tmp_path / "libexec"
    libexec.mkdir()
    (libexec / "sitecustomize.py").write_text("print('sitecustomize ran')\n")
    monkeypatch.setenv("PYTHONPATH", str(libexec))
    yield runner_module
    assert list(folder.iterdir()) == []
