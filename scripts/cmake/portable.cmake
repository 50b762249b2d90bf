# The portable build: libuv, msgpack-c, SQLite, libsodium, hiredis and libseccomp from the
# distribution's static archives, so that the programs need nothing but libc, and run from wherever
# their tree lies.
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
add_link_options(-static-libgcc)

# kiln_static(PREFIX archive names... LINK what the archive needs of libc): the imported target of
# pkg-config links the archive instead of the shared library.
function(kiln_static prefix)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "NAMES;LINK")
	pkg_get_variable(libdir ${${prefix}_MODULE_NAME} libdir)
	find_library(KILN_${prefix}_ARCHIVE NAMES ${arg_NAMES} HINTS ${libdir} ${${prefix}_LIBRARY_DIRS})
	if(NOT KILN_${prefix}_ARCHIVE)
		message(FATAL_ERROR "no static archive (${arg_NAMES}) for ${${prefix}_MODULE_NAME}: "
			"install its -dev package, or leave KILN_PORTABLE off")
	endif()
	set_target_properties(PkgConfig::${prefix} PROPERTIES
		INTERFACE_LINK_LIBRARIES "${KILN_${prefix}_ARCHIVE};${arg_LINK}" INTERFACE_LINK_OPTIONS "")
	message(STATUS "portable: ${KILN_${prefix}_ARCHIVE}")
endfunction()

kiln_static(UV NAMES libuv_a.a libuv.a LINK Threads::Threads ${CMAKE_DL_LIBS} rt)
kiln_static(MSGPACK NAMES libmsgpack-c.a libmsgpackc.a)
kiln_static(SQLITE NAMES libsqlite3.a LINK Threads::Threads ${CMAKE_DL_LIBS} m)
kiln_static(SODIUM NAMES libsodium.a LINK Threads::Threads)
if(HIREDIS_FOUND)
	kiln_static(HIREDIS NAMES libhiredis.a)
endif()
if(SECCOMP_FOUND)
	kiln_static(SECCOMP NAMES libseccomp.a)
endif()
