# Everything a developer types. `make demo` on a fresh Debian 12 installs what is missing, builds and shows coil at work.
BUILD ?= build
JOBS ?= $(shell nproc)
COIL_VENV ?= $(HOME)/.cache/coil/venv
PYTHON := $(COIL_VENV)/bin/python
FUZZ_SECONDS ?= 30
STARTED := $(shell date +%s)
export COIL_VENV

.PHONY: build deps demo demo-llm venv test test-all bench gpu aarch64 aarch64-test fuzz fuzz-calls fuzz-long fmt sanitize sanitize-threads golden-update docs tidy dev clean

build: deps
	@tools/configure.sh $(BUILD)
	@ninja -C $(BUILD) -j$(JOBS)

deps:
	@tools/install_deps.sh

demo: deps
	@tools/configure.sh $(BUILD)
	@ninja -C $(BUILD) -j$(JOBS) coil digits_demo
	@tools/demo.sh $(BUILD)

# Text from a small language model.
demo-llm: deps
	@tools/configure.sh $(BUILD)
	@ninja -C $(BUILD) -j$(JOBS) coil coil_runtime
	@tools/demo_llm.sh $(BUILD)

venv: deps
	@tools/install_deps.sh test
	@tools/make_venv.sh $(COIL_VENV)

# The environment comes first: it has what the Python package is built with.
test: venv
	@tools/configure.sh $(BUILD)
	@[ -d $(BUILD)/python ] || cmake $(BUILD) > $(BUILD)/configure.log
	@ninja -C $(BUILD) -j$(JOBS) all all_tests
	@$(PYTHON) tools/run_tests.py --build $(BUILD) --fuzz 60 --started $(STARTED)

# All tests, however long it takes: `make test` ends where its time does, and has one form of most programs only.
test-all:
	@COIL_TEST_ALL=1 $(MAKE) test

bench: build venv
	@ninja -C $(BUILD) -j$(JOBS) all_bench
	@tools/bench.sh $(BUILD)

# On a machine with an NVIDIA GPU, with the Python there that has PyTorch for CUDA.
GPU_PYTHON ?= python3
gpu: build
	@COIL_BUILD=$(BUILD) $(GPU_PYTHON) tests/gpu/run_all.py --check-in

# What runs packages on 64-bit ARM, cross-built into $(BUILD)-aarch64: the runtime as both libraries, and coil run, bench, inspect. The compiler in $(BUILD)
# gets the library routines (Fourier transforms, factorisations) for it, which it has not without Debian's libraries for that machine.
aarch64: deps
	@tools/install_deps.sh aarch64
	@tools/aarch64_libraries.sh
	@tools/configure.sh $(BUILD)
	@cmake $(BUILD) > $(BUILD)/configure.log
	@ninja -C $(BUILD) -j$(JOBS) coil
	@tools/configure.sh $(BUILD)-aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/toolchain_aarch64.cmake -DCOIL_RUNTIME_ONLY=ON
	@ninja -C $(BUILD)-aarch64 -j$(JOBS)

# The whole zoo and the museum as aarch64 code under qemu-aarch64; LEVEL=neon for processors without the products of bytes.
LEVEL ?= i8mm
aarch64-test: aarch64 venv
	@COIL_BUILD=$(BUILD) $(PYTHON) -W ignore tests/aarch64/run_zoo.py --level $(LEVEL)

fuzz: deps
	@tools/fuzz.sh $(FUZZ_SECONDS)

# All fuzz targets for HOURS in all, over a corpus that is kept; a table of what was tried. KEEP=1 adds to the seeds what reaches new code.
HOURS ?= 1
fuzz-long: deps
	@tools/fuzz_long.py $(HOURS) $(if $(KEEP),--keep)

# AddressSanitizer and UBSan over all tests of C++, by clang without optimisation: g++ takes two to three times as long to build it.
sanitize: deps
	@CC=clang-19 CXX=clang++-19 tools/configure.sh build-sanitize -DCMAKE_BUILD_TYPE=Debug -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_BENCH=OFF
	@ninja -C build-sanitize -j$(JOBS) all_tests
	@ASAN_OPTIONS=detect_leaks=1 python3 tools/run_tests.py --build build-sanitize --no-pytest

# Random calls of the C API, of states and of conversations against references, under AddressSanitizer: CALLS of them, from SEED on.
CALLS ?= 100000
SEED ?= 1
fuzz-calls: deps
	@CC=clang-19 CXX=clang++-19 tools/configure.sh build-sanitize -DCMAKE_BUILD_TYPE=Debug -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_BENCH=OFF
	@ninja -C build-sanitize -j$(JOBS) runtime_tests
	@COIL_FUZZ_CALLS=$(CALLS) COIL_FUZZ_SEED=$(SEED) build-sanitize/runtime_tests --gtest_filter='Random*:Outputs.*'

# Threads: the pool, contexts and caches. (ThreadSanitizer does not follow a fork of several threads: those tests are left out.)
sanitize-threads: deps
	@tools/configure.sh build-sanitize-threads -DCOIL_SANITIZE=thread -DCOIL_BUILD_BENCH=OFF
	@ninja -C build-sanitize-threads -j$(JOBS) cache_tests tune_tests runtime_tests
	@for tests in cache tune runtime; do build-sanitize-threads/$${tests}_tests --gtest_filter=-*Fork* || exit 1; done

golden-update: build
	@ninja -C $(BUILD) -j$(JOBS) all_tests
	@COIL_GOLDEN_UPDATE=1 ctest --test-dir $(BUILD) || true
	@git status --short tests

# The documentation as a site in $(BUILD)/site, with the references of C, C++ and Python.
docs:
	@mkdir -p $(BUILD)
	@tools/docs/build.sh $(BUILD)

fmt:
	@git ls-files -co --exclude-standard '*.h' '*.cc' '*.cpp' '*.hpp' | grep -v '^third_party/' | xargs clang-format-19 -i

# clang-tidy's checks over FILES, or over what differs from BASE.
tidy:
	@tools/tidy.sh $(BUILD) $(FILES)

# Each file is compiled alone: an edit is soon built, and editors find how (compile_commands.json).
dev: venv
	@tools/configure.sh $(BUILD)
	@cmake -DCOIL_UNITY=OFF $(BUILD) > $(BUILD)/configure.log
	@ninja -C $(BUILD) -j$(JOBS) all all_tests
	@ln -sf $(BUILD)/compile_commands.json compile_commands.json
	@echo "ready: make test, make golden-update, make fuzz, make bench, make fmt, make docs"

clean:
	rm -rf $(BUILD) $(BUILD)-alone $(BUILD)-aarch64 build-sanitize build-sanitize-threads build-fuzz
