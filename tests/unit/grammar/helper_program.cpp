// A grammar helper, or one that breaks: grammar_helper_program [dies] --control-fd N
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "launch/grammar/helper_main.hpp"

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    // A library that a grammar has broken: it ends in the middle of the first reply.
    if (std::string_view{argv[1]} == "dies")
        return ::write(std::atoi(argv[argc - 1]), "\x10", 1) == 1 ? 7 : 1;
    return paceline::grammar_helper_main(std::atoi(argv[argc - 1]));
}
