# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse what fio, perftest and iperf3 print, whole, cut off, and odd.

The texts are of fio 3.33 and iperf3 3.12; those of perftest follow its
print_full_bw_report() and RESULT_FMT_G, RESULT_FMT_QOS (src/perftest_parameters).
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.storage.benchmark import tools
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
)
from ovirt_rdma.storage.benchmark.verdict import (
    cpu_times,
    tcp_out_of_order,
    tcp_resent,
)

READ = Load(RANDOM_READ, 4096, 32)
WRITE = Load(SEQUENTIAL_WRITE, 1 << 20, 32)


def _side(rate, percentiles=True):
    found = {
        "50.000000": 987136,
        "90.000000": 4079616,
        "99.000000": 11075584,
        "99.900000": 13041664,
    }
    return {
        "bw_bytes": rate,
        "iops": 15174.603175,
        "clat_ns": {"min": 1, "percentile": found} if percentiles else {"min": 1},
    }


def _fio(read=62155174, write=0, error=0, **more):
    job = {"jobname": "x", "error": error, "read": _side(read), "write": _side(write)}
    return json.dumps({"fio version": "fio-3.33", "jobs": [{**job, **more}]})


FIO = "fio: this platform has no fallocate\nnote: both iodepth >= 1\n" + _fio()


def test_fio_gives_rate_and_percentiles():
    found = tools.parse(FIO, READ)
    assert (found.bytes_per_s, found.operations_per_s) == (62155174.0, 15174.603175)
    assert found.p99_9_us == 13041.7
    assert tools.parse(_fio(read=0, write=7e8), WRITE).bytes_per_s == 7e8


@pytest.mark.parametrize(
    "text, id, words",
    [
        (_fio(error=28), "bench-fio-failed", "No space left on device"),
        (_fio(error=5), "bench-fio-failed", "Input/output error"),
        (_fio(error=999), "bench-fio-failed", "999"),
        (_fio()[:200], "bench-fio-incomplete", "not JSON"),
        ("", "bench-fio-incomplete", "it printed nothing"),
        ("fio: terminated on signal 9\n", "bench-fio-incomplete", "signal 9"),
        ('{"jobs": []}', "bench-fio-incomplete", "no job"),
        (_fio(read=0), "bench-fio-incomplete", "nothing was read"),
        (_fio(read=None), "bench-fio-incomplete", "no rate"),
        (_fio(read=_side(1, percentiles=False)), "bench-fio-incomplete", "no rate"),
    ],
)
def test_a_fio_that_failed_is_one_sentence(text, id, words):
    with pytest.raises(Problem) as caught:
        tools.parse(text, READ)
    assert caught.value.id == id
    assert words in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    "version, engines, wanted",
    [
        ("fio-3.33\n", "Available IO engines:\n\tpsync\n\tlibaio\n", "libaio"),
        ("fio-3.35-dirty\n", "\tpsync\n\tposixaio\n", "psync"),
        ("fio-3.2", "", "psync"),
    ],
)
def test_the_best_engine_is_used(version, engines, wanted):
    assert tools.engine(version, engines).name == wanted


@pytest.mark.parametrize("version", ["fio-2.21\n", "fio-3.1\n", "", "3.33", "\x1b[2J"])
def test_an_old_fio_is_refused(version):
    with pytest.raises(Problem, match=r"bench needs fio 3\.2"):
        tools.engine(version, "")


def test_a_depth_without_asynchronous_engine_is_threads():
    words = tools.arguments(READ, "/m/f", 1 << 20, 3, tools.Engine("3.35", "psync"))
    assert "--numjobs=32" in words
    assert "--thread" in words
    assert not [word for word in words if word.startswith("--iodepth")]


PERFTEST = """\
 WARNING: BW peak won't be measured in this run.
---------------------------------------------------------------------------------------
                    RDMA_Read BW Test
 Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      560000           0.00               97.85  		     0.186637
---------------------------------------------------------------------------------------
"""
QOS = (
    " #bytes    #sl      #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   "
    "MsgRate[Mpps]\n 65536    3           5000           0.00                  "
    "11000.00                  0.176\n"
)
OLD = (
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   "
    "MsgRate[Mpps]\n 65536      1000             5999.90            5990.00\n"
)


@pytest.mark.parametrize(
    "word", [RANDOM_READ, RANDOM_WRITE, SEQUENTIAL_READ, SEQUENTIAL_WRITE]
)
@pytest.mark.parametrize("name", ["libaio", "psync"])
def test_fio_bypasses_the_page_cache_and_makes_no_file(word, name):
    """What this host has in memory is not the server's; a file that fio makes in place
    of ours may be anywhere (fio(1): direct, allow_file_create).
    """
    used = tools.Engine("3.33", name)
    for command in (
        tools.arguments(Load(word, 1 << 20, 4), "/proc/1/fd/3", 1 << 20, 9, used),
        tools.layout_arguments("/proc/1/fd/3", 1 << 20, used),
    ):
        set_ = dict(one.lstrip("-").split("=", 1) for one in command if "=" in one)
        assert (set_["direct"], set_["allow_file_create"]) == ("1", "0")
        assert set_["filename"] == "/proc/1/fd/3"
        assert not {"overwrite", "create_on_open", "buffered", "directory"} & set(set_)


def test_perftest_is_read_from_its_table():
    assert tools.perftest(PERFTEST) == 97.85e9 / 8
    assert tools.perftest(QOS) == 11000 * (1 << 20)
    assert tools.perftest(OLD) == 5990 * (1 << 20)


IPERF3 = json.dumps({"start": {}, "end": {"sum_received": {"bits_per_second": 9.4e9}}})


