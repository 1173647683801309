#include <random>

#include <doctest/doctest.h>

#include "ipc/base/utf8.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline {
namespace {

std::string bytes_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    std::string bytes;
    for (const TokenId id : ids) {
        if (!tokenizer.is_control(id)) bytes.append(tokenizer.bytes_of(id));
    }
    return bytes;
}

/// Pushes all; checks that each output is whole characters and what is held back is short.
std::string push_all(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    Detokenizer detokenizer{tokenizer};
    std::string text, bytes;
    for (const TokenId id : ids) {
        const std::string out = detokenizer.push(id);
        CHECK(utf8::valid_prefix(out) == out.size());
        text += out;
        if (!tokenizer.is_control(id)) bytes.append(tokenizer.bytes_of(id));
        // What is held back, added to what came out, is what the bytes so far mean.
        std::size_t held = 0;
        while (held < 4 && utf8::replace_invalid(bytes.substr(0, bytes.size() - held)) != text) {
            ++held;
        }
        CHECK(held <= 3);
    }
    return text + detokenizer.finish();
}

}  // namespace

TEST_CASE("random tokens, pushed one by one, give the text of all their bytes at once") {
    std::mt19937 random{2};
    for (const char* name : {"smollm", "qwen2"}) {
        const Tokenizer tokenizer = fixtures::tokenizer(name);
        for (int round = 0; round < 300; ++round) {
            std::vector<TokenId> ids(random() % 30);
            for (TokenId& id : ids) {
                // Half of them from the first few hundred: single bytes, pieces of characters.
                const auto vocab = static_cast<unsigned>(tokenizer.vocab_size());
                id = static_cast<TokenId>(random() % (random() % 2 == 0 ? vocab : 300));
            }
            CHECK(push_all(tokenizer, ids) == utf8::replace_invalid(bytes_of(tokenizer, ids)));
        }
    }
}

TEST_CASE("what was encoded comes back") {
    const Tokenizer tokenizer = fixtures::tokenizer("gpt2");  // it has all 256 bytes
    for (const std::string& line : fixtures::corpus()) {
        if (line.size() > 2000) continue;  // push_all is quadratic
        CAPTURE(line);
        const std::vector<TokenId> ids = tokenizer.encode(line, SpecialTokens::AsText);
        CHECK(push_all(tokenizer, ids) == utf8::replace_invalid(line));
    }
}

TEST_CASE("an emoji that is spread over tokens comes out with its last byte") {
    const Tokenizer tokenizer = fixtures::tokenizer("llama3");
    const auto byte = [&](std::string_view text) { return tokenizer.find(text).value(); };
    Detokenizer detokenizer{tokenizer};
    // U+1F980 is F0 9F A6 80; the byte-level alphabet writes these bytes so:
    CHECK(detokenizer.push(byte("\u00F0")) == "");
    CHECK(detokenizer.push(byte("\u0141")) == "");
    CHECK(detokenizer.push(tokenizer.find("<|im_end|>").value()) == "");  // says nothing
    CHECK(detokenizer.push(byte("\u00A6")) == "");
    CHECK(detokenizer.push(byte("\u0122")) == "\U0001F980");
    CHECK(detokenizer.finish() == "");
}

TEST_CASE("a character that is never finished becomes one replacement character") {
    const Tokenizer tokenizer = fixtures::tokenizer("llama3");
    Detokenizer detokenizer{tokenizer};
    CHECK(detokenizer.push(tokenizer.find("\u00F0").value()) == "");
    CHECK(detokenizer.push(tokenizer.find("\u0141").value()) == "");
    CHECK(detokenizer.push(tokenizer.find("a").value()) == "\uFFFDa");
    CHECK(detokenizer.push(tokenizer.find("\u00F0").value()) == "");
    CHECK(detokenizer.finish() == "\uFFFD");
    CHECK(detokenizer.finish() == "");
}

}  // namespace paceline
