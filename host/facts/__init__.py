# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of a host: the model, and its JSON form."""
