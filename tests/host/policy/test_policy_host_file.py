# SPDX-License-Identifier: GPL-2.0-or-later
"""The host: part of policy.yaml: what it says, and what is refused."""

import pytest

from ovirt_rdma.host.policy.diagnostics import PolicyProblem
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, ModuleOption, Policy

MATCH_KEYS = "link_layer, device, pci, port, guid, pkey"
RULE_KEYS = "name, match, transport_mode, mtu, tso, port_mtu, pkey_children, partitions"
PKEYS = "allowed: 0x0001 to 0xffff, but not 0x8000"
BY_NAME = (
    "a netdev is not matched by its name, which another card or boot can change; "
    "match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)"
)
NOTHING = (
    "names nothing; write at least one key, such as link_layer: infiniband "
    "for all InfiniBand ports"
)
NOT_ETHERNET = "is for InfiniBand, and match names Ethernet ports; remove it"


def mistakes(text):
    """The message about a policy that must be refused, without the file's name."""
    with pytest.raises(PolicyProblem) as caught:
        parse_policy(text, "p.yaml")
    return [line.removeprefix("p.yaml:") for line in str(caught.value).split("\n")]


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
        # YAML 1.1 takes some of these for numbers, to the base 60 or 8 or 16.
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
    ("match", "sentence"),
    [
        ("", f"4: host.interfaces[1].match: {NOTHING}"),
        ("{}", f"4: host.interfaces[1].match: {NOTHING}"),
        (
            "ib0",
            "4: host.interfaces[1].match: must be a mapping of keys, "
            f"not the text 'ib0'; allowed: {MATCH_KEYS}",
        ),
        ("{name: ib0}", f"4: host.interfaces[1].match.name: {BY_NAME}"),
        ("{netdev: ib0}", f"4: host.interfaces[1].match.netdev: {BY_NAME}"),
        (
            "{devices: x}",
            "4: host.interfaces[1].match.devices: unknown key; "
            f"allowed: {MATCH_KEYS}; did you mean device?",
        ),
        (
            "{link_layer: InfiniBand}",
            "4: host.interfaces[1].match.link_layer: 'InfiniBand' is not known; "
            "allowed: infiniband, ethernet; did you mean infiniband?",
        ),
        (
            "{port: 0}",
            "4: host.interfaces[1].match.port: 0 is out of range; allowed: 1 to 65535",
        ),
        (
            "{device: ''}",
            "4: host.interfaces[1].match.device: is empty; "
            "allowed: an RDMA device's name or a glob, such as mlx5_*",
        ),
        (
            "{device: mlx4_0/2}",
            "4: host.interfaces[1].match.device: 'mlx4_0/2' is a port; "
            "write device: mlx4_0 and port: 2",
        ),
        (
            "{device: mlx4 0}",
            "4: host.interfaces[1].match.device: 'mlx4 0' has a character that no "
            "RDMA device's name has",
        ),
        (
            "{device: 'mlx4_[01'}",
            "4: host.interfaces[1].match.device: 'mlx4_[01' has a bracket without "
            "its partner",
        ),
        (
            "{device: 'mlx4_[1-0]'}",
            "4: host.interfaces[1].match.device: 'mlx4_[1-0]' has a range that ends "
            "before it begins: 1-0",
        ),
        (
            "{pci: 04:00}",
            "4: host.interfaces[1].match.pci: '04:00' lacks the function; "
            "write 04:00.0 for the first",
        ),
        (
            "{pci: 04:20.0}",
            "4: host.interfaces[1].match.pci: '04:20.0' is not a PCI address; "
            "allowed: 0000:04:00.0 or 04:00.0",
        ),
        (
            "{pci: }",
            "4: host.interfaces[1].match.pci: must be text, not nothing; "
            "allowed: a PCI address such as 0000:04:00.0",
        ),
        (
            "{guid: 0002c90300fb123}",
            "4: host.interfaces[1].match.guid: '0002c90300fb123' is not a GUID; "
            "allowed: 0002:c903:00fb:1231, 0x0002c90300fb1231",
        ),
        (
            "{guid: 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31}",
            "4: host.interfaces[1].match.guid: "
            "'80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31' is an "
            "IPoIB address; write the GUID at its end: 0002:c903:00fb:1231",
        ),
        (
            "{guid: fe80:0000:0000:0000:0002:c903:00fb:1231}",
            "4: host.interfaces[1].match.guid: "
            "'fe80:0000:0000:0000:0002:c903:00fb:1231' is a GID; "
            "write the GUID at its end: 0002:c903:00fb:1231",
        ),
        (
            "{pkey: 8001}",
            "4: host.interfaces[1].match.pkey: '8001' is not a P_Key; "
            "write 0x8001 if it is hex",
        ),
        (
            "{pkey: 0x8000}",
            f"4: host.interfaces[1].match.pkey: 0x8000 is no partition; {PKEYS}",
        ),
        (
            "{pkey: 0x18001}",
            f"4: host.interfaces[1].match.pkey: '0x18001' is not a P_Key; {PKEYS}",
        ),
        (
            "{link_layer: ethernet, pkey: 0x8001}",
            f"4: host.interfaces[1].match.pkey: {NOT_ETHERNET}",
        ),
        (
            "{link_layer: ethernet, guid: 0x0002c90300fb1231}",
            f"4: host.interfaces[1].match.guid: {NOT_ETHERNET}",
        ),
        (
            "{port: 010}",
            "4: host.interfaces[1].match.port: 010 is 8 to YAML; "
            "write the number in plain decimal",
        ),
    ],
)
def test_a_match_that_is_none(match, sentence):
    assert mistakes(interface(match)) == [sentence]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"transport_mode": "Datagram"},
            "transport_mode: 'Datagram' is not known; "
            "allowed: auto, datagram, connected; did you mean datagram?",
        ),
        ({"mtu": 67}, "mtu: 67 is out of range; allowed: auto, 68 to 65520"),
        ({"mtu": 65521}, "mtu: 65521 is out of range; allowed: auto, 68 to 65520"),
        ({"mtu": "max"}, "mtu: 'max' is not known; allowed: auto, 68 to 65520"),
        (
            {"mtu": "'9000'"},
            "mtu: must be a whole number, not the text '9000'; "
            "allowed: auto, 68 to 65520",
        ),
        (
            {"mtu": "yes"},
            "mtu: must be a whole number, not the truth value yes; "
            "allowed: auto, 68 to 65520",
        ),
        *(
            (
                {key: written},
                f"{key}: {written} is {read} to YAML; "
                "write the number in plain decimal",
            )
            for key, written, read in (
                ("mtu", "02044", 1060),
                ("mtu", "1:30", 90),
                ("mtu", "0x7fc", 2044),
                ("mtu", "2_044", 2044),
                ("port_mtu", "04000", 2048),
            )
        ),
        ({"tso": "yes"}, "tso: 'yes' is not known; allowed: auto, on, off"),
        ({"tso": "true"}, "tso: 'true' is not known; allowed: auto, on, off"),
        (
            {"port_mtu": 3072},
            "port_mtu: 3072 is not known; allowed: 256, 512, 1024, 2048, 4096",
        ),
        (
            {"port_mtu": "2K"},
            "port_mtu: must be a whole number, not the text '2K'; "
            "allowed: 256, 512, 1024, 2048, 4096",
        ),
        (
            {"pkey_children": "0x8001"},
            "pkey_children: must be a list, not the number 0x8001",
        ),
        (
            {"pkey_children": "[8001]"},
            "pkey_children[1]: '8001' is not a P_Key; write 0x8001 if it is hex",
        ),
        (
            {"pkey_children": "[0x8002, 0x0000]"},
            f"pkey_children[2]: 0x0000 is no partition; {PKEYS}",
        ),
        (
            {"pkey_children": "[0x7fff]"},
            "pkey_children[1]: 0x7fff is the default partition, which needs no "
            "child: it is the base netdev's",
        ),
        (
            {"pkey_children": "[0x8001, 0x0001]"},
            "pkey_children[2]: 0x0001 is the partition of pkey_children[1] already",
        ),
        (
            {"pkey_children": "[~]"},
            "pkey_children[1]: must be text, not nothing; "
            "allowed: a P_Key such as 0x8001",
        ),
        (
            {"netdev": "ib0"},
            f"netdev: unknown key; allowed: {RULE_KEYS}",
        ),
        (
            {"partitions": "all"},
            "partitions: 'all' is not known; allowed: follow",
        ),
        (
            {"partitions": "follow", "pkey_children": "[0x8001]"},
            "partitions: follow makes the children of all partitions that the port is "
            "in; remove it, or pkey_children",
        ),
    ],
)
def test_a_property_that_is_none(keys, sentence):
    assert mistakes(interface(**keys)) == [f"5: host.interfaces[1].{sentence}"]


