#include "tests/support/source_tree.hpp"

#include <cstdlib>

namespace paceline::testing {

std::string source_tree() {
    const char* named =
        std::getenv("PACELINE_SOURCE_TREE");  // NOLINT(concurrency-mt-unsafe): never set by tests
    return named != nullptr && *named != '\0' ? named : PACELINE_BUILT_FROM;
}

std::string fixtures() {
    return source_tree() + "/tests/fixtures";
}

}  // namespace paceline::testing
