// Keys and values taken out of one backend and put into another.
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kText = 70;
constexpr int kCopied = 45;  // ends inside a page

TEST_CASE("a text continued on a second backend from copied slots keeps its bits") {
    std::mt19937 rng{91};
    const ModelFile file = open_fixture("llama-q4_1");
    const ModelConfig& config = file.config();
    const auto dim = static_cast<std::size_t>(config.dim);
    for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
        const CpuOptions options{.kv = kv, .threads = 2};
        const auto first = make_backend(file, options);
        const auto second = make_backend(file, options);
        REQUIRE(first->kv_bytes() ==
                static_cast<std::size_t>(config.layers) * kv_bytes_per_slot(config, kv));
        const std::vector<TokenId> tokens = random_tokens(rng, config.vocab_size, kText);
        const std::vector<KvSlot> from = home_slots(kText);
        const std::vector<KvSlot> to = scattered_slots(kText, second->kv_slots());
        const auto run = [&](CpuBackend& backend, std::span<const KvSlot> slots, int begin) {
            std::vector<Row> rows;
            for (Position p = begin; p < kText; ++p)
                rows.push_back(
                    sequence_row(backend, tokens[static_cast<std::size_t>(p)], p, slots));
            std::vector<float> hidden(rows.size() * dim);
            REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
            return hidden;
        };
        const std::vector<float> want = run(*first, from, 0);
        std::vector<std::byte> bytes(first->kv_bytes());
        for (std::size_t p = 0; p < kCopied; ++p) {
            first->read_kv(from[p], bytes);
            second->write_kv(to[p], bytes);
            std::vector<std::byte> back(bytes.size());
            second->read_kv(to[p], back);
            CHECK(back == bytes);
        }
        const std::vector<float> got = run(*second, to, kCopied);
        CHECK(same_bits(got, std::span(want).subspan(kCopied * dim)));
    }
}

}  // namespace
}  // namespace paceline
