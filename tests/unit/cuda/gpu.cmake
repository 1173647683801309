# The same tests on a real GPU: gpu_*, built where nvcc is found and linked to paceline_cuda. Without a
# GPU they print how many tests they skip and why (gpu_main.cpp).
#
# Every *_test.cpp of this folder is in one of these programs, except *_emulated_test.cpp: tests that need
# what only the emulated device has (order.hpp: memory limits, faults, counts). A file that belongs to no
# program stops the configuration, so that none is left out unnoticed.
if(NOT PACELINE_HAS_CUDA)
    return()
endif()

# main() and doctest's own code, once for all of them.
add_library(gpu_main OBJECT EXCLUDE_FROM_ALL gpu_main.cpp)
target_link_libraries(gpu_main PRIVATE paceline_options doctest::doctest)
target_compile_options(gpu_main PRIVATE ${PACELINE_TEST_LEVEL})

# gpu_test(NAME <name> [UNITS] SOURCES ... LIBS ...)
function(gpu_test)
    cmake_parse_arguments(G "UNITS" "NAME" "SOURCES;LIBS" ${ARGN})
    set(units)
    if(G_UNITS)
        set(units UNITS)
    endif()
    paceline_test(NAME ${G_NAME} LABEL gpu ${units}
        SOURCES ${G_SOURCES} $<TARGET_OBJECTS:gpu_main> LIBS ${G_LIBS} paceline_cuda)
    set_tests_properties(${G_NAME} PROPERTIES RUN_SERIAL ON)  # they share one device's memory
endfunction()

file(GLOB not_yet_taken RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_test.cpp)
list(FILTER not_yet_taken EXCLUDE REGEX "_emulated_test\\.cpp$")
list(REMOVE_ITEM not_yet_taken ${backend_tests_of_any_device})

# take_tests(<prefix> <variable>): the files that begin with `prefix` and that no program has taken.
macro(take_tests prefix variable)
    set(${variable} ${not_yet_taken})
    list(FILTER ${variable} INCLUDE REGEX "^${prefix}")
    list(FILTER not_yet_taken EXCLUDE REGEX "^${prefix}")
endmacro()

foreach(family copy gemm blas rows attention sample)
    take_tests(${family}_ sources)
    gpu_test(NAME gpu_${family} SOURCES ${sources}
        LIBS paceline_cuda_host paceline_reference paceline_sampling paceline_weights)
endforeach()

target_link_libraries(gpu_copy PRIVATE paceline_cuda_copy)  # defined later, by bench/cuda

take_tests("(backend|random|gpu)_" sources)
gpu_test(NAME gpu_backend UNITS SOURCES ${sources} $<TARGET_OBJECTS:cuda_backend_tests>
    LIBS paceline_cuda_host paceline_eagle paceline_reference paceline_parity_support)

# Code of 9.0a, whatever the other kernels are built for: only that has wgmma.
add_library(wgmma_kernels OBJECT EXCLUDE_FROM_ALL wgmma/wgmma_kernels.cu)
target_include_directories(wgmma_kernels PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(wgmma_kernels PROPERTIES CUDA_ARCHITECTURES 90a-real CUDA_STANDARD 17)
target_compile_options(wgmma_kernels PRIVATE
    --fmad=false --expt-relaxed-constexpr -Werror=all-warnings -lineinfo -Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off)
gpu_test(NAME gpu_wgmma SOURCES wgmma/wgmma_test.cpp LIBS wgmma_kernels paceline_weights)

if(not_yet_taken)
    message(FATAL_ERROR "tests/unit/cuda/gpu.cmake: no gpu_* program takes ${not_yet_taken}")
endif()
