# How tests, host programs, benchmarks and fuzzers are made.

set(MSG_MONGODB_FILE ${PROJECT_BINARY_DIR}/mongodb.json) # says where the run's server is

function(msg_test_properties name label)
  set(timeout_s 120)
  if(MSG_SANITIZE OR label STREQUAL faults)
    set(timeout_s 300)
  endif()
  # libmongoc's counters in /dev/shm outlive who is killed; who gets its process id prints a warning.
  set_tests_properties(${name} PROPERTIES LABELS "${label};${ARGN}" TIMEOUT ${timeout_s}
    ENVIRONMENT "MSG_SO=$<TARGET_FILE:msg>;MSG_BUILD=${PROJECT_BINARY_DIR};MSG_SOURCE=${PROJECT_SOURCE_DIR};SQLITE3=${MSG_SQLITE3};PYTHONDONTWRITEBYTECODE=1;MONGOC_DISABLE_SHM=1")
  if(label STREQUAL faults)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  # One thread's work, repeated for every allocation, I/O call or constraint: no race to find.
  if(name MATCHES "\\.(local_oom|oom|io_faults|tables_pushdown)$")
    set_property(TEST ${name} APPEND PROPERTY LABELS sequential)
  endif()
endfunction()

# tests/LABEL/test_NAME.EXT -> LABEL.NAME
function(msg_test_name out label source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "^test_" "" stem ${stem})
  set(${out} ${label}.${stem} PARENT_SCOPE)
endfunction()

# What needs MongoDB: everything in mongo/, and test_mongo* elsewhere. Dropped where there is no
# adapter.
set(MSG_MONGODB_SOURCE "/mongo/[^/]*$|/test_mongo[^/]*$")
function(msg_drop_mongodb_tests label list)
  if(MSG_HAVE_MONGODB)
    return()
  endif()
  set(dropped ${${list}})
  list(FILTER dropped INCLUDE REGEX ${MSG_MONGODB_SOURCE})
  foreach(source IN LISTS dropped)
    msg_test_name(name ${label} ${source})
    set_property(GLOBAL APPEND PROPERTY MSG_MONGODB_TESTS ${name})
  endforeach()
  list(FILTER ${list} EXCLUDE REGEX ${MSG_MONGODB_SOURCE})
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

# A server for the test: that of the run, which comes and goes with it. Skipped where there is none.
function(msg_mongodb_properties name source)
  if(NOT source MATCHES ${MSG_MONGODB_SOURCE})
    return()
  endif()
  set_property(TEST ${name} APPEND PROPERTY LABELS mongo)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MSG_MONGODB_FILE=${MSG_MONGODB_FILE}")
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED mongod SKIP_RETURN_CODE 77 TIMEOUT 600)
  if(name MATCHES "^mongo\\.outages$|_whole$") # minutes
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    set_property(TEST ${name} APPEND PROPERTY LABELS slow)
  endif()
  # Once in a CI run is enough: the legs on other compilers and libraries leave it out.
  if(name MATCHES "^(contract\\.mongo_|mongo\\.(dual_|multi_|layouts|golden_layouts|faults|races|ambiguous|migrate))")
    set_property(TEST ${name} APPEND PROPERTY LABELS once)
    set_tests_properties(${name} PROPERTIES COST 50) # begun first
  endif()
  set_property(GLOBAL APPEND PROPERTY MSG_MONGODB_TESTS ${name})
endfunction()

# tests/FOLDER/test_STEM.py once more, with the messages in MongoDB: the test mongo.hosts_STEM, or
# mongo.LAYOUT_STEM. SUFFIX: of the name; ARGS: which of its tests; ENVIRONMENT: more of it; SLOW:
# labelled so.
function(msg_add_layout_test layout folder stem)
  cmake_parse_arguments(PARSE_ARGV 3 more "SLOW" "SUFFIX" "ARGS;ENVIRONMENT")
  set(name mongo.${layout}_${stem}${more_SUFFIX})
  if(layout STREQUAL standard)
    set(name mongo.hosts_${stem})
  endif()
  add_test(NAME ${name} COMMAND ${MSG_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/test_${stem}.py
    ${more_ARGS})
  msg_test_properties(${name} mongo script)
  msg_mongodb_properties(${name} /mongo/${stem})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MSG_TEST_STORE=mongodb
    MSG_TEST_LAYOUT=${layout} ${more_ENVIRONMENT})
  if(more_SLOW)
    set_property(TEST ${name} APPEND PROPERTY LABELS slow)
  endif()
endfunction()

