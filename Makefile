# SPDX-License-Identifier: Apache-2.0
#
# The doors of the project; the work is meson's. `make help` lists them.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
CC ?= cc
MESON_TEST = meson test -C $(BUILD) --no-rebuild --print-errorlogs

.PHONY: all help setup check test bench soak mutants gpu demo install asan tsan fuzz format clean

all: $(BUILD)/build.ninja ## build everything
	ninja -C $(BUILD)

help: ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

setup: ## install what building and testing need (Debian; as root or with sudo)
	tools/setup

# What only a build needs is a small part of that: the demo waits for no more.
$(BUILD)/build.ninja:
	tools/setup build
	CC="$(CC)" meson setup $(BUILD)

check: all ## the unit tests, under a minute
	$(MESON_TEST) --suite unit

test: ## everything, from nothing; ends with the totals
	BUILD=$(BUILD) tests/run

bench: all ## the numbers, beside their targets; SAVE=1 keeps them in bench/results/
	python3 bench/run.py --build $(BUILD) $(if $(SAVE),--save)

soak: all ## the long runs: 10^5 kills, 10^7 random steps, 10^6 random calls, a tenant's and a node's day, every vendor's agent
	$(MESON_TEST) --suite soak --timeout-multiplier 0
	export HAMI_BUILD=$(abspath $(BUILD)); tests/cluster/cluster up && \
		python3 tests/cluster/day.py && python3 tests/cluster/vendors.py; code=$$?; \
		tests/cluster/cluster down; exit $$code

mutants: all ## whether the tests notice a changed line: 400 of them, hours
	tools/mutants

gpu: all ## the library on this machine's NVIDIA GPU, which nobody else uses meanwhile: ten minutes, into gpu-results/
	HAMI_BUILD=$(abspath $(BUILD)) python3 tests/gpu/run.py gpu-results

# What it runs, of all that can be built.
DEMO = src/ctl/hamictl src/vgpu/libvgpu.so src/simdriver/libcuda.so.1 src/simdriver/libnvidia-ml.so.1 tests/load

demo: ## install, build, and show programs sharing a GPU, in about a minute
	@tools/setup build
	@test -x $(BUILD)/tests/load || \
		echo "demo: building; the last line of $(BUILD).log says how far it is"
	@{ $(MAKE) --no-print-directory BUILD=$(BUILD) $(BUILD)/build.ninja && \
		ninja -C $(BUILD) $(DEMO); } >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@demo/demo.py --build $(BUILD)

install: all ## into DESTDIR with PREFIX: bin/, lib/hami/, share/
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD)

asan: build-asan/build.ninja ## the unit tests, and libvgpu in guests, under AddressSanitizer and UBSan
	ninja -C build-asan
	meson test -C build-asan --no-rebuild --print-errorlogs --suite unit --suite asan

tsan: build-tsan/build.ninja ## what runs in threads, under ThreadSanitizer
	ninja -C build-tsan
	meson test -C build-tsan --no-rebuild --print-errorlogs --suite tsan

fuzz: build-fuzz/build.ninja ## build the fuzz targets; run one as build-fuzz/.../X_fuzz
	ninja -C build-fuzz

build-asan/build.ninja:
	CC=gcc meson setup build-asan -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=undefined

build-tsan/build.ninja:
	CC=gcc meson setup build-tsan -Db_sanitize=thread

build-arm64/build.ninja:
	meson setup build-arm64 --cross-file tools/arm64.ini

build-fuzz/build.ninja:
	CC=clang meson setup build-fuzz -Dfuzz=true

format: ## clang-format over the whole tree
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean: ## remove what was built
	rm -rf $(BUILD) $(BUILD).log build-asan build-tsan build-fuzz build-arm64
