# make demo   set up .venv, build, install, and train on the sim chip
# make test   the same, then every test
# make opdb   every dtype and sample of PyTorch's operator database; takes hours
# make test-opencl  the conformance kit and PyTorch on chips/opencl; needs an OpenCL driver (apt: pocl-opencl-icd)
# make bench  side by side with PyTorch's CPU device; writes benchmarks/RESULTS.md and OPERATORS.md
# make bench-opencl  chips/opencl side by side with its driver, CLBlast (apt: libclblast1), sim and PyTorch's CPU device;
#             with PEER=DIR also with pytorch_dlprim, whose package pytorch_ocl is in DIR
# make fuzz   random programs against the CPU, for FUZZ_SECONDS=1800
# make lint   formatting and static checks alone, clang-tidy among them
# make clean  remove what was built; the environment stays
#
# Needs Python 3.10 or later, a C++20 compiler, make and pip; the rest comes from pip.
# TORCH=2.14.1 does any of it for that version of PyTorch, in an environment and a build folder of its own.
PYTHON ?= python3
TORCH ?= 2.13.0
TESTS ?= tests
JOBS ?= 2
ifeq ($(TORCH),2.13.0)
VENV := .venv
BUILD := build
else
VENV := .venv-$(TORCH)
BUILD := build-$(TORCH)
endif
BIN := $(VENV)/bin
# Where the tests find the C++ ones, the kit and the template chip.
export FL_BUILD_DIR := $(CURDIR)/$(BUILD)

SOURCES := $(shell find src chips/sim include kit CMakeLists.txt pyproject.toml README.md -type f) \
           $(shell find torch_fl -name '*.py')

# The C++ tests that run under the sanitizers here; tests/sanitize.sh without names runs all of them.
SANITIZED_ADDRESS := abi_layout_test allocator_test config_test program_test registry_test runtime_test \
                     sim_core_test sim_copy_test sim_opcodes_test
SANITIZED_THREAD := allocator_test config_test program_test registry_test runtime_test sim_core_test

.PHONY: demo test test-opencl opdb bench bench-opencl fuzz lint tidy install clean

demo: $(VENV)/installed
	$(BIN)/torch-fl run examples/train_resnet.py
	$(BIN)/torch-fl run examples/train_gpt.py --steps 150

install: $(VENV)/installed

# One stamp a stage: nothing is repeated that has not changed.
$(VENV)/ready: requirements.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; assert sys.version_info >= (3, 10), "torch-fl needs Python 3.10 or later; try: make PYTHON=python3.12"'
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)" -r requirements.txt
	touch $@

# --no-build-isolation and --no-deps: the PyTorch that is there is the one to build for, and no other is fetched.
$(VENV)/installed: $(VENV)/ready $(SOURCES)
	rm -rf dist/$(TORCH)
	PATH="$(CURDIR)/$(BIN):$$PATH" SKBUILD_BUILD_DIR=$(BUILD) \
		$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist/$(TORCH) .
	$(BIN)/python -m pip install --quiet --no-deps --no-index --force-reinstall dist/$(TORCH)/*.whl
	touch $@

# With the PyTorch that is there among the requirements, no library's own brings another.
$(VENV)/test-ready: requirements-test.txt $(VENV)/ready
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)" -r requirements-test.txt
	touch $@

test: $(VENV)/installed $(VENV)/test-ready lint
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/sanitize.sh address $(SANITIZED_ADDRESS)
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/sanitize.sh thread $(SANITIZED_THREAD)
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(TESTS)
	$(MAKE) fuzz FUZZ_SECONDS=120 FUZZ_PROGRAMS=1000

FUZZ_SECONDS ?= 1800
FUZZ_SEED ?= 1
FUZZ_PROGRAMS ?= 100000000
fuzz: $(VENV)/installed $(VENV)/test-ready
	$(BIN)/python -W ignore tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --programs $(FUZZ_PROGRAMS) --jobs $(JOBS)

$(VENV)/opencl: $(VENV)/ready $(shell find chips/opencl include \( -name build -o -name "*.so" -o -name fl-opencl-query -o -name __pycache__ \) -prune -o -type f -print)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall ./chips/opencl
	touch $@

test-opencl: $(VENV)/installed $(VENV)/test-ready $(VENV)/opencl
	$(BIN)/fl-kit "$$($(BIN)/python -c 'import torch_fl_opencl; print(*torch_fl_opencl.libraries())')"
	$(BIN)/pytest chips/opencl/tests

opdb: $(VENV)/installed $(VENV)/test-ready
	$(BIN)/pytest -n $(JOBS) tests/opdb --every

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/ops.py --out benchmarks/OPERATORS.md

bench-opencl: $(VENV)/installed $(VENV)/opencl
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S chips/opencl -B build-opencl -G Ninja > /dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build-opencl --target fl-opencl-benchmark
	$(BIN)/python benchmarks/opencl.py --program build-opencl/fl-opencl-benchmark $(PEER:%=--peer %)

lint: $(VENV)/test-ready tidy
	$(BIN)/ruff check .
	find src chips kit tests include -name build -prune -o \( -name '*.cpp' -o -name '*.h' -o -name '*.c' \) -print | xargs $(BIN)/clang-format --dry-run --Werror

# clang-tidy on the parts without PyTorch; a file that has passed is looked at again when it or a header changes.
# Of fft_kernels.cpp the shuffles are GCC's own.
TIDY := $(filter-out %/fft_kernels.cpp, $(shell find src/chip src/runtime src/program kit chips/sim -name '*.cpp'))
tidy: build-tidy/compile_commands.json
	@$(MAKE) --no-print-directory -k -j $(JOBS) $(TIDY:%=build-tidy/%.passed)

# FL_SANITIZE: chips/sim/simd at one processor level.
build-tidy/compile_commands.json: $(VENV)/test-ready $(shell find CMakeLists.txt src chips kit tests benchmarks -name CMakeLists.txt)
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build-tidy -DFL_BRIDGE=OFF -DFL_SANITIZE=address > /dev/null
	touch $@

# Clang has no omp.h of its own here; the compiler's comes last in the search.
build-tidy/%.passed: % .clang-tidy $(shell find src include kit chips -name '*.h') build-tidy/compile_commands.json
	$(BIN)/clang-tidy -p build-tidy --quiet --extra-arg=-idirafter$$(c++ -print-file-name=include) $<
	@mkdir -p $(@D) && touch $@

clean:
	rm -rf build build-* dist torch_fl/_bridge_*.so torch_fl/chips torch_fl/lib .venv*/installed .venv*/opencl
