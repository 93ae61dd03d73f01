# SPDX-License-Identifier: GPL-2.0-or-later
"""opensm on this host, and the subnet manager of the fabric it is connected to."""
