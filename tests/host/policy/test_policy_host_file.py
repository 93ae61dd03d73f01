# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``host:`` part of policy.yaml: its meaning, and its mistakes."""

import pytest
from support.host.policy_mistakes import expect_mistake, mistakes, place, rows

from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, ModuleOption, Policy

MATCH_KEYS = "link_layer, device, pci, port, guid, pkey"
RULE_KEYS = (
    "name, match, transport_mode, mtu, tso, port_mtu, pkey_children, partitions, "
    "port_type"
)
PKEYS = "0x0001 to 0xffff, but not 0x8000"


def interface(match="{link_layer: infiniband}", **keys):
    """A policy with one interface rule: match in line 4, each key a line from 5."""
    lines = [f"      {key}: {value}\n" for key, value in keys.items()]
    start = f"version: 1\nhost:\n  interfaces:\n    - match: {match}\n"
    return start + "".join(lines)


def host(text):
    return parse_policy(text, "p.yaml").policy.host


def rule(text):
    (found,) = host(text).interfaces
    return found


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nhost:\n",
        "version: 1\nhost: {}\n",
        "version: 1\nhost:\n  interfaces:\n  modules:\n  module_options:\n",
        "version: 1\nhost: {interfaces: [], modules: [], module_options: {}}\n",
        "version: 1\nhost:\n  module_options:\n    mlx4_core:\n",
        "version: 1\nhost: {module_options: {mlx4_core: {}}}\n",
    ],
)
def test_a_host_part_with_nothing_in_it_touches_nothing(text):
    assert parse_policy(text, "p.yaml").policy == Policy()


def test_a_key_that_is_left_out_leaves_the_property_alone():
    assert rule(interface()) == InterfaceRule(
        number=1,
        name="interface 1",
        link_layer="infiniband",
        device=None,
        pci=None,
        port=None,
        guid=None,
        pkey=None,
        transport_mode=None,
        mtu=None,
        tso=None,
        port_mtu=None,
        pkey_children=(),
        partitions=None,
    )


