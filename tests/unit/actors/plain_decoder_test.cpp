#include <vector>

#include <doctest/doctest.h>

#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

Micros no_time() {
    return Micros{0};
}

struct Run {
    std::vector<TokenId> tokens;
    Result<AnswerStats> stats = AnswerStats{};
};

Run run(PlainDecoder& decoder,
        const std::vector<TokenId>& more,
        Request request,
        const CancelToken* cancel = nullptr) {
    request.text = more;
    Run made;
    const auto on_token = [&](TokenId token) {
        made.tokens.push_back(token);
        return Go::On;
    };
    made.stats = decoder.run(request, on_token, cancel, no_time);
    return made;
}

const std::vector<TokenId> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

}  // namespace

TEST_CASE("the size of a prefill chunk changes no token") {
    std::vector<TokenId> expected;
    for (const int rows : {512, 1, 2, 3, 10, 11}) {
        FakeBackend backend{0, kFakeLayers, 256};
        PlainDecoder decoder = PlainDecoder::make(backend, {.prefill_rows = rows}).value();
        const Run made = run(decoder, kPrompt, {.max_tokens = 30});
        CHECK(made.tokens.size() == 30);
        if (expected.empty()) expected = made.tokens;
        CHECK(made.tokens == expected);
        CHECK(backend.head_rows == 30);  // logits only where a token is drawn
    }
}

TEST_CASE("a device that draws with the layers gives the same tokens, and one head for each") {
    SamplingParams sampled{.temperature = 0.9F, .seed = 5};
    SamplingParams penalised = sampled;
    penalised.repetition_penalty = 1.3F;  // needs the text: not for the device
    for (const SamplingParams& sampling : {SamplingParams{}, sampled, penalised}) {
        std::vector<TokenId> expected;
        for (const bool draws_itself : {false, true}) {
            for (const int rows : {512, 3}) {
                FakeBackend backend{0, kFakeLayers, 256};
                backend.draws_itself = draws_itself;
                PlainDecoder decoder = PlainDecoder::make(backend, {.prefill_rows = rows}).value();
                const Request request{.sampling = sampling, .max_tokens = 20};
                const Run made = run(decoder, kPrompt, request);
                if (expected.empty()) expected = made.tokens;
                CHECK(made.tokens == expected);
                CHECK(backend.head_rows == 20);
                const bool in_one_go = draws_itself && !sampling.has_penalties();
                const std::size_t prefills = rows == 3 ? 4 : 1;
                CHECK(backend.runs_with_draws == (in_one_go ? prefills + 19 : 0));
            }
        }
    }
}

TEST_CASE("a second turn keeps what is in the KV cache and equals one long prompt") {
    FakeBackend backend{0, kFakeLayers, 256};
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    const Run first = run(decoder, kPrompt, {.max_tokens = 10});
    const std::vector<TokenId> turn{7, 8, 9};
    const Run second = run(decoder, turn, {.max_tokens = 10});
    CHECK(second.stats.value().prompt_tokens == 4);  // the turn, and the last token before it

    std::vector<TokenId> whole = kPrompt;
    whole.insert(whole.end(), first.tokens.begin(), first.tokens.end());
    whole.insert(whole.end(), turn.begin(), turn.end());
    FakeBackend fresh{0, kFakeLayers, 256};
    PlainDecoder at_once = PlainDecoder::make(fresh, {}).value();
    CHECK(run(at_once, whole, {.max_tokens = 10}).tokens == second.tokens);
    decoder.reset();
    CHECK(run(decoder, kPrompt, {.max_tokens = 10}).tokens == first.tokens);
}

TEST_CASE("the context ends the answer, and a prompt that fills it is refused with both numbers") {
    FakeBackend backend{0, kFakeLayers, 256};
    PlainDecoder decoder = PlainDecoder::make(backend, {.prefill_rows = 8, .context = 16}).value();
    const Run made = run(decoder, kPrompt, {});
    CHECK(made.tokens.size() == 5);
    CHECK(made.stats.value().finish == FinishReason::ContextFull);
    CHECK(decoder.text().size() == 16);

    decoder.reset();
    const Run refused = run(decoder, std::vector<TokenId>(16, 1), {});
    REQUIRE_FALSE(refused.stats);
    CHECK(refused.stats.error().what.find("16 tokens") != std::string::npos);
    CHECK(decoder.text().empty());
}

