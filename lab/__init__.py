# SPDX-License-Identifier: GPL-2.0-or-later
"""The virtual fabric: real kernels under QEMU for tests and ``make demo``.

Never shipped in a package; standard library only. Start at :mod:`lab.topology`;
docs/lab.md is the tour.
"""
