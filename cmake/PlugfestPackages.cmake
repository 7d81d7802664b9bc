# Debian packages, one for each component of PlugfestInstall.cmake: `cpack --config build/CPackConfig.cmake`, which
# scripts/release calls. They depend on the libraries that dpkg-shlibdeps finds.
if(NOT TARGET plugfest OR PLUGFEST_SANITIZE)
  return()
endif()
set(PLUGFEST_MAINTAINER "Plugfest developers <plugfest@example.org>" CACHE STRING "maintainer of the Debian packages")
string(TIMESTAMP PLUGFEST_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH sets it

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL fabric plugfest mesh dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${PLUGFEST_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)

set(CPACK_DEBIAN_FABRIC_PACKAGE_NAME plugfest-fabric)
set(CPACK_DEBIAN_FABRIC_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_FABRIC_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FABRIC_PACKAGE_SUGGESTS "plugfest, ibverbs-utils, rdmacm-utils, tshark")
# Its files were in the package plugfest before.
set(CPACK_DEBIAN_FABRIC_PACKAGE_BREAKS "plugfest (<< 0.3.0)")
set(CPACK_DEBIAN_FABRIC_PACKAGE_REPLACES "plugfest (<< 0.3.0)")
set(CPACK_COMPONENT_FABRIC_DESCRIPTION "runs RDMA programs on emulated hosts
Hosts are network namespaces. Each interface has a user-space RoCEv2 NIC, for
unmodified programs of libibverbs and librdmacm, without RDMA hardware and
without root. The package plugfest adds tests of NCCL network plugins.")

set(CPACK_DEBIAN_PLUGFEST_PACKAGE_NAME plugfest)
set(CPACK_DEBIAN_PLUGFEST_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PLUGFEST_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PLUGFEST_PACKAGE_SUGGESTS "plugfest-dev, qemu-system-x86, tshark, valgrind")
set(CPACK_COMPONENT_PLUGFEST_DEPENDS fabric mesh)
set(CPACK_COMPONENT_PLUGFEST_DESCRIPTION "tests NCCL network plugins on a software RDMA fabric
Loads any libnccl-net.so and checks rule by rule what NCCL relies on: on
emulated hosts that a software RDMA NIC connects, without RDMA hardware and
without root. Calls that hang or crash become verdicts.")

set(CPACK_DEBIAN_MESH_PACKAGE_NAME libnccl-net-mesh)
set(CPACK_DEBIAN_MESH_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_MESH_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_MESH_DESCRIPTION "NCCL network plugin for hosts that are cabled to each other directly
Connects each pair of hosts by RDMA over the link between them, where each link
is a subnet of its own. NCCL loads it if the variable NCCL_NET_PLUGIN is mesh.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME plugfest-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_DEV_DEPENDS plugfest)
set(CPACK_COMPONENT_DEV_DESCRIPTION "CMake package of plugfest and headers of NCCL's net interface
For projects of NCCL network plugins: the CMake function that adds the rules of
plugfest to the tests, and the structures of the net interface, v6 to v12.")

# The files that Debian's policy requires of every package.
configure_file(cmake/debian/changelog.in ${CMAKE_BINARY_DIR}/debian/changelog @ONLY)
execute_process(COMMAND gzip -9nf ${CMAKE_BINARY_DIR}/debian/changelog COMMAND_ERROR_IS_FATAL ANY)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES cmake/debian/copyright ${CMAKE_BINARY_DIR}/debian/changelog.gz DESTINATION share/doc/${name} COMPONENT
    ${component})
  if(EXISTS ${CMAKE_SOURCE_DIR}/cmake/debian/${name}.lintian-overrides)
    install(FILES cmake/debian/${name}.lintian-overrides DESTINATION share/lintian/overrides RENAME ${name} COMPONENT
      ${component})
  endif()
endforeach()

include(CPack)
