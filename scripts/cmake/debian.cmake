# CPack runs this between installing and packing: what Debian's policy asks of a package and an
# installed tree need not have.
find_program(gzip gzip REQUIRED)
find_program(date date REQUIRED)
execute_process(COMMAND ${date} -R -r ${CMAKE_CURRENT_LIST_DIR}/../../CHANGELOG.md OUTPUT_VARIABLE now
	OUTPUT_STRIP_TRAILING_WHITESPACE)

foreach(component ${CPACK_COMPONENTS_ALL})
	string(TOUPPER ${component} upper)
	set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
	set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_INSTALL_PREFIX})
	set(doc ${root}/share/doc/${name})
	configure_file(${CMAKE_CURRENT_LIST_DIR}/../packaging/copyright ${doc}/copyright COPYONLY)
	file(WRITE ${doc}/changelog "kiln (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * CHANGELOG.md of the package kiln says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
	file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../packaging/lintian-overrides lines REGEX "^(all|${name}): |^#")
	list(TRANSFORM lines REPLACE "^(all|${name}): " "")
	list(JOIN lines "\n" lines)
	file(WRITE ${root}/share/lintian/overrides/${name} "${lines}\n")
	file(GLOB_RECURSE texts ${root}/share/man/*)
	execute_process(COMMAND ${gzip} -9nf ${doc}/changelog ${texts} COMMAND_ERROR_IS_FATAL ANY)

	# The loader finds libkiln by itself: no path of a tree that may be moved.
	file(GLOB_RECURSE elves ${root}/bin/* ${root}/lib/*.abi3.so)
	foreach(elf ${elves})
		file(RPATH_REMOVE FILE ${elf})
	endforeach()
	file(GLOB_RECURSE modules ${root}/lib/*.abi3.so ${root}/lib/*.a)
	foreach(module ${modules})
		execute_process(COMMAND strip --strip-unneeded ${module} COMMAND_ERROR_IS_FATAL ANY)
	endforeach()
endforeach()
