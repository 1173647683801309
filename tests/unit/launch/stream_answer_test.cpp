// stream_answer() with a scripted generator: text, stop strings and errors.
#include "launch/session/stream_answer.hpp"

#include <doctest/doctest.h>

#include "launch/cli/generate_pipeline.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

Tokenizer two_letters() {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.tokens = {"a", "b", "<|end|>", "ab"};
    data.kinds = {TokenKind::Normal, TokenKind::Normal, TokenKind::Control, TokenKind::Normal};
    data.merges = {"a b"};
    data.eos = 2;
    return Tokenizer::make(data).value();
}

/// Draws `tokens`, then ends as `finish` says.
class Scripted final : public TokenGenerator {
public:
    Scripted(std::vector<TokenId> tokens, FinishReason finish)
        : tokens_{std::move(tokens)}, finish_{finish} {}

    Result<AnswerStats> run(const Request& /*request*/,
                            const PlainDecoder::OnToken& on_token,
                            const CancelToken& /*cancel*/) override {
        AnswerStats stats{.finish = finish_};
        for (const TokenId token : tokens_) {
            ++stats.generated_tokens;
            if (on_token(token) == Go::On) continue;
            stats.finish = FinishReason::Interrupted;
            break;
        }
        return stats;
    }
    [[nodiscard]] Position text_tokens() const override { return 0; }
    [[nodiscard]] Position context() const override { return 16; }
    void reset() override {}
    void on_prefill(std::function<void(double part)> /*progress*/) override {}
    void on_scores(PlainDecoder::OnScores /*scores*/) override {}
    [[nodiscard]] GeneratorTraits traits() const override { return {}; }

private:
    std::vector<TokenId> tokens_;
    FinishReason finish_;
};

Result<Answer> answer_of(Scripted generator, std::string& text, TextRequest wanted = {}) {
    wanted.request.text = {0};
    const CancelToken cancel;
    return stream_answer(generator, two_letters(), wanted, cancel, [&](std::string_view more) {
        text += more;
        return Status{};
    });
}

}  // namespace

TEST_CASE("an answer that ends by itself is all its text") {
    std::string text;
    const Result<Answer> answer = answer_of({{0, 1, 2}, FinishReason::EndToken}, text);
    REQUIRE(answer.ok());
    CHECK(text == "ab");
    CHECK(answer.value().stats.finish == FinishReason::EndToken);
    CHECK(answer.value().ids == std::vector<TokenId>{0, 1, 2});
}

TEST_CASE("a model that gives no number is an error, not an answer that was interrupted") {
    std::string text;
    const Result<Answer> answer = answer_of({{0, 1}, FinishReason::Failed}, text);
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.error().code == Errc::BadFile);
    CHECK(answer.error().what.find("after 2 of the answer") != std::string::npos);
    CHECK(text == "ab");  // what came before it was shown
}

TEST_CASE("a grammar that cannot be loaded is an error that says so") {
    std::string text;
    const Result<Answer> answer = answer_of({{0, 1}, FinishReason::GrammarFailed}, text);
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.error().what.find("ends after 2 tokens") != std::string::npos);
    CHECK(answer.error().what.find("cannot load the grammar") != std::string::npos);
    CHECK(text == "ab");
}

TEST_CASE("a stop string ends the answer before its text, and is the reason") {
    std::string text;
    const Result<Answer> answer =
        answer_of({{0, 1, 0, 1}, FinishReason::MaxTokens}, text, {.stop_strings = {"ba"}});
    REQUIRE(answer.ok());
    CHECK(text == "a");
    CHECK(answer.value().stats.finish == FinishReason::StopString);
    CHECK(name_of(answer.value().stats.finish) == std::string{"stop_string"});
    CHECK(answer.value().ids == std::vector<TokenId>{0, 1, 0});
}

TEST_CASE("a prompt that is only processed has no answer, and ends by its count") {
    std::string text;
    const Result<Answer> answer =
        answer_of({{0, 1}, FinishReason::MaxTokens}, text, {.prompt_only = true});
    REQUIRE(answer.ok());
    CHECK(text.empty());
    CHECK(answer.value().ids.empty());
    CHECK(answer.value().stats.generated_tokens == 0);
    CHECK(answer.value().stats.finish == FinishReason::MaxTokens);
}

TEST_CASE("tokens that one batch brought have no rate, those of two batches have one") {
    using std::chrono::microseconds;
    AnswerStats stats{.generated_tokens = 3,
                      .first_token = microseconds{1'000},
                      .last_token = microseconds{1'004}};
    stats.verdicts.batches = 1;
    CHECK(stats.decode_rate() == 0.0);
    stats.verdicts.batches = 2;
    CHECK(stats.decode_rate() == doctest::Approx(500'000.0));
}

TEST_CASE("an answer of generate that ends because no token can be drawn is an error") {
    const Status failed = check_finish(FinishReason::Failed, 7);
    REQUIRE(!failed.ok());
    CHECK(failed.error().code == Errc::BadFile);
    CHECK(failed.error().what ==
          "no token can be drawn for prompt 7: no logit is a finite number; the model's weights "
          "may be damaged");
    const Status grammar = check_finish(FinishReason::GrammarFailed, 7);
    REQUIRE(!grammar.ok());
    CHECK(grammar.error().code == Errc::BadFile);
    CHECK(grammar.error().what.find(kGrammarFailed) != std::string::npos);
    for (const FinishReason finish :
         {FinishReason::EndToken, FinishReason::MaxTokens, FinishReason::ContextFull})
        CHECK(check_finish(finish, 7).ok());
}
