# cmake -DBUILD=DIR -DPREFIX=DIR -P InstallXgrammar.cmake: installs a built xgrammar (PacelineGrammar.cmake) into the cache.
# Headers come first and the library last, each by a rename: what is there is whole, also if two builds install at once.
string(RANDOM LENGTH 8 suffix)
set(whole ${PREFIX}.${suffix})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${whole} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(MAKE_DIRECTORY ${PREFIX}/lib)
if(NOT EXISTS ${PREFIX}/include)
    file(RENAME ${whole}/include ${PREFIX}/include RESULT second)  # another build may be first
endif()
file(RENAME ${whole}/lib/libxgrammar.a ${PREFIX}/lib/libxgrammar.a)
file(REMOVE_RECURSE ${whole})