@pytest.mark.parametrize(
    ("match", "keys", "sentence"),
    [
        (
            "{device: mlx4_0}",
            {"transport_mode": "connected", "tso": "on"},
            "6: host.interfaces[1].tso: connected mode has no TSO; "
            "write auto, or transport_mode: datagram",
        ),
        (
            "{device: hfi1_0}",
            {"transport_mode": "datagram", "mtu": 10237},
            "6: host.interfaces[1].mtu: 10237 is too much for datagram mode, which "
            "carries 4092 at most (10236 on Omni-Path); write auto, or "
            "transport_mode: connected",
        ),
        (
            "{device: mlx4_0}",
            {"transport_mode": "datagram", "port_mtu": 2048, "mtu": 2045},
            "7: host.interfaces[1].mtu: 2045 is too much for datagram mode with "
            "port_mtu: 2048, which carries 2044; write auto or less",
        ),
        (
            "{link_layer: ethernet}",
            {"mtu": 9000, "transport_mode": "connected"},
            f"6: host.interfaces[1].transport_mode: {NOT_ETHERNET}",
        ),
        (
            "{link_layer: ethernet}",
            {"port_mtu": 2048},
            f"5: host.interfaces[1].port_mtu: {NOT_ETHERNET}",
        ),
        (
            "{link_layer: ethernet}",
            {"pkey_children": "[0x8001]"},
            f"5: host.interfaces[1].pkey_children: {NOT_ETHERNET}",
        ),
        (
            "{link_layer: ethernet}",
            {"partitions": "follow"},
            f"5: host.interfaces[1].partitions: {NOT_ETHERNET}",
        ),
        (
            "{pkey: 0x8001}",
            {"pkey_children": "[0x8002, 0x0001]"},
            "5: host.interfaces[1].pkey_children[2]: 0x0001 is the P_Key of match; "
            "a netdev has no child with its own",
        ),
    ],
)
def test_properties_that_no_netdev_can_have_together(match, keys, sentence):
    assert mistakes(interface(match, **keys)) == [sentence]


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


