# Per-target settings shared by the library, its tests and the benchmarks.

# All .c and .h files of the given folders, relative to the caller; new files are noticed.
function(msg_glob out)
  set(patterns)
  foreach(dir IN LISTS ARGN)
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.c ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.h)
  endforeach()
  file(GLOB files CONFIGURE_DEPENDS ${patterns})
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# Language level, include roots, warnings, sanitizers.
function(msg_setup target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE MSG_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wvla -Wshadow
    -Wstrict-prototypes $<$<BOOL:${MSG_WERROR}>:-Werror>)
  target_link_libraries(${target} PRIVATE Threads::Threads)
  if(MSG_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${MSG_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${MSG_SANITIZE})
  endif()
  if(MSG_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link,address,undefined
      -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# SQLite's headers without its library.
function(msg_sqlite_headers target)
  target_include_directories(${target} SYSTEM PRIVATE ${SQLITE3_INCLUDE_DIRS})
endfunction()
