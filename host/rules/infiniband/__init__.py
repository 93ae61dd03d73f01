# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for InfiniBand ports and IPoIB netdevs. Pure."""
