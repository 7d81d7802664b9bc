#!/usr/bin/env bash
# conformance_cmake_test.sh PLUGFEST: tests plugfest_add_conformance: which tests it adds, and its errors.
#
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
program=$1
make_scratch
cd -- "$scratch"
mkdir 'a project'

# configure LINE...: configures a project with the plugin foo in a folder with a space; prints the output of cmake on
# one line.
configure() {
  printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(p LANGUAGES NONE)' 'find_package(plugfest REQUIRED)' \
    'enable_testing()' \
    'add_library(foo MODULE IMPORTED)' \
    'set_target_properties(foo PROPERTIES IMPORTED_LOCATION "${CMAKE_CURRENT_SOURCE_DIR}/foo.so")' \
    'add_library(archive STATIC IMPORTED)' "$@" >'a project/CMakeLists.txt'
  rm -rf build
  cmake -S 'a project' -B build -Dplugfest_DIR="$here/../cmake" -DPLUGFEST_PROGRAM="${plugfest:-$program}" 2>&1 \
    | tr -s ' \n' ' '
}
refuses() {
  local text
  text=$(configure "$1" || true)
  [[ $text == *"$2"* ]] || wrong "$1: expected \"$2\" in: $text"
}
# adds EXPECTED LINE: expects these names of tests, in one line.
adds() {
  local names
  configure "$2" >/dev/null
  # shellcheck disable=SC2086 # $3 is several words or none
  names=$(ctest --test-dir build -N ${3:-} | sed -n 's/^  Test *#[0-9]*: //p' | xargs)
  [ "$names" = "$1" ] || wrong "$2: expected \"$1\", got \"$names\""
}

adds 'foo.run foo.CN foo.XF' 'plugfest_add_conformance(foo RULES CN-0? XF-01)'
adds 'foo.run foo.CN' 'plugfest_add_conformance(foo RULES CN-0? XF-01)' '-L CN'
adds 'foo.run foo.CN-06 foo.CN-07' 'plugfest_add_conformance(foo PER_RULE RULES CN-06 CN-07)'
adds "$(printf 'foo.%s.run foo.%s.CN ' triangle.v8{,} triangle.v9{,} star-3.v8{,} star-3.v9{,} | sed 's/ $//')" \
  'plugfest_add_conformance(foo TOPOLOGIES triangle star:3 API v8 v9 RULES CN-06)'

adds 'foo.run foo.TU' 'plugfest_add_conformance(foo INTERFACE tuner)'

refuses 'plugfest_add_conformance(bar)' \
  'plugfest_add_conformance(bar): there is no target bar: call it after add_library(bar MODULE …)'
refuses 'plugfest_add_conformance(archive)' \
  'archive is not a plugin but STATIC_LIBRARY: expected add_library(archive MODULE …)'
refuses 'plugfest_add_conformance(foo STRICTLY)' 'unknown argument "STRICTLY": expected TOPOLOGIES, INTERFACE,'
refuses 'plugfest_add_conformance(foo API)' 'API: expected a value after it'
refuses 'plugfest_add_conformance(foo BASELINE none.yaml)' 'a project/none.yaml: no such file'
refuses 'plugfest_add_conformance(foo TOPOLOGIES lab.yaml)' 'a project/lab.yaml: no such file'
refuses 'plugfest_add_conformance(foo RULES ZZ-01)' "cannot list the rules: plugfest: no rule matches 'ZZ-01'"
plugfest=/absent/plugfest refuses '' \
  '/absent/plugfest: no such program: install the package plugfest, or set PLUGFEST_PROGRAM'

# A run that cannot test the plugin fails, and the tests that share it do not run.
configure 'plugfest_add_conformance(foo RULES CN-06)' >/dev/null
output=$(ctest --test-dir build --output-on-failure 2>&1) && wrong 'a missing plugin passes'
for text in 'foo.so: no such file' 'plugfest could not test the plugin (2): see above' 'foo.CN (Not Run)'; do
  [[ $output == *"$text"* ]] || wrong "expected \"$text\" in: $output"
done
exit "$failed"
