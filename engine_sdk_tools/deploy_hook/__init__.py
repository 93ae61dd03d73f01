# SPDX-License-Identifier: GPL-2.0-or-later
"""Let the engine prepare each host that it installs: its post-tasks file, and our run."""