@pytest.mark.parametrize(("written", "read"), [(None, 30), ("5", 5), ("3600", 3600)])
def test_how_often_the_p_key_tables_are_looked_at(written, read):
    key = f"  partitions_interval: {written}\n" if written else "  modules:\n"
    assert host(f"version: 1\nhost:\n{key}").partitions_interval == read


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("4", "4 is out of range; allowed: 5 to 3600"),
        ("3601", "3601 is out of range; allowed: 5 to 3600"),
        ("0.5", "must be a whole number, not the number 0.5; allowed: 5 to 3600"),
        ("30s", "must be a whole number, not the text '30s'; allowed: 5 to 3600"),
    ],
)
def test_an_interval_that_is_none(written, sentence):
    text = f"version: 1\nhost:\n  partitions_interval: {written}\n"
    assert mistakes(text) == [f"3: host.partitions_interval: {sentence}"]


def test_a_rule_without_match():
    text = "version: 1\nhost:\n  interfaces:\n    - {name: a, mtu: 2044}\n"
    assert mistakes(text) == [
        f"4: host.interfaces[1].match: is missing; allowed: {MATCH_KEYS}"
    ]


@pytest.mark.parametrize("first", ["{name: a", "{name: interface 2"])
def test_two_interfaces_may_not_have_one_name(first):
    second = "{name: a" if first == "{name: a" else "{tso: auto"
    text = (
        "version: 1\nhost:\n  interfaces:\n"
        f"    - {first}, match: {{port: 1}}}}\n    - {second}, match: {{port: 2}}}}\n"
    )
    name = first.partition(": ")[2]
    assert mistakes(text) == [
        f"5: host.interfaces[2].name: {name!r} is the name of interface 1 already"
    ]


def test_a_name_may_be_an_nfs_rules_too():
    text = interface(name="storage")
    text += "nfs: {rules: [{name: storage, server: nas, transport: tcp}]}\n"
    assert rule(text).name == "storage"


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        (
            "nvme_rdma",
            "modules: must be a list, not the text 'nvme_rdma'",
        ),
        ("[nvme_rdma, nvme-rdma]", "modules[2]: nvme_rdma is modules[1] already"),
        (
            "[mlx4_core.ko.xz]",
            "modules[1]: 'mlx4_core.ko.xz' is a file; "
            "write the module's name: mlx4_core",
        ),
        (
            "[xprtrdma]",
            "modules[1]: xprtrdma is another name of the module rpcrdma; write rpcrdma",
        ),
        (
            "['nvme rdma']",
            "modules[1]: 'nvme rdma' is not a module's name; "
            "allowed: letters, digits, '_', '-'",
        ),
        ("['']", "modules[1]: is empty; allowed: a module's name such as nvme_rdma"),
        (
            "[9]",
            "modules[1]: must be text, not the number 9; write it in quotes; "
            "allowed: a module's name such as nvme_rdma",
        ),
    ],
)
def test_modules_that_cannot_be_loaded(modules, sentence):
    text = f"version: 1\nhost:\n  modules: {modules}\n"
    assert mistakes(text) == [f"3: host.{sentence}"]