# Layouts beside standard: what they change runs always, in a short form where it is long; the rest
# is slow.
function(msg_add_layout_tests layout)
  foreach(stem await batch claim order poison process regressions request transaction)
    msg_add_layout_test(${layout} hosts ${stem})
  endforeach()
  foreach(stem bad_input broadcast_model files lessons tables time values waiting)
    msg_add_layout_test(${layout} hosts ${stem} SLOW)
  endforeach()
  msg_add_layout_test(${layout} mongo lag)
  msg_add_layout_test(${layout} mongo races ENVIRONMENT MSG_RACE_N=200)
  msg_add_layout_test(${layout} mongo faults ARGS Primary.test_kill_9 Dropped)
  foreach(stem races faults outages)
    msg_add_layout_test(${layout} mongo ${stem} SUFFIX _whole) # slow by its name
  endforeach()
endfunction()

# Last: the fixture, and the test that says what did not run for want of a server or of the adapter.
function(msg_add_mongodb_fixture)
  set(mongod ${MSG_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/support/mongod.py)
  set(file none)
  if(MSG_HAVE_MONGODB)
    set(file ${MSG_MONGODB_FILE})
    add_test(NAME mongo.start COMMAND ${mongod} fixture-start ${file})
    add_test(NAME mongo.stop COMMAND ${mongod} fixture-stop ${file})
    msg_test_properties(mongo.start mongo)
    msg_test_properties(mongo.stop mongo)
    set_tests_properties(mongo.start PROPERTIES FIXTURES_SETUP mongod TIMEOUT 600)
    set_tests_properties(mongo.stop PROPERTIES FIXTURES_CLEANUP mongod)
  endif()
  get_property(tests GLOBAL PROPERTY MSG_MONGODB_TESTS)
  add_test(NAME mongo.available COMMAND ${mongod} available ${file} ${tests})
  msg_test_properties(mongo.available mongo)
  set_tests_properties(mongo.available PROPERTIES SKIP_RETURN_CODE 77)
  if(MSG_HAVE_MONGODB)
    set_tests_properties(mongo.available PROPERTIES FIXTURES_REQUIRED mongod)
  endif()
endfunction()

# An executable under BUILD/DIR that may load msg.so, whose path is MSG_SO_PATH.
function(msg_add_program target dir)
  add_executable(${target} ${ARGN})
  msg_setup(${target})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE MSG_SO_PATH="$<TARGET_FILE:msg>")
  target_link_libraries(${target} PRIVATE PkgConfig::SQLITE3 ${CMAKE_DL_LIBS} m)
  add_dependencies(${target} msg)
endfunction()

# tests/support/*.c, linked to every C test.
function(msg_add_support)
  file(GLOB sources CONFIGURE_DEPENDS support/*.c)
  add_library(msg_test_support STATIC ${sources})
  msg_setup(msg_test_support)
  target_include_directories(msg_test_support PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(msg_test_support PRIVATE MSG_SO_PATH="$<TARGET_FILE:msg>")
  target_link_libraries(msg_test_support PUBLIC msg_core PkgConfig::CMOCKA)
endfunction()

# tests/LABEL/test_NAME.c: the test LABEL.NAME.
function(msg_add_c_test label source)
  msg_test_name(name ${label} ${source})
  string(REPLACE . _ program test_${name})
  msg_add_program(${program} tests/${label} ${source})
  target_link_libraries(${program} PRIVATE msg_test_support)
  add_test(NAME ${name} COMMAND ${program})
  msg_test_properties(${name} ${label})
  msg_mongodb_properties(${name} ${source})
endfunction()

# tests/LABEL/test_NAME.sh or .py: the test LABEL.NAME, also labelled script.
function(msg_add_script_test label script)
  msg_test_name(name ${label} ${script})
  if(script MATCHES "\\.py$")
    set(runner ${MSG_PYTHON})
  else()
    set(runner ${MSG_BASH})
  endif()
  add_test(NAME ${name} COMMAND ${runner} ${script})
  msg_test_properties(${name} ${label} script)
  msg_mongodb_properties(${name} ${script})
endfunction()

# tests/fuzz/fuzz_NAME.c: BUILD/fuzz/fuzz_NAME; seeds, if any, are in tests/fuzz/corpus/NAME.
function(msg_add_fuzzers)
  file(GLOB fuzzers CONFIGURE_DEPENDS fuzz/fuzz_*.c)
  foreach(fuzzer IN LISTS fuzzers)
    cmake_path(GET fuzzer STEM stem)
    add_executable(${stem} ${fuzzer})
    msg_setup(${stem})
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${stem} PRIVATE msg_core)
    target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
  endforeach()
endfunction()