def test_everything_that_a_host_part_can_say():
    text = """\
version: 1
host:
  interfaces:
    - name: storage
      match:
        link_layer: infiniband
        device: mlx4_[01]
        pci: "0000:04:00.0"
        port: 2
        guid: "0002:c903:00fb:1231"
        pkey: 0xffff
      transport_mode: connected
      mtu: 65520
      tso: auto
      port_mtu: 2048
      pkey_children: [0x8001, "0x8002"]
    - match: {link_layer: ethernet}
      mtu: auto
    - match: {link_layer: infiniband}
      partitions: follow
  partitions_interval: 60
  modules: [nvme-rdma, ib_srp]
  module_options:
    mlx4-core: {port_type_array: "1,1", num-vfs: 8}
    mlx5_core:
      prof_sel: 0x2
"""
    assert host(text) == HostPolicy(
        (
            InterfaceRule(
                1,
                "storage",
                "infiniband",
                "mlx4_[01]",
                "0000:04:00.0",
                2,
                "0002:c903:00fb:1231",
                "0xffff",
                "connected",
                65520,
                "auto",
                2048,
                ("0x8001", "0x8002"),
            ),
            InterfaceRule(2, "interface 2", link_layer="ethernet", mtu="auto"),
            InterfaceRule(
                3, "interface 3", link_layer="infiniband", partitions="follow"
            ),
        ),
        ("nvme_rdma", "ib_srp"),
        (
            ModuleOption("mlx4_core", "port_type_array", "1,1"),
            ModuleOption("mlx4_core", "num_vfs", "8"),
            ModuleOption("mlx5_core", "prof_sel", "0x2"),
        ),
        60,
    )


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        # YAML 1.1 reads some of these as numbers of base 60, 8 or 16.
        ("pci", "04:00.0", "0000:04:00.0"),
        ("pci", "0000:04:00.0", "0000:04:00.0"),
        ("pci", "81:1F.7", "0000:81:1f.7"),
        ("pci", "10000:e1:00.0", "10000:e1:00.0"),
        ("pci", "00000000:04:00.0", "0000:04:00.0"),
        ("pci", '"04:00.0"', "0000:04:00.0"),
        ("guid", "0002:c903:00fb:1231", "0002:c903:00fb:1231"),
        ("guid", "0x0002c90300fb1231", "0002:c903:00fb:1231"),
        ("guid", "0x2c90300fb1231", "0002:c903:00fb:1231"),
        ("guid", "0002C90300FB1231", "0002:c903:00fb:1231"),
        ("guid", "0002010300001231", "0002:0103:0000:1231"),
        ("guid", "1002:0103:0000:1231", "1002:0103:0000:1231"),
        ("guid", "00:02:c9:03:00:fb:12:31", "0002:c903:00fb:1231"),
        ("guid", "10:02:09:03:00:01:12:31", "1002:0903:0001:1231"),
        ("pkey", "0x8001", "0x8001"),
        ("pkey", '"0x8001"', "0x8001"),
        ("pkey", "0x1", "0x0001"),
        ("pkey", "0xFFFF", "0xffff"),
    ],
)
def test_what_may_be_written_in_several_ways_gets_the_form_of_the_facts(
    key, written, read
):
    assert getattr(rule(interface(f"{{{key}: {written}}}")), key) == read


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("tso", "on", "on"),
        ("tso", "off", "off"),
        ("tso", "'on'", "on"),
        ("tso", "auto", "auto"),
        ("mtu", "auto", "auto"),
        ("mtu", "68", 68),
        ("mtu", "65520", 65520),
        ("port_mtu", "256", 256),
        ("transport_mode", "datagram", "datagram"),
        # The kernel makes a child a full member.
        ("pkey_children", "[0x0001, 0x8A]", ("0x8001", "0x808a")),
        ("pkey_children", "", ()),
    ],
)
def test_what_a_property_may_be(key, written, read):
    assert getattr(rule(interface(**{key: written})), key) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [("on", "on"), ("0x10", "0x10"), ("010", "010"), ("Y", "Y"), ("1,1", "1,1")],
)
def test_the_value_of_a_module_option_is_what_the_file_says(written, read):
    text = f"version: 1\nhost: {{module_options: {{m: {{o: '{written}'}}}}}}\n"
    assert host(text).module_options == (ModuleOption("m", "o", read),)
    text = f"version: 1\nhost:\n  module_options:\n    m:\n      o: {written}\n"
    assert host(text).module_options == (ModuleOption("m", "o", read),)


@pytest.mark.parametrize(
    ("match", "expected"),
    rows(r"""\
 |  | match-empty | link_layer
{} |  | match-empty | link_layer
ib0 |  | value-type-wrong | 'ib0' | link_layer, device, pci, port, guid, pkey
{name: ib0} | name | match-by-name
{netdev: ib0} | netdev | match-by-name
{devices: x} | devices | key-unknown | link_layer, device, pci, port, guid, pkey \
    | did you mean device?
{link_layer: InfiniBand} | link_layer | value-unknown | 'InfiniBand' \
    | infiniband, ethernet | did you mean infiniband?
{port: 0} | port | value-out-of-range | 1 to 65535 | 0
{device: ''} | device | value-empty | mlx5_*
{device: mlx4_0/2} | device | device-is-port | 'mlx4_0/2' \
    | write device: mlx4_0 and port: 2
{device: mlx4 0} | device | value-invalid | 'mlx4 0'
{device: 'mlx4_[01'} | device | bracket-unmatched | 'mlx4_[01'
{device: 'mlx4_[1-0]'} | device | glob-range-invalid | 'mlx4_[1-0]' | 1-0
{pci: 04:00} | pci | value-invalid | '04:00' | write 04:00.0
{pci: 04:20.0} | pci | value-invalid | '04:20.0'
{pci: } | pci | value-type-wrong | nothing | 0000:04:00.0
{guid: 0002c90300fb123} | guid | value-invalid | '0002c90300fb123' \
    | 0002:c903:00fb:1231 or 0x0002c90300fb1231
{guid: 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31} | guid \
    | value-invalid | '80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31' \
    | 0002:c903:00fb:1231
{guid: fe80:0000:0000:0000:0002:c903:00fb:1231} | guid | value-invalid \
    | 'fe80:0000:0000:0000:0002:c903:00fb:1231' | 0002:c903:00fb:1231
{pkey: 8001} | pkey | value-invalid | '8001' | write 0x8001
{pkey: 0x8000} | pkey | value-invalid | 0x0001 to 0xffff, but not 0x8000
{pkey: 0x18001} | pkey | value-invalid | '0x18001' | 0x0001 to 0xffff, but not 0x8000
{link_layer: ethernet, pkey: 0x8001} | pkey | key-not-for-ethernet
{link_layer: ethernet, guid: 0x0002c90300fb1231} | guid | key-not-for-ethernet
{port: 010} | port | value-type-wrong | '010' | decimal
"""),
)
def test_a_match_that_is_none(match, expected):
    key, *rest = expected
    where = f"4: host.interfaces[1].match{'.' * bool(key)}{key}"
    expect_mistake(interface(match), where, *rest)


