// main() of tests with whole sessions: their stages, and what compiles grammars, are the same
// program again.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdlib>
#include <string_view>

#include <doctest/doctest.h>

#include "launch/grammar/helper_main.hpp"
#include "launch/session/stage_main.hpp"
#include "runtime/loop/stage_process.hpp"

int main(int argc, char** argv) {
    if (argc == 4 && std::string_view{argv[1]} == paceline::kStageSubcommand) {
        return paceline::stage_main(std::atoi(argv[3]));
    }
    if (argc == 4 && std::string_view{argv[1]} == paceline::kGrammarHelperSubcommand) {
        return paceline::grammar_helper_main(std::atoi(argv[3]));
    }
    doctest::Context context{argc, argv};
    return context.run();
}
