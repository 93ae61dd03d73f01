# SPDX-License-Identifier: GPL-2.0-or-later
"""Effects: carrying a plan out, proving it, taking it back. The only code of this room
that changes a host, with what it keeps so that it can always change it back.
"""
