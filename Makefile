# SPDX-License-Identifier: GPL-2.0-or-later
# `make` lists the targets. On Debian they install what they need, with apt as root
# or through sudo, and say so; elsewhere they name what is missing.
VENV := .venv
BIN := $(VENV)/bin
# Makes the virtual environment; 3.11 or later.
PYTHON ?= python3
# The rooms of the package, as setup.cfg names them (package_dir).
PACKAGES := $(shell sed -n 's/^ *ovirt_rdma\.\([a-z_]*\) = \1$$/\1/p' setup.cfg)
# The folders under their import names, for mypy and for tox.
TREE := .cache/package
# Pythons that pyenv keeps beside those on PATH, for tox.
PYENV_ROOT ?= $(HOME)/.pyenv
PYENV_PYTHONS := $(strip $(foreach v,3.9 3.11 3.12 3.13,\
  $(lastword $(wildcard $(PYENV_ROOT)/versions/$(v).*/bin/python$(v)))))
HYPERVISOR_PYTHONS := $(strip $(foreach v,3.9 3.12,\
  $(if $(filter %/python$(v),$(PYENV_PYTHONS)),$(v))))

# What an engine's admin has exported must not change what the tests do; the lab's
# own settings (docs/lab.md) stay.
unexport $(filter-out OVIRT_RDMA_%,$(filter OVIRT_%,$(.VARIABLES)))
# Images of containers set it; each pytest would rewrite all assertions again (10 s).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## this list
	@awk -F ': .*## ' '/^[a-z-]+:.* ## / { printf "%-20s %s\n", $$1, $$2 }' Makefile

.PHONY: venv
venv: $(VENV)/.installed ## the virtual environment .venv, with the commands in it

$(VENV)/.installed: setup.cfg tools/requirements.txt tools/test-requirements.txt
	@tools/make-venv $(PYTHON) $(VENV)
	@touch $@

.PHONY: lab
lab: venv ## QEMU, and a kernel and packages for the lab's guests, fetched once
	@$(BIN)/python -m lab.provision

.PHONY: demo
demo: lab ## storage connections over RDMA, on real kernels, in two minutes
	@$(BIN)/python -m lab.demo

.PHONY: demo-infiniband
demo-infiniband: lab ## a host with InfiniBand: checked, prepared, measured, reverted
	@$(BIN)/python -m lab.demo infiniband

.PHONY: session
session: lab ## record terminal sessions; writes docs/session.md and fabric-session.md
	@$(BIN)/python -m lab.record_session
	@$(BIN)/python -m lab.record_fabric

.PHONY: block-session
block-session: lab ## record an SRP LUN from login to map; writes docs/block-session.md
	@$(BIN)/python -m lab.record_block_session

.PHONY: engine-session
engine-session: venv ## record ovirt-rdma with an engine; writes docs/engine-session.md
	@$(BIN)/python tools/record_engine_session.py

TOX = OVIRT_RDMA_TEST_HYPERVISOR_PYTHONS="$(HYPERVISOR_PYTHONS)" \
  tools/with-memory-tmpdir $(BIN)/tox run-parallel $(if $(PYENV_PYTHONS),--discover $(PYENV_PYTHONS)) \
  --parallel 5 --parallel-no-spinner --quiet

# With a Python of hypervisors at hand, `make selftest` has the others.
.PHONY: test
test: venv tree ## unit tests on the Pythons that hypervisors run
	@$(TOX) --skip-env 'lint$(if $(HYPERVISOR_PYTHONS),|py311|py313)'

.PHONY: fuzz
fuzz: venv ## the tests of parsers with 20000 examples each (OVIRT_RDMA_FUZZ_EXAMPLES)
	@$(BIN)/python tools/fuzz.py

# MUTANTS= names some of them, or passes other words on (--list, --jobs 2).
.PHONY: mutants
mutants: venv ## break the product in many places, and see that a test fails each time
	@$(BIN)/python tools/mutants.py $(MUTANTS)

