// Fuzzes the decoder of a batch's frame. A frame is decoded exactly if the ring's rule allows its
// length, and what decodes has the same frame again.
#include <algorithm>

#include "ipc/wire/batch_frame.hpp"
#include "ipc/wire/data_kinds.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    msg::Batch batch{.epoch = Epoch{random.below(9)}, .tensor = random.below(8)};
    batch.parts.resize(1 + random.below(kBatchPartsMax));
    batch.rows.resize(1 + random.below(random.below(4) == 0 ? kBatchRowsMax : 8));
    for (msg::BatchRow& row : batch.rows) row.token = static_cast<TokenId>(random.below(1000));
    if (random.below(2) == 0) {
        batch.draws.resize(random.below(kVerifyRowsMax + 1));
        batch.drawn_tokens.resize(random.below(100));
    }
    FuzzBytes input;
    for (const std::byte byte : msg::frame_of(batch))
        input.push_back(std::to_integer<std::uint8_t>(byte));
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span<const std::byte> frame = std::as_bytes(std::span{data, size});
    const bool allowed = allows(kBatchRule, frame);
    const Result<msg::Batch> batch = msg::decode_batch(frame);
    PACE_CHECK(batch.ok() == allowed, "the ring's rule and the decoder do not agree");
    if (!batch.ok()) {
        PACE_CHECK(batch.error().code == Errc::Protocol, "another error than it promises");
        return 0;
    }
    const std::vector<std::byte> again = msg::frame_of(batch.value());
    PACE_CHECK(std::equal(again.begin(), again.end(), frame.begin(), frame.end()),
               "not the same again");
    return 0;
}
