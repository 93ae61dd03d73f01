# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``block:`` part of policy.yaml: meaning, mistakes, and how it is stored."""

import itertools
import json
import re

import pytest
from support.host.policy_mistakes import expect_mistake, rows

from ovirt_rdma.host.policy.block import (
    BlockPolicy,
    IserTarget,
    SrpTarget,
    timeouts_problem,
)
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy, from_json_dict, to_json_dict

GUID = "0002c90300fb1230"
IB = "dgid: fe80::2:c903:fb:1231, pkey: 0xffff, service_id: 0002c90300fb1230"


def srp(keys="dest: 10.0.0.1:5555", ids=f"id_ext: {GUID}, ioc_guid: {GUID}"):
    """A policy with one SRP target, in line 4."""
    return f"version: 1\nblock:\n  srp:\n    - {{{ids}, {keys}}}\n"


def iser(keys):
    return f"version: 1\nblock:\n  iser:\n    - {{{keys}}}\n"


def block(text):
    return parse_policy(text, "p.yaml").policy.block


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nblock:\n",
        "version: 1\nblock: {}\n",
        "version: 1\nblock: {srp: [], iser: []}\n",
        "version: 1\nblock:\n  srp:\n  iser:\n",
    ],
)
def test_a_block_part_with_nothing_in_it_logs_in_nowhere(text):
    assert parse_policy(text, "p.yaml").policy == Policy()


def test_everything_that_a_block_part_can_say():
    text = """\
version: 1
block:
  srp:
    - name: array
      id_ext: 0x2c90300fb1230
      ioc_guid: 0002:c903:00fb:1230
      dgid: fe800000000000000002c90300fb1231
      pkey: 0x7fff
      service_id: 0002c90300fb1230
      device: mlx4_*
      port: 2
      initiator_ext: 1
      options: {tl_retry_count: 2, queue_size: 128, allow_ext_sg: 1}
      fast_io_fail_tmo: off
      dev_loss_tmo: 600
      reconnect_delay: 20
    - {id_ext: 0002c90300fb1230, ioc_guid: 0002c90300fb1230, dest: "[FD00:0::1]:5555"}
  iser:
    - {portal: 10.0.0.1, iqn: "iqn.2003-01.org.example:a"}
    - {name: b, portal: "[fd00::1]:3261", iqn: "eui.0002c90300fb1230", interface: i2}
  login_timeout: 5
  rescan_interval: 300
"""
    text = text.replace("initiator_ext: 1", "initiator_ext: 0x1")
    found = block(text)
    assert found == BlockPolicy(
        (
            SrpTarget(
                1,
                "array",
                GUID,
                GUID,
                "fe800000000000000002c90300fb1231",
                "0x7fff",
                GUID,
                None,
                "mlx4_*",
                2,
                "0000000000000001",
                (("allow_ext_sg", 1), ("queue_size", 128), ("tl_retry_count", 2)),
                "off",
                600,
                20,
            ),
            SrpTarget(2, "srp 2", GUID, GUID, dest="[fd00::1]:5555"),
        ),
        (
            IserTarget(1, "iser 1", "10.0.0.1:3260", "iqn.2003-01.org.example:a"),
            IserTarget(2, "b", "[fd00::1]:3261", f"eui.{GUID}", "i2"),
        ),
        5,
        300,
    )


