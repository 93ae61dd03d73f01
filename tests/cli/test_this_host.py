# SPDX-License-Identifier: GPL-2.0-or-later
"""The host that a verb acts on."""

from argparse import Namespace

from ovirt_rdma.cli import this_host
from ovirt_rdma.host import commands


def test_a_tool_that_is_slow_on_a_busy_host_is_waited_for(monkeypatch, tmp_path):
    """What could not be read is a step that is missing."""
    monkeypatch.setattr(this_host, "TOOLS", None)
    host = this_host.ThisHost(Namespace(root="/"))
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.0)
    assert host.run is not None
    assert host.run(["true"]) == ""
    assert host.run.keywords["timeout_s"] > 10  # seen: systemctl show, load of ten
    # Below another root there are no tools.
    assert this_host.ThisHost(Namespace(root=str(tmp_path))).run is None
