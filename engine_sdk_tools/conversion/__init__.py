# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert storage domains between TCP and RDMA: offline, rolling, and back."""