# Some of these tests have the other kernel (marker `kernels`), unless one is asked for.
.PHONY: lab-test
lab-test: lab ## tests with real kernels and real mounts, a whole engine, and packages
	@tools/install-debian-packages --for "building packages" \
	  createrepo-c dnf gnupg rpm rpmlint
	@tools/install-debian-packages --for "the portal's pages in a browser" chromium
	@OVIRT_RDMA_LAB_KERNEL=$${OVIRT_RDMA_LAB_KERNEL:-6.12} $(BIN)/python -m lab.provision
	@env -u VDSM_SOURCE tools/with-memory-tmpdir $(BIN)/pytest \
	  -m "engine and not (lab or rpm or faults or selftest)" \
	  -n 2 --dist loadfile --no-loadscope-reorder tests/engine tests/cli
	@env -u VDSM_SOURCE $(BIN)/pytest -m "(lab or rpm) and not (faults or selftest)" \
	  -n 2 --dist loadfile --no-loadscope-reorder tests/lab tests/engine tests/cli tests/rpm

.PHONY: size
size: venv ## the product's size, and how many files a job goes through
	@$(BIN)/python tools/size.py --walks

.PHONY: selftest
selftest: lab tree ## tests of lab, tools, benchmarks and doubles; unit tests on other Pythons
	@env -u VDSM_SOURCE $(BIN)/pytest -m selftest -n 2 --dist loadfile --no-loadscope-reorder
	@$(TOX) -e py311-host,py311-rest,py313-host,py313-rest

# docs/faults.md is about 6.1; the faults of another kernel are only for comparison.
FAULTS = $(if $(filter 6.1,$(OVIRT_RDMA_LAB_KERNEL)),docs/faults.md,build/faults.md)
.PHONY: faults
faults: export OVIRT_RDMA_LAB_KERNEL ?= 6.1
faults: lab ## every fault on real kernels, which takes long; writes docs/faults.md
	@tools/install-debian-packages --for "measuring exports in guests" fio
	@mkdir -p build
	@env -u VDSM_SOURCE OVIRT_RDMA_FAULTS_REPORT=$(FAULTS) $(BIN)/pytest -m faults \
	  -n 2 --dist loadfile --no-loadscope-reorder

# VDSM_SOURCE names the rival; BENCH passes words on (python -m bench --help).
.PHONY: bench
bench: lab tree ## measure against named rivals, VDSM of VDSM_SOURCE among them
	@$(BIN)/python -m bench $(BENCH) \
	  $(addprefix --python ,$(wildcard /usr/bin/python3) $(PYENV_PYTHONS))

.PHONY: lint
lint: venv ## style, Python 3.9, YAML, shell and the house's own rules
	@PATH="$(CURDIR)/$(BIN):$$PATH" tools/lint

.PHONY: types
types: venv tree ## mypy, strict
	@MYPYPATH=$(TREE) $(BIN)/mypy -p ovirt_rdma
	@MYPYPATH=$(TREE):tests $(BIN)/mypy lab tools bench

# A warning is an error: a link that leads nowhere, a page in no table of contents.
SPHINX = $(BIN)/sphinx-build -q -W --keep-going -c docs -d build/docs-tree

.PHONY: docs
docs: venv ## the documentation as HTML, in build/docs; fails for a dead link
	@$(SPHINX) -E -b html . build/docs
	@rm -rf build/man && $(SPHINX) -b man . build/man
	@$(BIN)/python tools/man_pages.py --check build/man docs/man
	@echo "docs: build/docs/index.html"

.PHONY: screens
screens: docs ## the report and pages as a browser shows them, in build/screens; needs chromium
	@$(BIN)/python tools/screens.py

.PHONY: man
man: venv ## write the manual pages docs/man, from docs/ and the commands' parsers
	@rm -rf build/man && $(SPHINX) -E -b man . build/man
	@$(BIN)/python tools/man_pages.py build/man docs/man

# What tests compare with the code, and write if it is meant to change.
GOLDEN := tests/cli/test_completion.py tests/engine/double/test_engine_double_docs.py \
  tests/engine/report/test_report_schema.py tests/host/facts tests/host/policy/test_policy_docs.py \
  tests/host/test_rules_docs.py \
  tests/storage/metrics/test_metrics_docs.py tests/test_reference_docs.py