TEST_CASE("a request's own context is the answer's, as far as the decoder has one") {
    for (const auto& [context, tokens] : {std::pair{14, 3U}, std::pair{100, 5U}}) {
        FakeBackend backend{0, kFakeLayers, 256};
        PlainDecoder decoder = PlainDecoder::make(backend, {.context = 16}).value();
        const Run made = run(decoder, kPrompt, {.context = context});
        CHECK(made.tokens.size() == tokens);
        CHECK(made.stats.value().finish == FinishReason::ContextFull);
    }
}

TEST_CASE("cancelling stops between tokens, and the text can go on from there") {
    FakeBackend backend{0, kFakeLayers, 256};
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    CancelToken cancel;
    std::vector<TokenId> tokens;
    const auto on_token = [&](TokenId token) {
        tokens.push_back(token);
        if (tokens.size() == 4) cancel.cancel();
        return Go::On;
    };
    const Request request{.text = kPrompt, .max_tokens = 12};
    const auto stats = decoder.run(request, on_token, &cancel, no_time);
    CHECK(stats.value().finish == FinishReason::Interrupted);
    CHECK(tokens.size() == 4);
    const Run rest = run(decoder, {}, {.max_tokens = 8});
    tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
    FakeBackend fresh{0, kFakeLayers, 256};
    PlainDecoder undisturbed = PlainDecoder::make(fresh, {}).value();
    CHECK(run(undisturbed, kPrompt, request).tokens == tokens);
}

TEST_CASE("an answer that failed for want of a logit can be asked for again") {
    for (const bool draws_itself : {false, true}) {
        FakeBackend backend{0, kFakeLayers, 256};
        backend.draws_itself = draws_itself;
        PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
        const Run whole = run(decoder, kPrompt, {.max_tokens = 8});
        decoder.reset();
        backend.all_nan_at = kPrompt.back();
        const Run failed = run(decoder, kPrompt, {.max_tokens = 8});
        CHECK(failed.tokens.empty());
        CHECK(failed.stats.value().finish == FinishReason::Failed);
        CHECK(decoder.fed() < static_cast<Position>(decoder.text().size()));
        backend.all_nan_at = -1;
        CHECK(run(decoder, {}, {.max_tokens = 8}).tokens == whole.tokens);
    }
}

TEST_CASE("the callback can stop the answer, and figures say how many tokens it saw") {
    FakeBackend backend{0, kFakeLayers, 256};
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    int seen = 0;
    const auto on_token = [&](TokenId) { return ++seen == 3 ? Go::Stop : Go::On; };
    int ticks = 0;
    const auto clock = [&] { return Micros{++ticks}; };
    const Request request{.text = kPrompt};
    const AnswerStats stats = decoder.run(request, on_token, nullptr, clock).value();
    CHECK(stats.generated_tokens == 3);
    CHECK(stats.prompt_tokens == 11);
    CHECK(stats.finish == FinishReason::Interrupted);
    CHECK(stats.prefill_time() > Micros{0});
    CHECK(stats.time_to_first() > stats.prefill_time());
    CHECK(stats.decode_time() > Micros{0});
}

TEST_CASE("an end token is the answer's last token") {
    FakeBackend backend{0, kFakeLayers, 256};
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    const Run free_run = run(decoder, kPrompt, {.max_tokens = 20});
    decoder.reset();
    const TokenId end = free_run.tokens[7];
    const Run ended = run(decoder, kPrompt, {.end_tokens = {47, end}, .max_tokens = 20});
    CHECK(ended.tokens.back() == end);
    CHECK(ended.tokens.size() <= 8);
    CHECK(ended.stats.value().finish == FinishReason::EndToken);
}

TEST_CASE("what makes no sense is refused by name") {
    FakeBackend part{0, kFakeLayers - 1, 256};
    CHECK(PlainDecoder::make(part, {}).error().what.find("all 8 layers") != std::string::npos);
    FakeBackend backend{0, kFakeLayers, 256};
    CHECK_FALSE(PlainDecoder::make(backend, {.prefill_rows = 0}));
    CHECK_FALSE(PlainDecoder::make(backend, {.context = 257}));
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    CHECK(run(decoder, {}, {}).stats.error().what.find("empty") != std::string::npos);
    CHECK(run(decoder, {1, kFakeVocab}, {}).stats.error().what.find("token 1 is 48") !=
          std::string::npos);
    CHECK_FALSE(run(decoder, kPrompt, {.max_tokens = 0}).stats);
}
