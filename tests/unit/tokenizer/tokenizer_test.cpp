#include "model/tokenizer/tokenizer.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "model/tokenizer/nfc.hpp"
#include "model/tokenizer/text_steps.hpp"
#include "tests/unit/tokenizer/fixtures.hpp"
#include "tests/unit/tokenizer/linear_time.hpp"

namespace paceline {
namespace {

/// The error of a make() that must fail with `code`; its text must have `words`.
void check_refused(const TokenizerData& data, Errc code, std::string_view words) {
    const Result<Tokenizer> made = Tokenizer::make(data);
    REQUIRE(!made.ok());
    CAPTURE(made.error().what);
    CHECK(made.error().code == code);
    CHECK(made.error().what.find(words) != std::string::npos);
}

TokenizerData tiny() {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.tokens = {"a", "b", "ab", "<|end|>"};
    data.kinds = {TokenKind::Normal, TokenKind::Normal, TokenKind::Normal, TokenKind::Control};
    data.merges = {"a b"};
    return data;
}

}  // namespace

TEST_CASE("a tokenizer model or pre-tokenizer that is not known is refused by name") {
    TokenizerData data = tiny();
    data.model = "t5";
    check_refused(data, Errc::Unsupported, "\"t5\"");
    data = tiny();
    data.pre = "deepseek-v3";
    check_refused(data, Errc::Unsupported, "\"deepseek-v3\"");
    data.pre = "default";
    check_refused(data, Errc::Unsupported, "\"default\"");
}

TEST_CASE("a vocabulary that contradicts itself is refused with field and value") {
    TokenizerData data = tiny();
    data.tokens.clear();
    data.kinds.clear();
    check_refused(data, Errc::BadFile, "tokenizer.ggml.tokens is empty");
    data = tiny();
    data.kinds.pop_back();
    check_refused(data, Errc::BadFile, "token_type has 3 entries");
    data = tiny();
    data.eos = 4;
    check_refused(data, Errc::BadFile, "eos_token_id is 4");
    data = tiny();
    data.bos = -1;
    check_refused(data, Errc::BadFile, "bos_token_id is -1");
}

TEST_CASE("a merge that is malformed or leads out of the vocabulary is refused") {
    for (const char* merge : {"ab", "", "a b b", "a c", "c a", "b a"}) {
        TokenizerData data = tiny();
        data.merges = {"a b", merge};
        check_refused(data, Errc::BadFile, "merges[1]");
    }
}

TEST_CASE("control tokens are found only where they are to be parsed, user tokens always") {
    const Tokenizer tokenizer = fixtures::tokenizer("qwen2");
    const TokenId control = tokenizer.find("<|im_end|>").value();
    const TokenId user = tokenizer.find("<tool_call>").value();
    CHECK(tokenizer.is_control(control));
    CHECK(!tokenizer.is_control(user));
    CHECK(tokenizer.encode("<|im_end|><tool_call>", SpecialTokens::Parse) ==
          std::vector<TokenId>{control, user});
    const std::vector<TokenId> ids =
        tokenizer.encode("<|im_end|><tool_call>", SpecialTokens::AsText);
    CHECK(ids.size() > 2);
    CHECK(std::count(ids.begin(), ids.end(), control) == 0);
    CHECK(ids.back() == user);
}

TEST_CASE("no text encoded as text yields a control token") {
    for (const char* name : {"smollm", "gpt2", "llama3", "qwen2"}) {
        const Tokenizer tokenizer = fixtures::tokenizer(name);
        for (const std::string& line : fixtures::corpus()) {
            for (const TokenId id : tokenizer.encode(line, SpecialTokens::AsText)) {
                CHECK(!tokenizer.is_control(id));
            }
        }
    }
}

TEST_CASE("a file without merges is refused, because its texts would be single bytes") {
    TokenizerData data = tiny();
    data.merges.clear();
    check_refused(data, Errc::BadFile, "tokenizer.ggml.merges is missing or empty");
}

TEST_CASE("a hostile name or merge is shown escaped and cut") {
    TokenizerData data = tiny();
    data.model = "\x1b[2J" + std::string(10'000, 'x');
    check_refused(data, Errc::Unsupported, "\"\\x1b[2Jxxx");
    CHECK(Tokenizer::make(data).error().what.size() < 300);
    data = tiny();
    data.merges = {"\x1b]0;" + std::string(10'000, 'x')};
    check_refused(data, Errc::BadFile, "merges[0] is \"\\x1b]0;xxx");
    CHECK(Tokenizer::make(data).error().what.size() < 300);
}

TEST_CASE("a control token with the text of a plain word is not that word") {
    TokenizerData data = tiny();
    data.pre = "llama-bpe";  // takes whole words from the vocabulary
    data.kinds[2] = TokenKind::Control;
    data.tokens.emplace_back("ba");
    data.kinds.push_back(TokenKind::Normal);
    data.merges = {"b a"};
    const Result<Tokenizer> tokenizer = Tokenizer::make(data);
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer.value().encode("ab", SpecialTokens::AsText) == std::vector<TokenId>{0, 1});
    CHECK(tokenizer.value().encode("ab", SpecialTokens::Parse) == std::vector<TokenId>{2});
}

TEST_CASE("merges that make a control token's text do not make the token") {
    TokenizerData data = tiny();
    data.kinds[2] = TokenKind::Control;
    const Result<Tokenizer> tokenizer = Tokenizer::make(data);
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer.value().encode("ab", SpecialTokens::AsText) == std::vector<TokenId>{0, 1});
}

TEST_CASE("dbrx has the pieces of llama3, which it does not take whole") {
    TokenizerData data = tiny();
    data.tokens.emplace_back("ba");
    data.kinds.push_back(TokenKind::Normal);
    for (const auto& [pre, ids] : {std::pair{"llama-bpe", std::vector<TokenId>{4}},
                                   std::pair{"dbrx", std::vector<TokenId>{1, 0}},
                                   std::pair{"tekken", std::vector<TokenId>{4}}}) {
        data.pre = pre;
        CHECK(Tokenizer::make(data).value().encode("ba", SpecialTokens::AsText) == ids);
    }
}

TEST_CASE("the ends of generation are the file's own and the well-known ones, sorted") {
    const Tokenizer tokenizer = fixtures::tokenizer("smollm");
    const TokenId im_end = tokenizer.find("<|im_end|>").value();
    const TokenId end_of_text = tokenizer.find("<|endoftext|>").value();
    REQUIRE(end_of_text < im_end);
    CHECK(tokenizer.end_tokens() == std::vector<TokenId>{end_of_text, im_end});
    TokenizerData data = tiny();
    data.eot = 3;
    data.eos = 1;
    CHECK(Tokenizer::make(data).value().end_tokens() == std::vector<TokenId>{1, 3});
}

TEST_CASE("a control token with a name that ends a turn or a text ends an answer") {
    for (const char* name :
         {"</s>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>",
          "<|end|>", "<|end_of_turn|>", "<end_of_turn>", "<eos>", "<end_of_utterance>", "<|EOT|>",
          "<EOT>", "_<EOT>", "\u2581<EOT>", "[EOT]", "[EOS]",
          "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"}) {
        CAPTURE(name);
        TokenizerData data = tiny();
        data.tokens[3] = name;
        CHECK(Tokenizer::make(data).value().end_tokens() == std::vector<TokenId>{3});
        data.kinds[3] = TokenKind::Normal;
        CHECK(Tokenizer::make(data).value().end_tokens().empty());
    }
    for (const char* name : {"<|im_start|>", "<s>", "<|user|>", "<|file_sep|>"}) {
        TokenizerData data = tiny();
        data.tokens[3] = name;
        CHECK(Tokenizer::make(data).value().end_tokens().empty());
    }
}

TEST_CASE("with tokens for the end of an answer and for a call <|end|> ends a message only") {
    TokenizerData data = tiny();
    data.tokens.insert(data.tokens.end(), {"<|return|>", "<|call|>"});
    data.kinds.insert(data.kinds.end(), 2, TokenKind::Control);
    CHECK(Tokenizer::make(data).value().end_tokens() == std::vector<TokenId>{4, 5});
}

TEST_CASE("a token without text runs and matches no text, whatever its kind is") {
    for (const TokenKind kind : {TokenKind::Control, TokenKind::User, TokenKind::Normal}) {
        TokenizerData data = tiny();
        data.tokens.insert(data.tokens.end(), {"", ""});
        data.kinds.insert(data.kinds.end(), 2, kind);
        const Result<Tokenizer> tokenizer = Tokenizer::make(data);
        REQUIRE(tokenizer.ok());
        CHECK(tokenizer.value().encode("ab<|end|>a", SpecialTokens::Parse) ==
              std::vector<TokenId>{2, 3, 0});
        CHECK(tokenizer.value().bytes_of(4).empty());
        CHECK(!tokenizer.value().find(""));
    }
}

TEST_CASE("a BOS is asked for only where the file does") {
    TokenizerData data = tiny();
    data.bos = 3;
    CHECK(!Tokenizer::make(data).value().prompt_bos());
    data.add_bos = true;
    CHECK(Tokenizer::make(data).value().prompt_bos() == 3);
}

TEST_CASE("tokens give their bytes, control and user tokens their text") {
    const Tokenizer tokenizer = fixtures::tokenizer("llama3");
    CHECK(tokenizer.bytes_of(tokenizer.find("\u0120dogs").value()) == " dogs");
    CHECK(tokenizer.bytes_of(tokenizer.find("\u00E9<").value()) == "\u00E9<");
    CHECK(tokenizer.bytes_of(tokenizer.find("<|\u00E9|>").value()) == "<|\u00E9|>");
    CHECK(tokenizer.bytes_of(tokenizer.find("\u00FF").value()) == "\xFF");
    CHECK(!tokenizer.find("no such token"));
}

TEST_CASE("a file without token types has plain tokens only") {
    TokenizerData data = tiny();
    data.kinds.clear();
    const Result<Tokenizer> tokenizer = Tokenizer::make(data);
    REQUIRE(tokenizer.ok());
    CHECK(!tokenizer.value().is_control(3));
    CHECK(tokenizer.value().encode("ab", SpecialTokens::Parse) == std::vector<TokenId>{2});
}

TEST_CASE("a control token takes a template's white space with it, never a user's") {
    TokenizerData data = tiny();
    data.tokens.insert(data.tokens.end(), {"\u0120", "|e"});
    data.kinds.insert(data.kinds.end(), {TokenKind::Normal, TokenKind::User});
    data.greedy_tokens = {{3, true, true}};
    const Tokenizer tokenizer = Tokenizer::make(data).value();
    const auto encoded = [&](std::string_view origins) {
        return tokenizer.encode_marked("a  <|end|>  b", origins);
    };
    using Ids = std::vector<TokenId>;
    CHECK(encoded("ttttttttttttt") == Ids{0, 3, 1});
    CHECK(encoded("uuuttttttttuu") == Ids{0, 4, 4, 3, 4, 1});
    CHECK(encoded("uutttttttttuu") == Ids{0, 4, 3, 4, 1});
    CHECK(encoded("utuuuuuuuuutt") == Ids{0, 4, 4, 4, 4, 1});
    CHECK(encoded("uttuuuuuuuutu") == Ids{0, 4, 4, 4, 4, 1});
    // Of a control token that is text nothing is a token by itself.
    CHECK(tokenizer.encode_marked(" <|end|>", "tuuuuuuu") == Ids{4});
    CHECK(tokenizer.encode_marked(" <|end", "tuuuuu") == Ids{4, 5});
}

TEST_CASE("white space of a user in front of a template's token does not take quadratic time") {
    TokenizerData data = tiny();
    data.greedy_tokens = {{3, true, false}};
    const Tokenizer tokenizer = Tokenizer::make(data).value();
    fixtures::check_linear_time(25'000, [&](std::size_t n) {
        const std::string text = std::string(n, ' ') + "<|end|>";
        const std::string origins = std::string(n, 'u') + "ttttttt";
        CHECK(tokenizer.encode_marked(text, origins) == std::vector<TokenId>{3});
    });
}

TEST_CASE("what a user wrote decomposed makes no text of the template's control tokens beside it") {
    TokenizerData data = tiny();
    data.normal_form_c = true;
    data.late_tokens = {3};
    const Tokenizer tokenizer = Tokenizer::make(data).value();
    const std::string decomposed = "e\u0301";
    const std::string text = decomposed + "<|end|>" + decomposed;
    CHECK(tokenizer.encode_marked(text, "uuutttttttuuu") == std::vector<TokenId>{3});
    CHECK(tokenizer.encode_marked(text, "uuuuttttttuuu").empty());
}

TEST_CASE("normal form by parts is that of the whole text, and each byte keeps an origin") {
    const TextStep normal_form;
    for (const std::string& line : fixtures::piece_lines()) {
        MarkedText marked{line, std::string(line.size(), 'u')};
        apply_steps({&normal_form, 1}, Prepends::Yes, marked);
        CHECK(marked.text == unicode::nfc(line));
        CHECK(marked.origins == std::string(marked.text.size(), 'u'));
    }
}

TEST_CASE("long runs of one kind do not take quadratic time") {
    for (const char* name : {"smollm", "gpt2", "llama3", "qwen2"}) {
        const Tokenizer tokenizer = fixtures::tokenizer(name);
        for (const char* unit :
             {"a", " ", "\n", "7", "=", "\u0301", "<|im_", "\xFF", "'", "\u00A0"}) {
            CAPTURE(name);
            CAPTURE(unit);
            fixtures::check_linear_time(25'000, [&](std::size_t n) {
                const std::string text = fixtures::repeated(unit, n) + "x";
                CHECK(!tokenizer.encode(text, SpecialTokens::Parse).empty());
            });
        }
    }
}

}  // namespace paceline
