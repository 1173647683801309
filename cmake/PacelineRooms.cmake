# The rooms of a top-level folder as libraries: each links the rooms below it and nothing above, so a
# test that links one room proves that it needs no other. tests/lint checks the includes themselves.

# paceline_folder(NAME <name> ROOMS <library>...): <name> is all rooms of a folder for those who do not
# choose, and <name>_faults is the same in the flavour of paceline_part().
function(paceline_folder)
    cmake_parse_arguments(F "" "NAME" "ROOMS" ${ARGN})
    add_library(${F_NAME} INTERFACE)
    target_link_libraries(${F_NAME} INTERFACE ${F_ROOMS})
    if(PACELINE_TESTS)
        list(TRANSFORM F_ROOMS APPEND _faults)
        add_library(${F_NAME}_faults INTERFACE)
        target_link_libraries(${F_NAME}_faults INTERFACE ${F_ROOMS})
    endif()
endfunction()
