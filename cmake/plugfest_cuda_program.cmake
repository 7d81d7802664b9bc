# plugfest_add_cuda_program(TARGET source…
#   [OPTIONS …])  more for plugfest nvcc, such as -DNAME, -Ifolder or -O0
#
# Adds the program TARGET from CUDA sources with kernels of NCCL's device API, compiled for the CPU by plugfest nvcc
# (see docs/device-kernels.md). It is built with the target `all`, again when a source or a header has changed. The
# program is cuda/TARGET below the current binary folder.
function(plugfest_add_cuda_program target)
  set(usage "plugfest_add_cuda_program(${target})")
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "OPTIONS")
  if(NOT ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${usage}: no source: expected plugfest_add_cuda_program(${target} source.cu …)")
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/cuda")
  set(program "${folder}/${target}")
  file(MAKE_DIRECTORY "${folder}/${target}.dir")
  set(objects)
  foreach(source IN LISTS ARG_UNPARSED_ARGUMENTS)
    get_filename_component(path "${source}" ABSOLUTE)
    get_filename_component(name "${source}" NAME)
    set(object "${folder}/${target}.dir/${name}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND "${PLUGFEST_PROGRAM}" nvcc ${ARG_OPTIONS} -MD -MF "${object}.d" -MT "${object}" -c "${path}"
        -o "${object}"
      DEPENDS "${path}" DEPFILE "${object}.d" COMMENT "Compiling ${source} with plugfest nvcc" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  add_custom_command(OUTPUT "${program}"
    COMMAND "${PLUGFEST_PROGRAM}" nvcc ${ARG_OPTIONS} ${objects} -o "${program}"
    DEPENDS ${objects} COMMENT "Linking ${target} with plugfest nvcc" VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${program}")
endfunction()