def test_hex_digits_that_yaml_reads_as_a_number_are_read_as_they_are_written():
    (target,) = block(
        srp(ids="id_ext: 0000000000000017, ioc_guid: 1002010300000012")
    ).srp
    assert target.id_ext == "0000000000000017"
    assert target.ioc_guid == "1002010300000012"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (f"{IB}, dest: 10.0.0.1:5555", [".dest", "target-form-mixed"]),
        *rows(r"""\
dest: 10.0.0.1 | .dest | value-invalid
dest: nas1:5555 | .dest | value-invalid
dest: '10.0.0.1:' | .dest | value-invalid
dest: 10.0.0.1:0 | .dest | value-invalid
dest: 10.0.0.1:65536 | .dest | value-invalid
dest: 'fd00::1:5555' | .dest | value-invalid
dest: '[10.0.0.1]:5555' | .dest | value-invalid
dest: '[fe80::1%ib0]:5555' | .dest | value-invalid
dest: 0.0.0.0:5555 | .dest | value-invalid
dest: 224.0.0.1:5555 | .dest | value-invalid
pkey: 0xffff |  | target-form-missing
name: a |  | target-form-missing
dgid: fe80::2:c903:fb:1231, pkey: 0x8000, service_id: 0002c90300fb1230 | .pkey \
    | value-invalid
dgid: fe80::2:c903:fb:1231, pkey: ffff, service_id: 0002c90300fb1230 | .pkey \
    | value-invalid
dgid: ff12::2:c903:fb:1231, pkey: 0xffff, service_id: 0002c90300fb1230 | .dgid \
    | value-invalid
dgid: '::', pkey: 0xffff, service_id: 0002c90300fb1230 | .dgid | value-invalid
dgid: 0002c90300fb1230, pkey: 0xffff, service_id: 0002c90300fb1230 | .dgid \
    | value-invalid
dgid: fe80::2:c903:fb:1231, pkey: 0xffff, service_id: 0x0 | .service_id | guid-zero
dest: 10.0.0.1:1, device: mlx4_0/1 | .device | device-is-port
dest: 10.0.0.1:1, port: 0 | .port | value-out-of-range
dest: 10.0.0.1:1, options: {tl_retry_count: 1} | .options.tl_retry_count \
    | value-out-of-range
dest: 10.0.0.1:1, options: {cmd_sg_entries: 256} | .options.cmd_sg_entries \
    | value-out-of-range
dest: 10.0.0.1:1, options: {allow_ext_sg: true} | .options.allow_ext_sg \
    | value-type-wrong
dest: 10.0.0.1:1, options: {queue_sise: 9} | .options.queue_sise | key-unknown
dest: 10.0.0.1:1, options: {max_cmd_per_lun: 63} | .options.max_cmd_per_lun \
    | option-too-large
dest: 10.0.0.1:1, options: {cmd_sg_entries: 12, sg_tablesize: 13} \
    | .options.sg_tablesize | option-too-large
dest: 10.0.0.1:1, fast_io_fail_tmo: 601, dev_loss_tmo: 700 | .fast_io_fail_tmo \
    | value-out-of-range
dest: 10.0.0.1:1, reconnect_delay: 0 | .reconnect_delay | value-out-of-range
dest: 10.0.0.1:1, dev_loss_tmo: never | .dev_loss_tmo | value-unknown
dest: 10.0.0.1:1, dev_loss_tmo: 15 |  | timeouts-exclude-each-other
dest: 10.0.0.1:1, fast_io_fail_tmo: off, dev_loss_tmo: 601 |  \
    | timeouts-exclude-each-other
dest: 10.0.0.1:1, fast_io_fail_tmo: off, dev_loss_tmo: off, reconnect_delay: off |  \
    | timeouts-exclude-each-other
"""),
    ],
)
def test_a_mistake_in_an_srp_target_is_one_sentence(keys, expected):
    key, id = expected
    expect_mistake(srp(keys), f"4: block.srp[1]{key}", id)


