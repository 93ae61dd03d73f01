# SPDX-License-Identifier: GPL-2.0-or-later
"""Configure Sphinx, which makes HTML and manual pages from the Markdown files.

``make docs`` and ``make man`` run it. The source folder is the top of the repository,
because pages link to README.md and ARCHITECTURE.md there. MyST reads the Markdown, and
tools/command_docs.py gives the options of the commands.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "ovirt-rdma"
copyright = ""
# No version and no date: the manual pages are in the repository, and a new version
# must not change them.
version = release = ""
today = " "
language = "en"
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "tools.command_docs",
    "tools.docs_pages",
]

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "bench/BYTE_COST.md",
    "bench/RESULTS.md",
    "examples/README.md",
    "host_deploy/**.md",
    "vdsm_hooks/*/README.md",
]
exclude_patterns = [".*", "build", "dist", "**/.*", "**/__pycache__", "*.egg-info"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# Options begin with two hyphens, not with a dash.
smartquotes = False
# Blocks of code are marked by hand or not at all; guessing warns about most of them.
highlight_language = "none"

html_theme = "furo"
html_title = "ovirt-rdma"
# The prompt is no part of a command, and output is not to be copied with it.
copybutton_prompt_text = r"\$ |# "
copybutton_prompt_is_regexp = True
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
# docs/index.html is the first page; this one leads there.
html_additional_pages = {"index": "to_docs.html"}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["pages.css"]

man_pages = [
    (page, name, description, [], section)
    for page, name, section, description in (
        (
            "docs/manual/ovirt-rdma",
            "ovirt-rdma",
            8,
            "RDMA storage domains and IPoIB networks through the oVirt engine",
        ),
        (
            "docs/manual/ovirt-rdma-host",
            "ovirt-rdma-host",
            8,
            "check and configure RDMA on an oVirt hypervisor",
        ),
        (
            "docs/policy",
            "ovirt-rdma-policy",
            5,
            "which exports oVirt mounts over RDMA, and how netdevs are configured",
        ),
        (
            "docs/hooks",
            "ovirt-rdma-hooks",
            7,
            "what ovirt-rdma does at VDSM's hook points",
        ),
    )
]
