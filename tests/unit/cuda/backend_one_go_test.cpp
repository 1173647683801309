// Layers, head and draws in one go: the bits of the calls one by one.
#include "tests/unit/cuda/one_go_call.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

HeadSpec turned_and_listed(const ModelFile& file) {
    HeadSpec head;
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::mt19937 rng{3};
    std::normal_distribution<float> normal{0.0f, 0.1f};
    head.transform.resize(dim * dim);
    for (float& x : head.transform) x = normal(rng);
    for (TokenId token = 1; token < file.config().vocab_size; token += 3)
        head.tokens.push_back(token);
    return head;
}

struct Way {
    int rows_max;
    Position each;  // how many rows stand between two that are drawn from, and one of these
};

void check_one_go(const ModelFile& file, HeadId head, Position count, Way way) {
    const CudaOptions options{.rows_max = way.rows_max, .heads = {turned_and_listed(file)}};
    const auto plain = make_cuda(file, options);
    Call want{*plain, count, way.each};
    want.one_by_one(*plain, head);
    const auto backend = make_cuda(file, options);
    Call got{*backend, count, way.each};
    for (int round = 0; round < 3; ++round) {  // launched, recorded, replayed
        std::fill(got.hidden.begin(), got.hidden.end(), 0.0f);
        REQUIRE(backend->run_and_draw(got.rows, got.hidden, {got.jobs, true}, got.tokens,
                                      nullptr) == RunOutcome::Done);
        CHECK(same_bits(got.hidden, want.hidden));
        REQUIRE(backend->run_and_draw_candidates(head, got.rows, {}, {got.jobs}, got.best,
                                                 nullptr) == RunOutcome::Done);
        got.check_same(want);
    }
}

TEST_CASE("in one go rows get the very tokens, candidates and states of the calls one by one") {
    const ModelFile file = open_fixture("llama-q4_1");
    // One batch; several; one of more rows than a head takes at once.
    const std::pair<Position, Way> shapes[] = {
        {1, {64, 1}}, {9, {64, 2}}, {70, {16, 3}}, {70, {256, 1}}};
    for (const HeadId head : {HeadId::Final, HeadId{1}}) {
        for (const auto& [count, way] : shapes) {
            CAPTURE(count);
            CAPTURE(way.rows_max);
            check_one_go(file, head, count, way);
        }
    }
}

}  // namespace
}  // namespace paceline
