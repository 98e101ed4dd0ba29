# The front door: a few lines over CMake.
# May be given: BUILD, SQLITE3, FILE, PREFIX, JOBS, CMAKE_FLAGS, CLANG_FORMAT, MSG_BENCH, LEAVE_OUT.
BUILD ?= build
SQLITE3 ?= sqlite3
FILE ?= msg.db
LEAVE_OUT ?= slow
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
CLANG_FORMAT ?= clang-format

MSG_SO = $(abspath $(BUILD))/msg.$(if $(filter Darwin,$(shell uname -s)),dylib,so)
CONFIGURE = cmake -S . -B "$(BUILD)" -G Ninja --log-level=NOTICE -DMSG_SQLITE3="$(SQLITE3)" \
  $(CMAKE_FLAGS) >/dev/null
C_FILES = find src ext tests -name '*.[ch]' -print0 | xargs -0r $(CLANG_FORMAT)

.PHONY: build run test shell bench install format format-check clean deps-run deps-test

build: # the extension alone
	@$(CONFIGURE) -DMSG_TESTS=OFF
	@cmake --build "$(BUILD)" --target msg

run: deps-run # build, then the demonstration
	@$(MAKE) --no-print-directory build
	@MSG_SO="$(MSG_SO)" SQLITE3="$(SQLITE3)" sql/examples/run.sh

test: deps-test # build everything, run every test but those labelled LEAVE_OUT (a|b)
	@$(CONFIGURE) -DMSG_TESTS=ON
	@cmake --build "$(BUILD)"
	@ctest --test-dir "$(BUILD)" --output-on-failure --no-tests=error -LE '^($(LEAVE_OUT))$$' -j $(JOBS)
	@sed -n '/^NO MONGODB/,/^$$/p' "$(BUILD)/Testing/Temporary/LastTest.log" # what was left out

shell: deps-run # sqlite3 on FILE with the extension loaded
	@$(MAKE) --no-print-directory build
	@"$(SQLITE3)" -cmd '.load "$(MSG_SO)"' "$(FILE)"

bench: deps-test # MSG_BENCH: local, mongo or NAMEs of tests/bench; all by default
	@$(CONFIGURE) -DMSG_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo
	@cmake --build "$(BUILD)" --target msg bench
	@"$(BUILD)/bench/bench" $(MSG_BENCH)

install: build # to PREFIX; DESTDIR is honoured
	@cmake --install "$(BUILD)" --prefix "$(PREFIX)"

format:
	@$(C_FILES) -i

format-check:
	@$(C_FILES) --dry-run --Werror
	@! grep -rnE '^.{101,}' src ext tests --include='*.[ch]' # comments, which it leaves alone

clean:
	@rm -rf "$(BUILD)"

deps-run deps-test:
	@tests/ci/install-deps.sh $(@:deps-%=%)
