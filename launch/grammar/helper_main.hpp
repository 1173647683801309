// grammar_helper_main: the life of a process that compiles grammars, one after the other, until its
// parent is gone.
//
// Its limits are the kernel's: a timer of processor time that is set before each grammar ends the
// process with SIGPROF, and an allocation over the limit of memory fails. So a grammar cannot take
// more than they say, whatever the library does.
#pragma once

namespace paceline {

inline constexpr const char* kGrammarHelperSubcommand = "grammar-helper";

/// The result is the exit code.
[[nodiscard]] int grammar_helper_main(int fd);

}  // namespace paceline
