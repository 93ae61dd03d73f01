# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of udev rules that set a property of IPoIB netdevs."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.collect.software import read_udev_lines, rules_of, sets_ipoib
from ovirt_rdma.host.facts.model import UdevLine
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

ADDED = 'ACTION=="add", SUBSYSTEM=="net"'
MODE = f'{ADDED}, ATTR{{type}}=="32", ATTR{{mode}}="connected"'


def udev_lines(host, problems=None):
    """The lines that are read from the host's rules."""
    return read_udev_lines(FileTree(host.path), [] if problems is None else problems)


@pytest.mark.parametrize(
    "rule",
    [
        MODE,
        'KERNEL=="ib*", ATTR{mode}:="connected"',
        'KERNEL=="ib0|eth0", ATTR{mode}="datagram"',
        f'{ADDED}, ATTR{{type}}=="[0-9]*", ATTR{{mtu}}="65520"',
        f'{ADDED}, ATTR{{mode}} = e"connected\\n"',
        f'{ADDED}, ATTR{{address}}=="?*00:02:c9:03:00:fb:12:31", ATTR{{mtu}}="4092"',
        f'{ADDED}, DRIVERS=="mlx4_core", RUN+="/sbin/ethtool -K $name tso off"',
        ADDED + ", RUN{program}=\"/bin/sh -c 'echo datagram >/sys/class/net/%k/mode'\"",
        f'{ADDED}, RUN+="/sbin/ip link set dev %k mtu 65520"',
        f'{ADDED}, RUN+="/x say \\"hello\\"", ATTR{{mtu}}="2044"',
    ],
)
def test_rules_that_set_something(rule):
    assert sets_ipoib(rule)


@pytest.mark.parametrize(
    "rule",
    [
        f'{ADDED}, ATTR{{mode}}=="connected", NAME="ib0"',
        f'{ADDED}, ATTR{{mode}}!="connected"',
        f'{ADDED}, ATTR{{type}}=="1", ATTR{{mtu}}="9000"',
        f'{ADDED}, ATTR{{type}}!="32", ATTR{{mtu}}="9000"',
        f'{ADDED}, KERNEL=="en*|eth*", RUN+="/sbin/ethtool -K $name tso off"',
        'SUBSYSTEM=="block", ATTR{mode}="1"',
        'SUBSYSTEM!="net", ATTR{mode}="1"',
        'SUBSYSTEM=="infiniband", RUN+="/usr/libexec/ethtool"',
        f'{ADDED}, ATTR{{queue/mode}}="x"',
        f'{ADDED}, RUN+="/usr/bin/model"',
        f'{ADDED}, ENV{{mode}}="connected"',
        f"{ADDED}, ATTR{{mode}}=connected",
        "ATTR{mode}",
        "",
    ],
)
def test_rules_that_do_not(rule):
    assert not sets_ipoib(rule)


def test_places_order_and_folders(host):
    host.udev_rules("80-b", MODE, folder="/usr/lib")
    host.udev_rules("80-b", "# off", MODE.replace("connected", "datagram"))
    host.udev_rules("70-a", "", MODE, folder="/run")
    host.udev_rules("90-c", MODE, folder="/lib")
    host.write("/etc/udev/rules.d/60-x.rules.bak", MODE)
    (host.path / "etc/udev/rules.d/90-c.rules").symlink_to("/dev/null")
    problems: list[str] = []
    assert udev_lines(host, problems) == (
        UdevLine("/run/udev/rules.d/70-a.rules", 2, MODE),
        UdevLine(
            "/etc/udev/rules.d/80-b.rules", 2, MODE.replace("connected", "datagram")
        ),
    )
    assert problems == []


def test_rules_over_several_lines():
    text = (
        'A=="1", \\\n  # between, continued \\\n  B="2"\n\n#C="3" \\\n'
        'D="4"\r\n  E="5" \\\n\nF="6" \\\n'
    )
    assert list(rules_of(text)) == [(1, 'A=="1", B="2"'), (6, 'D="4"'), (7, 'E="5"')]


def test_a_rule_that_is_longer_than_udev_reads_is_none(host):
    host.udev_rules("x", MODE + ", \\\n" + "x" * 16384, MODE)
    assert [line.line for line in udev_lines(host)] == [3]


def test_a_file_that_cannot_be_read_hides_no_other(host):
    host.unreadable("/etc/udev/rules.d/10-x.rules")
    host.write("/etc/udev/rules.d/20-y.rules", b"\xff\x00\n" + MODE.encode() + b"\n")
    problems: list[str] = []
    assert udev_lines(host, problems) == (
        UdevLine("/etc/udev/rules.d/20-y.rules", 2, MODE),
    )
    assert problems == ["/etc/udev/rules.d/10-x.rules is a folder, so it is ignored"]
