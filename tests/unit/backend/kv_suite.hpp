// Keys and values taken out of one backend and put into another: for backends with kv_bytes() > 0.
#pragma once

#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

inline constexpr int kText = 70;
inline constexpr int kCopied = 45;  // ends inside a page

/// Copies the first kCopied slots; what was written can be read again.
inline void copy_slots(const Backend& from,
                       std::span<const KvSlot> read,
                       Backend& to,
                       std::span<const KvSlot> written) {
    REQUIRE(from.kv_bytes() == to.kv_bytes());
    std::vector<std::byte> bytes(from.kv_bytes());
    std::vector<std::byte> back(bytes.size());
    for (std::size_t p = 0; p < kCopied; ++p) {
        from.read_kv(read[p], bytes);
        to.write_kv(written[p], bytes);
        to.read_kv(written[p], back);
        CHECK(back == bytes);
    }
}

TEST_CASE_TEMPLATE_DEFINE("a text continued on a second backend from copied slots keeps its bits",
                          Traits,
                          CopiedSlots) {
    std::mt19937 rng{91};
    for (const char* fixture : {"llama-q4_1", "qwen3-bf16"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kText);
        for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(name(kv));
            const auto first = Traits::make(file, {.kv = kv, .threads = 2});
            const auto second = Traits::make(file, {.kv = kv, .threads = 2});
            REQUIRE(first->kv_bytes() == static_cast<std::size_t>(file.config().layers) *
                                             kv_bytes_per_slot(file.config(), kv));
            const std::vector<KvSlot> from = home_slots(kText);
            const std::vector<KvSlot> to = scattered_slots(kText, second->kv_slots());
            const std::vector<float> want = states_of(*first, text_rows(*first, tokens, from));
            copy_slots(*first, from, *second, to);
            const std::vector<float> got =
                states_of(*second, text_rows(*second, tokens, to, kCopied));
            CHECK(same_bits(got, std::span(want).subspan(kCopied * dim)));
        }
    }
}

}  // namespace paceline::testing
