# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide an engine and its hosts for tests of the engine's side."""
