// The first line of a compiled grammar's bytes, and the frame behind it.
#include "model/grammar/compiled_form.hpp"

#include <string>
#include <utility>
#include <zstd.h>

#include <doctest/doctest.h>

namespace paceline {
namespace {

std::string written(const CompiledForm& form) {
    Result<std::string> bytes = write_form(form);
    REQUIRE(bytes.ok());
    return std::move(bytes).value();
}

TEST_CASE("a form is read as it was written") {
    for (const std::vector<TokenId>& named : {std::vector<TokenId>{}, {3}, {3, 40, 500}}) {
        const Result<CompiledForm> read = read_form(written({named, "{\n}"}));
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

TEST_CASE("states that are nearly the same take little room") {
    CompiledForm form;
    for (int state = 0; state < 1000; ++state) {
        form.library += std::to_string(state);
        for (int token = 0; token < 1000; token += 7) form.library += ',' + std::to_string(token);
    }
    const std::string bytes = written(form);
    CHECK(bytes.size() < form.library.size() / 20);
    CHECK(read_form(bytes).value().library == form.library);
}

TEST_CASE("a form over the limit is not written, and a frame that says so is not read") {
    CompiledForm form{{}, std::string(kLibraryFormMax, 'x')};
    const std::string largest = written(form);
    CHECK(read_form(largest).ok());
    form.library += 'x';
    CHECK(write_form(form).error().code == Errc::BadArgument);

    std::string frame(ZSTD_compressBound(form.library.size()), '\0');
    frame.resize(
        ZSTD_compress(frame.data(), frame.size(), form.library.data(), form.library.size(), 1));
    CHECK_FALSE(read_form("paceline-grammar\n" + frame).ok());
}

TEST_CASE("a frame that is cut, longer or changed is refused") {
    const std::string bytes = written({{3}, R"({"a":1,"b":[2,3,4,5,6,7,8,9]})"});
    for (std::size_t size = bytes.find('\n'); size < bytes.size(); ++size)
        CHECK_FALSE(read_form(std::string_view{bytes}.substr(0, size)).ok());
    CHECK_FALSE(read_form(bytes + 'x').ok());
    for (std::size_t at = bytes.find('\n') + 1; at < bytes.size(); ++at) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ 0x41);
        CHECK_FALSE(read_form(changed).ok());
    }
}

}  // namespace
}  // namespace paceline
