// AnswerBatches: answers equal those of plain decoding, and the kept distributions and residuals
// equal those of a plain forward pass of the same text.
#include "actors/decoding/answer_batches.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/plain_decoder.hpp"
#include "model/weights/tensor.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

constexpr int kTop = 5;

/// Prompts of many lengths; two of them longer than a batch has room for.
std::vector<std::vector<TokenId>> synthetic_prompts(int vocab) {
    std::mt19937 rng{17};
    std::vector<std::vector<TokenId>> prompts;
    for (const std::size_t length : {1U, 7U, 90U, 2U, 33U, 64U, 1U, 12U, 120U, 5U, 31U, 3U})
        prompts.push_back(random_tokens(rng, vocab, length));
    return prompts;
}

std::vector<AnswerTask> tasks_of(const std::vector<std::vector<TokenId>>& prompts) {
    std::vector<AnswerTask> tasks;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        tasks.push_back({.index = static_cast<std::int64_t>(i),
                         .prompt = static_cast<std::int32_t>(i),
                         .sample = 0,
                         .tokens = prompts[i]});
    }
    return tasks;
}

/// So that some answers end by themselves.
std::vector<TokenId> every_32nd_token() {
    std::vector<TokenId> tokens;
    for (TokenId token = 3; token < 512; token += 32) tokens.push_back(token);
    return tokens;
}

BatchParams params_of(int requests, const SamplingParams& sampling) {
    return {.request = {.sampling = sampling,
                        .end_tokens = every_32nd_token(),
                        .max_tokens = 24,
                        .context = 128},
            .max_running = requests,
            .batch_rows = requests + 5,
            .top = kTop,
            .hidden = {1, 2}};
}

/// By index; every answer comes once.
std::map<std::int64_t, TrainingSample> generate(Backend& backend,
                                                const BatchParams& params,
                                                const std::vector<AnswerTask>& tasks) {
    std::map<std::int64_t, TrainingSample> made;
    AnswerBatches batches{backend, params};
    const auto done = [&](TrainingSample answer) {
        const std::int64_t index = answer.task.index;
        CHECK(made.emplace(index, std::move(answer)).second);
        return Status{};
    };
    const CancelToken cancel;
    const Status status = batches.run(
        tasks, done, [&](int, int rows) { CHECK(rows <= params.batch_rows); }, cancel);
    REQUIRE_MESSAGE(status.ok(), (status ? std::string{} : status.error().what));
    CHECK(made.size() == tasks.size());
    return made;
}

CpuOptions room_for(const BatchParams& params, const std::vector<AnswerTask>& tasks) {
    return {.kv_slots = kv_slots_for(tasks, params)};
}

std::vector<SamplingParams> samplings() {
    SamplingParams drawn{.temperature = 1.0f, .top_k = 40, .top_p = 0.95f, .seed = 9};
    SamplingParams penalised{.temperature = 0.8f, .repetition_penalty = 1.3f, .seed = 2};
    SamplingParams biased{.logit_bias = {{5, 4.0f}}};
    return {SamplingParams{}, drawn, penalised, biased};
}

struct PlainAnswer {
    std::vector<TokenId> tokens;
    FinishReason finish;
};

PlainAnswer decode_plainly(Backend& backend, const AnswerTask& task, const BatchParams& params) {
    PlainDecoder decoder = PlainDecoder::make(backend, {}).value();
    Request plain = params.request;
    plain.text.assign(task.tokens.begin(), task.tokens.end());
    plain.sampling.seed += static_cast<std::uint64_t>(task.index);
    PlainAnswer answer{.tokens = {}, .finish = FinishReason::None};
    const auto on_token = [&](TokenId token) {
        answer.tokens.push_back(token);
        return Go::On;
    };
    const auto no_time = [] { return std::chrono::microseconds{0}; };
    const auto stats = decoder.run(plain, on_token, nullptr, no_time);
    answer.finish = stats.value().finish;
    return answer;
}

/// Residuals of a text after every sub-layer, all its rows in one call.
struct PlainPass {
    std::size_t rows;
    std::vector<float> stacks;  // [rows, sublayers, dim]
    std::vector<float> hidden;  // [rows, dim]
};

PlainPass plain_pass(Backend& backend, std::span<const TokenId> text) {
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    const auto sublayers = static_cast<std::size_t>(backend.config().sublayers());
    PlainPass pass{.rows = text.size(), .stacks = {}, .hidden = {}};
    pass.stacks.resize(text.size() * sublayers * dim);
    pass.hidden.resize(text.size() * dim);
    std::vector<KvSlot> slots(text.size());
    std::vector<Row> rows(text.size());
    for (std::size_t p = 0; p < text.size(); ++p) {
        slots[p] = static_cast<KvSlot>(p);
        rows[p] = {.token = text[p],
                   .position = static_cast<Position>(p),
                   .slot = slots[p],
                   .prefix_slots = slots.data(),
                   .prefix_count = static_cast<std::int32_t>(p) + 1,
                   .last = backend.config().sublayers(),
                   .stack = pass.stacks.data() + p * sublayers * dim};
    }
    REQUIRE(backend.run_layers(rows, pass.hidden, nullptr) == RunOutcome::Done);
    return pass;
}

