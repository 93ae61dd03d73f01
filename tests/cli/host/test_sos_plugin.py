# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin asks sos for what a support case needs, and for no file of others;
tests/lab/test_sos_lab.py has the real sos.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import sys
import types
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]


class Plugin:
    """sos/report/plugins/__init__.py, the two methods that are called."""

    def __init__(self) -> None:
        self.copied: list[str] = []
        self.commands: list[str] = []
        self.setup()

    def add_copy_spec(self, copyspecs, sizelimit=None):
        assert sizelimit
        self.copied += copyspecs

    def add_cmd_output(self, cmds, suggest_filename=None, sizelimit=None, timeout=None):
        assert timeout
        self.commands.append(cmds)


@pytest.fixture
def plugin(monkeypatch) -> Plugin:
    module = types.ModuleType("sos.report.plugins")
    module.Plugin = Plugin
    module.RedHatPlugin = type("RedHatPlugin", (), {})
    module.DebianPlugin = type("DebianPlugin", (), {})
    monkeypatch.setitem(sys.modules, "sos", types.ModuleType("sos"))
    monkeypatch.setitem(sys.modules, "sos.report", types.ModuleType("sos.report"))
    monkeypatch.setitem(sys.modules, "sos.report.plugins", module)
    source = CHECKOUT / "sos_plugin/ovirt_rdma.py"
    spec = importlib.util.spec_from_file_location("sos_plugin_of_ours", source)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.OvirtRdma()


def test_nothing_is_copied_from_where_others_can_make_links(plugin):
    """sos copies what a link leads to, as root: a key, or a mount that hangs."""
    text = (CHECKOUT / "storage/tmpfiles.d/ovirt-rdma.conf").read_text()
    folders = [line.split() for line in text.splitlines() if line.startswith("d ")]
    of_others = [words[1] for words in folders if words[3] != "root"]
    assert of_others
    of_others += ["/var/log/vdsm", "/var/lib/vdsm", "/run/vdsm"]
    for path in plugin.copied:
        for folder in of_others:
            assert f"{path}/" not in (f"{folder}/", "/run/ovirt-rdma/"), path
            assert not path.startswith(f"{folder}/"), path


def test_no_source_address_of_a_connection_is_read(plugin):
    """That of an RDMA connection can crash the kernel (statistics.read_transports)."""
    connection = "/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-1-rdma"
    deadly = [
        f"{connection}/srcaddr",
        "/sys/kernel/sunrpc/rpc-clients/clnt-0/switch/xprt-1-rdma/srcaddr",
    ]
    for pattern in plugin.copied:
        assert not fnmatch.filter(deadly, pattern), pattern
        assert not fnmatch.filter(deadly, f"{pattern}/*"), pattern  # what is below it
    for name in ("xprt_info", "xprt_state", "dstaddr"):
        assert any(fnmatch.fnmatch(f"{connection}/{name}", p) for p in plugin.copied)


def test_what_the_marks_say_is_collected_all_the_same(plugin):
    assert "ovirt-rdma-host status -o json" in plugin.commands
