// The CPU backend on weights that no file has.
#include <algorithm>
#include <cmath>

#include "model/cpu/synthetic_tile.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/synthetic/synthetic_rows.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

/// Nothing is a multiple of a tile, of a group or of a block that need not be.
constexpr const char* kShape = R"(name = "ragged"
layers = 2
dim = 72
heads = 3
kv_heads = 1
head_dim = 24
ffn_dim = 100
vocab_size = 75
context_length = 64
tied_embeddings = true
qkv_bias = true
qk_norm = true
)";

ModelFile ragged(const std::string& more = {}) {
    Result<ModelFile> file = random_model("ragged", kShape + more);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
    return std::move(file).value();
}

TEST_CASE("a backend runs on synthetic weights, the same for the same seed and any threads") {
    const ModelFile file = ragged();
    const std::vector<TokenId> tokens{1, 2, 3, 74, 5};
    for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::Int8, Dtype::Q4}) {
        CAPTURE(name(dtype));
        const auto logits = [&](std::uint64_t seed, int threads) {
            const auto backend = make_backend(
                file, {.dtype = dtype, .kv_slots = 64, .threads = threads, .random = seed});
            return sequence_logits(*backend, tokens, 5);
        };
        const std::vector<float> first = logits(1, 1);
        CHECK(std::all_of(first.begin(), first.end(), [](float x) { return std::isfinite(x); }));
        CHECK(first == logits(1, 3));
        CHECK(first != logits(2, 1));
    }
}

TEST_CASE("a shape is refused where no seed says how to make its weights up") {
    const Result<std::unique_ptr<CpuBackend>> refused =
        make_cpu_backend(ragged(), {.kv_slots = 32});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::BadFile);
    CHECK(refused.error().what.find("ragged") != std::string::npos);
}

TEST_CASE("a short list of synthetic rows has the logits that they have in the whole head") {
    const ModelFile file = ragged();
    const std::vector<TokenId> list{0, 7, 17, 74};
    const auto backend = make_backend(
        file, {.dtype = Dtype::Int8, .kv_slots = 32, .heads = {{.tokens = list}}, .random = 1});
    std::vector<float> hidden(72);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = std::sin(static_cast<float>(i));
    std::vector<float> whole(75);
    std::vector<float> listed(list.size());
    backend->head(HeadId::Final, hidden, 1, whole);
    backend->head_listed(static_cast<HeadId>(1), hidden, 1, listed);
    for (std::size_t i = 0; i < list.size(); ++i)
        CHECK(listed[i] == whole[static_cast<std::size_t>(list[i])]);
}

TEST_CASE("packed synthetic rows are those that a file would have stored, in each packed type") {
    constexpr int kRows = 21;
    constexpr int kColumns = 72;
    const std::pair<PackedType, StoredType> types[] = {{PackedType::F32, StoredType::F32},
                                                       {PackedType::BF16, StoredType::BF16},
                                                       {PackedType::Int8, StoredType::Q8_0},
                                                       {PackedType::Q4, StoredType::Q4_1},
                                                       {PackedType::Q4Sym, StoredType::Q4_0}};
    for (const auto& [packed, stored] : types) {
        CAPTURE(name(packed));
        PackedMatrix matrix{packed, kRows, kColumns, nullptr};
        std::vector<std::byte> memory(matrix.bytes(), std::byte{0xFF});
        matrix.data = memory.data();
        std::vector<float> scratch(static_cast<std::size_t>(matrix.groups()) * kGroup);
        SyntheticTile tile{matrix, 7, {}};
        for (int t = 0; t < matrix.tiles(); ++t) tile.pack(t, scratch);
        const TypeTraits of = traits(stored);
        const int padded = random_row_columns(stored, kColumns);
        std::vector<std::byte> bytes(static_cast<std::size_t>(padded) / of.block_elements *
                                     of.block_bytes);
        TensorView row{"row", stored, 1, padded};
        row.data = bytes.data();
        row.bytes = bytes.size();
        std::vector<float> wanted(static_cast<std::size_t>(padded));
        std::vector<float> got(kColumns);
        for (int r = 0; r < kRows; ++r) {
            random_row(stored, 7, r, kColumns, bytes);
            dequantize_row(row, 0, wanted);
            unpack_row(matrix, r, got);
            CHECK(std::equal(got.begin(), got.end(), wanted.begin()));
        }
    }
}

}  // namespace
}  // namespace paceline
