# Libraries from the distribution, by pkg-config.  A newer msgpack-c calls itself msgpack-c.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv>=1.43)
pkg_search_module(MSGPACK REQUIRED IMPORTED_TARGET msgpack-c msgpack)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3>=3.37)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
if(KILN_BUILD_TESTS)
	pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

# Headers only: cuda.h and nvrtc.h, of one toolkit, or as scripts/setup.sh puts them into build/cuda.
# Without them the cuda device and the NVRTC back end answer that they were not built.
set(KILN_CUDA_INCLUDE "" CACHE PATH "Directory of cuda.h and nvrtc.h")
file(GLOB KILN_CUDA_TOOLKITS /usr/local/cuda/include /usr/local/cuda-*/include)
set(KILN_CUDA_HINTS ${KILN_CUDA_INCLUDE} $ENV{CUDA_HOME}/include ${KILN_CUDA_TOOLKITS}
	${CMAKE_SOURCE_DIR}/build/cuda/include /usr/include)
find_path(KILN_CUDA_H cuda.h PATHS ${KILN_CUDA_HINTS} NO_DEFAULT_PATH)
find_path(KILN_NVRTC_H nvrtc.h PATHS ${KILN_CUDA_HINTS} NO_DEFAULT_PATH)
mark_as_advanced(KILN_CUDA_H KILN_NVRTC_H)
add_library(kiln_cuda_headers INTERFACE)
if(KILN_CUDA_H)
	target_include_directories(kiln_cuda_headers SYSTEM INTERFACE ${KILN_CUDA_H})
	target_compile_definitions(kiln_cuda_headers INTERFACE KILN_HAVE_CUDA_H=1)
	message(STATUS "cuda.h: ${KILN_CUDA_H}")
else()
	message(STATUS "cuda.h: not found; the cuda device is left out")
endif()
if(KILN_NVRTC_H)
	target_include_directories(kiln_cuda_headers SYSTEM INTERFACE ${KILN_NVRTC_H})
	target_compile_definitions(kiln_cuda_headers INTERFACE KILN_HAVE_NVRTC_H=1)
	message(STATUS "nvrtc.h: ${KILN_NVRTC_H}")
	# Fetched by scripts/setup.sh: where a build outside of build/ finds libnvrtc, too.
	if(KILN_NVRTC_H STREQUAL "${CMAKE_SOURCE_DIR}/build/cuda/include" AND NOT KILN_PORTABLE)
		target_compile_definitions(kiln_cuda_headers INTERFACE
			KILN_BUILD_CUDA_DIR="${CMAKE_SOURCE_DIR}/build/cuda")
	endif()
else()
	message(STATUS "nvrtc.h: not found; no cubins can be made")
endif()

if(KILN_PORTABLE)
	include(${CMAKE_CURRENT_LIST_DIR}/portable.cmake)
endif()
