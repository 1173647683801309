// Tokens drawn on the device against those drawn on the host from the same logits.
#include "model/sampling/sampler_scratch.hpp"
#include "model/sampling/sampling.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

std::vector<float> random_hidden(std::mt19937& rng, std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> hidden(count);
    for (float& value : hidden) value = normal(rng);
    return hidden;
}

std::vector<SamplingParams> many_params() {
    std::vector<SamplingParams> all(6);
    all[1].temperature = 0.8f;
    all[2].temperature = 1.3f;
    all[2].top_k = 7;
    all[3].temperature = 0.8f;
    all[3].top_p = 0.95f;
    all[4].temperature = 0.5f;
    all[4].min_p = 0.05f;
    all[5].temperature = 2.0f;
    for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = 11 * i + 3;
    return all;
}

TEST_CASE("a token that the device draws is that of sample() for the logits of the head") {
    std::mt19937 rng{5};
    SamplerScratch scratch;
    for (const char* fixture : {"llama-f32", "llama-q4_1", "qwen2-f16"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const auto backend = make_cuda(file, {});
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
        const std::vector<SamplingParams> params = many_params();
        for (const std::size_t count : {std::size_t{1}, std::size_t{6}, std::size_t{70}}) {
            const std::vector<float> hidden = random_hidden(rng, count * dim);
            std::vector<DrawJob> jobs;
            for (std::size_t r = 0; r < count; ++r)
                jobs.push_back({&params[r % params.size()], static_cast<Position>(100 + r)});
            std::vector<std::optional<TokenId>> tokens(count);
            backend->draw(hidden, jobs, tokens);
            std::vector<float> logits(count * vocab);
            backend->head(HeadId::Final, hidden, static_cast<int>(count), logits);
            for (std::size_t r = 0; r < count; ++r) {
                CHECK(tokens[r] == sample(std::span{logits}.subspan(r * vocab, vocab),
                                          jobs[r].position, {}, *jobs[r].params, scratch));
            }
        }
    }
}

TEST_CASE(
    "candidates that the device draws are the host's, bit for bit, of whole and of short lists") {
    std::mt19937 rng{6};
    SamplerScratch scratch;
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    HeadSpec listed;
    for (TokenId token = 3; token < file.config().vocab_size; token += 4)
        listed.tokens.push_back(token);
    const auto backend = make_cuda(file, {.heads = {listed}});
    const std::vector<SamplingParams> params = many_params();
    std::vector<float> whole(vocab);
    const std::size_t count = 12;
    const std::vector<float> hidden = random_hidden(rng, count * dim);
    for (const HeadId id : {HeadId::Final, HeadId{1}}) {
        CAPTURE(static_cast<int>(id));
        std::vector<DrawJob> jobs;
        for (std::size_t r = 0; r < count; ++r)
            jobs.push_back({&params[r % params.size()], static_cast<Position>(7 + r),
                            1 + static_cast<int>(r % 5)});
        std::vector<std::vector<Candidate>> best(count);
        backend->draw_candidates(id, hidden, jobs, best);
        const std::span<const TokenId> list = backend->short_list(id);
        const std::size_t width = list.empty() ? vocab : list.size();
        std::vector<float> logits(count * width);
        list.empty() ? backend->head(id, hidden, static_cast<int>(count), logits)
                     : backend->head_listed(id, hidden, static_cast<int>(count), logits);
        for (std::size_t r = 0; r < count; ++r) {
            const auto own = std::span{logits}.subspan(r * width, width);
            const DrawJob& job = jobs[r];
            const std::vector<Candidate> want =
                list.empty() ? candidates(own, job.position, {}, *job.params, job.count, scratch)
                             : listed_candidates(own, list, whole, job.position, {}, *job.params,
                                                 job.count, scratch);
            REQUIRE(best[r].size() == want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                CHECK(best[r][i].token == want[i].token);
                CHECK(best[r][i].log_prob == want[i].log_prob);
            }
        }
    }
}

TEST_CASE("the device leaves rows with penalties or a bias to the host") {
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = make_cuda(file, {});
    SamplingParams params;
    CHECK(backend->draws(params));
    params.logit_bias = {{3, 1.0f}};
    CHECK(!backend->draws(params));
    params.logit_bias.clear();
    params.repetition_penalty = 1.2f;
    CHECK(!backend->draws(params));
}

}  // namespace
}  // namespace paceline
