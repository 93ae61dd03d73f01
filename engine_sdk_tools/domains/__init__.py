# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS storage domains: create, list, verify, and the transport that they use."""
