# SPDX-License-Identifier: GPL-2.0-or-later
"""Check ThisHost, the host that a verb changes."""

from ovirt_rdma.cli.host.shown import runs
from ovirt_rdma.host.changes.journal import Listener
from ovirt_rdma.host.system import commands


def test_a_tool_that_is_slow_on_a_busy_host_is_waited_for(monkeypatch, tmp_path):
    """An unread fact would be a missing step."""
    monkeypatch.setattr(runs, "TOOLS", None)
    host = runs.ThisHost("/", "apply", Listener())
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.0)
    assert host.run is not None
    assert host.run(["true"]) == ""
    assert host.run.keywords["timeout_s"] > 10  # seen: systemctl show, load of ten
    # Below another root no tools are run.
    assert runs.ThisHost(str(tmp_path), "apply", Listener()).run is None
