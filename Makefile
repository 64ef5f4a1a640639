# Each target first sets up what it needs in .venv, from the versions pinned in constraints.txt.
PYTHON ?= python3
JOBS ?= 2
PROFILE ?= full
BIN := .venv/bin
CONSTRAINTS := PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/constraints.txt
PIP := $(CONSTRAINTS) $(BIN)/python -m pip --disable-pip-version-check -q install --no-compile
PYTEST := python -m pytest -n $(JOBS) --dist loadfile
unexport PYTHONDONTWRITEBYTECODE  # else each process that a test starts compiles torch again
.PHONY: demo test quick test-lowest test-extras check docs results bench zoo trust release clean

demo: .venv/demo  # a choice on a network that comes with the package, and its page
	$(BIN)/levelhead demo
test: .venv/dev .venv/browser .venv/java  # all tests
	$(BIN)/$(PYTEST) --no-loadscope-reorder $(ARGS)
quick: .venv/dev  # all but those marked slow
	$(BIN)/$(PYTEST) --no-loadscope-reorder -m "not slow" $(ARGS)
test-lowest: .venv-lowest/test  # the quick tests with the lowest version of everything; what warns was fixed since
	.venv-lowest/bin/$(PYTEST) -m "not slow" -o filterwarnings= -W ignore $(ARGS)
test-extras: .venv/dev .venv-extras/test  # each extra alone, EXTRA='ray wandb' only these; then the tests that need more
	$(BIN)/python -m tools.try_extras $(EXTRA)
	$(BIN)/python -m tools.try_extras --tests .venv-extras/bin/python
check: .venv/dev  # static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m bench.trust.supply_chain --sbom .venv/sbom.json
docs: .venv/docs  # the site, offline, in docs/_build/html; GALLERY=0 leaves the examples unrun
	rm -rf docs/api  # pages of what is no longer there
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
results: .venv/demo  # the pages of the reproduction, from results/ alone
	$(BIN)/levelhead reproduce figures
bench: .venv/dev .venv/browser  # docs/speed.md: how fast is it here? ARGS='startup wvn' measures these two
	$(BIN)/python -m bench.speed $(ARGS)
zoo: .venv/dev  # docs/places.md: is the right head found? ARGS=places takes a minute, all of it hours
	$(BIN)/python -m bench.zoo $(ARGS)
trust: .venv/dev  # docs/trust.md: every promise attacked, for hours; PROFILE=quick for minutes; ARGS='--only kills'
	$(BIN)/python -m bench.trust --profile $(PROFILE) $(ARGS)
release: .venv/release  # all that comes before the tag, which publishes
	rm -rf dist
	$(BIN)/python -m build -q
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/release.py dist $(STRICT)
clean:
	rm -rf .venv .venv-lowest .venv-extras dist docs/_build docs/api docs/gallery docs/generated docs/sg_execution_times.rst

# Set-up. Debian keeps venv in a package of its own; what is missing of the system is installed where we may.
$(BIN)/python:
	$(PYTHON) -m venv .venv || { apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv .venv; }
.venv/torch: $(BIN)/python constraints.txt  # by its exact version, so that nothing else chooses its build
	$(PIP) torch==2.13.0 && touch $@
PARTS := .venv/part-0 .venv/part-1 .venv/part-2 .venv/part-3  # of what is pinned for [dev], without what that asks for
$(PARTS): .venv/part-%: $(BIN)/python constraints.txt
	sed '/^# All others/,$$d' constraints.txt | grep == | awk 'NR % 4 == $*' > $@.txt
	$(PIP) --no-deps -r $@.txt && touch $@
.venv/dev: .venv/part-0 .venv/torch $(PARTS) pyproject.toml  # what the parts lack comes here
	$(PIP) --no-build-isolation -e '.[dev]'
	$(BIN)/python tools/declare_torchvision_operators.py
	touch $@ .venv/demo
.venv/demo: .venv/torch pyproject.toml
	$(PIP) -e '.[torch,sklearn,plot]' && touch $@
.venv/docs: .venv/dev
	$(PIP) -e '.[docs]' && touch $@
.venv/release: $(BIN)/python constraints.txt
	$(PIP) build twine && touch $@
.venv-lowest/test: constraints-lowest.txt pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip -q install -c constraints-lowest.txt -e '.[test,track]'
	.venv-lowest/bin/python -m pip check && touch $@
.venv-extras/test: .venv/dev  # sees all that is in .venv
	$(BIN)/python -m venv .venv-extras
	cd .venv-extras/lib/python3*/site-packages && \
	  echo "import site; site.addsitedir('$$(echo $(CURDIR)/.venv/lib/python3*/site-packages)')" > tests.pth
	.venv-extras/bin/python -m pip -q install --no-compile -c constraints.txt mlflow wandb fastai py-rattler-build \
	  jax flax 'mlx[cpu]' datasets && touch $@
.venv/browser .venv/java: $(BIN)/python  # without chromium or java, what needs them is skipped
	command -v $(PROGRAM) >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends $(PACKAGE); } \
	  || echo "no $(PROGRAM)"
	touch $@
.venv/browser: PROGRAM = chromium
.venv/browser: PACKAGE = chromium
.venv/java: PROGRAM = java
.venv/java: PACKAGE = default-jre-headless
.venv/java: | .venv/browser  # one apt at a time
