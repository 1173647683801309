// The first line of a compiled grammar's bytes.
#include "model/grammar/compiled_form.hpp"

#include <doctest/doctest.h>

namespace paceline {
namespace {

TEST_CASE("a form is read as it was written") {
    for (const std::vector<TokenId>& named : {std::vector<TokenId>{}, {3}, {3, 40, 500}}) {
        const Result<CompiledForm> read = read_form(write_form({named, "{\n}"}));
        REQUIRE(read.ok());
        CHECK(read.value().named == named);
        CHECK(read.value().library == "{\n}");
    }
}

TEST_CASE("another first line is refused") {
    for (const char* bytes :
         {"", "paceline-grammar", "paceline-grammar x\n", "paceline-grammar 3 \n",
          "paceline-grammar 99999999999\n", "grammar\n", "paceline-grammars\n"}) {
        CAPTURE(bytes);
        CHECK_FALSE(read_form(bytes).ok());
    }
}

}  // namespace
}  // namespace paceline