# YAML 1.1 reads the first five as 1060, 90, 2044, 2044 and 2048.
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("netdev: ib0", ["netdev", "key-unknown", RULE_KEYS]),
        *rows(r"""\
transport_mode: Datagram | transport_mode | value-unknown | 'Datagram' \
    | auto, datagram, connected | did you mean datagram?
mtu: 02044 | mtu | value-type-wrong | '02044' | plain decimal
mtu: 1:30 | mtu | value-type-wrong | '1:30' | plain decimal
mtu: 0x7fc | mtu | value-type-wrong | '0x7fc' | plain decimal
mtu: 2_044 | mtu | value-type-wrong | '2_044' | plain decimal
port_mtu: 04000 | port_mtu | value-type-wrong | '04000' | plain decimal
mtu: 67 | mtu | value-out-of-range | auto, 68 to 65520 | 67
mtu: 65521 | mtu | value-out-of-range | auto, 68 to 65520 | 65521
mtu: max | mtu | value-unknown | 'max' | auto, 68 to 65520
mtu: '9000' | mtu | value-type-wrong | '9000' | auto, 68 to 65520
mtu: yes | mtu | value-type-wrong | auto, 68 to 65520 | the truth value yes
tso: yes | tso | value-unknown | 'yes' | auto, on, off
tso: true | tso | value-unknown | 'true' | auto, on, off
port_mtu: 3072 | port_mtu | value-unknown | 256, 512, 1024, 2048, 4096 | 3072
port_mtu: 2K | port_mtu | value-type-wrong | '2K' | 256, 512, 1024, 2048, 4096
pkey_children: 0x8001 | pkey_children | value-type-wrong | the text '0x8001'
pkey_children: [8001] | pkey_children[1] | value-invalid | '8001' | write 0x8001
pkey_children: [0x8002, 0x0000] | pkey_children[2] | value-invalid \
    | 0x0001 to 0xffff, but not 0x8000 | 0x0000
pkey_children: [0x7fff] | pkey_children[1] | pkey-default-partition | 0x7fff
pkey_children: [0x8001, 0x0001] | pkey_children[2] | pkey-repeated | 0x0001 \
    | pkey_children[1]
pkey_children: [~] | pkey_children[1] | value-type-wrong | a P_Key from 0x0001 | nothing
partitions: all | partitions | value-unknown | 'all' | follow
partitions: follow; pkey_children: [0x8001] | partitions | children-given-twice \
    | pkey_children
"""),
    ],
)
def test_a_property_that_is_none(given, expected):
    keys = dict(one.split(": ") for one in given.split("; "))
    key, *rest = expected
    expect_mistake(interface(**keys), f"5: host.interfaces[1].{key}", *rest)


