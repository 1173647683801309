#include "ipc/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace paceline {

void check_failed(const char* file, int line, const char* condition, const char* message) {
    std::fprintf(stderr, "%s:%d: %s (%s)\n", file, line, message, condition);
    std::abort();
}

}  // namespace paceline
