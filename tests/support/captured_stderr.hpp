// stderr_of(): what a function writes to the stderr of this process, through any library.
//
// Redirects the descriptor to an unnamed temporary file. No other thread may write to stderr
// meanwhile.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

namespace paceline::testing {

inline std::string stderr_of(const std::function<void()>& writes) {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    std::fflush(stderr);
    const int before = ::dup(STDERR_FILENO);
    (void)::dup2(::fileno(file), STDERR_FILENO);
    writes();
    std::fflush(stderr);
    (void)::dup2(before, STDERR_FILENO);
    (void)::close(before);
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    std::fclose(file);
    return text;
}

}  // namespace paceline::testing
