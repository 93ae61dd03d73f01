# SPDX-License-Identifier: GPL-2.0-or-later
"""Run real kernels under QEMU, with RDMA between them, for tests and ``make demo``.

No package ships it; it needs only the standard library. Start at :mod:`lab.topology`;
docs/lab.md describes the lab.
"""
