# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable and disable the add-on on a host, and report its status."""
