# What `cmake --install` puts where: libkiln with its headers, package files for CMake and pkg-config,
# both programs, and units for a user's systemd.
include(CMakePackageConfigHelpers)

install(TARGETS kiln EXPORT kilnTargets
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
	ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
	FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
	FILE_SET adapters DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(program kilnd kiln_cli)
	if(TARGET ${program})
		set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
		install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
	endif()
endforeach()

set(KILN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${KILN_PACKAGE_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kilnConfig.cmake.in
	${CMAKE_BINARY_DIR}/cmake/kilnConfig.cmake INSTALL_DESTINATION ${KILN_PACKAGE_DIR}
	NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/kilnConfigVersion.cmake
	COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/kilnConfig.cmake ${CMAKE_BINARY_DIR}/cmake/kilnConfigVersion.cmake
	DESTINATION ${KILN_PACKAGE_DIR})

# The .pc finds its prefix from where it lies, so an installed tree can be moved.
set(KILN_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH KILN_PC_PREFIX /${KILN_PKGCONFIG_DIR} /)
string(REGEX REPLACE "/$" "" KILN_PC_PREFIX "${KILN_PC_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/kiln.pc.in ${CMAKE_BINARY_DIR}/cmake/kiln.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/kiln.pc DESTINATION ${KILN_PKGCONFIG_DIR})

# A user's systemd looks in share/ of ~/.local, /usr/local and /usr alike.  The service names kilnd by
# its whole path, which is known only when it is installed.
set(KILN_UNIT_DIR share/systemd/user)
install(CODE "
	get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
	get_filename_component(KILN_BIN_DIR \"${CMAKE_INSTALL_BINDIR}\" ABSOLUTE BASE_DIR \"\${prefix}\")
	configure_file(\"${CMAKE_CURRENT_LIST_DIR}/kilnd.service.in\" \"${CMAKE_BINARY_DIR}/cmake/kilnd.service\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/cmake/kilnd.service ${CMAKE_CURRENT_LIST_DIR}/kilnd.socket
	DESTINATION ${KILN_UNIT_DIR})

# Manuals; and completion for shells, which the program itself writes.
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/kiln.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/kilnd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
if(TARGET kiln_cli AND NOT CMAKE_CROSSCOMPILING)
	foreach(place bash:bash-completion/completions/kiln zsh:zsh/site-functions/_kiln
			fish:fish/vendor_completions.d/kiln.fish)
		string(REGEX MATCH "^[^:]+" shell ${place})
		string(REGEX REPLACE "^[^:]+:" "" file ${place})
		set(KILN_COMPLETION ${CMAKE_BINARY_DIR}/completions/${file})
		cmake_path(GET KILN_COMPLETION PARENT_PATH directory)
		file(MAKE_DIRECTORY ${directory})
		add_custom_command(OUTPUT ${KILN_COMPLETION} COMMAND kiln_cli completion ${shell} > ${KILN_COMPLETION}
			DEPENDS kiln_cli VERBATIM)
		list(APPEND KILN_COMPLETIONS ${KILN_COMPLETION})
		cmake_path(GET file PARENT_PATH directory)
		install(FILES ${KILN_COMPLETION} DESTINATION ${CMAKE_INSTALL_DATADIR}/${directory})
	endforeach()
	add_custom_target(kiln_completions ALL DEPENDS ${KILN_COMPLETIONS})
endif()