.PHONY: golden
golden: venv man ## write everything that is generated again; read git diff then
	@$(BIN)/python tools/picture.py
	@WRITE_GOLDEN=1 $(BIN)/pytest -q -p no:cacheprovider $(GOLDEN)

.PHONY: check
check: ## all of lint, types, docs, test and lab-test
	@$(MAKE) --no-print-directory -j 3 -O lint types docs
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory lab-test
	@echo "make check: lint, types, docs, test and lab-test passed"

.PHONY: clean
clean: ## remove what make made here; downloads stay
	@rm -rf $(VENV) .tox .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache \
	  build dist *.egg-info
	@find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +

.PHONY: dist
dist: venv ## the source archive of this version, in dist/
	@$(BIN)/python -m tools.packages dist

.PHONY: rpm
rpm: venv ## the packages for EL9 and EL10, in dist/
	@tools/install-debian-packages --for "building packages" rpm
	@$(BIN)/python -m tools.packages rpm

# Where the release will be served, which the alerts name too; without it, the repository
# works from dist/release, and the alerts name installed files.
PROJECT_URL ?=

.PHONY: release
release: venv ## signed packages, dnf repositories, collection and sums, in dist/release
	@tools/install-debian-packages --for "making a release" createrepo-c gnupg rpm
	@$(BIN)/python -m tools.release "$(RELEASE_KEY)" $(PROJECT_URL)