void check_residuals(const TrainingSample& answer,
                     const PlainPass& pass,
                     const std::vector<int>& layers,
                     const ModelConfig& config) {
    const auto dim = static_cast<std::size_t>(config.dim);
    const auto sublayers = static_cast<std::size_t>(config.sublayers());
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const auto border = static_cast<std::size_t>(2 * layers[layer] - 1);
        const std::vector<std::uint16_t>& kept = answer.hidden[layer];
        REQUIRE(kept.size() == answer.tokens.size() * dim);
        for (std::size_t p = 0; p < pass.rows; ++p) {
            for (std::size_t i = 0; i < dim; ++i) {
                const float value = pass.stacks[(p * sublayers + border) * dim + i];
                REQUIRE(kept[p * dim + i] == float_to_half(value));
            }
        }
        const auto is_zero = [](std::uint16_t half) { return half == 0; };
        CHECK(std::all_of(kept.end() - static_cast<std::ptrdiff_t>(dim), kept.end(), is_zero));
    }
}

/// Against a sort of all logits and a sum in double.
void check_row(std::span<const float> logits, const TokenId* ids, const std::uint16_t* logprob) {
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto logit = [&logits](TokenId t) { return logits[static_cast<std::size_t>(t)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
    double total = 0.0;
    for (const float l : logits) total += std::exp(static_cast<double>(l));
    for (std::size_t k = 0; k < kTop; ++k) {
        CHECK(ids[k] == order[k]);
        const double wanted = static_cast<double>(logit(order[k])) - std::log(total);
        CHECK(static_cast<double>(half_to_float(logprob[k])) ==
              doctest::Approx(wanted).epsilon(2e-3));
    }
}

}  // namespace

TEST_CASE("any number of requests at a time gives the answers of plain decoding") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto prompts = synthetic_prompts(file.config().vocab_size);
    const std::vector<AnswerTask> tasks = tasks_of(prompts);
    const auto plain_backend = make_backend(file, {.kv_slots = 128});
    std::size_t ended = 0;
    for (const SamplingParams& sampling : samplings()) {
        std::vector<PlainAnswer> expected;
        for (const AnswerTask& task : tasks) {
            expected.push_back(decode_plainly(*plain_backend, task, params_of(1, sampling)));
            ended += expected.back().finish == FinishReason::EndToken ? 1 : 0;
        }
        for (const int requests : {1, 3, 12, 20}) {
            const BatchParams params = params_of(requests, sampling);
            const auto backend = make_backend(file, room_for(params, tasks));
            const auto made = generate(*backend, params, tasks);
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                const TrainingSample& answer = made.at(static_cast<std::int64_t>(i));
                CHECK(std::ranges::equal(answer.answer(), expected[i].tokens));
                CHECK(answer.finish == expected[i].finish);
            }
        }
    }
    CHECK(ended > 0);  // both ends are covered
    CHECK(ended < samplings().size() * tasks.size());
}

TEST_CASE("fewer KV pages than the requests want only make them wait") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto prompts = synthetic_prompts(file.config().vocab_size);
    const std::vector<AnswerTask> tasks = tasks_of(prompts);
    const BatchParams params = params_of(8, {});
    const auto roomy = make_backend(file, room_for(params, tasks));
    const auto tight = make_backend(file, {.kv_slots = 160});
    const auto expected = generate(*roomy, params, tasks);
    for (const auto& [index, answer] : generate(*tight, params, tasks))
        CHECK(answer.tokens == expected.at(index).tokens);
}

TEST_CASE("what is kept beside the tokens is what a forward pass of the text says") {
    const ModelFile file = open_fixture("llama-f32");
    const auto prompts = synthetic_prompts(file.config().vocab_size);
    const std::vector<AnswerTask> tasks = tasks_of(prompts);
    // Penalties change what is drawn, not what the target thought.
    const BatchParams params = params_of(4, samplings()[2]);
    const auto backend = make_backend(file, room_for(params, tasks));
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::vector<float> logits(static_cast<std::size_t>(file.config().vocab_size));
    for (const auto& [index, answer] : generate(*backend, params, tasks)) {
        const std::size_t ran = answer.tokens.size() - 1;
        PlainPass pass = plain_pass(*backend, std::span{answer.tokens}.first(ran));
        check_residuals(answer, pass, params.hidden, file.config());
        REQUIRE(answer.top_ids.size() == answer.tokens.size() * kTop);
        REQUIRE(answer.top_logprob.size() == answer.top_ids.size());
        for (std::size_t p = 0; p < answer.tokens.size(); ++p) {
            const TokenId* ids = answer.top_ids.data() + p * kTop;
            const bool known = p + 1 >= answer.task.tokens.size() && p < ran;
            CHECK((ids[0] >= 0) == known);
            if (!known) continue;
            backend->head(HeadId::Final, std::span{pass.hidden}.subspan(p * dim, dim), 1, logits);
            check_row(logits, ids, answer.top_logprob.data() + p * kTop);
        }
    }
}

TEST_CASE("a raised token ends the run, and no answer is half made") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto prompts = synthetic_prompts(file.config().vocab_size);
    const std::vector<AnswerTask> tasks = tasks_of(prompts);
    BatchParams params = params_of(4, {});
    params.request.end_tokens = {};
    const auto backend = make_backend(file, room_for(params, tasks));
    AnswerBatches batches{*backend, params};
    CancelToken cancel;
    std::size_t made = 0;
    const auto done = [&](TrainingSample answer) {
        const std::size_t room = 128 - answer.task.tokens.size();
        CHECK(answer.answer().size() == std::min<std::size_t>(24, room));
        if (++made == 2) cancel.cancel();
        return Status{};
    };
    const Status status = batches.run(
        tasks, done, [](int, int) {}, cancel);
    CHECK(status.error().code == Errc::Cancelled);
    CHECK(made >= 2);
    CHECK(made < tasks.size());
    cancel.reset();
    CHECK(batches
              .run(
                  tasks, [](const TrainingSample&) { return Status{}; }, [](int, int) {}, cancel)
              .ok());  // all pages were given back
}