@pytest.mark.parametrize(
    ("given", "expected"),
    rows(r"""\
{device: mlx4_0} + transport_mode: connected + tso: on | 6: tso \
    | tso-in-connected-mode | transport_mode
{device: hfi1_0} + transport_mode: datagram + mtu: 10237 | 6: mtu | mtu-too-large \
    | 10237 | 4092 | 10236 | transport_mode
{device: mlx4_0} + transport_mode: datagram + port_mtu: 2048 + mtu: 2045 | 7: mtu \
    | mtu-too-large | 2045 | port_mtu | 2048 | 2044
{link_layer: ethernet} + mtu: 9000 + transport_mode: connected | 6: transport_mode \
    | key-not-for-ethernet
{link_layer: ethernet} + port_mtu: 2048 | 5: port_mtu | key-not-for-ethernet
{link_layer: ethernet} + pkey_children: [0x8001] | 5: pkey_children \
    | key-not-for-ethernet
{link_layer: ethernet} + partitions: follow | 5: partitions | key-not-for-ethernet
{link_layer: infiniband} + roce: {priority: 3} | 5: roce | key-not-for-infiniband
{device: mlx5_0} + roce: {dscp: 26} | 5: roce.priority | key-missing
{device: mlx5_0} + roce: {priority: 8} | 5: roce.priority | value-out-of-range | 8
{device: mlx5_0} + roce: {priority: 3, dscp: 64} | 5: roce.dscp | value-out-of-range \
    | 64
{device: mlx5_0} + roce: {priority: 3, pfc: on} | 5: roce.pfc | key-unknown
{pkey: 0x8001} + pkey_children: [0x8002, 0x0001] | 5: pkey_children[2] \
    | pkey-of-match | 0x0001
"""),
)
def test_properties_that_no_netdev_can_have_together(given, expected):
    match, *keys = given.split(" + ")
    line, key = expected[0].split(": ")
    text = interface(match, **dict(one.split(": ", 1) for one in keys))
    expect_mistake(text, f"{line}: host.interfaces[1].{key}", *expected[1:])


@pytest.mark.parametrize(
    ("match", "keys"),
    [
        ("{device: mlx4_0}", {"transport_mode": "connected", "tso": "off"}),
        ("{device: mlx4_0}", {"transport_mode": "auto", "tso": "on"}),
        ("{device: hfi1_0}", {"transport_mode": "datagram", "mtu": 10236}),
        (
            "{device: mlx4_0}",
            {"transport_mode": "datagram", "mtu": 2044, "port_mtu": 2048},
        ),
        ("{device: mlx4_0}", {"port_mtu": 2048, "mtu": 65520}),
        ("{link_layer: ethernet}", {"mtu": 9000, "tso": "on"}),
        ("{pkey: 0xffff}", {"pkey_children": "[0x8001]"}),
        ("{port: 1}", {"partitions": "follow", "pkey_children": "[]"}),
    ],
)
def test_properties_that_some_netdev_can_have_together(match, keys):
    assert rule(interface(match, **keys))


@pytest.mark.parametrize(
    ("written", "tos"),
    [
        ("{priority: 3}", 106),
        ("{priority: 3, ecn: off}", 104),
        ("{priority: 4}", 138),
        ("{priority: 3, dscp: 0, ecn: off}", 0),
        ("{priority: 5, dscp: 46, buffer: 131072}", 186),
    ],
)
def test_the_type_of_service_of_a_lossless_class(written, tos):
    assert rule(interface("{device: mlx5_0}", roce=written)).roce.tos == tos


@pytest.mark.parametrize(("written", "read"), [(None, 30), ("5", 5), ("3600", 3600)])
def test_how_often_the_p_key_tables_are_looked_at(written, read):
    key = f"  partitions_interval: {written}\n" if written else "  modules:\n"
    assert host(f"version: 1\nhost:\n{key}").partitions_interval == read


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("4", ("value-out-of-range", "5 to 3600", "4")),
        ("3601", ("value-out-of-range", "5 to 3600", "3601")),
        ("0.5", ("value-type-wrong", "5 to 3600", "the number 0.5")),
        ("30s", ("value-type-wrong", "'30s'", "5 to 3600")),
    ],
)
def test_an_interval_that_is_none(written, expected):
    text = f"version: 1\nhost:\n  partitions_interval: {written}\n"
    expect_mistake(text, "3: host.partitions_interval", *expected)


def test_a_rule_without_match():
    text = "version: 1\nhost:\n  interfaces:\n    - {name: a, mtu: 2044}\n"
    where = "4: host.interfaces[1].match"
    expect_mistake(text, where, "key-missing", MATCH_KEYS)


@pytest.mark.parametrize("first", ["{name: a", "{name: interface 2"])
def test_two_interfaces_may_not_have_one_name(first):
    second = "{name: a" if first == "{name: a" else "{tso: auto"
    text = (
        "version: 1\nhost:\n  interfaces:\n"
        f"    - {first}, match: {{port: 1}}}}\n    - {second}, match: {{port: 2}}}}\n"
    )
    name = first.partition(": ")[2]
    where = "5: host.interfaces[2].name"
    expect_mistake(text, where, "name-repeated", repr(name), "interface 1")


