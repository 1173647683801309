// An EAGLE draft on several devices has the bits of one; what it takes of a device is what was
// counted. On emulated devices, whose memories are told apart.
#include <vector>

#include "model/kernels/cuda/sampling/sample.hpp"
#include "tests/unit/cuda/eagle/cuda_eagle_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/stop_watches.hpp"

namespace paceline::testing {
namespace {

constexpr std::size_t kTextTokens = 12;

/// Two devices; one again at the end.
class TwoDevices {
public:
    TwoDevices() { cuda::emulated::set_devices(2); }
    ~TwoDevices() {
        cuda::emulated::set_ahead(-1);
        cuda::emulated::set_peers_possible(true);
        cuda::emulated::set_devices(1);
    }
    TwoDevices(const TwoDevices&) = delete;
    TwoDevices& operator=(const TwoDevices&) = delete;
};

/// Outputs and features of texts in the same slots, half of whose features are the target's.
std::vector<float> numbers_of(EagleBackend& backend, const EagleFixture& eagle) {
    std::mt19937 random{33};
    const std::vector<KvSlot> slots = scattered_slots(kTextTokens, backend.kv_slots());
    const auto states = eagle.some_states(random, kTextTokens, 2);
    give(backend, slots, states, kTextTokens);
    std::vector<float> numbers;
    const CancelToken cancel;  // with one the streams are polled, and move one by one
    for (int round = 0; round < 4; ++round) {  // launched, recorded, replayed
        const std::vector<TokenId> tokens =
            random_tokens(random, eagle.target.config().vocab_size, kTextTokens);
        std::vector<float> outputs(kTextTokens * static_cast<std::size_t>(backend.config().dim));
        REQUIRE(backend.run_layers(text_rows(backend, tokens, slots), outputs, &cancel) ==
                RunOutcome::Done);
        numbers.insert(numbers.end(), outputs.begin(), outputs.end());
    }
    for (const KvSlot slot : slots) {
        const std::span<const float> feature = backend.feature(slot);
        numbers.insert(numbers.end(), feature.begin(), feature.end());
    }
    return numbers;
}

TEST_CASE("an EAGLE draft on two devices has the bits of one, whichever runs ahead") {
    const TwoDevices devices;
    for (const char* name : {"llama-f32", "llama-q4_1"}) {
        for (const std::vector<int>& layers : {std::vector<int>{}, {1, 2}}) {
            CAPTURE(name);
            CAPTURE(layers.size());
            const EagleFixture eagle{name, layers};
            const std::vector<float> want = numbers_of(*cuda_eagle(eagle, {.kv_slots = 64}), eagle);
            for (const int ahead : {-1, 0, 1}) {
                CAPTURE(ahead);
                const auto backend = cuda_eagle(eagle, {.others = {1}, .kv_slots = 64});
                const LazyStreams lazy;
                cuda::emulated::set_ahead(ahead);
                CHECK(same_bits(numbers_of(*backend, eagle), want));
                cuda::emulated::set_ahead(-1);
            }
        }
    }
}

TEST_CASE("what an EAGLE draft takes of its devices is what was counted, features and all") {
    const TwoDevices devices;
    const EagleFixture eagle{"llama-f32", {1, 2}};
    for (const std::vector<int>& others : {std::vector<int>{}, {1}}) {
        const CudaOptions options = eagle_options(eagle, {.others = others, .kv_slots = 64});
        CudaOptions without = options;
        without.eagle.reset();
        const MemoryUse use = cuda_memory(eagle.part.file, options);
        const MemoryUse layer = cuda_memory(eagle.part.file, without);
        const auto dim = static_cast<std::uint64_t>(eagle.part.file.config().dim);
        CHECK(use.weight_bytes >= layer.weight_bytes + 4 * dim * dim * sizeof(float));
        CHECK(use.workspace_bytes >= layer.workspace_bytes + (1 + others.size()) * 64 * dim * 4);
        CHECK(use.pinned_bytes > layer.pinned_bytes);
        const std::uint64_t before = cuda::emulated::memory_used();
        const auto backend = cuda_eagle(eagle, {.others = others, .kv_slots = 64});
        CHECK(cuda::emulated::memory_used() - before ==
              use.weight_bytes + use.kv_bytes + use.workspace_bytes);
        CHECK(backend->memory_use().workspace_bytes == use.workspace_bytes);
    }
}

TEST_CASE("an EAGLE draft on devices that do not reach each other is refused") {
    const TwoDevices devices;
    cuda::emulated::set_peers_possible(false);
    const EagleFixture eagle{"llama-f32"};
    const Error error = refused(eagle.part.file, eagle_options(eagle, {.others = {1}}));
    CHECK(error.code == Errc::Unsupported);
    CHECK_MESSAGE(cuda::contains(error.what, "an EAGLE draft needs one GPU, or several that do"),
                  error.what);
}

TEST_CASE("an EAGLE draft's layers that do not begin the model are refused") {
    const EagleFixture eagle{"llama-f32"};
    CudaOptions options;
    options.eagle = eagle.part.spec;
    options.first_layer = 1;
    const Error error = refused(eagle.target, options);
    CHECK(error.code == Errc::BadArgument);
    CHECK(cuda::contains(error.what, "begin with 1, must begin with 0"));
}

TEST_CASE("a step of an EAGLE draft is one wait, and nothing but candidates crosses to the host") {
    const EagleFixture eagle{"llama-f32"};
    const auto backend = cuda_eagle(eagle, {.kv_slots = 64});
    const std::vector<KvSlot> slots = home_slots(8);
    std::mt19937 random{34};
    give(*backend, slots, eagle.some_states(random, slots.size(), 1), slots.size() - 3);
    const std::vector<Row> rows =
        text_rows(*backend, random_tokens(random, eagle.target.config().vocab_size, 8), slots);
    const SamplingParams greedy;
    const std::vector<DrawJob> jobs(rows.size(), DrawJob{&greedy, 8, 3});
    std::vector<std::vector<Candidate>> best(rows.size());
    const LazyStreams lazy;
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const cuda::emulated::Traffic before = cuda::emulated::traffic();
        REQUIRE(backend->run_and_draw_candidates(kEagleHead, rows, {}, {jobs}, best, nullptr) ==
                RunOutcome::Done);
        const cuda::emulated::Traffic after = cuda::emulated::traffic();
        CHECK(backend->steps() == 3);
        // The features that were given go to the device in front of the first call.
        CHECK(after.waits - before.waits == (round == 0 ? 4 : 3));
        CHECK(after.bytes_to_host - before.bytes_to_host == 8 * sizeof(cuda::CandidateList));
    }
}

TEST_CASE("a step that is cancelled while it runs leaves an EAGLE draft that works") {
    const TwoDevices devices;
    const EagleFixture eagle{"llama-f32"};
    const std::vector<float> want = numbers_of(*cuda_eagle(eagle, {.kv_slots = 64}), eagle);
    for (const std::vector<int>& others : {std::vector<int>{}, {1}}) {
        auto layer =
            make_cuda(eagle.part.file, eagle_options(eagle, {.others = others, .kv_slots = 64}));
        EagleLayer& steps = *layer->eagle_layer();
        EagleBackend backend{std::move(layer), steps, 1};
        const std::vector<KvSlot> slots = home_slots(3);
        const std::vector<Row> rows = text_rows(backend, std::vector<TokenId>{1, 2, 3}, slots);
        const std::vector<KvSlot> before{kNoFeature, 0, 1};
        int cancelled = 0;
        {
            const LazyStreams lazy;
            for (const int polls : {1, 2, 6, 12}) {
                CancelToken token;
                const CancelsAtPoll watch{token, polls};
                token.watch_rows(&watch);
                if (steps.run_step({rows, before, slots}, {}, {}, &token) == RunOutcome::Cancelled)
                    ++cancelled;
            }
        }
        CHECK(cancelled == 4);
        CHECK(same_bits(numbers_of(backend, eagle), want));
    }
}

}  // namespace
}  // namespace paceline::testing
