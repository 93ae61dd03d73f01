# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for virtual functions (SR-IOV) and for the link types of ports. Pure."""
