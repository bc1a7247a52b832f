# make demo    the main job on real input
# make quick   what fails first: lint, house rules, units, references and scenarios, in a minute
# make test    all tests; JOBS=2 says how many at once, else three more than there are cores
# make lint    ruff, rules and layout, and the layout of C files by clang-format
# make types   mypy strict, and the stubs against the extension
# make bench   the store beside this machine's limits and its peers; BENCH=--quick for a trial
# make bench-spark  the Spark source beside its ceiling and Parquet; BENCH="--size 64m" for a trial
# make bench-replicate  replicas beside a bare connection and a Java pair; BENCH="--size 64m"
# make fuzz    the C core under fuzzing for SECONDS=600; findings go to build/fuzz/findings
# make sim     replica groups in virtual time, seeds nobody has run, for SECONDS=60
# make soak    kills, faults, races and fuzzing in their long forms, and the known defects put back one
#              at a time, for hours; RMQ_SEED repeats a run
# make clean   removes everything made here, .venv included

# The first interpreter that is 3.11 or newer and can make a virtual environment and an extension.
SUITABLE = import sys, sysconfig, ensurepip, venv; \
	from os.path import exists; \
	sys.exit(sys.version_info < (3, 11) or not exists(sysconfig.get_path("include") + "/Python.h"))
CANDIDATES = python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(firstword $(foreach candidate,$(CANDIDATES),\
	$(shell $(candidate) -c '$(SUITABLE)' >/dev/null 2>&1 && command -v $(candidate))))

VENV := .venv
BIN := $(VENV)/bin
# Installed first, so that the extension is built once and not again outside pip's own sandbox.
BUILD_REQUIRES = import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])
PEERS = import tomllib; \
	extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print(*(name for name in extras["bench"] if not name.startswith("rmqstore")))
# From Debian, where this may install them; what needs them is left out, and says so, where not.
PACKAGES = etcd-server libraft-dev libuv1-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A test that waits leaves its core to another one.
JOBS ?= $(shell expr $$(nproc) + 3)
# A worker that dies ends the run: it is a crash to look into, and the tests it had are lost.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --max-worker-restart=0
# Tests start hundreds of interpreters: without files of bytecode each would compile the package again.
export PYTHONDONTWRITEBYTECODE :=
RMQ_SEED := $(or $(RMQ_SEED),$(shell date +%s))
# The one for C-Raft is built where libraft is installed.
EXTENSIONS = rmqstore._native.core $(and $(wildcard rmqstore/_native/raft.*.so),rmqstore._native.raft)
NATIVE := $(wildcard csrc/*.h csrc/*/*.[ch] rmqstore/_native/*.pyx rmqstore/_native/*.px[id] \
	rmqstore/spark/jvm/java/org/rmqstore/spark/*.java)

.PHONY: bench bench-replicate bench-spark clean demo fuzz lint quick sim soak test types
.DELETE_ON_ERROR:

demo: $(VENV)/extension
	$(BIN)/python -m rmqstore demo

# Tests that wait for nothing: more of them at once than there are cores would only be collected more often.
quick: JOBS = auto
quick: $(VENV)/extension
	$(BIN)/ruff check --quiet
	$(PYTEST) -q tests/house tests/unit tests/reference tests/scenarios

test: $(VENV)/extension
	$(PYTEST) --durations=20

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	find csrc tests benchmarks -name '*.[ch]' -exec $(BIN)/clang-format --dry-run --Werror {} +

types: $(VENV)/extension
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest $(EXTENSIONS) --mypy-config-file pyproject.toml \
		--allowlist tests/house/stubtest.allow --ignore-unused-allowlist

bench: $(VENV)/extension $(VENV)/peers
	$(BIN)/python -m pytest benchmarks
	$(BIN)/python -m benchmarks.report $(BENCH)

bench-replicate: $(VENV)/extension
	$(BIN)/python -m benchmarks.bench_replicate $(BENCH)

bench-spark: $(VENV)/extension
	$(BIN)/python -m benchmarks.bench_spark $(BENCH)

fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz run --seconds $(or $(SECONDS),600)

sim: $(VENV)/extension
	$(BIN)/python -m rmqstore.sim --seconds $(or $(SECONDS),60)
	$(BIN)/python -m rmqstore.sim --cluster --seconds $(or $(SECONDS),60)

# Ends at the first failure, whose seed and test it names.
soak: $(VENV)/extension
	@echo "RMQ_SEED=$(RMQ_SEED)"
	RMQ_LONG=1 RMQ_SEED=$(RMQ_SEED) $(BIN)/python -m pytest -x -o faulthandler_timeout=0 \
		--hypothesis-seed=$(RMQ_SEED) tests/crash tests/c tests/property tests/fuzz tests/simulation \
		tests/unit tests/service tests/spark tests/interop || \
		{ echo "once more: RMQ_LONG=1 RMQ_SEED=$(RMQ_SEED) $(BIN)/python -m pytest" \
		"--hypothesis-seed=$(RMQ_SEED) TEST, with the name of the failed test" >&2; exit 1; }
	$(BIN)/python -m tests.house.mutate
	$(BIN)/python -m tests.simulation.mutants

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -f rmqstore/_native/*.so rmqstore/spark/jvm/*.jar
	find rmqstore tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/installed: pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv and Python.h found;" \
		"install one or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $$($(BIN)/python -c '$(BUILD_REQUIRES)')
	$(INSTALL) --no-build-isolation --editable '.[test]'
	touch $@

# A peer that cannot be installed is left out of the report, with the reason.
$(VENV)/peers: $(VENV)/installed
	for peer in $$($(BIN)/python -c '$(PEERS)'); do $(INSTALL) "$$peer" || true; done
	touch $@

# Never fails: as root with apt, and within five minutes, or not at all.
$(VENV)/packages: | $(VENV)/installed
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ timeout 300 sh -c 'export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq -o DPkg::Lock::Timeout=120 install -y $(PACKAGES) || { apt-get -qq -o DPkg::Lock::Timeout=120 update; \
		for one in $(PACKAGES); do apt-get -qq -o DPkg::Lock::Timeout=120 install -y $$one; done; }' \
		>$(VENV)/packages.log 2>&1; dpkg -s $(PACKAGES) >/dev/null 2>&1; }; } || \
		echo "not all installed, so what needs them is left out: $(PACKAGES) (apt-get install, as root)"
	touch $@

$(VENV)/extension: $(VENV)/installed $(VENV)/packages $(NATIVE)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@