VALUE = "allowed: a value without blanks and quotes, such as 1,1"
ONE_LINE = "allowed: one line of ASCII without blanks, quotes and backslashes"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("mlx4_core", ": must be a mapping of keys, not the text 'mlx4_core'"),
        (
            "{m: port_type_array=1}",
            ".m: must be a mapping of keys, not the text 'port_type_array=1'",
        ),
        ("{m: {a: }}", f".m.a: must be text, not nothing; {VALUE}"),
        ("{m: {a: ''}}", f".m.a: is empty; {VALUE}"),
        ("{m: {a: [1, 1]}}", f".m.a: must be text, not a list; {VALUE}"),
        ("{m: {a: 1 2}}", f".m.a: '1 2' cannot be a module option here; {ONE_LINE}"),
        (
            "{m: {a: '\"x\"'}}",
            f".m.a: '\"x\"' cannot be a module option here; {ONE_LINE}",
        ),
        (
            r"{m: {a: 'x\'}}",
            rf".m.a: 'x\\' cannot be a module option here; {ONE_LINE}",
        ),
        (
            r'{m: {a: "1\n2"}}',
            rf".m.a: '1\n2' cannot be a module option here; {ONE_LINE}",
        ),
        (
            "{m: {a: caf\u00e9}}",
            f".m.a: 'caf\u00e9' cannot be a module option here; {ONE_LINE}",
        ),
        (
            f"{{m: {{a: {'x' * 1025}}}}}",
            ".m.a: is too long; allowed: 1024 characters",
        ),
        (
            "{m: {a b: 1}}",
            ".m.'a b': 'a b' is not an option's name; "
            "allowed: letters, digits, '_', '-'",
        ),
        (
            "{m: {num_vfs: 1, num-vfs: 2}}",
            ".m.num-vfs: is the same as num_vfs, which is given already",
        ),
        (
            "{mlx4_core: {a: 1}, mlx4-core: {b: 1}}",
            ".mlx4-core: is the same as mlx4_core, which is given already",
        ),
        (
            "{svcrdma: {a: 1}}",
            ".svcrdma: svcrdma is another name of the module rpcrdma; write rpcrdma",
        ),
        (
            "{m*: {a: 1}}",
            ".'m*': 'm*' is not a module's name; allowed: letters, digits, '_', '-'",
        ),
    ],
)
def test_module_options_that_modprobe_cannot_take(options, sentence):
    text = f"version: 1\nhost:\n  module_options: {options}\n"
    assert mistakes(text) == [f"3: host.module_options{sentence}"]


def test_mistakes_of_all_parts_are_shown_at_once():
    text = interface("{pci: x}", tso="yes", pkey_children="[5]")
    text += "  modules: [a b]\nnfs: {rules: [{server: nas}]}\n"
    assert [line.split(" ")[:2] for line in mistakes(text)] == [
        ["4:", "host.interfaces[1].match.pci:"],
        ["5:", "host.interfaces[1].tso:"],
        ["6:", "host.interfaces[1].pkey_children[1]:"],
        ["7:", "host.modules[1]:"],
        ["8:", "nfs.rules[1].transport:"],
    ]


def two_rules(first, second):
    return parse_policy(
        "version: 1\nhost:\n  interfaces:\n"
        f"    - {{name: a, match: {{{first}}}}}\n"
        f"    - {{name: b, match: {{{second}}}}}\n",
        "p.yaml",
    ).warnings


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("link_layer: infiniband", "link_layer: infiniband"),
        ("link_layer: infiniband", "link_layer: infiniband, device: mlx4_0"),
        # Only IPoIB has P_Keys.
        ("link_layer: infiniband", "pkey: 0x8001"),
        ("device: '*'", "port: 1"),
        ("device: 'mlx*'", "device: mlx4_0, port: 1"),
        ("device: 'mlx*'", "device: 'mlx*'"),
        ("pci: 04:00.0", "pci: 0000:04:00.0, port: 2"),
        ("guid: 0x0002c90300fb1231", "guid: 0002:c903:00fb:1231, pkey: 0x8001"),
        ("pkey: 0x0001", "pkey: 0x8001"),
    ],
)
def test_an_interface_that_can_never_win_is_a_warning(first, second):
    (warning,) = two_rules(first, second)
    assert warning.at("p.yaml") == (
        "p.yaml:5: host.interfaces[2]: 'b' never wins: 'a' stands before it and names "
        "all its netdevs; move it up, or remove it"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("link_layer: infiniband", "link_layer: ethernet"),
        ("link_layer: infiniband", "device: mlx4_0"),
        ("device: mlx4_0", "device: 'mlx4_*'"),
        ("device: 'mlx*'", "device: 'mlx4_*'"),
        ("device: mlx4_0", "port: 1"),
        ("port: 1", "port: 2"),
        ("pkey: 0x8001", "link_layer: infiniband"),
        ("pkey: 0x8001", "pkey: 0x8002"),
        ("guid: 0x0002c90300fb1231", "pci: 04:00.0"),
    ],
)
def test_an_interface_that_may_win_is_none(first, second):
    assert two_rules(first, second) == ()
