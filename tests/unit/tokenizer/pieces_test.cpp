// SentencePiece by hand-made cases: what joins first, where a space is put, what is refused.
#include <limits>

#include <doctest/doctest.h>

#include "tests/unit/tokenizer/fixtures.hpp"
#include "tests/unit/tokenizer/linear_time.hpp"

namespace paceline {
namespace {

using Ids = std::vector<TokenId>;

/// "<unk>", "<s>", "</s>", then `tokens` with the scores -1, -2, ...; no bytes.
TokenizerData scored(const std::vector<std::string>& tokens) {
    fixtures::PieceVocabulary vocabulary;
    vocabulary.tokens = {"<unk>", "<s>", "</s>"};
    vocabulary.kinds = {TokenKind::Unknown, TokenKind::Control, TokenKind::Control};
    vocabulary.scores = {0.0, 0.0, 0.0};
    for (const std::string& token : tokens) {
        vocabulary.tokens.push_back(token);
        vocabulary.kinds.push_back(TokenKind::Normal);
        vocabulary.scores.push_back(-static_cast<double>(vocabulary.scores.size() - 2));
    }
    TokenizerData data = fixtures::gguf_pieces(vocabulary);
    data.pieces.steps.clear();
    return data;
}

Ids encoded(const TokenizerData& data, std::string_view text) {
    const Result<Tokenizer> made = Tokenizer::make(data);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
    return made.value().encode(text, SpecialTokens::AsText);
}

void check_refused(const TokenizerData& data, std::string_view words) {
    const Result<Tokenizer> made = Tokenizer::make(data);
    REQUIRE(!made.ok());
    CAPTURE(made.error().what);
    CHECK(made.error().code == Errc::BadFile);
    CHECK(made.error().what.find(words) != std::string::npos);
}

Tokenizer spm() {
    return Tokenizer::make(fixtures::gguf_pieces(fixtures::piece_vocabulary("spm"))).value();
}

}  // namespace

TEST_CASE("the neighbours whose joined token has the highest score are joined first") {
    const TokenizerData data = scored({"bc", "ab", "a", "b", "c"});
    CHECK(encoded(data, "abc") == Ids{5, 3});
    CHECK(encoded(data, "abab") == Ids{4, 4});
}

TEST_CASE("of equal scores the leftmost neighbours are joined") {
    TokenizerData data = scored({"ab", "ba", "a", "b"});
    data.scores[4] = data.scores[3];
    CHECK(encoded(data, "aba") == Ids{3, 5});
    CHECK(encoded(data, "bab") == Ids{4, 6});
}

TEST_CASE("a character that is no token may still be part of one") {
    const TokenizerData data = scored({"\u00E9a", "a"});
    CHECK(encoded(data, "\u00E9aa") == Ids{3, 4});
    CHECK(encoded(data, "a\u00E9") == Ids{4, 0});  // left over: unknown, for there are no bytes
    CHECK(encoded(data, "\u00E9\u00E9z") == Ids{0});
}

TEST_CASE("text that a user wrote never becomes a control token, nor by merging") {
    const TokenizerData data = scored({"<s", "<", "s", ">"});
    CHECK(encoded(data, "<s>") == Ids{3, 6});
    const Tokenizer tokenizer = spm();
    for (const std::string& line : fixtures::piece_lines()) {
        for (const TokenId id : tokenizer.encode(line, SpecialTokens::AsText))
            CHECK(!tokenizer.is_control(id));
    }
}

TEST_CASE("a space is put in front of a text and after added tokens, not in the middle of a text") {
    const Tokenizer tokenizer = spm();
    const TokenId eos = tokenizer.find("</s>").value();
    const auto bytes = [&](const Ids& ids) {
        std::string text;
        for (const TokenId id : ids) text += tokenizer.bytes_of(id);
        return text;
    };
    CHECK(bytes(tokenizer.encode("the", SpecialTokens::Parse)) == " the");
    CHECK(bytes(tokenizer.encode("a</s>b<tool>c", SpecialTokens::Parse)) == " a</s> b<tool> c");
    CHECK(bytes(tokenizer.encode_marked("the", "ttt", eos)) == " the");
    const TokenId word = tokenizer.encode("the", SpecialTokens::Parse).back();
    CHECK(bytes(tokenizer.encode_marked("the", "ttt", word)) == "the");
    CHECK(tokenizer.encode("", SpecialTokens::Parse).empty());
}

TEST_CASE(
    "an answer begins without the space that encoding puts there, unless it goes on with text") {
    const Tokenizer tokenizer = spm();
    const Ids ids = tokenizer.encode("the licence", SpecialTokens::Parse);
    const auto shown = [&](std::optional<TokenId> after) {
        Detokenizer detokenizer{tokenizer, after};
        std::string text;
        for (const TokenId id : ids) text += detokenizer.push(id);
        return text + detokenizer.finish();
    };
    CHECK(shown(std::nullopt) == "the licence");
    CHECK(shown(tokenizer.find("<s>")) == "the licence");
    CHECK(shown(tokenizer.find("<tool>")) == "the licence");
    CHECK(shown(ids.back()) == " the licence");
}

TEST_CASE("a character that is spread over byte tokens comes out with its last byte") {
    const Tokenizer tokenizer = spm();
    Detokenizer detokenizer{tokenizer};
    for (const char* byte : {"<0xF0>", "<0x9F>", "<0xA6>"})
        CHECK(detokenizer.push(tokenizer.find(byte).value()).empty());
    CHECK(detokenizer.push(tokenizer.find("<0x80>").value()) == "\U0001F980");
    CHECK(detokenizer.push(tokenizer.find("<0xC3>").value()).empty());
    CHECK(detokenizer.finish() == "\uFFFD");
}

TEST_CASE("a SentencePiece vocabulary that contradicts itself is refused with field and value") {
    TokenizerData data = scored({"ab", "a", "b"});
    data.kinds.clear();
    check_refused(data, "tokenizer.ggml.token_type is missing");
    data = scored({"ab", "a", "b"});
    data.scores.pop_back();
    check_refused(data, "tokenizer.ggml.scores has 5 entries");
    data = scored({"ab", "a", "b"});
    data.scores[3] = std::numeric_limits<double>::quiet_NaN();
    check_refused(data, "tokenizer.ggml.scores[3] is not a number");
    data = scored({std::string(257, 'x')});
    check_refused(data, "tokenizer.ggml.tokens[3] has 257 bytes");
    data = scored({"a"});
    data.unknown = 9;
    check_refused(data, "tokenizer.ggml.unknown_token_id is 9");
    data = scored({"a"});
    data.model = "unigram";
    data.unknown.reset();
    check_refused(data, "has no unknown token (model.unk_id");
}

TEST_CASE(
    "unknown characters beside those with bytes come as the Hugging Face library writes them") {
    TokenizerData data = scored({"<0x41>", "B"});
    data.pieces.fuse_unknown = false;
    CHECK(encoded(data, "ZZA") == Ids{0, 3, 0});
    CHECK(encoded(data, "ZAZ") == Ids{3, 0, 0});
    CHECK(encoded(data, "AZZB") == Ids{3, 0, 0, 4});
    data.pieces.fuse_unknown = true;
    CHECK(encoded(data, "ZZA") == Ids{3, 0});
    CHECK(encoded(data, "ZZBA") == Ids{0, 4, 3});
}

TEST_CASE("a vocabulary made to cost much memory is refused with field and count") {
    std::vector<std::string> runs;
    for (const char letter : {'a', 'b', 'c'}) {
        for (std::size_t n = 1; n <= 256; ++n) runs.emplace_back(n, letter);
    }
    check_refused(scored(runs),
                  "tokenizer.ggml.tokens: the tokens can be joined of others in more than 65536");
    runs.resize(512);
    CHECK(Tokenizer::make(scored(runs)).ok());
    std::vector<std::string> apart;
    for (int i = 100; i < 400; ++i) apart.push_back(std::to_string(i) + std::string(253, 'x'));
    TokenizerData data = scored(apart);
    data.model = "unigram";
    check_refused(data, "model.vocab has more than 65536 different beginnings");
}

TEST_CASE("Unigram takes the best sum, not the longest piece, and fuses what it does not know") {
    TokenizerData data = scored({"abc", "ab", "c", "a"});
    data.model = "unigram";
    data.scores = {0.0, 0.0, 0.0, -5.0, -1.0, -1.0, -3.0};
    CHECK(encoded(data, "abc") == Ids{4, 5});
    data.scores[3] = -2.0;  // of equal sums the longer last piece
    CHECK(encoded(data, "abc") == Ids{3});
    CHECK(encoded(data, "xyac") == Ids{0, 6, 5});
    CHECK(encoded(data, "<s>") == Ids{0});
}

TEST_CASE("long runs of one kind do not take quadratic time in pieces either") {
    fixtures::PieceVocabulary vocabulary = fixtures::piece_vocabulary("unigram");
    TokenizerData unigram = fixtures::gguf_pieces(vocabulary);
    unigram.model = "unigram";
    const Tokenizer both[] = {spm(), Tokenizer::make(unigram).value()};
    for (const Tokenizer& tokenizer : both) {
        for (const char* unit : {"a", " ", "\n", "<s", "\xFF", "\u00A0", "the "}) {
            CAPTURE(unit);
            fixtures::check_linear_time(25'000, [&](std::size_t n) {
                const std::string text = fixtures::repeated(unit, n) + "x";
                CHECK(!tokenizer.encode(text, SpecialTokens::Parse).empty());
            });
        }
    }
}

}  // namespace paceline