@pytest.mark.parametrize(
    ("ids", "key", "id"),
    [
        (f"id_ext: {GUID}", "ioc_guid", "key-missing"),
        (f"ioc_guid: {GUID}", "id_ext", "key-missing"),
        (f"id_ext: {GUID}, ioc_guid: 0x0", "ioc_guid", "guid-zero"),
        (f"id_ext: {GUID}0, ioc_guid: {GUID}", "id_ext", "value-invalid"),
        (f"id_ext: {GUID}, ioc_guid: [1]", "ioc_guid", "value-type-wrong"),
    ],
)
def test_both_identifiers_must_be_there(ids, key, id):
    """The kernel takes a missing one for zero (srp_parse_options, Linux 6.1)."""
    expect_mistake(srp(ids=ids), f"4: block.srp[1].{key}", id)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            f"portal: 10.0.0.1, iqn: 'iqn.2003-01.o:{'a' * 220}'",
            [".iqn", "value-invalid"],
        ),
        *rows(r"""\
iqn: 'iqn.2003-01.org.example:a' | .portal | key-missing
portal: 10.0.0.1 | .iqn | key-missing
portal: nas1, iqn: 'iqn.2003-01.org.a' | .portal | value-invalid
portal: '10.0.0.1:99999', iqn: iqn.2003-01.org.a | .portal | value-invalid
portal: 10.0.0.1, iqn: org.example | .iqn | value-invalid
portal: 10.0.0.1, iqn: 'iqn.2003-01.o:../a' | .iqn | value-invalid
portal: 10.0.0.1, iqn: 'iqn.2003-01.o:a,b' | .iqn | value-invalid
portal: 10.0.0.1, iqn: "iqn.2003-01.o:a\x7f" | .iqn | value-invalid
portal: 10.0.0.1, iqn: iqn.2003-01.org.a, interface: default | .interface \
    | record-of-vdsm
portal: 10.0.0.1, iqn: iqn.2003-01.org.a, interface: iser | .interface | record-of-vdsm
portal: 10.0.0.1, iqn: iqn.2003-01.org.a, interface: -x | .interface | value-invalid
"""),
    ],
)
def test_a_mistake_in_an_iser_target_is_one_sentence(keys, expected):
    key, id = expected
    expect_mistake(iser(keys), f"4: block.iser[1]{key}", id)


@pytest.mark.parametrize(
    ("second", "where", "id"),
    [
        ("dest: 10.0.0.1:5555", "", "target-repeated"),
        ("name: srp 1, dest: 10.0.0.2:5555", ".name", "name-repeated"),
    ],
)
def test_two_targets_are_not_the_same(second, where, id):
    text = srp() + f"    - {{id_ext: {GUID}, ioc_guid: {GUID}, {second}}}\n"
    expect_mistake(text, f"5: block.srp[2]{where}", id)


def test_a_second_path_to_a_target_is_a_target_of_its_own():
    second = "dest: 10.0.0.1:5555, initiator_ext: 0x2"
    text = srp() + f"    - {{id_ext: {GUID}, ioc_guid: {GUID}, {second}}}\n"
    assert len(block(text).srp) == 2


def kernel_accepts(delay, fast, loss):
    """srp_tmo_valid() of drivers/scsi/scsi_transport_srp.c, Linux 6.1."""
    if delay < 0 and fast < 0 and loss < 0:
        return False
    if delay == 0 or fast > 600 or (fast < 0 and loss > 600):
        return False
    return not (fast >= 0 and loss >= 0 and fast >= loss)


def test_timeouts_are_valid_when_the_kernel_says_so():
    values = ("off", 0, 1, 14, 15, 16, 599, 600, 601, 100000)
    fasts = [value for value in values if value == "off" or value <= 600]
    others = [value for value in values if value != 0]
    checked = 0
    for fast, loss, delay in itertools.product(fasts, others, others):
        numbers = [-1 if v == "off" else v for v in (delay, fast, loss)]
        checked += 1
        assert (timeouts_problem(fast, loss, delay) is None) == kernel_accepts(*numbers)
    assert checked > 500
    # Left out: the kernel's own values.
    assert timeouts_problem(None, None, None) is None
    assert timeouts_problem(None, 15, None)
    assert timeouts_problem(600, None, None)


def test_a_stored_block_part_is_read_strictly():
    stored = to_json_dict(parse_policy(srp(), "p.yaml").policy)
    for change, names in (
        (lambda part: part["srp"][0].pop("dest"), "block.srp[0].dest"),
        (lambda part: part["srp"][0].update(dest=1), "block.srp[0].dest"),
        (lambda part: part.update(more=1), "block.more"),
    ):
        data = json.loads(json.dumps(stored))
        change(data["block"])
        with pytest.raises(ValueError, match=re.escape(names)):
            from_json_dict(data)


def test_a_drop_in_has_no_block_part():
    text = "version: 1\nblock: {}\n"
    with pytest.raises(Exception, match="not for a drop-in"):
        parse_policy("version: 1\n", "p.yaml", {"50-a.yaml": text})
