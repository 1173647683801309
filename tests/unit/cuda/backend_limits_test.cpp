// What the CUDA backend refuses, the last page of its cache, and which recordings it replays.
#include "model/cuda/cuda_unsupported.hpp"
#include "tests/unit/backend/spoilt_file.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::contains;

TEST_CASE("options out of range are refused with field and value in the text") {
    const ModelFile file = open_fixture("llama-q4_1");
    const std::pair<CudaOptions, const char*> wrong[] = {
        {{.first_layer = -1}, "layers [-1, 2)"},
        {{.first_layer = 1, .last_layer = 1}, "layers [1, 1)"},
        {{.last_layer = 3}, "layers [0, 3) are not a part of the model's 2 layers"},
        {{.kv_slots = -5}, "kv_slots = -5, must be at least 1"},
        {{.rows_max = 0}, "rows_max = 0, must be 1 to 1024"},
        {{.rows_max = 1025}, "rows_max = 1025, must be 1 to 1024"},
        {{.heads = {{.tokens = {4, 4}}}}, "heads[0].tokens[1] = 4, must be above"},
        {{.adapter = AdapterSpec{}}, "adapter.head_dim = 0"},
    };
    for (const auto& [options, part] : wrong) {
        CAPTURE(part);
        const Error error = refused(file, options);
        CHECK(error.code == Errc::BadArgument);
        CHECK_MESSAGE(contains(error.what, part), error.what);
    }
}

TEST_CASE("an adapter with more query heads per KV head than kernels take is refused when made") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    AdapterSpec adapter;
    adapter.heads = 17;
    adapter.kv_heads = 1;
    adapter.head_dim = file.config().head_dim;
    const auto head_dim = static_cast<std::size_t>(adapter.head_dim);
    adapter.attn_norm.assign(dim, 1.0f);
    adapter.out_norm.assign(dim, 1.0f);
    adapter.q.assign(17 * head_dim * dim, 0.0f);
    adapter.attn_out = adapter.q;
    adapter.k.assign(head_dim * dim, 0.0f);
    adapter.v = adapter.k;
    const Error error = refused(file, {.adapter = adapter});
    CHECK(error.code == Errc::Unsupported);
    CHECK_MESSAGE(contains(error.what, "17 query heads per KV head"), error.what);
}

TEST_CASE("a device that does not exist is refused") {
    const Error error = refused(open_fixture("llama-f32"), {.device = 99});
    CHECK(error.code == Errc::System);
    CHECK_MESSAGE(contains(error.what, "99"), error.what);
}

TEST_CASE("a text may fill the last page of slots, where kv_slots ends within it") {
    const ModelFile file = open_fixture("llama-f32");
    for (const int rows_max : {1, 64}) {
        const auto backend = make_cuda(file, {.kv_slots = 100, .rows_max = rows_max});
        REQUIRE(backend->kv_slots() == 128);
        Text text{*backend, 128};
        CHECK(text.run(*backend) == RunOutcome::Done);
    }
}

TEST_CASE("a norm or a bias that becomes NaN after the file was opened is BadFile, by name") {
    for (const char* fixture : {"llama-f32", "qwen2-f16"}) {
        const SpoiltFile copy{fixture};
        Result<ModelFile> file = ModelFile::open(copy.path());
        REQUIRE(file.ok());
        const std::string name = copy.spoil_a_vector(file.value());
        const Error error = refused(file.value(), {});
        CHECK(error.code == Errc::BadFile);
        CHECK_MESSAGE(contains(error.what, name + " element 1 is not a finite"), error.what);
    }
}

TEST_CASE("a scale of a block or a weight that is not finite is BadFile, by tensor and row") {
    for (const char* fixture :
         {"llama-f32", "qwen2-f16", "llama3-bf16", "mistral-q8_0", "llama-q4_0", "llama-q4_1"}) {
        for (const Dtype dtype : {Dtype::Auto, Dtype::F32, Dtype::BF16, Dtype::Int8, Dtype::Q4}) {
            CAPTURE(fixture);
            const SpoiltFile copy{fixture};
            Result<ModelFile> file = ModelFile::open(copy.path());
            REQUIRE(file.ok());
            const std::string name = copy.spoil_a_matrix(file.value());
            const Error error = refused(file.value(), {.dtype = dtype});
            CHECK(error.code == Errc::BadFile);
            const std::string wanted =
                '"' + name + "\" holds a number that is not finite, in row 3";
            CHECK_MESSAGE(contains(error.what, wanted), error.what);
        }
    }
}

TEST_CASE("a recording of short contexts is not replayed for long ones, nor the other way round") {
    std::mt19937 rng{82};
    const ModelFile file = open_fixture("llama-f32");
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 132);
    const auto plain = make_cuda(file, {.graphs = false});
    const std::vector<float> want = sequence_logits(*plain, tokens, 7);
    const auto recorded = make_cuda(file, {});
    for (int round = 0; round < 2; ++round) {
        CHECK(same_bits(sequence_logits(*recorded, tokens, 7), want));
    }
}

TEST_CASE("a recording for few rows is not replayed for more") {
    std::mt19937 rng{83};
    const ModelFile file = open_fixture("llama-q4_1");
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 40);
    const auto plain = make_cuda(file, {.graphs = false});
    const std::vector<float> want = sequence_logits(*plain, tokens, 40);
    const auto recorded = make_cuda(file, {});
    for (const int batch : {8, 9, 17, 33, 1, 40}) {
        CAPTURE(batch);
        CHECK(same_bits(sequence_logits(*recorded, tokens, batch), want));
    }
}

}  // namespace
}  // namespace paceline
