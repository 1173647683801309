# What every target shares: C++20, warnings as errors, sanitizers, CUDA where nvcc is present.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

set(PACELINE_SANITIZE "" CACHE STRING "comma separated -fsanitize= list, e.g. address,undefined")
option(PACELINE_CUDA "build the CUDA parts where nvcc is found" ON)
option(PACELINE_NCCL "build links over NCCL where nvcc is found; needs nccl.h" ON)

add_library(paceline_options INTERFACE)
target_include_directories(paceline_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(paceline_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wold-style-cast;-Wimplicit-fallthrough;-Wduplicated-cond;-Wlogical-op;-Wformat=2;-Werror>
    # Two warnings in which GCC 12 at -O3 sees what is not there, inside std::string and std::vector.
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized>
    # GCC looks for garbage less often: units of launch and tests compile 10 to 20 % faster, with 100 to 180 MB more.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=200;--param=ggc-min-heapsize=262144>
    # The order and rounding of every sum is part of the product: the compiler may not fuse
    # a*b+c here and not there. Kernels ask for FMA by name.
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_link_libraries(paceline_options INTERFACE fmt::fmt)
if(PACELINE_SANITIZE)
    target_compile_options(paceline_options INTERFACE
        -fsanitize=${PACELINE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
        # Instrumented containers make GCC 12 see bounds that are not there.
        -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull)
    target_link_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE})
endif()

# paceline_relocatable(<target>...): programs that are packed by `tests/gpu --pack` and run on a machine that
# has none of the libraries they were linked to. Libraries in ../lib come before the system's, for the
# libraries of libraries too, which takes the older kind of entry (RPATH, not RUNPATH).
function(paceline_relocatable)
    foreach(target IN LISTS ARGN)
        set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH "$ORIGIN/../lib")
        target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
    endforeach()
endfunction()

find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)  # paceline_remote; its imported targets for all folders

# Names the build in equality classes: two builds may order or round a sum differently.
set(PACELINE_BUILD_ID "${PROJECT_VERSION}-${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION}-${CMAKE_BUILD_TYPE}")

set(PACELINE_HAS_CUDA OFF)
if(PACELINE_CUDA)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        # $CUDAARCHS names others. 90a: all cards of compute capability 9.0, wgmma included. 90-virtual: newer ones.
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
            set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
        endif()
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(PACELINE_HAS_CUDA ON)
        list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
        set(PACELINE_CUDA_CODE "${architectures}" CACHE INTERNAL "architectures that code is made for")
        message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, the CUDA parts are built for ${architectures}")
        if(PACELINE_NCCL)
            find_path(PACELINE_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "folder of nccl.h")
            if(NOT PACELINE_NCCL_INCLUDE)
                message(FATAL_ERROR "NCCL: no nccl.h. Install libnccl-dev (NVIDIA's packages) or nvidia-nccl-cu13 (pip) and "
                    "name its folder with -DPACELINE_NCCL_INCLUDE=DIR, or build without links over NCCL: -DPACELINE_NCCL=OFF")
            endif()
            message(STATUS "NCCL: ${PACELINE_NCCL_INCLUDE}/nccl.h, the library is looked for at run time")
        else()
            message(STATUS "NCCL: switched off with PACELINE_NCCL=OFF")
        endif()
    else()
        message(STATUS "CUDA: no nvcc found, built for the CPU only")
    endif()
else()
    message(STATUS "CUDA: switched off with PACELINE_CUDA=OFF, built for the CPU only (launch/build --cuda)")
endif()

# Headers take most of a small source's time: the release preset compiles several sources as one unit, so
# names in unnamed namespaces of a library differ. The dev preset compiles each source alone, which is
# quicker after a change of one.
option(PACELINE_UNITS "compile several sources as one unit" OFF)

# paceline_units(<target>...): these are compiled so. Not for kernels, whose sources have flags of their own.
function(paceline_units)
    if(PACELINE_UNITS)
        set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
endfunction()

# paceline_part(NAME <name> SOURCES ... FAULT_POINTS ... PUBLIC ... PRIVATE ...): a static library; with
# tests also <name>_faults, which links the *_faults flavour of whatever has one. The sources in
# FAULT_POINTS have fault points or planted bugs (ipc/base/faults.hpp) and are compiled for each flavour;
# SOURCES have none, which faults.hpp checks, and are compiled once for both.
function(paceline_part)
    cmake_parse_arguments(P "" "NAME" "SOURCES;FAULT_POINTS;PUBLIC;PRIVATE" ${ARGN})
    set(sources ${P_FAULT_POINTS})
    if(P_SOURCES)
        add_library(${P_NAME}_objects OBJECT ${P_SOURCES})
        paceline_units(${P_NAME}_objects)
        target_link_libraries(${P_NAME}_objects PRIVATE ${P_PUBLIC} ${P_PRIVATE})
        target_compile_definitions(${P_NAME}_objects PRIVATE PACELINE_BOTH_FLAVOURS)
        list(APPEND sources $<TARGET_OBJECTS:${P_NAME}_objects>)
    endif()
    add_library(${P_NAME} STATIC ${sources})
    paceline_units(${P_NAME})
    target_link_libraries(${P_NAME} PUBLIC ${P_PUBLIC} PRIVATE ${P_PRIVATE})
    if(NOT PACELINE_TESTS)
        return()
    endif()
    set(links "")
    foreach(library IN LISTS P_PUBLIC)
        if(TARGET ${library}_faults)
            list(APPEND links ${library}_faults)
        else()
            list(APPEND links ${library})
        endif()
    endforeach()
    add_library(${P_NAME}_faults STATIC EXCLUDE_FROM_ALL ${sources})
    paceline_units(${P_NAME}_faults)
    target_compile_definitions(${P_NAME}_faults PUBLIC PACELINE_FAULTS)
    target_link_libraries(${P_NAME}_faults PUBLIC ${links} PRIVATE ${P_PRIVATE})
endfunction()
