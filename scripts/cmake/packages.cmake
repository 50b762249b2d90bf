# cpack -G DEB: the packages kiln, libkiln0, libkiln-dev and python3-kiln of the components of
# install.cmake.  debian.cmake puts into each what only a package has.
set(KILN_MAINTAINER "Kiln <kiln@localhost>" CACHE STRING "Who answers for the packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kiln)
# Each package has a synopsis of its own, the first line of its description.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_PACKAGE_CONTACT "${KILN_MAINTAINER}")
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs library development)
if(TARGET kiln_package)
	list(APPEND CPACK_COMPONENTS_ALL python3)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

set(same "libkiln0 (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME kiln)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS
	"${same}, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS "g++ | c++-compiler")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "libnvrtc12, redis-server")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_EXTRA ${KILN_PACKAGING}/postinst ${KILN_PACKAGING}/prerm
	${KILN_PACKAGING}/postrm)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "compile and launch service for CUDA kernels
The daemon kilnd compiles kernels for the programs of a host, keeps and
launches them; the command kiln looks inside.  Members of the group kiln may
connect to the system's daemon; any user may start a daemon of their own.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libkiln0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "kiln")
file(WRITE ${CMAKE_BINARY_DIR}/cmake/shlibs "libkiln ${PROJECT_VERSION_MAJOR} libkiln0 (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/cmake/shlibs ${KILN_PACKAGING}/triggers)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "compile and launch service for CUDA kernels - library
What a program links that asks the daemon kilnd for kernels.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkiln-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libmsgpack-dev | libmsgpack-c-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "compile and launch service for CUDA kernels - development files
Headers, an archive, files for CMake and pkg-config, and examples.  Who links
the archive needs msgpack-c's as well.")

set(CPACK_DEBIAN_PYTHON3_PACKAGE_NAME python3-kiln)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_DEPENDS "${same}, python3 (>= 3.10)")
set(CPACK_DEBIAN_PYTHON3_PACKAGE_RECOMMENDS "kiln, python3-numpy")
set(CPACK_DEBIAN_PYTHON3_PACKAGE_CONTROL_EXTRA ${KILN_PACKAGING}/python3/postinst ${KILN_PACKAGING}/python3/prerm)
set(CPACK_COMPONENT_PYTHON3_DESCRIPTION "compile and launch service for CUDA kernels - Python package
The operators of Kiln on tensors of PyTorch, NumPy, CuPy and DLPack.")

include(CPack)
