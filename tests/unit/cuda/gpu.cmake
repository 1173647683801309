# The same tests on a real GPU: gpu_*, built where nvcc is, linked to paceline_cuda. Where there is no
# GPU they say so (gpu_main.cpp). Sources that name the emulated device's own headers stay out, but for
# what emulated_fixture.hpp gives both.
if(NOT PACELINE_HAS_CUDA)
    return()
endif()

# gpu_test(NAME <name> SOURCES ... LIBS ...)
function(gpu_test)
    cmake_parse_arguments(G "" "NAME" "SOURCES;LIBS" ${ARGN})
    paceline_test(NAME ${G_NAME} LABEL gpu
        SOURCES gpu_main.cpp ${G_SOURCES} LIBS ${G_LIBS} paceline_cuda)
    set_tests_properties(${G_NAME} PROPERTIES RUN_SERIAL ON)  # they share one device's memory
endfunction()

foreach(family gemm blas rows attention sample variants)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${family}_test.cpp)
        gpu_test(NAME gpu_${family} SOURCES ${family}_test.cpp
            LIBS paceline_cuda_host paceline_reference paceline_sampling paceline_weights)
    endif()
endforeach()
target_sources(gpu_gemm PRIVATE gemm_spread_test.cpp)
target_sources(gpu_variants PRIVATE variants_gemm_test.cpp variants_rows_test.cpp)

file(GLOB backend_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/backend_*_test.cpp)
set(on_gpu random_test.cpp gpu_limits_test.cpp)
foreach(test IN LISTS backend_tests)
    file(STRINGS ${test} emulated REGEX "cuda/emulated/|emulated::")
    if(NOT emulated)
        list(APPEND on_gpu ${test})
    endif()
endforeach()
gpu_test(NAME gpu_backend SOURCES ${on_gpu}
    LIBS paceline_cuda_host paceline_reference paceline_parity_support)
