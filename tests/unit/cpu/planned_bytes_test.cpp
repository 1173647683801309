// Planned bytes of a segment: its heads and its adapter are counted, to the byte.
#include <cmath>

#include "model/weights/lora.hpp"
#include "tests/unit/backend/specs.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"
#include "tests/unit/weights/lora_builder.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr const char* kFixtures[] = {"llama-q4_1", "llama-untied-f16", "llama-f32"};

TEST_CASE("planned bytes of a segment count its heads") {
    std::mt19937 rng{65};
    for (const char* fixture : kFixtures) {
        const ModelFile file = open_fixture(fixture);
        std::uint64_t before = 0;
        const std::vector<std::vector<HeadSpec>> lists = {
            {}, {{.tokens = {3, 4, 8}}}, all_heads(rng, file.config())};
        for (const std::vector<HeadSpec>& heads : lists) {
            CpuOptions options{.last_layer = 1, .heads = heads};
            const auto backend = make_backend(file, options);
            const std::uint64_t bytes = backend->memory_use().weight_bytes;
            CHECK(bytes == packed_bytes(file, options));
            CHECK(bytes > before);
            before = bytes;
        }
    }
}

TEST_CASE("planned bytes of a segment count its adapter, with a short list and without") {
    std::mt19937 rng{76};
    for (const char* fixture : kFixtures) {
        const ModelFile file = open_fixture(fixture);
        CpuOptions options{.last_layer = 1, .adapter = random_adapter(rng, file.config())};
        CHECK(make_backend(file, options)->memory_use().weight_bytes ==
              packed_bytes(file, options));
        options.adapter->tokens.clear();
        const auto whole = make_backend(file, options);
        CHECK(whole->memory_use().weight_bytes == packed_bytes(file, options));
        CHECK(whole->short_list(HeadId::Adapter).empty());
        const std::vector<float> x = random_hidden(rng, 1, file.config().dim);
        for (const float logit : logits_of(*whole, HeadId::Adapter, x)) CHECK(std::isfinite(logit));
    }
}

TEST_CASE("planned bytes of a merged target count the types that its matrices come to") {
    for (const char* fixture : kFixtures) {
        const test::TestFolder folder;
        const std::string path = (folder.path() / "lora.safetensors").string();
        const ModelFile plain = open_fixture(fixture);
        test::lora_of(plain, {.only = {"blk.0.attn_q", "blk.1.ffn_down"}}).write(path);
        const ModelFile merged = merge_lora(open_fixture(fixture), path).value();
        const CpuOptions options{};
        const std::uint64_t bytes = make_backend(merged, options)->memory_use().weight_bytes;
        CHECK(bytes == packed_bytes(merged, options));
        const bool four_bits = plain.layer(0).q.type == StoredType::Q4_1;
        CHECK((bytes > packed_bytes(plain, options)) == four_bits);
    }
}

}  // namespace
}  // namespace paceline
