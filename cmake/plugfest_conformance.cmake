# plugfest_add_conformance(TARGET
#   [TOPOLOGIES triangle …]  hosts and links, by name or YAML file; default: triangle
#   [INTERFACE name]         net, collnet, gin, rma, profiler, tuner or env; default: net
#   [API v8 …]               versions of the interface; default: the newest that the plugin exports
#   [RULES CN-06 'XF-*' …]   only these rules
#   [BASELINE file]          known findings to waive
#   [STRICT]                 broken [S] rules fail
#   [PER_RULE]               a test for each rule, not for each group of rules
#   [NIC kind]               roce, loopback, …
#   [TIMEOUT seconds]        of a run; default: 600
#   [ARGUMENTS …])           more for plugfest run, such as --env NAME=VALUE
#
# Adds the rules of plugfest to the tests of the plugin TARGET. For each topology and version, a subject, there is one
# test TARGET.run, which runs all rules and writes plugfest/TARGET.json and .html below the current binary folder, and
# tests TARGET.CN, … or TARGET.CN-06, …, which read their verdicts from these files. ctest runs TARGET.run before any of
# them, so `ctest -L CN` works. Labels: plugfest, and the group. A test is skipped if its rules were skipped or do not
# apply. With several topologies or versions, names are TARGET.star-4.v8.CN.
function(plugfest_add_conformance target)
  set(usage "plugfest_add_conformance(${target})")
  cmake_parse_arguments(PARSE_ARGV 1 ARG "STRICT;PER_RULE" "INTERFACE;BASELINE;NIC;TIMEOUT"
                        "TOPOLOGIES;API;RULES;ARGUMENTS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "${usage}: unknown argument \"${ARG_UNPARSED_ARGUMENTS}\": expected TOPOLOGIES, INTERFACE, API, RULES, BASELINE, "
                        "STRICT, PER_RULE, NIC, TIMEOUT or ARGUMENTS")
  endif()
  if(ARG_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${usage}: ${ARG_KEYWORDS_MISSING_VALUES}: expected a value after it")
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${usage}: there is no target ${target}: call it after add_library(${target} MODULE …)")
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(MODULE|SHARED)_LIBRARY$")
    message(FATAL_ERROR "${usage}: ${target} is not a plugin but ${type}: expected add_library(${target} MODULE …)")
  endif()
  set(options ${ARG_ARGUMENTS})
  if(NOT ARG_INTERFACE)
    set(ARG_INTERFACE net)
  endif()
  set(selection --interface ${ARG_INTERFACE})
  foreach(rule IN LISTS ARG_RULES)
    list(APPEND selection --rule "${rule}")
  endforeach()
  if(ARG_STRICT)
    list(APPEND options --strict)
  endif()
  if(ARG_NIC)
    list(APPEND options --nic ${ARG_NIC})
  endif()
  if(ARG_BASELINE)
    get_filename_component(baseline "${ARG_BASELINE}" ABSOLUTE)
    if(NOT EXISTS "${baseline}")
      message(FATAL_ERROR "${usage}: BASELINE ${baseline}: no such file")
    endif()
    list(APPEND options --baseline "${baseline}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_TOPOLOGIES)
    set(ARG_TOPOLOGIES triangle)
  endif()
  if(NOT ARG_API)
    set(ARG_API newest)
  endif()

  # Another program may have other rules: configure again when it changes.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PLUGFEST_PROGRAM}")
  execute_process(COMMAND "${PLUGFEST_PROGRAM}" run --list ${selection} OUTPUT_VARIABLE rules ERROR_VARIABLE error
                  RESULT_VARIABLE code OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${usage}: cannot list the rules: ${error}")
  endif()
  string(REPLACE "\n" ";" entries "${rules}")
  if(NOT ARG_PER_RULE)
    list(TRANSFORM entries REPLACE "-.*" "")
    list(REMOVE_DUPLICATES entries)
  endif()

  list(LENGTH ARG_TOPOLOGIES topologies)
  list(LENGTH ARG_API apis)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/plugfest")
  file(MAKE_DIRECTORY "${folder}")
  foreach(topology IN LISTS ARG_TOPOLOGIES)
    set(name "${topology}")
    if(topology MATCHES "\\.ya?ml$")
      get_filename_component(topology "${topology}" ABSOLUTE)
      get_filename_component(name "${topology}" NAME_WE)
      if(NOT EXISTS "${topology}")
        message(FATAL_ERROR "${usage}: TOPOLOGIES ${topology}: no such file")
      endif()
    endif()
    string(REGEX REPLACE "[^A-Za-z0-9_]" "-" name "${name}")
    foreach(api IN LISTS ARG_API)
      set(subject ${target})
      if(topologies GREATER 1)
        string(APPEND subject .${name})
      endif()
      set(version)
      if(NOT api STREQUAL newest)
        set(version --api ${api})
      endif()
      if(apis GREATER 1)
        string(APPEND subject .${api})
      endif()
      add_test(NAME ${subject}.run
               COMMAND "${CMAKE_COMMAND}" -P "${PLUGFEST_CMAKE_FOLDER}/plugfest_run.cmake" -- "${PLUGFEST_PROGRAM}" run
                       --plugin "$<TARGET_FILE:${target}>" --topology "${topology}" ${version} ${selection} ${options}
                       --json "${folder}/${subject}.json" --html "${folder}/${subject}.html")
      set_tests_properties(${subject}.run PROPERTIES FIXTURES_SETUP ${subject} TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2
        LABELS plugfest)
      foreach(entry IN LISTS entries)
        string(REGEX REPLACE "-.*" "" group "${entry}")
        add_test(NAME ${subject}.${entry} COMMAND "${PLUGFEST_PROGRAM}" verdict "${folder}/${subject}.json" ${entry})
        set_tests_properties(${subject}.${entry} PROPERTIES FIXTURES_REQUIRED ${subject} SKIP_RETURN_CODE 77 TIMEOUT 60
                             LABELS "plugfest;${group}")
      endforeach()
    endforeach()
  endforeach()
endfunction()
