# Front door to the CMake build. `make help` lists the targets; build output goes to build/<kind>/.
SHELL        := bash
.SHELLFLAGS  := -euc
JOBS         ?= $(shell nproc)
KIND         ?= release
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 60
# Tests wait for answers, timers and disks most of the time: three of them share a processor, and two sets of them in `make test`.
WORKERS      ?= $(shell echo $$((3 * $(JOBS))))
PYTEST       ?= build/venv/bin/python -m pytest -q -n $(WORKERS) --dist worksteal
TESTS        ?= tests/integration
RELEASE_TESTS = tests/integration/00 tests/integration/10 $(shell grep -rlF --include='test_*.py' mark.release tests/integration)
FORMATTED     = $(shell git ls-files '*.c' '*.h' '*.cc')
FORMAT_MAJOR := 14
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)
export CTEST_OUTPUT_ON_FAILURE := 1
# Where pytest keeps what it made of the tests: outside the tree, for all workers and both runs.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
export PYTHONDONTWRITEBYTECODE :=

configure = echo "== $(1)"; cmake --preset $(1) -Wno-dev $(2) >build/$(1).log || { cat build/$(1).log; exit 1; }
compile   = cmake --build build/$(1) -j $(JOBS)
ctest     = ctest --test-dir build/$(1) -j $(WORKERS) --no-tests=error
# A thread of OpenBLAS or OpenMP that finds no work looks for it, in each of the thousand Python processes that tests start.
integrate = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MR_BUILD=$(1) MR_BIN=$(CURDIR)/build/$(1)/bin/millrace $(PYTEST) $(2) $(or $(3),$(TESTS))

.PHONY: all build demo test test-more checks bench fuzz spark soak format format-check install clean help \
        setup-test collect build-asan test-release test-asan test-tsan test-clang integration integration-asan integration-release
.NOTPARALLEL:

all: build
build:            ## build the server and its backends (KIND=release, debug, asan, tsan)
	@mkdir -p build
	@$(call configure,$(KIND),)
	@$(call compile,$(KIND)) --target product

demo:             ## install what is missing, build, serve sample models, ask them questions, update one under load, kill a server, send a table
	@tools/setup
	@$(MAKE) --no-print-directory build KIND=release
	@examples/demo/run

test: setup-test checks collect build-asan  ## what must be green before a change goes in; its parts also run alone
	@echo '== integration tests against the ASan build run beside the others; what they print comes at the end'; \
	$(MAKE) --no-print-directory integration-asan >build/integration-asan.log 2>&1 & asan=$$!; \
	$(MAKE) --no-print-directory test-release integration-release test-clang test-asan test-tsan & others=$$!; \
	trap 'kill $$asan $$others' INT TERM; rc=0; \
	wait $$others || rc=$$?; wait $$asan || rc=$$?; cat build/integration-asan.log; exit $$rc
test-more: setup-test  ## what `make test` leaves out: tests marked `more`, and all others against the release build too
	@mkdir -p build
	@$(foreach kind,asan release,($(call configure,$(kind),-DMR_WERROR=ON)); $(call compile,$(kind));)
	MR_TEST_MORE=1 $(call ctest,release)
	$(call integrate,asan,-m more)
	$(call integrate,release,-m 'more or not release')
setup-test:
	@tools/setup --test
checks:           ## includes against the module table, sizes of files and functions, braces, names, format
	@printf '%s\n' style limits includes | xargs -P $(JOBS) -I NAME python3 tools/check_NAME.py
	@$(MAKE) --no-print-directory format-check
collect:          # what pytest makes of the tests, once for all its workers
	@$(call integrate,asan,--collect-only) >build/collect.log || { cat build/collect.log; exit 1; }
build-asan:
	@mkdir -p build
	@$(call configure,asan,-DMR_WERROR=ON)
	@$(call compile,asan)
test-release test-asan test-tsan test-clang: test-%:
	@mkdir -p build
	@$(call configure,$*,-DMR_WERROR=ON)
	@$(call compile,$*) $(if $(filter tsan release,$*),--target test_programs)
	@$(if $(filter clang,$*),:,$(call ctest,$*) $(if $(filter tsan release,$*),-L $*))
integration:      ## the whole suite of real clients against build/release (TESTS=tests/integration/10 narrows it)
	$(call integrate,release)
# What takes longest ends with tests that wait, with nothing beside them.
integration-asan: WORKERS = $(shell echo $$((4 * $(JOBS))))
integration-asan:
	$(call integrate,asan,-m 'not more')
integration-release:
	$(call integrate,release,-m 'release and not more',$(RELEASE_TESTS))

bench:            ## Millrace beside Triton and others in one run; BENCH='--rounds 2 --only rest' narrows it
	@tools/setup --bench
	@$(MAKE) --no-print-directory build KIND=release
	@cmake --build build/release -j $(JOBS) --target bench_ort_run bench_copy_loop bench_table_write bench_fault_hosts bench_sdk_loop bench_sdk_large bench_net_echo
	@bench/run --json build/bench.json $(BENCH)
fuzz:             ## each fuzz target for FUZZ_SECONDS (60); new inputs stay in build/fuzz/corpus
	@mkdir -p build
	@$(call configure,fuzz,)
	@$(call compile,fuzz)
	@tests/fuzz/run build/fuzz $(FUZZ_SECONDS)
spark:            ## tables through `millrace map` in a real Spark, with a task that fails (needs Java; fetches PySpark)
	@tools/setup --spark
	@$(MAKE) --no-print-directory build KIND=release
	@MR_BUILD=release MR_BIN=$(CURDIR)/build/release/bin/millrace build/venv/bin/python -m pytest -q -c tests/integration/pytest.ini tests/spark
soak: setup-test  ## everything at once for SOAK_SECONDS (3600), memory watched (KIND=asan: under the sanitizers)
	@$(MAKE) --no-print-directory build
	@cmake --build build/$(KIND) --target unit_mesh >/dev/null && MR_SIM_SEEDS=10000 build/$(KIND)/tests/unit/unit_mesh test_search >build/$(KIND)/mesh_search.log 2>&1 || { tail -40 build/$(KIND)/mesh_search.log; exit 1; }
	@MR_BUILD=$(KIND) MR_BIN=$(CURDIR)/build/$(KIND)/bin/millrace build/venv/bin/python tests/soak/soak.py

format:           ## rewrite the C and C++ sources by .clang-format
	clang-format -i $(FORMATTED)
format-check:
	@if clang-format --version 2>/dev/null | grep -q 'version $(FORMAT_MAJOR)\.'; then \
	    printf '%s\n' $(FORMATTED) | xargs -P $(JOBS) -n 50 clang-format --dry-run --Werror && echo 'format: ok'; \
	else echo 'format: not checked (clang-format $(FORMAT_MAJOR) decides, and it is not here)'; fi
install: build    ## install the release build (PREFIX=/usr/local, DESTDIR)
	DESTDIR=$(DESTDIR) cmake --install build/$(KIND) --prefix $(PREFIX)
clean:            ## remove what was built; fetched dependencies stay
	rm -rf $(foreach kind,release debug asan tsan fuzz clang,build/$(kind) build/$(kind).log)
help:             ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
