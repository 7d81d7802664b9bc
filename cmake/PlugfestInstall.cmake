# The files of `cmake --install`, in four components: fabric (the program, the NIC and the connection manager), plugfest
# (all else that the program starts or loads), mesh (the mesh plugin alone) and dev (headers of the net interface, CMake
# package).
#
# All files have fixed paths relative to each other, so that the installed tree may be moved. The program resolves the
# symbolic link in bin/ and so finds lib/plugfest/bin and lib/plugfest/lib, which are arranged as bin/ and lib/ of the
# build.
if(NOT TARGET plugfest OR PLUGFEST_SANITIZE)
  return()
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME plugfest)

# install_link(FROM TO COMPONENT): a symbolic link FROM with the content TO.
function(install_link from to component)
  get_filename_component(name ${from} NAME)
  get_filename_component(folder ${from} DIRECTORY)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/links/${folder})
  file(CREATE_LINK ${to} ${CMAKE_BINARY_DIR}/links/${from} SYMBOLIC)
  install(FILES ${CMAKE_BINARY_DIR}/links/${from} DESTINATION ${folder} COMPONENT ${component})
endfunction()

# The tarball of scripts/release has libraries of the distribution in lib/bundled. DT_RPATH also serves the libraries
# that these need.
set_target_properties(plugfest plugfest-aggregation PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/bundled")
set_target_properties(plugfest-nccl PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/nccl:$ORIGIN/../lib/bundled")
set_target_properties(plugfest-reduction-probe PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/sharp:$ORIGIN/../lib/bundled")
set_target_properties(roce_verbs sharp_coll plugfest_nccl_emulation PROPERTIES INSTALL_RPATH "$ORIGIN/../bundled")
target_link_options(plugfest PRIVATE -Wl,--disable-new-dtags)
target_link_options(plugfest-aggregation PRIVATE -Wl,--disable-new-dtags)
install(TARGETS plugfest DESTINATION lib/plugfest/bin COMPONENT fabric)
install_link(bin/plugfest ../lib/plugfest/bin/plugfest fabric)
install(TARGETS roce_verbs plugfest_loopback_preload plugfest_rdma_cm_preload
        LIBRARY DESTINATION lib/plugfest/lib/roce COMPONENT fabric)
install(TARGETS plugfest-aggregation plugfest-rank plugfest-reduction-probe guest_init DESTINATION lib/plugfest/bin)
install(TARGETS sharp_coll sharp_mlx5 LIBRARY DESTINATION lib/plugfest/lib/sharp)
install(TARGETS recorder sharp LIBRARY DESTINATION lib/plugfest/lib)
# Only if the target nccl_ranks has been built.
install(TARGETS plugfest-nccl DESTINATION lib/plugfest/bin OPTIONAL)
install(TARGETS nccl_nvml plugfest_nccl_emulation nccl_cudart_12 nccl_cudart_13 nccl_libcuda nccl_cudart_unversioned
                nccl_libcuda_unversioned failing_plugin
        LIBRARY DESTINATION lib/plugfest/lib/nccl OPTIONAL)
install(FILES conformance/known-findings.yaml DESTINATION share/plugfest)

# Manual pages, if help2man is installed: written again whenever the program has changed. Completion asks the program.
install(FILES cmake/completion.bash DESTINATION share/bash-completion/completions RENAME plugfest
        COMPONENT fabric)
find_program(PLUGFEST_HELP2MAN help2man)
if(PLUGFEST_HELP2MAN)
  set(pages ${CMAKE_BINARY_DIR}/manual/man1)
  add_custom_command(OUTPUT ${pages}/plugfest.1.gz
                     COMMAND ${CMAKE_SOURCE_DIR}/cmake/manual.sh $<TARGET_FILE:plugfest> ${pages}
                     DEPENDS plugfest cmake/manual.sh VERBATIM)
  add_custom_target(manual ALL DEPENDS ${pages}/plugfest.1.gz)
  install(DIRECTORY ${pages} DESTINATION share/man COMPONENT fabric)
endif()

# The schema of results.json.
set(schema ${CMAKE_BINARY_DIR}/results.schema.json)
add_custom_command(OUTPUT ${schema} COMMAND $<TARGET_FILE:plugfest> schema > ${schema} DEPENDS plugfest VERBATIM)
add_custom_target(schema ALL DEPENDS ${schema})
install(FILES ${schema} DESTINATION share/plugfest)

# In lib/, where the dynamic loader searches with NCCL_NET_PLUGIN=mesh. libnccl-net.so is not installed, because NCCL
# loads a library of that name by default.
install(TARGETS mesh LIBRARY DESTINATION lib COMPONENT mesh)
install_link(lib/plugfest/lib/libnccl-net-mesh.so ../../libnccl-net-mesh.so plugfest)

file(GLOB abi_headers CONFIGURE_DEPENDS harness/abi/*.h)
install(FILES ${abi_headers} DESTINATION include/plugfest/harness/abi COMPONENT dev)
install(DIRECTORY fabric/sharp_coll/sharp DESTINATION include/plugfest COMPONENT dev)

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/plugfestConfigVersion.cmake COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES cmake/plugfestConfig.cmake cmake/plugfest_conformance.cmake cmake/plugfest_cuda_program.cmake
              cmake/plugfest_run.cmake
              ${CMAKE_BINARY_DIR}/plugfestConfigVersion.cmake DESTINATION lib/cmake/plugfest COMPONENT dev)
install(DIRECTORY examples/socket-plugin DESTINATION share/doc/plugfest-dev/examples COMPONENT dev
        PATTERN build EXCLUDE PATTERN .github EXCLUDE)
# The headers for plugfest nvcc.
install(DIRECTORY harness/kernels/include/ DESTINATION lib/plugfest/lib/kernels COMPONENT dev)
# plugfest new copies it.
install_link(lib/plugfest/lib/skeleton ../../../share/doc/plugfest-dev/examples/socket-plugin dev)