def test_a_name_may_be_an_nfs_rules_too():
    text = interface(name="storage")
    text += "nfs: {rules: [{name: storage, server: nas, transport: tcp}]}\n"
    assert rule(text).name == "storage"


@pytest.mark.parametrize(
    ("modules", "expected"),
    rows(r"""\
nvme_rdma | modules | value-type-wrong | 'nvme_rdma'
[nvme_rdma, nvme-rdma] | modules[2] | module-repeated | nvme_rdma | modules[1]
[rpcrdma, xprtrdma] | modules[2] | module-repeated | rpcrdma | modules[1]
[mlx4_core.ko.xz] | modules[1] | module-name-is-file | 'mlx4_core.ko.xz' | mlx4_core
['nvme rdma'] | modules[1] | value-invalid | 'nvme rdma'
[''] | modules[1] | value-empty | nvme_rdma
[9] | modules[1] | value-type-wrong | the number 9 | nvme_rdma
"""),
)
def test_modules_that_cannot_be_loaded(modules, expected):
    text = f"version: 1\nhost:\n  modules: {modules}\n"
    key, *rest = expected
    expect_mistake(text, f"3: host.{key}", *rest)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (r'{m: {a: "1\n2"}}', (".m.a", "value-invalid", "'1\\n2'")),
        (f"{{m: {{a: {'x' * 1025}}}}}", (".m.a", "value-invalid", "1024")),
        *rows(r"""\
mlx4_core |  | value-type-wrong | 'mlx4_core'
{m: port_type_array=1} | .m | value-type-wrong | 'port_type_array=1'
{m: {a: }} | .m.a | value-type-wrong | nothing | 1,1
{m: {a: ''}} | .m.a | value-empty | 1,1
{m: {a: [1, 1]}} | .m.a | value-type-wrong | a list | 1,1
{m: {a: 1 2}} | .m.a | value-invalid | '1 2'
{m: {a: '"x"'}} | .m.a | value-invalid | '"x"'
{m: {a: 'x\'}} | .m.a | value-invalid | 'x\\'
{m: {a: café}} | .m.a | value-invalid | 'café'
{m: {a b: 1}} | .m.'a b' | value-invalid | 'a b'
{m: {num_vfs: 1, num-vfs: 2}} | .m.num-vfs | key-repeated | num_vfs
{mlx4_core: {a: 1}, mlx4-core: {b: 1}} | .mlx4-core | key-repeated | mlx4_core
{svcrdma: {a: 1}, rpcrdma: {b: 1}} | .rpcrdma | key-repeated | svcrdma
{m*: {a: 1}} | .'m*' | value-invalid | 'm*'
"""),
    ],
)
def test_module_options_that_modprobe_cannot_take(options, expected):
    text = f"version: 1\nhost:\n  module_options: {options}\n"
    key, *rest = expected
    expect_mistake(text, f"3: host.module_options{key}", *rest)


def test_mistakes_of_all_parts_are_shown_at_once():
    text = interface("{pci: x}", tso="yes", pkey_children="[5]")
    text += "  modules: [a b]\nnfs: {rules: [{server: nas}]}\n"
    assert [place(mistake) for mistake in mistakes(text)] == [
        "4: host.interfaces[1].match.pci",
        "5: host.interfaces[1].tso",
        "6: host.interfaces[1].pkey_children[1]",
        "7: host.modules[1]",
        "8: nfs.rules[1].transport",
    ]


@pytest.mark.parametrize("folder", ["/var/lib/node_exporter/textfiles", "/run/a b/"])
def test_the_folder_for_metrics(folder):
    assert host(f"version: 1\nhost: {{metrics_folder: {folder}}}\n").metrics_folder == (
        folder
    )


@pytest.mark.parametrize("folder", ["metrics", "/a/../b", "/a//b", "/", "//a", "/a/."])
def test_a_folder_that_is_no_absolute_path(folder):
    text = f"version: 1\nhost:\n  metrics_folder: {folder}\n"
    expect_mistake(text, "3: host.metrics_folder", "value-invalid", "an absolute")
