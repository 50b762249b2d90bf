# Files that `cmake --install` puts in place, in the components that packages.cmake makes packages of:
#   library      libkiln
#   development  headers, archive, files for CMake and pkg-config, examples
#   programs     kilnd and kiln with manuals, documents and units of systemd
# The wheel's component python and the distribution's python3 are installed only when named
# (client/python).
include(CMakePackageConfigHelpers)

set(KILN_DOC_DIR ${CMAKE_INSTALL_DATADIR}/doc/kiln)
install(TARGETS kiln EXPORT kilnTargets
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
	ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
	FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
	FILE_SET adapters DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
if(KILN_ARCHIVE)
	install(FILES ${KILN_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endif()
foreach(program kilnd kiln_cli)
	if(TARGET ${program})
		set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
		install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
	endif()
endforeach()

set(KILN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${KILN_PACKAGE_DIR} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kilnConfig.cmake.in
	${CMAKE_BINARY_DIR}/cmake/kilnConfig.cmake INSTALL_DESTINATION ${KILN_PACKAGE_DIR}
	NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/kilnConfigVersion.cmake
	COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/kilnConfig.cmake ${CMAKE_BINARY_DIR}/cmake/kilnConfigVersion.cmake
	DESTINATION ${KILN_PACKAGE_DIR} COMPONENT development)

# The .pc finds its prefix from where it lies, so an installed tree can be moved.
set(KILN_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH KILN_PC_PREFIX /${KILN_PKGCONFIG_DIR} /)
string(REGEX REPLACE "/$" "" KILN_PC_PREFIX "${KILN_PC_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/kiln.pc.in ${CMAKE_BINARY_DIR}/cmake/kiln.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/kiln.pc DESTINATION ${KILN_PKGCONFIG_DIR} COMPONENT development)

# ---- Units: one daemon for a machine, or one for each user ----
# systemd looks in lib/ of /usr/local and /usr for a machine, and in share/ of these and of ~/.local
# for a user.  A service names kilnd by its whole path, which is known only when it is installed.
set(KILN_PACKAGING ${CMAKE_SOURCE_DIR}/scripts/packaging)
install(CODE "
	get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
	get_filename_component(KILN_BIN_DIR \"${CMAKE_INSTALL_BINDIR}\" ABSOLUTE BASE_DIR \"\${prefix}\")
	foreach(unit kilnd=lib/systemd/system user-kilnd=share/systemd/user)
		string(REPLACE = \";\" unit \${unit})
		list(POP_FRONT unit name)
		set(file \${prefix}/\${unit}/kilnd.service)
		configure_file(\"${KILN_PACKAGING}/\${name}.service.in\" \"\$ENV{DESTDIR}\${file}\" @ONLY)
		message(STATUS \"Installing: \$ENV{DESTDIR}\${file}\")
		list(APPEND CMAKE_INSTALL_MANIFEST_FILES \${file})
	endforeach()" COMPONENT programs)
install(FILES ${KILN_PACKAGING}/kilnd.socket DESTINATION lib/systemd/system COMPONENT programs)
install(FILES ${KILN_PACKAGING}/user-kilnd.socket DESTINATION share/systemd/user RENAME kilnd.socket COMPONENT programs)
install(FILES ${KILN_PACKAGING}/sysusers.conf DESTINATION lib/sysusers.d RENAME kiln.conf COMPONENT programs)
install(FILES ${KILN_PACKAGING}/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME kiln.conf COMPONENT programs)

# ---- Documents, which name each other as they do in the source tree, and examples ----
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${CMAKE_SOURCE_DIR}/SECURITY.md
	${CMAKE_SOURCE_DIR}/THIRD_PARTY.md DESTINATION ${KILN_DOC_DIR} COMPONENT programs)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${KILN_DOC_DIR} COMPONENT programs
	FILES_MATCHING PATTERN "*.md" PATTERN man EXCLUDE)
install(FILES ${KILN_PACKAGING}/Containerfile ${KILN_PACKAGING}/daemonset.yaml
	DESTINATION ${KILN_DOC_DIR}/containers COMPONENT programs)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${KILN_DOC_DIR} COMPONENT development
	PATTERN quickstart.sh EXCLUDE)

# Manuals; and completion for shells, which the program itself writes.
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/kiln.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/kilnd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8 COMPONENT programs)
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
		install(FILES ${KILN_COMPLETION} DESTINATION ${CMAKE_INSTALL_DATADIR}/${directory} COMPONENT programs)
	endforeach()
	add_custom_target(kiln_completions ALL DEPENDS ${KILN_COMPLETIONS})
endif()

# `cmake --build build/release --target uninstall` takes away what the last `cmake --install` put.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -D MANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
	-P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake VERBATIM)
