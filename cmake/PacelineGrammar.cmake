# Grammars: the C++ core of xgrammar as a static library, built from PyPI's source package (model/grammar/xgrammar.cmake
# pins version and hash) as an external project. Nothing of it is copied into the tree. The library is kept in the user's
# cache folder under a key of version, compiler and flags, so that a second build folder or clone does not compile it again.
#
# Sets PACELINE_HAS_GRAMMAR; then the target paceline_xgrammar has its headers and library.
option(PACELINE_GRAMMAR "build grammars where the source of xgrammar is in the cache (launch/setup --grammar)" ON)
include(${CMAKE_SOURCE_DIR}/model/grammar/xgrammar.cmake)

set(PACELINE_HAS_GRAMMAR OFF)
if(IS_ABSOLUTE "$ENV{XDG_CACHE_HOME}")
    set(xgrammar_cache "$ENV{XDG_CACHE_HOME}/paceline")
else()
    set(xgrammar_cache "$ENV{HOME}/.cache/paceline")
endif()
set(xgrammar_name "xgrammar-${PACELINE_XGRAMMAR_VERSION}")
set(xgrammar_archive "${xgrammar_cache}/${xgrammar_name}.tar.gz")

# Its own build asks for link-time optimisation, which only the same compiler could link, and treats warnings as errors.
# What it logs and throws goes through functions of model/grammar/xgrammar_vocabulary.cpp.
set(xgrammar_flags "-fno-lto -Wno-error -DXGRAMMAR_LOG_CUSTOMIZE=1")
if(PACELINE_SANITIZE)
    string(APPEND xgrammar_flags " -fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer -g1")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/PatchXgrammar.cmake)
file(SHA256 ${CMAKE_SOURCE_DIR}/cmake/PatchXgrammar.cmake xgrammar_patch)
string(SHA256 xgrammar_key "${PACELINE_XGRAMMAR_SHA256} ${xgrammar_patch} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_ID} \
${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR} ${xgrammar_flags}")
string(SUBSTRING ${xgrammar_key} 0 16 xgrammar_key)
set(xgrammar_prefix "${xgrammar_cache}/${xgrammar_name}-${xgrammar_key}")
set(xgrammar_library "${xgrammar_prefix}/lib/libxgrammar.a")

find_library(PACELINE_ZSTD zstd)  # compiled grammars travel compressed
if(NOT PACELINE_GRAMMAR)
    message(STATUS "Grammars: switched off with PACELINE_GRAMMAR=OFF (launch/build --grammar)")
elseif(NOT EXISTS "${xgrammar_library}" AND NOT EXISTS "${xgrammar_archive}")
    message(STATUS "Grammars: no ${xgrammar_archive}, built without (launch/setup --grammar fetches it)")
elseif(NOT PACELINE_ZSTD)
    message(STATUS "Grammars: no libzstd-dev, built without (launch/setup --grammar installs it)")
else()
    set(PACELINE_HAS_GRAMMAR ON)
    add_library(paceline_xgrammar INTERFACE)
    target_include_directories(paceline_xgrammar SYSTEM INTERFACE "${xgrammar_prefix}/include")
    target_link_libraries(paceline_xgrammar INTERFACE "${xgrammar_library}" Threads::Threads)
    if(EXISTS "${xgrammar_library}")
        message(STATUS "Grammars: ${xgrammar_name}, built before (${xgrammar_prefix})")
    else()
        message(STATUS "Grammars: ${xgrammar_name} will be built (once, two minutes of one core)")
        include(ExternalProject)
        set(xgrammar_build "${CMAKE_BINARY_DIR}/xgrammar/build")
        # What its build reads before the command line: a file of its own would set the Python bindings on.
        file(WRITE "${xgrammar_build}/config.cmake"
            "set(CMAKE_BUILD_TYPE Release)\nset(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)\nset(XGRAMMAR_BUILD_CXX_TESTS OFF)\n")
        cmake_host_system_information(RESULT xgrammar_jobs QUERY NUMBER_OF_LOGICAL_CORES)
        ExternalProject_Add(xgrammar_external
            URL "${xgrammar_archive}"
            URL_HASH SHA256=${PACELINE_XGRAMMAR_SHA256}
            DOWNLOAD_EXTRACT_TIMESTAMP OFF
            PATCH_COMMAND ${CMAKE_COMMAND} -DSOURCE=<SOURCE_DIR> -DKEY=${xgrammar_key} -P ${CMAKE_SOURCE_DIR}/cmake/PatchXgrammar.cmake
            PREFIX "${CMAKE_BINARY_DIR}/xgrammar"
            SOURCE_DIR "${CMAKE_BINARY_DIR}/xgrammar/source"
            BINARY_DIR "${xgrammar_build}"
            CMAKE_ARGS "-DCMAKE_CXX_FLAGS=${xgrammar_flags}" -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                -DCMAKE_INSTALL_LIBDIR=lib
            BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> -j ${xgrammar_jobs}
            INSTALL_COMMAND ${CMAKE_COMMAND} -DBUILD=<BINARY_DIR> -DPREFIX=${xgrammar_prefix}
                -P ${CMAKE_SOURCE_DIR}/cmake/InstallXgrammar.cmake
            BUILD_BYPRODUCTS "${xgrammar_library}"
            LOG_CONFIGURE ON LOG_BUILD ON LOG_OUTPUT_ON_FAILURE ON)
        add_dependencies(paceline_xgrammar xgrammar_external)
    endif()
endif()
set(PACELINE_GRAMMAR_FOUND ${PACELINE_HAS_GRAMMAR} CACHE INTERNAL "grammars are built")
