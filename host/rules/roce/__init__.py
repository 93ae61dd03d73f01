# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for RoCE ports and their netdevs. Pure."""
