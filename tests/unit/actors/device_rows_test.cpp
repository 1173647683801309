// Hidden states of segments that compute on a device: what crosses to the host and back. The fake
// device counts it, and its addresses fault where the host follows them.
#include <memory>
#include <random>
#include <vector>

#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// Runs a request through segments that are all on devices, and checks the text.
void run(const PipelineOptions& options, const Request& request, Pipeline& pipeline) {
    CAPTURE(options.segments);
    pipeline.open_and_begin(kOne, request);
    pipeline.run_until_finished();
    const auto answer = pipeline.conductor.log.answer(kOne);
    CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == plain_answer(request).answer);
}

}  // namespace

TEST_CASE("a row comes to a device once and leaves it once, whatever verdicts and exits read") {
    std::size_t exit_heads = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        Request request = small_request(seed);
        if (seed % 2 == 0) make_sampled(request, seed);
        PipelineOptions options{.segments = 1 + static_cast<int>(seed % 4),
                                .drafting = Drafting::SlowOracle,
                                .seed = seed};
        options.dispatch.start = StartRule::AtOnce;
        options.dispatch.batches_in_flight_max = 3;
        options.draws_itself = seed % 3 == 0;
        options.on_devices = ~0U;
        const Exit exits[] = {Exit::None, Exit::Candidates, Exit::Proposes, Exit::Ahead};
        add_exit(options, exits[seed / 4 % 4], random);
        if (seed % 5 == 0 && options.exit_at < options.segments)
            options.exit.head = HeadId::Adapter;
        Pipeline pipeline{options, request, plain_answer(request)};
        run(options, request, pipeline);
        for (int index = 1; index <= options.segments; ++index) {
            const FakeBackend& backend = *pipeline.backends[static_cast<std::size_t>(index - 1)];
            const std::size_t ways = (index > 1 ? 1U : 0U) + (index < options.segments ? 1U : 0U);
            CAPTURE(index);
            CHECK(backend.rows_crossed <= ways * backend.rows_run);
            if (ways > 0) CHECK(backend.rows_crossed > 0);
            if (index == options.exit_at) exit_heads += backend.head_rows;
        }
    }
    CHECK(exit_heads > 100);
}

TEST_CASE("rows that wait at a device for the rest of their batch wait there") {
    std::size_t held = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const Request request = small_request(seed);
        PipelineOptions options{.segments = 2 + static_cast<int>(seed % 3), .seed = seed};
        options.dispatch.start = StartRule::AtOnce;
        options.dispatch.batches_in_flight_max = 4;
        options.on_devices = ~0U;
        add_exit(options, Exit::Defers, random);
        options.exit.gate = 0.0F;
        Pipeline pipeline{options, request, plain_answer(request)};
        pipeline.world.tap = [&](StageId, std::uint16_t kind, std::span<const std::byte> bytes) {
            if (kind != static_cast<std::uint16_t>(msg::Kind::Batch)) return;
            held += msg::decode_batch(bytes).value().parts[0].hold;
        };
        run(options, request, pipeline);
    }
    CHECK(held > 20);
}
