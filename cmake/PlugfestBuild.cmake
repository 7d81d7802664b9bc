# Compiler settings, libraries that come from the distribution, and the functions that every folder uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# -g1: names, files and lines for stack traces. Debug information of types and variables doubles the time and quadruples
# the size of a build; configure with -DCMAKE_BUILD_TYPE=Debug to get it.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# plugfest_compile_fast(): compiles the folder's targets with -O1, which is faster, because these targets mostly wait.
# The NIC, the mesh plugin and the rank, which process packets, keep -O2.
# With the little inlining of -O1, GCC 12 warns of accesses beyond std::string that do not exist (GCC bug 105651).
set(fast_options $<$<CONFIG:RelWithDebInfo>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND fast_options -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
macro(plugfest_compile_fast)
  add_compile_options(${fast_options})
endmacro()

# Programs in bin/; libraries that a program of this project opens by name in lib/, beside bin/ in the build and when
# installed.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(PLUGFEST_SANITIZE "" CACHE STRING "sanitizers, as in -fsanitize=: address,undefined or thread")
option(PLUGFEST_FUZZ "build the fuzz targets with libFuzzer; needs clang" OFF)
option(PLUGFEST_WERROR "warnings are errors" OFF)

# Without a writable folder, ccache fails instead of compiling.
find_program(PLUGFEST_CCACHE ccache)
if(PLUGFEST_CCACHE)
  execute_process(COMMAND ${PLUGFEST_CCACHE} ${CMAKE_CXX_COMPILER} -x c++ -c /dev/null -o
    ${CMAKE_BINARY_DIR}/CMakeFiles/ccache_works.o
                  RESULT_VARIABLE PLUGFEST_CCACHE_FAILED OUTPUT_QUIET ERROR_QUIET)
endif()
if(PLUGFEST_CCACHE AND PLUGFEST_CCACHE_FAILED EQUAL 0)
  # ccache needs these settings for compilations with a precompiled header (its manual, "Precompiled headers").
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${PLUGFEST_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
pkg_check_modules(LIBNL REQUIRED IMPORTED_TARGET libnl-3.0 libnl-route-3.0)
find_library(ISAL_LIBRARY isal REQUIRED)
# Static, so that the mesh plugin and plugfest need no library that a cluster may lack.
find_library(MBEDCRYPTO_LIBRARY libmbedcrypto.a REQUIRED)
find_library(MBEDX509_LIBRARY libmbedx509.a REQUIRED)
find_library(MBEDTLS_LIBRARY libmbedtls.a REQUIRED)
set(MBEDTLS_LIBRARIES ${MBEDTLS_LIBRARY} ${MBEDX509_LIBRARY} ${MBEDCRYPTO_LIBRARY})
# Tests are built if GoogleTest is installed; -DPLUGFEST_TESTS=ON requires it.
find_package(GTest QUIET)
option(PLUGFEST_TESTS "build the tests" ${GTest_FOUND})
if(PLUGFEST_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# The compiler options of all targets.
add_library(plugfest_build INTERFACE)
target_include_directories(plugfest_build INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# Executables also need -fPIC, because a precompiled header and its users must have the same setting.
target_compile_options(plugfest_build INTERFACE -fPIC -Wall -Wextra $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
                       $<$<BOOL:${PLUGFEST_WERROR}>:-Werror>)
# The definition of fmt::fmt, for all targets, because they share precompiled headers.
target_compile_definitions(plugfest_build INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
if(PLUGFEST_FUZZ)
  set(PLUGFEST_SANITIZE address,undefined)
  target_compile_options(plugfest_build INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(PLUGFEST_SANITIZE AND NOT PLUGFEST_FUZZ)
  # Compiles in half the time of -O2 -g; stacks still name files and lines.
  target_compile_options(plugfest_build INTERFACE -O1 -g1)
endif()
if(PLUGFEST_SANITIZE)
  target_compile_options(plugfest_build INTERFACE -fsanitize=${PLUGFEST_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(plugfest_build INTERFACE -fsanitize=${PLUGFEST_SANITIZE})
endif()

# Precompiled headers, each compiled once by its own target. Every source still includes what it uses: a build with
# -DPLUGFEST_PCH=OFF proves that. GCC uses a precompiled header only if all macros of the command line are the same, so
# targets get paths from generated headers, not from definitions.
option(PLUGFEST_PCH "precompile headers of the standard library, fmt and GoogleTest" ON)
file(WRITE ${CMAKE_BINARY_DIR}/generated/empty.cc "")
function(plugfest_precompiled name)
  cmake_parse_arguments(ARG "" "" "LINK;HEADERS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/generated/empty.cc)
  target_link_libraries(${name} PRIVATE plugfest_build ${ARG_LINK})
  if(PLUGFEST_PCH)
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # ccache needs it
  endif()
endfunction()
set(common_headers <algorithm> <atomic> <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <stdexcept>
    <string> <string_view> <unordered_map> <vector> <fmt/format.h>)
plugfest_precompiled(plugfest_pch HEADERS ${common_headers})
if(PLUGFEST_TESTS)
  plugfest_precompiled(plugfest_test_pch LINK GTest::gtest GTest::gmock HEADERS ${common_headers} <gmock/gmock.h>
                       <gtest/gtest.h>)
endif()

# plugfest_use_pch(TARGET PCH): compiles the sources of TARGET with the precompiled headers of the target PCH.
function(plugfest_use_pch target pch)
  if(PLUGFEST_PCH)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# plugfest_library(NAME source... [LINK lib...]): a static library of one folder.
function(plugfest_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC plugfest_build ${ARG_LINK})
  plugfest_use_pch(${name} plugfest_pch)
endfunction()

# plugfest_test_path(NAME path): a path that tests know, as the macro NAME of the generated header test_paths.h.
function(plugfest_test_path name path)
  set_property(GLOBAL APPEND_STRING PROPERTY plugfest_test_paths "#define ${name} \"${path}\"\n")
endfunction()

# Writes test_paths.h once, after all folders have been read.
function(plugfest_write_test_paths)
  get_property(paths GLOBAL PROPERTY plugfest_test_paths)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/test_paths.h
       CONTENT "// Paths that tests know; each is set by plugfest_test_path.\n#pragma once\n${paths}")
endfunction()

# plugfest_test(NAME source... [LINK lib...] [LABELS label...] [TIMEOUT seconds] [RESOURCE_LOCK name] [SANDBOX] [ALONE]
# [PROCESSORS number]): a GoogleTest program, each test known to ctest by its own name. Tests with label `root` also run
# as root if root runs scripts/test; those with label `long` run only with scripts/test --all. SANDBOX: the program
# enters its own namespaces before GoogleTest starts, so that its tests can build a netns::Fabric. ALONE: ctest runs no
# other test at the same time; RESOURCE_LOCK: no other test with that lock; PROCESSORS: the tests of ctest -j that one
# of these replaces.
function(plugfest_test name)
  if(NOT PLUGFEST_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SANDBOX;ALONE" "TIMEOUT;RESOURCE_LOCK;PROCESSORS" "LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set(main GTest::gtest_main)
  if(ARG_SANDBOX)
    set(main plugfest_sandbox_main)
  endif()
  target_link_libraries(${name} PRIVATE plugfest_build ${ARG_LINK} plugfest_system ${main} GTest::gtest GTest::gmock)
  plugfest_use_pch(${name} plugfest_test_pch)
  # GoogleTest's macros contain if and else, so GCC warns of `if (x) EXPECT_EQ(a, b);`.
  target_compile_options(${name} PRIVATE ${fast_options} -Wno-dangling-else)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # A property without a value would use the name of the next one as value.
  set(properties TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE})
  foreach(property LABELS RESOURCE_LOCK PROCESSORS)
    if(ARG_${property})
      # gtest_discover_tests takes one word. `ctest -L one` finds "one+other" too.
      string(REPLACE ";" "+" word "${ARG_${property}}")
      list(APPEND properties ${property} "${word}")
    endif()
  endforeach()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()

# plugfest_fuzz(NAME source... [LINK lib...]): a fuzz target, with its corpus in corpus/NAME. With PLUGFEST_FUZZ a
# libFuzzer program in fuzz/, else a program that a test runs on the corpus, so that the target stays correct.
function(plugfest_fuzz name)
  if(NOT PLUGFEST_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE plugfest_build ${ARG_LINK} plugfest_system)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(PLUGFEST_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets ${name})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/corpus)
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name} ${CMAKE_BINARY_DIR}/corpus/${name} SYMBOLIC)
  else()
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/replay_corpus.cc)
    add_test(NAME Corpus.${name} COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  endif()
endfunction()
if(PLUGFEST_FUZZ)
  add_custom_target(fuzz_targets)
endif()