def test_iperf3_gives_bytes_per_second():
    assert tools.iperf3(IPERF3) == 9.4e9 / 8


# perftest 4.5 in the lab's guests, with Soft-RoCE.
GUEST_PERFTEST = """\
                    RDMA_Read BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      34           0.000000            0.005909            0.000011
---------------------------------------------------------------------------------------
"""
# The guest's clock does not advance evenly, so perftest knows no clock rate.
UNEVEN_CLOCK = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      680           0.000000            0.000000            0.000000
---------------------------------------------------------------------------------------
"""
NO_SERVER = """\
Device not recognized to implement inline feature. Disabling it
Unexpected CM event bl blka 8
 Unable to perform rdma_client function
 Unable to init the socket connection
"""


def test_what_the_tools_printed_in_the_lab():
    assert tools.perftest(GUEST_PERFTEST) == 0.005909e9 / 8


def test_without_a_clock_rate_perftest_s_messages_count():
    assert tools.perftest(UNEVEN_CLOCK) == 680 * 65536 / 3


@pytest.mark.parametrize(
    "stdout, stderr, wanted",
    [
        ("-----\n", NO_SERVER, "Unable to init the socket connection"),
        (
            "",
            "iperf3: unrecognized option '--json'\nUsage:\n\nReport bugs to: x\n",
            "iperf3: unrecognized option '--json'",
        ),
        (
            '{\n\t"start": {},\n\t"error": "unable to connect: refused"\n}\n',
            "",
            "unable to connect: refused",
        ),
        ('{"error": " "}\n', "iperf3: no route\n", "iperf3: no route"),
        ("\n", " ", "exit status 1"),
    ],
    ids=[
        *("no server", "old iperf3", "iperf3 3.16"),
        *("empty error", "silent"),
    ],
)
def test_a_tool_that_failed_is_quoted(stdout, stderr, wanted):
    assert tools.reason(stdout, stderr, "exit status 1").startswith(wanted)


_NOTHING = ("560000           0.00               97.85", "0    0.00    0.00")


@pytest.mark.parametrize(
    "parse, text, words",
    [
        (tools.perftest, "Couldn't connect to hv2:18515\n", "connect to hv2"),
        (tools.perftest, PERFTEST.partition(" 65536")[0], "no average"),
        (tools.perftest, PERFTEST.replace(*_NOTHING), "nothing was"),
        (tools.perftest, "", "printed nothing"),
        (tools.iperf3, '{"error": "unable to connect"}', "unable to connect"),
        (tools.iperf3, IPERF3[:40], "not JSON"),
        (tools.iperf3, "{}", "no end.sum_received"),
    ],
)
def test_a_tool_without_result_says_why(parse, text, words):
    with pytest.raises(tools.NotUnderstood, match=words):
        parse(text)


def test_each_tool_is_asked_for_what_its_parser_reads():
    words = {test.tool: test.arguments("hv2") for test in tools.TESTS}
    assert words["ib_read_bw"] == (
        *("ib_read_bw", "-R", "-F", "--report_gbits", "-D", "3"),
        "hv2",
    )
    assert words["iperf3"] == ("iperf3", "-J", "-t", "3", "-c", "hv2")


STAT = """\
cpu  100 0 50 800 10 0 5 35 0 0
cpu0 50 0 25 400 5 0 5 15 0 0
cpu1 50 0 25 400 5 0 0 20 0 0
intr 12345
"""


def test_processor_times_are_busy_and_total():
    found = dict(cpu_times(STAT))
    # 50 user, 25 system, 5 softirq; 15 were stolen by the hypervisor below.
    assert (found["cpu0"].busy, found["cpu0"].total) == (80, 485)
    assert set(found) == {"cpu0", "cpu1"}


NETSTAT = (
    "TcpExt: SyncookiesSent TCPOFOQueue TCPDSACKRecv\nTcpExt: 0 31 7\n"
    "IpExt: InOctets\nIpExt: 9\n"
)
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 77 0\n"


def test_segments_sent_again_are_counted():
    # 7 of them were late, not lost.
    assert tcp_resent(SNMP, NETSTAT) == 70
    assert tcp_resent("Tcp: RetransSegs\n", NETSTAT) is None
    assert tcp_resent(SNMP, "") is None


def test_segments_behind_a_gap_are_counted():
    assert tcp_out_of_order(NETSTAT) == 31
    assert tcp_out_of_order(SNMP) is None


# Pieces of real outputs in any order, and any text.
PIECES = [FIO, PERFTEST, QOS, IPERF3, STAT, SNMP, NETSTAT]
odd = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES).flatmap(lambda t: st.sampled_from(t.split()))).map(
        " ".join
    ),
    st.tuples(st.sampled_from(PIECES), st.integers(0, 900)).map(lambda p: p[0][: p[1]]),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["jobs", "error", "read", "end", "clat_ns", "percentile"]
                ),
                inner,
            )
        ),
    ).map(json.dumps),
)


@given(odd)
def test_any_output_is_a_result_or_one_sentence(text):
    for parse in (tools.perftest, tools.iperf3):
        try:
            assert parse(text) > 0
        except tools.NotUnderstood as error:
            assert len(str(error).splitlines()) <= 1
    try:
        assert tools.parse(text, READ).bytes_per_s > 0
    except Problem as problem:
        assert problem.id in ("bench-fio-incomplete", "bench-fio-failed")
        assert len(str(problem).splitlines()) == 1
    for _, cpu in cpu_times(text):
        assert 0 <= cpu.busy <= cpu.total
    tcp_resent(text, text)
    tcp_out_of_order(text)
