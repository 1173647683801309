#include "model/skip_set.hpp"

#include <algorithm>
#include <random>
#include <string>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

SkipSet parsed(std::string_view text, int layers) {
    Result<SkipSet> set = SkipSet::parse(text, layers);
    REQUIRE_MESSAGE(set.ok(), text);
    return set.value();
}

std::string refusal(std::string_view text, int layers) {
    const Result<SkipSet> set = SkipSet::parse(text, layers);
    REQUIRE_MESSAGE(!set.ok(), text);
    CHECK(set.error().code == Errc::BadArgument);
    return set.error().what;
}

bool names(const std::string& what, std::string_view part) {
    return what.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "the number of sub-layers of a ratio is rounded down, is at least one, and is exact for whole "
    "numbers") {
    CHECK(skipped_of(0.45, 56) == 25);  // 25.2
    CHECK(skipped_of(0.3, 56) == 16);   // 16.8
    CHECK(skipped_of(0.2, 4) == 1);
    CHECK(skipped_of(0.0, 56) == 0);
    CHECK(skipped_of(1.0, 56) == 56);
    CHECK(skipped_of(0.5, 0) == 0);
    for (int of = 1; of <= 500; ++of) {
        CAPTURE(of);
        for (int count = 0; count <= of; ++count)
            CHECK(skipped_of(static_cast<double>(count) / of, of) == count);
    }
}

TEST_CASE("a text names layers and ranges of each kind") {
    const SkipSet set = parsed("attn:1,3,5-7 mlp:2,4", 8);
    CHECK(set.layers() == 8);
    CHECK(set.count() == 7);
    for (const int attention : {1, 3, 5, 6, 7}) CHECK(set.skips(2 * attention));
    for (const int mlp : {2, 4}) CHECK(set.skips(2 * mlp + 1));
    CHECK(set.first_skipped() == 2);
    CHECK(set.text() == "attn:1,3,5-7 mlp:2,4");
    CHECK(set.strip() == "attention  .#.#.###\nMLP        ..#.#...");
}

TEST_CASE("an empty text skips nothing") {
    const SkipSet set = parsed("  ", 4);
    CHECK(set == SkipSet{4});
    CHECK(set.count() == 0);
    CHECK(set.first_skipped() == 8);
    CHECK(set.text().empty());
}

TEST_CASE("the order of the parts and of the layers does not matter") {
    CHECK(parsed("mlp:4,2 attn:3,1", 8) == parsed("attn:1,3  mlp:2,4", 8));
    CHECK(parsed("mlp:0", 8).first_skipped() == 1);
}

TEST_CASE("every set is read back from its text") {
    std::mt19937 random{7};
    for (int trial = 0; trial < 500; ++trial) {
        SkipSet set{12};
        const auto density = 1 + random() % 9;
        for (int sublayer = 0; sublayer < 24; ++sublayer) {
            set.set(sublayer, random() % 10 < density);
        }
        CHECK_MESSAGE(parsed(set.text(), 12) == set, set.text());
    }
}

TEST_CASE("a text that is not understood is refused with the part at fault") {
    CHECK(names(refusal("attn:1 ffn:2", 8), "\"ffn:2\""));
    CHECK(names(refusal("attn", 8), "list of layers is empty"));
    CHECK(names(refusal("attn:", 8), "list of layers is empty"));
    CHECK(names(refusal("attn:1 attn:2", 8), "given twice"));
    CHECK(names(refusal("attn:1,x", 8), "\"x\""));
    CHECK(names(refusal("attn:1,,2", 8), "\"\""));
    CHECK(names(refusal("attn:1,", 8), "comma"));
    CHECK(names(refusal("mlp:7-5", 8), "\"7-5\": the range ends before it begins"));
    CHECK(names(refusal("mlp:5-", 8), "\"5-\""));
    CHECK(names(refusal("mlp:-5", 8), "\"-5\""));
    CHECK(names(refusal("mlp:1-2-3", 8), "\"1-2-3\""));
    CHECK(names(refusal("mlp:99999999999", 8), "\"99999999999\""));
}

TEST_CASE("a layer that the model does not have is refused with the number of its layers") {
    CHECK(names(refusal("attn:2 mlp:5-8", 8), "\"5-8\": the model has 8 layers"));
    CHECK(names(refusal("attn:8", 8), "8 layers"));
}

TEST_CASE("a mask skips what the set skips") {
    SkipSet set{40};  // more sub-layers than a word of the mask has bits
    set.skip_layer(3);
    set.set(2 * 35 + 1, true);
    const SublayerMask mask = set.mask();
    for (int sublayer = 0; sublayer < 80; ++sublayer) {
        CHECK(mask.skips(sublayer) == set.skips(sublayer));
    }
    set.set(7, false);
    CHECK(set.count() == 2);
}

TEST_CASE("uniform skipping takes every second layer") {
    // SWIFT's start: half of the sub-layers, the first and the last layer kept.
    CHECK(SkipSet::uniform(10, 8, 1, 1).text() == "attn:1,3,5,7 mlp:1,3,5,7");
    CHECK(SkipSet::uniform(9, 8, 1, 1).text() == "attn:1,3,5,7 mlp:1,3,5,7");
}

TEST_CASE("fewer sub-layers are spread evenly, an odd one is an attention") {
    CHECK(SkipSet::uniform(18, 8, 1, 1).text() == "attn:3,7,11,15 mlp:3,7,11,15");
    CHECK(SkipSet::uniform(18, 3, 1, 1).text() == "attn:5,13 mlp:5");
}

TEST_CASE("a uniform set has exactly as many sub-layers as asked for, as long as there are any") {
    for (int layers = 2; layers < 14; ++layers) {
        for (int count = 0; count <= 2 * layers; ++count) {
            const SkipSet set = SkipSet::uniform(layers, count, 1, 1);
            CHECK(set.count() == std::min(count, 2 * (layers - 2)));
            for (const int kept : {0, 1, 2 * layers - 2, 2 * layers - 1}) CHECK(!set.skips(kept));
        }
    }
    CHECK(SkipSet::uniform(2, 4, 2, 2).count() == 0);
}
