# Writes OUTPUT, a one-line C++ fragment with the commit of SOURCE; leaves the file alone when
# nothing changed, so that nothing is rebuilt.
#     cmake -DSOURCE=... -DOUTPUT=... -P git_commit.cmake
set(commit "unknown")
find_program(GIT git)
if(GIT)
    execute_process(COMMAND ${GIT} describe --always --dirty=+ --abbrev=10 --match=v*
        WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described RESULT_VARIABLE failed
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
        set(commit "${described}")
    endif()
endif()
set(text "inline constexpr const char* kGitCommit = \"${commit}\";\n")
set(before "")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
    file(WRITE ${OUTPUT} "${text}")
endif()
