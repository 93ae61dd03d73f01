# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about adapters and links, for all link layers."""
