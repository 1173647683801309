// How many kills the matrix is asked for: "--kills 5000" on the program's command line, which
// doctest leaves alone; 200 otherwise.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace paceline::testing {

inline int kills_wanted() {
    std::ifstream file{"/proc/self/cmdline", std::ios::binary};
    const std::string line{std::istreambuf_iterator<char>{file}, {}};
    const std::string option{"\0--kills\0", 9};
    const std::size_t found = line.find(option);
    return found == std::string::npos ? 200 : std::atoi(line.c_str() + found + option.size());
}

}  // namespace paceline::testing
