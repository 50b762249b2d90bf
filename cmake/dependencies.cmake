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

# Headers only: cuda.h and nvrtc.h.  Without them the cuda device and the NVRTC back end answer that they were not built.
set(KILN_CUDA_INCLUDE "" CACHE PATH "Directory of cuda.h and nvrtc.h")
find_path(KILN_CUDA_H cuda.h HINTS ${KILN_CUDA_INCLUDE} $ENV{CUDA_HOME}/include /usr/local/cuda/include
	${CMAKE_SOURCE_DIR}/build/cuda/include /usr/include)
find_path(KILN_NVRTC_H nvrtc.h HINTS ${KILN_CUDA_INCLUDE} $ENV{CUDA_HOME}/include /usr/local/cuda/include
	${CMAKE_SOURCE_DIR}/build/cuda/include /usr/include)
add_library(kiln_cuda_headers INTERFACE)
if(KILN_CUDA_H)
	target_include_directories(kiln_cuda_headers SYSTEM INTERFACE ${KILN_CUDA_H})
	target_compile_definitions(kiln_cuda_headers INTERFACE KILN_HAVE_CUDA_H=1)
endif()
if(KILN_NVRTC_H)
	target_include_directories(kiln_cuda_headers SYSTEM INTERFACE ${KILN_NVRTC_H})
	target_compile_definitions(kiln_cuda_headers INTERFACE KILN_HAVE_NVRTC_H=1)
endif()
