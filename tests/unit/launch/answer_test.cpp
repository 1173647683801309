// One answer from a generator that says what the test wants: what becomes text, what an error.
#include "launch/session/answer.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

Tokenizer two_letters() {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.tokens = {"a", "b", "<|end|>"};
    data.kinds = {TokenKind::Normal, TokenKind::Normal, TokenKind::Control};
    data.eos = 2;
    return Tokenizer::make(data).value();
}

/// Draws `tokens`, then ends as `finish` says.
class Scripted final : public Generator {
public:
    Scripted(std::vector<TokenId> tokens, msg::Finish finish)
        : tokens_{std::move(tokens)}, finish_{finish} {}

    Result<GeneratorFigures> run(std::span<const TokenId> /*more*/,
                                 const PlainParams& /*params*/,
                                 const PlainDecoder::OnToken& on_token,
                                 const CancelToken& /*cancel*/) override {
        GeneratorFigures figures;
        for (const TokenId token : tokens_) {
            if (on_token(token) == Go::Stop) return figures;
        }
        figures.decoding.finish = finish_;
        return figures;
    }
    [[nodiscard]] Position text_tokens() const override { return 0; }
    [[nodiscard]] Position context() const override { return 16; }
    void reset() override {}
    [[nodiscard]] GeneratorTraits traits() const override { return {}; }

private:
    std::vector<TokenId> tokens_;
    msg::Finish finish_;
};

Result<Answer> answer_of(Scripted generator, std::string& text) {
    const AnswerRequest request{.tokens = {0}, .sampling = {}, .stop_strings = {}};
    const CancelToken cancel;
    return stream_answer(generator, two_letters(), request, cancel, [&](std::string_view more) {
        text += more;
        return Status{};
    });
}

}  // namespace

TEST_CASE("an answer that ends by itself is all its text") {
    std::string text;
    const Result<Answer> answer = answer_of({{0, 1, 2}, msg::Finish::EndToken}, text);
    REQUIRE(answer.ok());
    CHECK(text == "ab");
    CHECK(answer.value().end == AnswerEnd::EndToken);
    CHECK(answer.value().ids == std::vector<TokenId>{0, 1, 2});
}

TEST_CASE("a model that gives no number is an error, not an answer that was interrupted") {
    std::string text;
    const Result<Answer> answer = answer_of({{0, 1}, msg::Finish::Failed}, text);
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.error().code == Errc::BadFile);
    CHECK(answer.error().what.find("after 2 of the answer") != std::string::npos);
    CHECK(text == "ab");  // what came before it was shown
}