# What the packages have beside the Python modules, below DESTDIR; rpm/ovirt-rdma.spec
# calls these. The lab's guests get the first.
.PHONY: install-host-files
install-host-files: ## launcher, units, udev rules, VDSM hooks and so on, below DESTDIR
	install -D -m 755 storage/launcher/vdsmd $(DESTDIR)/usr/libexec/ovirt-rdma/launcher/vdsmd
	install -D -m 644 storage/systemd/vdsmd.service.d/50-ovirt-rdma.conf \
	  $(DESTDIR)/usr/share/ovirt-rdma/systemd/vdsmd.service.d/50-ovirt-rdma.conf
	install -D -m 644 storage/tmpfiles.d/ovirt-rdma.conf \
	  $(DESTDIR)/usr/lib/tmpfiles.d/ovirt-rdma.conf
	for unit in $(notdir $(wildcard host/systemd/*.service)); do \
	  install -D -m 644 host/systemd/$$unit $(DESTDIR)/usr/lib/systemd/system/$$unit || exit; done
	for link in $(patsubst host/systemd/%,%,$(wildcard host/systemd/*.wants/*)); do \
	  mkdir -p $(DESTDIR)/usr/lib/systemd/system/$${link%/*} && \
	  cp -Pf host/systemd/$$link $(DESTDIR)/usr/lib/systemd/system/$$link || exit; done
	install -D -m 644 host/systemd/90-ovirt-rdma.preset \
	  $(DESTDIR)/usr/lib/systemd/system-preset/90-ovirt-rdma.preset
	for rules in $(notdir $(wildcard host/udev/*.rules)); do \
	  install -D -m 644 host/udev/$$rules $(DESTDIR)/usr/lib/udev/rules.d/$$rules || exit; done
	for hook in $(patsubst vdsm_hooks/%,%,$(wildcard vdsm_hooks/*/50_ovirt_rdma)); do \
	  install -D -m 755 vdsm_hooks/$$hook $(DESTDIR)/usr/libexec/vdsm/hooks/$$hook || exit; done
	install -D -m 755 host/ansible/ovirt_rdma.fact \
	  $(DESTDIR)/etc/ansible/facts.d/ovirt_rdma.fact
	for page in $(notdir $(wildcard docs/rules/*.md)); do install -D -m 644 \
	  docs/rules/$$page $(DESTDIR)/usr/share/ovirt-rdma/rules/$$page || exit; done
	install -m 644 docs/reference/messages.md $(DESTDIR)/usr/share/ovirt-rdma/messages.md
	install -D -m 644 docs/policy.schema.json \
	  $(DESTDIR)/usr/share/ovirt-rdma/policy.schema.json
	for file in $(notdir $(wildcard storage/metrics/prometheus/*)); do \
	  install -D -m 644 storage/metrics/prometheus/$$file \
	  $(DESTDIR)/usr/share/ovirt-rdma/prometheus/$$file || exit; done
	install -m 644 docs/alerts.md $(DESTDIR)/usr/share/ovirt-rdma/prometheus/alerts.md
	$(PYTHON) tools/dashboard.py $(DESTDIR)/usr/share/ovirt-rdma/prometheus
	$(if $(PROJECT_URL),sed -i \
	  's|file:///usr/share/ovirt-rdma/prometheus/alerts.md|$(PROJECT_URL)/html/docs/alerts.html|' \
	  $(DESTDIR)/usr/share/ovirt-rdma/prometheus/ovirt-rdma.rules.yml)
	install -D -m 644 completion/ovirt-rdma-host \
	  $(DESTDIR)/usr/share/bash-completion/completions/ovirt-rdma-host

# sos looks for plugins in its own package only; SITELIB is where that is.
.PHONY: install-sos-plugin
install-sos-plugin: ## the plugin of sos, below DESTDIR and SITELIB
	install -D -m 644 sos_plugin/ovirt_rdma.py \
	  $(DESTDIR)$(or $(SITELIB),$(error SITELIB is not set))/sos/report/plugins/ovirt_rdma.py

# What the package ovirt-rdma-engine puts on an engine beside the Python code.
.PHONY: install-engine-files
install-engine-files: ## Ansible collection, bash completion of ovirt-rdma, below DESTDIR
	install -D -m 644 completion/ovirt-rdma \
	  $(DESTDIR)/usr/share/bash-completion/completions/ovirt-rdma
	for file in $(shell cd host_deploy 2>/dev/null && find * -path tests -prune -o \
	  -name __pycache__ -prune -o -type f -print); do install -D -m 644 host_deploy/$$file \
	  $(DESTDIR)/usr/share/ansible/collections/ansible_collections/ovirt_rdma/host/$$file \
	  || exit; done

# What the package ovirt-rdma-portal puts on the engine's machine.
.PHONY: install-portal-files
install-portal-files: ## plugin of the portal, units, Apache's file, below DESTDIR
	install -D -m 644 portal/ovirt-rdma.json \
	  $(DESTDIR)/usr/share/ovirt-engine/ui-plugins/ovirt-rdma.json
	for file in $(notdir $(wildcard portal/resources/*)); do \
	  install -D -m 644 portal/resources/$$file \
	  $(DESTDIR)/usr/share/ovirt-engine/ui-plugins/ovirt-rdma-resources/$$file || exit; done
	for unit in $(notdir $(wildcard portal/systemd/*)); do install -D -m 644 \
	  portal/systemd/$$unit $(DESTDIR)/usr/lib/systemd/system/$$unit || exit; done
	install -D -m 644 portal/tmpfiles.d/ovirt-rdma-portal.conf \
	  $(DESTDIR)/usr/lib/tmpfiles.d/ovirt-rdma-portal.conf
	install -D -m 644 portal/httpd/ovirt-rdma-portal.conf \
	  $(DESTDIR)/etc/httpd/conf.d/ovirt-rdma-portal.conf

.PHONY: install-man-pages
install-man-pages:
	for page in $(wildcard docs/*.[1-8] docs/man/*.[1-8]); do install -D -m 644 $$page \
	  $(DESTDIR)/usr/share/man/man$${page##*.}/$${page##*/} || exit; done
	$(PYTHON) tools/man_pages.py --verbs docs/man $(DESTDIR)/usr/share/man/man8

# SITELIB is where the target's Python has its packages.
.PHONY: install-python-plugins
install-python-plugins:
	install -D -m 644 rpm/vdsm_tool/ovirt_rdma.py $(DESTDIR)$(SITELIB)/vdsm/tool/ovirt_rdma.py
	for plugin in $(wildcard sos_plugin/*.py); do install -D -m 644 $$plugin \
	  $(DESTDIR)$(SITELIB)/sos/report/plugins/$${plugin##*/} || exit; done

.PHONY: tree
tree: $(TREE)/.made

$(TREE)/.made: setup.cfg
	@mkdir -p $(TREE)/ovirt_rdma
	@for p in $(PACKAGES); do ln -sfn ../../../$$p $(TREE)/ovirt_rdma/$$p; done
	@touch $@
