// Variants as values: their words, and which of them the wave kernel is compiled for.
#include "model/kernels/cuda/variants.hpp"

#include <string>

#include <doctest/doctest.h>

#include "model/kernels/cuda/gemm_choice.hpp"
#include "model/kernels/cuda/variant_words.hpp"

namespace paceline::cuda {
namespace {

std::string problem_of(const char* list) {
    const Result<Variants> parsed = parse_variants(list);
    return parsed ? std::string{} : parsed.error().what;
}

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

TEST_CASE("each switch and all of them have a name that is parsed to them") {
    for (const NamedVariants& named : kNamedVariants) {
        CAPTURE(named.name);
        const Result<Variants> parsed = parse_variants(named.name);
        REQUIRE(parsed.ok());
        CHECK(parsed.value() == named.variants);
        CHECK_FALSE(parsed.value() == Variants{});
        const Result<Variants> again = parse_variants(variants_text(named.variants));
        if (named.name == "all") continue;
        CHECK(variants_text(named.variants) == named.name);
        REQUIRE(again.ok());
        CHECK(again.value() == named.variants);
    }
    CHECK(variants_text(kAllVariants) == "early-launch,finish-ahead");
    CHECK(variants_text({}) == "base");
}

TEST_CASE("a list of words switches each of them on") {
    const Result<Variants> parsed = parse_variants("finish-ahead,early-launch,finish-ahead");
    REQUIRE(parsed.ok());
    CHECK(variants_text(parsed.value()) == "early-launch,finish-ahead");
    CHECK(parse_variants(variants_text(kAllVariants)).value() == kAllVariants);
}

TEST_CASE("an unknown word is refused by name, with the allowed ones") {
    for (const char* list : {"finish-ahed", "early-launch,finish-ahed", "finish-ahed,all"}) {
        CAPTURE(list);
        const std::string problem = problem_of(list);
        CHECK(has(problem, "'finish-ahed'"));
        for (const NamedVariants& named : kNamedVariants)
            CHECK(has(problem, std::string{named.name}.c_str()));
    }
    CHECK(has(problem_of(""), "unknown variant ''"));
    CHECK(has(problem_of("early-launch,"), "unknown variant ''"));
}

TEST_CASE("the wave kernel has the code of a variant in waves of up to 16 rows, else the base") {
    for (const NamedVariants& named : kNamedVariants) {
        CAPTURE(named.name);
        const WaveCode code = wave_code(named.variants);
        CHECK(loads_finish_ahead(code) == named.variants.finish_ahead);
        for (const WeightType type :
             {WeightType::F32, WeightType::BF16, WeightType::Int8, WeightType::Q4}) {
            for (const int rows : {1, 8, 9, 16, 17, 64, 65}) {
                CAPTURE(static_cast<int>(type));
                CAPTURE(rows);
                DeviceMatrix matrix;
                matrix.type = type;
                matrix.outputs = 4096;
                const GemmChoice base = choose_gemm(matrix, {rows, 132});
                const GemmChoice choice = choose_gemm(matrix, {rows, 132, named.variants});
                const bool decodes = type != WeightType::F32 && rows <= 16;
                CHECK(choice.code == (decodes ? code : WaveCode::Base));
                CHECK(choice.early_launch == (named.variants.early_launch && choice.tile == 0));
                CHECK(base.code == WaveCode::Base);
                CHECK_FALSE(base.early_launch);
                CHECK(choice.row_tiles == base.row_tiles);
                CHECK(choice.tiles == base.tiles);
                CHECK(choice.groups == base.groups);
                CHECK(choice.tile == base.tile);
            }
        }
    }
}

}  // namespace
}  // namespace paceline::cuda
