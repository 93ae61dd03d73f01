# SPDX-License-Identifier: GPL-2.0-or-later
"""The InfiniBand fabric: partitions and the subnet manager."""
