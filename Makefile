# The front door: a few lines over CMake.
# May be given: BUILD, SQLITE3, FILE, PREFIX, DESTDIR, JOBS, CMAKE_FLAGS, CLANG_FORMAT, MSG_BENCH, LEAVE_OUT.
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

.PHONY: build run test shell bench install uninstall format format-check clean help deps-run deps-test

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

bench: deps-test # every figure beside its floor; MSG_BENCH: local, mongo, or names of benches
	@$(CONFIGURE) -DMSG_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo
	@cmake --build "$(BUILD)" --target msg bench
	@"$(BUILD)/bench/bench" $(MSG_BENCH)

install: build # to PREFIX, below DESTDIR
	@cmake --install "$(BUILD)" --prefix "$(PREFIX)"

uninstall: # what install put there
	@rm -rfv "$(DESTDIR)$(PREFIX)/lib/sqlite3/$(notdir $(MSG_SO))" "$(DESTDIR)$(PREFIX)/share/man/man7/msg.7" \
	  "$(DESTDIR)$(PREFIX)/share/sqlite-msg"

format: # the C files, in place
	@$(C_FILES) -i

format-check: # the C files, and lines of at most 100 columns
	@$(C_FILES) --dry-run --Werror
	@! grep -rnE '^.{101,}' src ext tests --include='*.[ch]' # comments, which it leaves alone

clean: # remove BUILD
	@rm -rf "$(BUILD)"

help: # this list
	@sed -nE 's/^([a-z-]+):[^#]*# (.*)/make \1	\2/p' Makefile | expand -t 20

deps-run deps-test:
	@tests/ci/install-deps.sh $(@:deps-%=%)
