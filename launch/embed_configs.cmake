# Writes OUTPUT, a C++ table of the files SOURCE/*.toml: the methods that the program knows. Those
# called cpu-* are examples of placements, not methods.
file(GLOB files ${SOURCE}/*.toml)
list(FILTER files EXCLUDE REGEX "/cpu-[^/]*$")
list(SORT files)
set(text "// Made by launch/embed_configs.cmake from configs/*.toml.\n")
foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WLE)
    file(READ ${file} content)
    string(FIND "${content}" "\n" end)
    math(EXPR length "${end} - 2")  # behind "# "
    string(SUBSTRING "${content}" 2 ${length} summary)
    string(STRIP "${summary}" summary)
    string(REPLACE "\\" "\\\\" summary "${summary}")
    string(REPLACE "\"" "\\\"" summary "${summary}")
    string(APPEND text "{\"${name}\", \"${summary}\", R\"toml(${content})toml\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
