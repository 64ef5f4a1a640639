# make demo and make test each do all the set-up first, in .venv, from the versions pinned in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q install -c constraints.txt
JOBS ?= 2

.PHONY: demo test quick check docs results bench clean

demo: $(VENV)/demo
	$(BIN)/levelhead demo

# All tests. The tests of a file run in one process, which loads what they need once.
test: $(VENV)/test $(VENV)/browser
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

# All but the tests marked slow, in under two minutes on two cores.
quick: $(VENV)/test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow" $(ARGS)

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Offline; runs the gallery; a warning is an error. GALLERY=0 leaves the examples unrun. The pages: docs/_build/html.
docs: $(VENV)/docs
	rm -rf docs/api  # pages of what is no longer there
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# Every table and figure of docs/reproduction.md, from results/ alone.
results: $(VENV)/demo
	$(BIN)/levelhead reproduce figures

bench: $(VENV)/test $(VENV)/browser
	for file in bench/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

# Debian keeps venv in a package of its own; where it is missing and we may, it is installed.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); }

# torch comes first and alone, by its exact version, so that nothing else chooses its build.
$(VENV)/torch: $(BIN)/python constraints.txt
	$(PIP) torch==2.13.0
	touch $@

$(VENV)/demo: $(VENV)/torch pyproject.toml
	$(PIP) -e '.[torch,sklearn,plot]'
	touch $@

# timm and torchvision without what they ask for: it would bring another build of torch.
$(VENV)/test: $(VENV)/torch pyproject.toml
	$(PIP) -e '.[test]'
	$(PIP) --no-deps timm torchvision
	touch $@ $(VENV)/demo

# The page is tested in chromium; where it is missing and we may, it is installed, else those tests are skipped.
$(VENV)/browser: $(BIN)/python
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; } \
	  || echo "no chromium: the page is not tested in a browser"
	touch $@

$(VENV)/dev: $(VENV)/test
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/docs: $(VENV)/test
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf docs/_build docs/api docs/gallery docs/generated docs/sg_execution_times.rst $(VENV) .pytest_cache .ruff_cache .hypothesis
