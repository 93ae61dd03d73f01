# SPDX-License-Identifier: GPL-2.0-or-later
"""Drop-ins of multipath.conf with which ``vdsm-tool is-configured`` fails."""

import pytest
from support.fakes.fake_root import FakeRoot

from ovirt_rdma.host.block.read import mixed_sections, multipath_findings
from ovirt_rdma.host.system.tree import FileTree

# The sections of VDSM's own file, lib/vdsm/storage/mpathconf.py.
VDSM = """\
# VDSM REVISION 2.2
defaults {
    polling_interval            5
    no_path_retry               16
}
blacklist {
    protocol "(scsi:adt|scsi:sbp)"
    devnode "^(rbd)[0-9]*"
}
overrides {
    no_path_retry   16
}
"""


@pytest.mark.parametrize(
    "text",
    [
        'overrides {\n protocol {\n type "scsi:srp"\n fast_io_fail_tmo 5\n }\n}\n',
        "overrides { protocol { type scsi:srp } }",
    ],
)
def test_protocol_in_overrides_stops_vdsmd(text):
    (found,) = mixed_sections([("a", VDSM), ("b", text)])
    assert found.id == "multipath-stops-vdsmd"
    assert found.startswith("b has protocol { } in its section overrides")
    assert "VDSM 4.50.2.2 and later" in found
    # Alone it is no mix.
    assert mixed_sections([("b", text)]) == []


@pytest.mark.parametrize(
    "text",
    [
        'devices {\n device {\n vendor "LIO-ORG"\n product ".*"\n }\n}\n',
        "blacklist {\n device {\n vendor x\n }\n}\n",
        "# overrides { protocol { } }\n! overrides { protocol { } }\n",
        'multipaths {\n multipath {\n wwid 3600\n alias "a { b"\n }\n}\n',
        "overrides {\n no_path_retry 4\n}\n",
        "overrides {",
    ],
)
def test_forms_that_vdsm_tolerates(text):
    assert mixed_sections([("a", VDSM), ("b", text)]) == []


def test_the_files_of_a_host(tmp_path):
    root = FakeRoot(tmp_path)
    tree, problems = FileTree(root.path), []
    assert multipath_findings(tree, problems) == []
    root.write("/etc/multipath.conf", VDSM)
    bad = "overrides {\n protocol {\n type scsi:srp\n }\n}\n"
    root.write("/etc/multipath/conf.d/srp.conf", bad)
    root.write("/etc/multipath/conf.d/srp.conf.bak", bad)
    root.write("/etc/multipath/conf.d/empty.conf", "")
    (found,) = multipath_findings(tree, problems)
    assert found.startswith("/etc/multipath/conf.d/srp.conf has")
    assert problems == []
    (root.path / "etc/multipath.conf").unlink()
    (root.path / "etc/multipath.conf").mkdir()
    multipath_findings(tree, problems)
    assert "/etc/multipath.conf cannot be read" in problems[0]
