# SPDX-License-Identifier: GPL-2.0-or-later
"""Count a byte over RDMA and over TCP on one fabric, on real kernels."""

from __future__ import annotations

import statistics

import pytest

pytest.importorskip("pyperf", reason="the benchmarks need it")

from bench.byte_cost.cases import CONNECTED, KIB, RDMA, Case, Load, Mount
from bench.byte_cost.runs import measured
from bench.byte_cost.section import STEADY, cost, spread

pytestmark = [pytest.mark.lab, pytest.mark.faults]

BLOCK = 64 * KIB


def test_rdma_copies_less_than_tcp_and_its_counts_repeat():
    load = Load("read", BLOCK)
    cases = [Case(Mount(one, "4.2"), load) for one in (RDMA, CONNECTED)]
    rdma, tcp = measured(cases)
    # The adapter moves each byte once, and some headers.
    moved = statistics.median(one.copied for one in rdma.adapter)
    assert BLOCK <= moved < 1.1 * BLOCK
    # TCP copies the data to the reader, which RDMA need not.
    assert min(cost(tcp).copied) > max(cost(rdma).copied) + 0.9 * BLOCK
    assert min(cost(tcp).instructions) > max(cost(rdma).instructions)
    assert spread(rdma) <= STEADY
    # A read is one RPC, and over RDMA one memory region.
    assert rdma.requests == pytest.approx(16, rel=0.1)
    assert rdma.registrations == pytest.approx(16, rel=0.1)
    # At least the request and the reply, on both hosts.
    assert rdma.completions is not None
    assert rdma.completions >= 4 * 16
    assert tcp.completions is None
