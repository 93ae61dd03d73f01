# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of all counters of ports that show errors or congestion. Data only.

Rules, health, metrics and benchmarks judge by this table alone. The names are those of
``counters/`` (drivers/infiniband/core/sysfs.c, IBTA 16.1.3.5) and, in ``hw_counters/``,
of the drivers: mlx5 (drivers/infiniband/hw/mlx5/counters.c), bnxt_re (hw/bnxt_re/
hw_counters.c; kernels differ), irdma (hw/irdma/verbs.c, irdma_hw_stat_descs; likewise)
and rxe (sw/rxe/rxe_hw_counters.c).
"""

from __future__ import annotations

from collections.abc import Mapping

# A bad cable, connector, transceiver or port.
LINK = "link"
# Packets that were lost, discarded or repeated.
PATH = "path"
# A connection that was ended because all repeats were in vain.
FATAL = "fatal"
# A network or a receiver that is too slow.
CONGESTION = "congestion"

# What a counter says about packets that were sent again. WAITED: this host waited in
# vain for acknowledgements. AGAIN: either side asked for a packet again. A port counts
# those of all servers, and Soft-RoCE also counts waits that were too short (rxe_comp.c,
# retransmit_timer).
WAITED, AGAIN, NEITHER = "waited", "again", ""

COUNTERS: Mapping[str, tuple[str, str, str]] = {
    "symbol_error": (LINK, NEITHER, "minor link errors: cable, transceiver"),
    "link_error_recovery": (LINK, NEITHER, "times the link recovered from an error"),
    "link_downed": (LINK, NEITHER, "times the link went down"),
    "port_rcv_errors": (LINK, NEITHER, "packets with an error that were received"),
    "port_rcv_remote_physical_errors": (
        LINK,
        NEITHER,
        "packets that the sender marked as bad",
    ),
    "local_link_integrity_errors": (
        LINK,
        NEITHER,
        "times the local errors exceeded their limit",
    ),
    "excessive_buffer_overrun_errors": (LINK, NEITHER, "input buffer overruns"),
    "rx_icrc_encapsulated": (
        LINK,
        NEITHER,
        "packets with a wrong checksum (mlx5, RoCE)",
    ),
    "port_xmit_discards": (
        PATH,
        NEITHER,
        "packets dropped at sending: port down or congested",
    ),
    "local_ack_timeout_err": (
        PATH,
        WAITED,
        "the peer did not acknowledge in time (mlx5, bnxt_re)",
    ),
    "out_of_sequence": (
        PATH,
        AGAIN,
        "packets that arrived out of order (mlx5, bnxt_re)",
    ),
    "packet_seq_err": (PATH, AGAIN, "the peer asked for packets again (mlx5, bnxt_re)"),
    "implied_nak_seq_err": (
        PATH,
        AGAIN,
        "a read answered a later packet first (mlx5, bnxt_re)",
    ),
    "duplicate_request": (
        PATH,
        AGAIN,
        "the peer sent requests again (mlx5, bnxt_re, rxe)",
    ),
    "roce_adp_retrans": (PATH, AGAIN, "adaptive retransmissions (mlx5, RoCE)"),
    "roce_adp_retrans_to": (
        PATH,
        WAITED,
        "adaptive retransmissions that timed out (mlx5, RoCE)",
    ),
    "to_retransmits": (PATH, WAITED, "the peer did not acknowledge in time (bnxt_re)"),
    "seq_err_naks_rcvd": (PATH, AGAIN, "the peer asked for packets again (bnxt_re)"),
    "missing_resp": (PATH, AGAIN, "answers that are missing (bnxt_re)"),
    "missin_resp": (PATH, AGAIN, "answers that are missing (bnxt_re, as it writes it)"),
    "dup_req": (PATH, AGAIN, "the peer sent requests again (bnxt_re)"),
    "oos_drop_count": (PATH, AGAIN, "packets that arrived out of order (bnxt_re)"),
    "RetransSegs": (PATH, AGAIN, "segments that were sent again (irdma)"),
    "tcpRetransSegs": (PATH, AGAIN, "segments that were sent again (irdma)"),
    "out_of_seq_request": (PATH, AGAIN, "requests that arrived out of order (rxe)"),
    "rcvd_seq_err": (PATH, AGAIN, "the peer asked for packets again (rxe)"),
    "completer_retry_err": (PATH, WAITED, "requests that were sent again (rxe)"),
    "send_err": (PATH, NEITHER, "packets that could not be sent (rxe)"),
    "req_transport_retries_exceeded": (
        FATAL,
        WAITED,
        "given up after all retries (mlx5)",
    ),
    "req_rnr_retries_exceeded": (
        FATAL,
        NEITHER,
        "given up, the peer was never ready (mlx5)",
    ),
    "max_retry_exceeded": (FATAL, WAITED, "given up after all retries (bnxt_re)"),
    "retry_exceeded_err": (FATAL, WAITED, "given up after all retries (rxe)"),
    "retry_rnr_exceeded_err": (
        FATAL,
        NEITHER,
        "given up, the peer was never ready (rxe)",
    ),
    "port_xmit_wait": (CONGESTION, NEITHER, "ticks with data to send and no credits"),
    "rnr_nak_retry_err": (
        CONGESTION,
        NEITHER,
        "the peer was not ready to receive (mlx5, bnxt_re)",
    ),
    "rnr_naks_rcvd": (
        CONGESTION,
        NEITHER,
        "the peer was not ready to receive (bnxt_re)",
    ),
    "rcvd_rnr_err": (CONGESTION, NEITHER, "the peer was not ready to receive (rxe)"),
    "out_of_buffer": (
        CONGESTION,
        NEITHER,
        "packets dropped for lack of a receive buffer (mlx5)",
    ),
    "rx_out_of_buffer": (
        CONGESTION,
        NEITHER,
        "packets dropped for lack of a receive buffer (bnxt_re)",
    ),
    "np_cnp_sent": (CONGESTION, NEITHER, "congestion notifications sent (mlx5, RoCE)"),
    "np_ecn_marked_roce_packets": (
        CONGESTION,
        NEITHER,
        "packets that arrived with a congestion mark (mlx5, RoCE)",
    ),
    "rp_cnp_handled": (
        CONGESTION,
        NEITHER,
        "congestion notifications obeyed (mlx5, RoCE)",
    ),
    "rp_cnp_ignored": (
        CONGESTION,
        NEITHER,
        "congestion notifications ignored (mlx5, RoCE)",
    ),
    "cnpSent": (CONGESTION, NEITHER, "congestion notifications sent (irdma)"),
    "cnpHandled": (CONGESTION, NEITHER, "congestion notifications obeyed (irdma)"),
    "cnpIgnored": (CONGESTION, NEITHER, "congestion notifications ignored (irdma)"),
    "RxECNMrkd": (
        CONGESTION,
        NEITHER,
        "packets that arrived with a congestion mark (irdma)",
    ),
}
"""The kind of each counter, what it says about repeats, and its meaning, by name."""

# The received packets of a port: of counters/, rxe, bnxt_re and irdma. The first group
# that a port has counts, as a sum.
PACKETS = (
    ("port_rcv_packets",),
    ("rcvd_pkts",),
    ("rx_pkts",),
    ("ip4InPkts", "ip6InPkts"),
)


def of_kind(*kinds: str) -> tuple[str, ...]:
    """Return the counters of some kinds, in the order of the table."""
    return tuple(name for name, (kind, _, _) in COUNTERS.items() if kind in kinds)


def repeats(*signs: str) -> frozenset[str]:
    """Return the counters that say one of WAITED and AGAIN."""
    return frozenset(name for name, (_, sign, _) in COUNTERS.items() if sign in signs)


ERRORS = of_kind(LINK, PATH, FATAL)
"""What should not be: everything but congestion."""

LOSSES = frozenset((*of_kind(LINK, PATH), *repeats(WAITED, AGAIN)))
"""Errors that come from lost or damaged packets, and not from a late receiver."""
