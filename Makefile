# Needs GNU make, git and a Python with venv. `make run` diagnoses this machine; `make check` is the whole development loop.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

RUN_READY := $(VENV)/ready-to-run
DEV_READY := $(VENV)/ready-to-develop

# A recorded node with two faults: nouveau holds its GPUs, and its daemon.json does not parse.
SICK_NODE := fixtures/nodes/nouveau-and-broken-daemon-json

.DEFAULT_GOAL := help
.PHONY: help run test test-sweep lint check format golden test-vm test-vm-systemd bench score knowledge catalogue podresources screenshots completion man docs wheel single-file deb rpm clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @ 2>/dev/null || sed -n 's/^\([a-z-]*\):.*## /  \1: /p' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml | $(BIN)/python
	$(PIP) install --editable .
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[dev]'
	@touch $@ $(RUN_READY)

# The report is kept in a file, so that "no report" can be told from any verdict, which is no failure of `make run`.
define diagnose
report=$$(mktemp) && trap 'rm -f "$$report"' EXIT && \
if [ -t 1 ] && [ "$$TERM" != dumb ]; then export CLICOLOR_FORCE=1 COLUMNS="$$(stty size 2>/dev/null | cut -d' ' -f2)"; fi; \
$(BIN)/gpudoctor $(1) >"$$report"; status=$$?; cat "$$report"; \
if [ $$status -gt 3 ] || [ ! -s "$$report" ]; then echo "make run: no report (exit status $$status)" >&2; exit 1; fi
endef

run: $(RUN_READY) ## diagnose this machine; ARGS="run -v" passes arguments
	@$(call diagnose,$(ARGS))
ifeq ($(strip $(ARGS)),)
	@if grep -qsx 0x10de /sys/bus/pci/devices/*/vendor || [ -e /dev/dxg ]; then exit 0; fi; \
	printf '\n%s\n%s\n\n' \
	  "This machine has no NVIDIA GPU, so here is also what the doctor says about a recorded node that has eight and two faults:" \
	  "gpudoctor --node $(SICK_NODE)"; \
	$(call diagnose,--node $(SICK_NODE))
endif

test: $(DEV_READY) ## run the ordinary tests; what takes long goes over every eighth recorded node
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(PYTEST_ARGS)

test-sweep: $(DEV_READY) ## run what takes long over all other recorded nodes
	$(BIN)/python -m pytest -m sweep --numprocesses auto --dist loadfile $(PYTEST_ARGS)

lint: $(DEV_READY) ## check format, style, types and import walls
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pyright
	$(BIN)/lint-imports

check: lint test ## everything a change must pass

format: $(DEV_READY) ## format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(DEV_READY) ## rewrite the golden files, to be read in the diff
	$(BIN)/python -m pytest --update-golden

test-vm: $(DEV_READY) ## run the tests that boot a kernel in a virtual machine
	$(BIN)/python -m pytest -m vm tests/vm $(PYTEST_ARGS)

test-vm-systemd: $(DEV_READY) ## run the tests that boot systemd with containers in a virtual machine
	$(BIN)/python -m pytest -m vm_systemd tests/vm_systemd $(PYTEST_ARGS)

bench: $(RUN_READY) ## measure speed and memory against their limits; ARGS=--profile lists the dearest imports
	$(BIN)/python bench/run.py $(ARGS)
	$(BIN)/python bench/search.py
	$(BIN)/python bench/topo.py
	$(BIN)/python bench/health.py
	$(BIN)/python bench/html_page.py
	PYTHONPATH=. $(BIN)/python bench/tui.py

score: $(RUN_READY) ## count how often the right cause is named over real captures; ARGS=--write renews docs/accuracy.md
	$(BIN)/python -m bench.score $(ARGS)

knowledge: $(RUN_READY) ## renew the generated tables from pci.ids and a wheel of nvidia-cuda-runtime; ARGS="--pci-ids FILE --wheel FILE --xids FILE"
	$(BIN)/python -m tools.knowledge $(ARGS)

catalogue: $(DEV_READY) ## write down anew the checks that a run loads only where they apply
	$(BIN)/python -m tools.deferred_checks

podresources: $(RUN_READY) ## renew the messages of the kubelet's PodResources API from their .proto; fetches a compiler
	$(BIN)/python -m tools.podresources

screenshots: $(DEV_READY) ## write HTML reports and pictures of them into build/screenshots, to be looked at, and renew docs/images; needs chromium
	$(BIN)/python -m tests.screenshots build/screenshots
	$(BIN)/python -m tests.screenshots --readme docs/images

completion: $(DEV_READY) ## write down anew what completes gpudoctor's words in bash, zsh and fish
	$(BIN)/python -m tools.completion

man: $(RUN_READY) ## write the man pages into build/man
	$(BIN)/python -m tools.man_pages build/man

docs: $(DEV_READY) ## build the documentation's site into build/site, with a page for each check
	$(PIP) install --editable '.[docs]'
	rm -rf build/site-source
	$(BIN)/python -m tools.check_pages build/site-source
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A file left in build/ by an earlier wheel would go into this one.
wheel: $(DEV_READY) ## build the wheel into dist/
	rm -rf build/lib build/bdist.* dist/*.whl
	$(BIN)/python -m build --wheel

single-file: wheel ## build dist/gpudoctor.pyz, for every Python from 3.10 on of this kind of machine
	$(BIN)/python -m tools.single_file -o dist/gpudoctor.pyz dist/*.whl

deb: wheel ## build Debian's package into dist/; needs debhelper
	$(BIN)/python -m tools.os_packages deb dist/*.whl

rpm: wheel ## build RPM's package into dist/; needs rpmbuild
	$(BIN)/python -m tools.os_packages rpm dist/*.whl

clean: ## remove what can be made again
	rm -rf build dist $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
