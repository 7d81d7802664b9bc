# find_package(plugfest): plugfest_add_conformance(), which adds the rules to the tests of a plugin's project (see
# plugfest_conformance.cmake), plugfest_add_cuda_program(), which compiles CUDA sources for the CPU (see
# plugfest_cuda_program.cmake), and the target plugfest::abi with the headers harness/abi/.
#
# This file is in lib/cmake/plugfest of an installation, which may be moved, or in cmake/ of a clone:
# -Dplugfest_DIR=CLONE/cmake. The program of a clone is scripts/plugfest, which first builds plugfest.
#
# PLUGFEST_PROGRAM  another program
get_filename_component(_plugfest_here "${CMAKE_CURRENT_LIST_FILE}" REALPATH)
get_filename_component(_plugfest_here "${_plugfest_here}" DIRECTORY)
if(EXISTS "${_plugfest_here}/../scripts/plugfest")
  get_filename_component(_plugfest_root "${_plugfest_here}/.." ABSOLUTE)
  set(_plugfest_program "${_plugfest_root}/scripts/plugfest")
  set(_plugfest_include "${_plugfest_root}")
else()
  get_filename_component(_plugfest_root "${_plugfest_here}/../../.." ABSOLUTE)
  set(_plugfest_program "${_plugfest_root}/bin/plugfest")
  set(_plugfest_include "${_plugfest_root}/include/plugfest")
endif()

if(NOT PLUGFEST_PROGRAM)
  set(PLUGFEST_PROGRAM "${_plugfest_program}")
endif()
if(NOT EXISTS "${PLUGFEST_PROGRAM}")
  set(plugfest_FOUND FALSE)
  set(plugfest_NOT_FOUND_MESSAGE
    "${PLUGFEST_PROGRAM}: no such program: install the package plugfest, or set PLUGFEST_PROGRAM")
  return()
endif()
if(NOT TARGET plugfest::abi)
  add_library(plugfest::abi INTERFACE IMPORTED)
  set_target_properties(plugfest::abi PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_plugfest_include}")
endif()
set(PLUGFEST_CMAKE_FOLDER "${_plugfest_here}")
include("${_plugfest_here}/plugfest_conformance.cmake")
include("${_plugfest_here}/plugfest_cuda_program.cmake")
