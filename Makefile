# Needs Python 3.11+ with venv, and make. A C++17 compiler is optional and makes it faster.

PYTHON ?= python3
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
CPP := $(wildcard src/contextual_lqr/kernels/cpp/*)
NATIVE := CMakeLists.txt $(CPP)
INPUTS := pyproject.toml constraints.txt $(NATIVE)

# Pins hold for the build's own requirements too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test fuzz coverage lint format bench docs hashes release clean FORCE
.DEFAULT_GOAL := demo

demo: .venv/run.stamp  ## the paper's experiments with three seeds, about a minute
	@rm -rf results/demo  # rows of older code would be kept
	@$(BIN)/contextual-lqr reproduce --seeds 3 --out results/demo

# A page's blocks share names, and a file's tests what was fitted once; long files come first.
BY_FILE := --dist loadfile --no-loadscope-reorder

test: .venv/test.stamp  ## the whole suite
	@$(BIN)/python -m pytest -n auto $(BY_FILE)

EXAMPLES ?= 10000

fuzz: .venv/test.stamp  ## campaigns of new cases against everything: make fuzz EXAMPLES=1000
	@CASES=$(EXAMPLES) HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n auto tests/fuzz
	@HYPOTHESIS_PROFILE=fuzz HYPOTHESIS_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n auto \
		--dist worksteal -m hypothesis tests

coverage: .venv/test.stamp  ## which lines nothing runs; the pages count as tests
	@$(BIN)/python -m pytest -n auto $(BY_FILE) --cov --cov-report=
	@$(BIN)/python -m coverage report

lint: .venv/lint.stamp  ## style, types, and the order of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

format: .venv/lint.stamp
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

# Not among them: swing_up_peers, whose learners take hours each, and digits, which needs an older build.
BENCHMARKS := run growth optimism reproduce chain strategies fleets schedules pendulum double_pendulum stays_up certificate misfit unstable wrong_law motors served_study service_fuzz swing_up cart_pole path_certificates
WRITTEN := stationary stationary_fleets saturation study varying large_systems real_pendulum real_fleets house_logs random_systems broken_fleets unforeseen outside # on the pages only if asked

bench: .venv-bench/bench.stamp  ## everything that is measured; writes the pages of docs/ about it
	@for one in $(BENCHMARKS); do $(BENCH_BIN)/python benchmarks/$$one.py || exit 1; done
	@for one in $(WRITTEN); do $(BENCH_BIN)/python benchmarks/$$one.py --write || exit 1; done
	@$(BENCH_BIN)/python benchmarks/logs.py build/logs
	@$(BENCH_BIN)/python benchmarks/machines.py build/logs
	@$(BENCH_BIN)/python benchmarks/history_logs.py build/logs
	@$(BENCH_BIN)/python benchmarks/cluster.py build/logs
	@$(BENCH_BIN)/python benchmarks/ilqr.py > build/ilqr && $(BENCH_BIN)/python benchmarks/ilqr.py --page build/ilqr
	@$(BENCH_BIN)/python benchmarks/ilqr.py --replan
	@$(BENCH_BIN)/contextual-lqr reproduce --out build/results
	@$(BENCH_BIN)/python benchmarks/reproduce_page.py build/results

docs: .venv/docs.stamp  ## the site, into site/
	@$(BIN)/zensical build --clean --strict

hashes: .venv/made.stamp  ## requirements-hashed.txt anew, some minutes
	@$(BIN)/python .ci/hashes.py

release: .venv/release.stamp  ## sdist, wheel, SBOM and licences into dist/, tried in clean environments
	@PYTHON=$(PYTHON) .ci/release.sh

FORCE:

clean:
	rm -rf .venv .venv-bench .cache build dist site

%/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	@echo "Making $* with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $*
	@touch $@

# Changes when a Python file comes, goes or moves; only then must the package be installed again.
.venv/files.list: FORCE | .venv/made.stamp
	@find src -name '*.py' | sort > $@.new; cmp -s $@.new $@ || cp $@.new $@; rm $@.new

# Each stamp installs what its target needs; a second run installs nothing. Only the first compiles:
# to the others, contextual-lqr is there already and its extras are missing.
.venv/run.stamp: $(INPUTS) .venv/files.list
	@echo "Installing contextual-lqr and compiling its kernels (about a minute)"
	@$(BIN)/python -m pip install -q cmake nanobind ninja scikit-build-core
	@$(BIN)/python -m pip install -q --no-build-isolation -e '.[cli]'
	@touch $@

.venv/test.stamp .venv/lint.stamp .venv/docs.stamp .venv/release.stamp: .venv/%.stamp: .venv/run.stamp
	@echo "Installing what make $* needs"
	@$(BIN)/python -m pip install -q 'contextual-lqr[$*]'
	@touch $@

.venv-bench/bench.stamp: $(INPUTS) benchmarks/requirements.txt | .venv-bench/made.stamp
	@echo "Installing contextual-lqr and its peers (several hundred megabytes)"
	@$(BENCH_BIN)/python -m pip install -q '.[mujoco,cluster,postgres,serve]' -r benchmarks/requirements.txt
	@$(BENCH_BIN)/python -m pip install -q --no-deps mpc
	@touch $@
