# The subfolders of a top-level folder as libraries: each links the subfolders below it and nothing above, so a
# test that links one subfolder proves that it needs no other. tests/lint checks the includes themselves.

# paceline_folder(NAME <name> SUBFOLDERS <library>...): <name> is all subfolders of a folder for those who do not
# choose, and <name>_faults is the same in the flavour of paceline_part().
function(paceline_folder)
    cmake_parse_arguments(F "" "NAME" "SUBFOLDERS" ${ARGN})
    add_library(${F_NAME} INTERFACE)
    target_link_libraries(${F_NAME} INTERFACE ${F_SUBFOLDERS})
    if(PACELINE_TESTS)
        list(TRANSFORM F_SUBFOLDERS APPEND _faults)
        add_library(${F_NAME}_faults INTERFACE)
        target_link_libraries(${F_NAME}_faults INTERFACE ${F_SUBFOLDERS})
    endif()
endfunction()
