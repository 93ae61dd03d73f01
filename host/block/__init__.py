# SPDX-License-Identifier: GPL-2.0-or-later
"""Block storage over RDMA: sessions and LUNs of a host, logins, logouts, rescans."""
