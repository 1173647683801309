#include "tests/support/local_world.hpp"

#include "actors/draft/prompt_lookup_source.hpp"
#include "tests/support/pipeline/pipeline.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// A conductor for the one-process world: ends it when the answer is there.
class StoppingConductor final : public Actor {
public:
    void on_start(StageContext& context) override { context_ = &context; }
    void handle(StageId, std::uint16_t, std::span<const std::byte> bytes) override {
        const Commit commit = log.commit(decode_message<msg::Verdict>(bytes).value());
        if (commit.finish != FinishReason::None) context_->stop();
    }
    CommitLog log;

private:
    StageContext* context_ = nullptr;
};

}  // namespace

TEST_CASE("the same actors in the runtime's one-process world commit plain decoding's tokens") {
    for (int count = 1; count <= 4; ++count) {
        CAPTURE(count);
        Request request = small_request(static_cast<std::uint64_t>(count));
        make_sampled(request, 9);
        const Oracle oracle = plain_answer(request);
        StoppingConductor conductor;
        DraftActor draft{
            {.first_segment = kFirstSegment,
             .verifier = segment_id(count),
             .vocab_size = kFakeVocab},
            DraftTools{.source = [](const Request&) -> std::unique_ptr<DraftSource> {
                return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
            }}};
        std::vector<std::unique_ptr<FakeBackend>> backends;
        std::vector<std::unique_ptr<SegmentActor>> segments;
        LocalWorld world{LocalWorld::Clock::Virtual};
        world.add(kTheConductor, conductor);
        world.add(kTheDraft, draft);
        for (int i = 1; i <= count; ++i) {
            backends.push_back(std::make_unique<FakeBackend>(kFakeLayers * (i - 1) / count,
                                                             kFakeLayers * i / count, 1024));
            SegmentPlan plan;
            plan.count = count;
            if (i > 1) plan.previous = segment_id(i - 1);
            if (i < count) plan.next = segment_id(i + 1);
            plan.draft = kTheDraft;
            plan.speculative = {kTheDraft};
            plan.verifier = segment_id(count);
            plan.verdict_to = {kTheConductor, kTheDraft};
            for (int k = 1; k < count; ++k) plan.verdict_to.push_back(segment_id(k));
            segments.push_back(std::make_unique<SegmentActor>(plan, *backends.back()));
            world.add(segment_id(i), *segments.back());
        }
        const StageId verifier = segment_id(count);
        world.connect({.from = kTheDraft, .to = kFirstSegment});
        world.connect({.from = verifier, .to = kTheConductor});
        world.connect({.from = verifier, .to = kTheDraft});
        for (int i = 1; i < count; ++i) {
            world.connect({.from = verifier, .to = segment_id(i)});
            const std::size_t bytes = kBatchRowsMax * kFakeDim * sizeof(float);
            world.connect({.from = segment_id(i),
                           .to = segment_id(i + 1),
                           .tensor_slots = 2,
                           .tensor_bytes = bytes});
        }
        const control::Begin begin{.request = kOne,
                                   .attempt = conductor.log.open(kOne, request.text).value(),
                                   .payload = encode_begin({request})};
        world.post(kTheConductor, kTheDraft, begin);
        for (int i = count; i >= 1; --i) world.post(kTheConductor, segment_id(i), begin);
        const Status ended = world.run();
        if (!ended) FAIL(ended.error().what);
        const auto answer = conductor.log.answer(kOne);
        CHECK(std::vector<TokenId>(answer.begin(), answer.end()) == oracle.answer);
    }
}
