// The example of docs/new-method.md in a pipeline of two segments.
#include "tests/example/bigram_source.hpp"
#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

TEST_CASE("a bigram draft commits plain decoding's tokens in fewer verify batches than tokens") {
    std::size_t tokens = 0;
    std::size_t batches = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        PipelineOptions options{.segments = 2, .drafting = Drafting::Lookup, .seed = seed};
        options.sources = [](const Request&) { return std::make_unique<BigramSource>(); };
        const Request request = small_request(seed);
        const Oracle oracle = plain_answer(request);
        Pipeline pipeline{options, request, oracle};
        pipeline.open_and_begin(RequestId{1}, request);
        pipeline.run_until_finished();
        const std::span<const TokenId> answer = pipeline.conductor.log.answer(RequestId{1});
        CHECK(std::vector<TokenId>{answer.begin(), answer.end()} == oracle.answer);
        tokens += answer.size();
        batches += static_cast<std::size_t>(pipeline.conductor.verdicts);
    }
    CHECK(batches < tokens);
}
