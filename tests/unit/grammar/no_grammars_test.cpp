// A build without xgrammar refuses grammars by name.
#include <doctest/doctest.h>

#include "model/grammar/grammar.hpp"

namespace paceline {
namespace {

TEST_CASE("a build without grammars says so, and how to get them") {
    CHECK_FALSE(has_grammars());
    const auto compiled = make_grammar_compiler({})->compile({GrammarKind::Regex, "ab"});
    REQUIRE_FALSE(compiled.ok());
    CHECK(compiled.error().code == Errc::Unsupported);
    CHECK(compiled.error().what.find("launch/setup --grammar") != std::string::npos);
    CHECK_FALSE(make_grammar_loader({})->match(nullptr, {}).ok());
}

}  // namespace
}  // namespace paceline
