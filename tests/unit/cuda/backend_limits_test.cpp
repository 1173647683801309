// What the CUDA backend refuses, what it takes of the device, and how it comes through faults.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>
#include <unistd.h>

#include "model/cuda/cuda_refusals.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::contains;

Error refused(const ModelFile& file, CudaOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 64;
    const Result<std::unique_ptr<CudaBackend>> backend = make_cuda_backend(file, options);
    REQUIRE_FALSE(backend.ok());
    return backend.error();
}

std::uint64_t all_of(const MemoryUse& use) {
    return use.weight_bytes + use.kv_bytes + use.workspace_bytes;
}

/// What has to be free: recordings come later, and are counted beforehand.
std::uint64_t needed(const ModelFile& file, CudaOptions options) {
    if (options.last_layer < 0) options.last_layer = file.config().layers;
    const std::uint64_t bytes = device_bytes(options, cuda_memory(file, options));
    CHECK(bytes > all_of(cuda_memory(file, options)));
    return bytes;
}

/// Sets how much memory is free; all of it again at the end.
class FreeMemory {
public:
    explicit FreeMemory(std::uint64_t bytes) {
        cuda::emulated::set_memory_limit(cuda::emulated::memory_used() + bytes);
    }
    ~FreeMemory() { cuda::emulated::set_memory_limit(cuda::emulated::kMemoryDefault); }
    FreeMemory(const FreeMemory&) = delete;
    FreeMemory& operator=(const FreeMemory&) = delete;
};

struct Text {
    std::vector<KvSlot> slots;
    std::vector<Row> rows;
    std::vector<float> hidden;

    Text(const Backend& backend, Position count)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        for (Position p = 0; p < count; ++p)
            rows.push_back(sequence_row(backend, 1 + p % 100, p, slots));
        hidden.resize(rows.size() * static_cast<std::size_t>(backend.config().dim));
    }
    RunOutcome run(Backend& backend, const CancelToken* cancel = nullptr) {
        return backend.run_layers(rows, hidden, cancel);
    }
};

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

TEST_CASE("without cuBLAS exact = off is refused, and says what is missing") {
    const ModelFile file = open_fixture("llama-q4_1");
    cuda::emulated::set_blas_problem("libcublas.so.13 is not there");
    const Error error = refused(file, {.exact = false});
    cuda::emulated::set_blas_problem("");
    CHECK(error.code == Errc::Unsupported);
    CHECK(contains(error.what, "cuBLAS is needed for exact = off: libcublas.so.13 is not there"));
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
    const Error error = refused(open_fixture("llama-f32"), {.device = 3});
    CHECK(error.code == Errc::System);
    CHECK_MESSAGE(contains(error.what, "3"), error.what);
}

TEST_CASE("what cuda_memory() says is what is taken, to the byte, and enough") {
    std::mt19937 rng{81};
    for (const char* fixture : {"llama-q4_1", "llama-untied-f16", "qwen3-bf16", "llama-f32"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const CudaOptions many[] = {
            {.kv_slots = 300},
            {.kv = KvType::F32, .kv_slots = 70, .rows_max = 5},
            {.kv_slots = 300, .rows_max = 200},
            {.first_layer = 1, .kv_slots = 64, .heads = {{.tokens = {1, 2, 9}}, {}}},
            {.dtype = Dtype::Int8, .last_layer = 1, .kv_slots = 33, .final_head = true},
        };
        for (const CudaOptions& options : many) {
            const std::uint64_t before = cuda::emulated::memory_used();
            const std::uint64_t pinned_before = cuda::emulated::pinned_used();
            const MemoryUse use = cuda_memory(file, options);
            CHECK(cuda::emulated::memory_used() == before);
            const FreeMemory just_enough{needed(file, options)};
            const auto backend = make_cuda(file, options);
            CHECK(cuda::emulated::memory_used() - before == all_of(use));
            CHECK(all_of(backend->memory_use()) == all_of(use));
            CHECK(cuda::emulated::pinned_used() - pinned_before == use.pinned_bytes);
            CHECK(backend->memory_use().pinned_bytes == use.pinned_bytes);
            Text text{*backend, 30};  // takes nothing more
            if (options.first_layer == 0) CHECK(text.run(*backend) == RunOutcome::Done);
            CHECK(cuda::emulated::memory_used() - before == all_of(use));
        }
    }
}

TEST_CASE("a device with too little memory is refused before any is taken, and the text says why") {
    const ModelFile file = open_fixture("llama-untied-f16");
    const CudaOptions options{.first_layer = 1, .kv_slots = 1 << 19};
    const std::uint64_t before = cuda::emulated::memory_used();
    const std::uint64_t all = needed(file, options);
    const FreeMemory little{all - 1};
    const Error error = refused(file, options);
    CHECK(error.code == Errc::OutOfMemory);
    CHECK(cuda::emulated::memory_used() == before);
    char free_text[64];
    std::snprintf(free_text, sizeof free_text, "%.2f GiB free",
                  static_cast<double>(all - 1) / static_cast<double>(1ULL << 30U));
    char wanted[64];
    std::snprintf(wanted, sizeof wanted, "need %.2f GiB",
                  static_cast<double>(all) / static_cast<double>(1ULL << 30U));
    for (const std::string part :
         {"cuda:0", "emulated device", "layers [1, 3)", "keys and values", "workspace",
          "recordings", "-c", "--dtype", static_cast<const char*>(free_text),
          static_cast<const char*>(wanted)}) {
        CHECK_MESSAGE(contains(error.what, part), error.what);
    }
}

TEST_CASE("a host that has nothing to pin is told so, not that the device is small") {
    const ModelFile file = open_fixture("llama-untied-f16");
    const std::size_t before = cuda::emulated::memory_used();
    CudaOptions options;
    options.progress = [](double loaded) {
        if (loaded >= 1.0) cuda::emulated::set_pinned_limit(0);  // from here on
    };
    const Error error = refused(file, options);
    cuda::emulated::set_pinned_limit(std::numeric_limits<std::size_t>::max());
    CHECK(error.code == Errc::OutOfMemory);
    CHECK_MESSAGE(contains(error.what, "to pin"), error.what);
    CHECK(cuda::emulated::memory_used() == before);
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

TEST_CASE("a kernel that fails throws what it was, and what is made after it works") {
    const ModelFile file = open_fixture("llama-f32");
    for (const bool graphs : {false, true}) {
        const auto backend = make_cuda(file, {.graphs = graphs});
        Text text{*backend, 9};
        cuda::emulated::fail_next_launch();
        const std::string error = cuda::error_of([&] { (void)text.run(*backend); });
        CHECK_MESSAGE(contains(error, "failed as a test asked for"), error);
        std::vector<float> logits(static_cast<std::size_t>(file.config().vocab_size));
        const auto state =
            std::span(text.hidden).first(static_cast<std::size_t>(file.config().dim));
        cuda::emulated::fail_next_launch();
        CHECK_FALSE(
            cuda::error_of([&] { backend->head(HeadId::Final, state, 1, logits); }).empty());
        const auto anew = make_cuda(file, {.graphs = graphs});
        CHECK(text.run(*anew) == RunOutcome::Done);
    }
}

TEST_CASE("a call that is cancelled before it begins runs no kernel, and the next one is whole") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {});
    Text want{*backend, 30};
    REQUIRE(want.run(*backend) == RunOutcome::Done);
    Text text{*backend, 30};
    CancelToken cancel;
    cancel.cancel();
    const std::uint64_t before = cuda::emulated::launches();
    CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
    CHECK(cuda::emulated::launches() == before);
    cancel.reset();
    CHECK(text.run(*backend, &cancel) == RunOutcome::Done);
    CHECK(same_bits(text.hidden, want.hidden));
}

TEST_CASE("a call that is cancelled while it runs stops early, and the next one is whole") {
    const ModelFile file = open_fixture("llama-q4_1");
    for (const auto& [rows_max, count] : {std::pair{2, 120}, {70, 200}}) {
        CAPTURE(rows_max);
        const auto backend = make_cuda(file, {.rows_max = rows_max});
        Text want{*backend, count};
        const std::uint64_t begin = cuda::emulated::launches();
        REQUIRE(want.run(*backend) == RunOutcome::Done);
        const std::uint64_t whole = cuda::emulated::launches() - begin;
        Text text{*backend, count};
        CancelToken cancel;
        const std::uint64_t before = cuda::emulated::launches();
        std::jthread other{[&] {
            while (cuda::emulated::launches() < before + 5) std::this_thread::yield();
            cancel.cancel();
        }};
        const RunOutcome outcome = text.run(*backend, &cancel);
        other.join();
        CHECK(outcome == RunOutcome::Cancelled);
        CHECK(cuda::emulated::launches() - before >= 5);
        CHECK(cuda::emulated::launches() - before < whole);
        Text again{*backend, count};
        CHECK(again.run(*backend) == RunOutcome::Done);
        CHECK(same_bits(again.hidden, want.hidden));
    }
}

/// Raises a token when it is asked the nth time about row 0.
class RaisesAfter final : public CancelToken::RowWatch {
public:
    RaisesAfter(CancelToken& token, int asks) : token_{token}, asks_{asks} {}
    [[nodiscard]] bool dead(std::size_t row) const override {
        if (row == 0 && --asks_ == 0) token_.cancel();
        return false;
    }

private:
    CancelToken& token_;
    mutable int asks_;
};

TEST_CASE("a single wave of 200 rows that is cancelled while it runs is stopped on the device") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {.rows_max = 256});
    Text want{*backend, 200};
    REQUIRE(want.run(*backend) == RunOutcome::Done);
    cuda::emulated::set_lazy(true);  // a look at the stream for each kernel
    for (const int asks : {1, 5, 12}) {
        Text text{*backend, 200};
        CancelToken cancel;
        const RaisesAfter watch{cancel, asks};
        cancel.watch_rows(&watch);
        CHECK(text.run(*backend, &cancel) == RunOutcome::Cancelled);
        Text again{*backend, 200};
        CHECK(again.run(*backend) == RunOutcome::Done);
        CHECK(same_bits(again.hidden, want.hidden));
    }
    cuda::emulated::set_lazy(false);
}

TEST_CASE("an adapter's call that was cancelled before it begins says so") {
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    AdapterSpec adapter;
    adapter.heads = adapter.kv_heads = 1;
    adapter.head_dim = file.config().head_dim;
    adapter.attn_norm.assign(dim, 1.0f);
    adapter.out_norm.assign(dim, 1.0f);
    adapter.q.assign(static_cast<std::size_t>(adapter.head_dim) * dim, 0.01f);
    adapter.k = adapter.v = adapter.attn_out = adapter.q;
    const auto backend = make_cuda(file, {.adapter = adapter});
    const Text text{*backend, 3};
    std::vector<float> out(text.hidden.size());
    CancelToken cancel;
    cancel.cancel();
    CHECK(backend->run_adapter(text.rows, text.hidden, out, &cancel) == RunOutcome::Cancelled);
    CHECK(backend->run_adapter(text.rows, text.hidden, out, nullptr) == RunOutcome::Done);
}

/// A copy of a fixture in which a tensor's second float becomes NaN when the test says so.
class SpoiltFile {
public:
    explicit SpoiltFile(const std::string& fixture) {
        const std::string from = fixtures() + "/models/" + fixture + ".gguf";
        path_ = std::filesystem::temp_directory_path() /
                ("paceline-cuda-limits-" + std::to_string(getpid()) + ".gguf");
        std::filesystem::copy_file(from, path_, std::filesystem::copy_options::overwrite_existing);
    }
    ~SpoiltFile() { std::filesystem::remove(path_); }
    SpoiltFile(const SpoiltFile&) = delete;
    SpoiltFile& operator=(const SpoiltFile&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

    void spoil(const TensorView& tensor) const {
        std::ifstream in{path_, std::ios::binary};
        const std::string bytes{std::istreambuf_iterator<char>{in}, {}};
        const std::string wanted(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
        const std::size_t at = bytes.find(wanted);
        REQUIRE(at != std::string::npos);
        const float nan = std::numeric_limits<float>::quiet_NaN();
        std::fstream out{path_, std::ios::binary | std::ios::in | std::ios::out};
        out.seekp(static_cast<std::streamoff>(at + sizeof nan));
        out.write(reinterpret_cast<const char*>(&nan), sizeof nan);
    }

private:
    std::filesystem::path path_;
};

TEST_CASE("a norm or a bias that became NaN behind the loader's back is BadFile, by name") {
    for (const char* fixture : {"llama-f32", "qwen2-f16"}) {
        const SpoiltFile copy{fixture};
        Result<ModelFile> file = ModelFile::open(copy.path());
        REQUIRE(file.ok());
        const LayerTensors& layer = file.value().layer(1);
        const bool has_bias = layer.k_bias.has_value();
        const TensorView& tensor = has_bias ? *layer.k_bias : layer.ffn_norm;
        REQUIRE(tensor.type == StoredType::F32);
        copy.spoil(tensor);
        const std::uint64_t before = cuda::emulated::memory_used();
        const Error error = refused(file.value(), {});
        CHECK(error.code == Errc::BadFile);
        CHECK_MESSAGE(contains(error.what, tensor.name + " element 1 is not a finite"), error.what);
        CHECK(cuda::emulated::memory_used() == before);
    }
}

TEST_CASE("a wave like one before launches as many kernels, recorded or not") {
    const ModelFile file = open_fixture("llama-q4_1");
    for (const int count : {1, 8, 9, 64, 100}) {
        CAPTURE(count);
        std::uint64_t launched[2][2] = {};
        for (const bool graphs : {false, true}) {
            const auto backend = make_cuda(file, {.graphs = graphs});
            for (std::uint64_t& of_call : launched[graphs ? 1 : 0]) {
                Text text{*backend, count};
                const std::uint64_t before = cuda::emulated::launches();
                REQUIRE(text.run(*backend) == RunOutcome::Done);
                of_call = cuda::emulated::launches() - before;
            }
        }
        // Embedding, making ready, then a layer's six, eight where norms have kernels of their own.
        const std::uint64_t of_layer = count > cuda::kFusedNormRows ? 8 : 6;
        const auto want = 2 + of_layer * static_cast<std::uint64_t>(file.config().layers);
        for (const auto& of_kind : launched) {
            CHECK(of_kind[0] == want);
            CHECK(of_kind[1] == want);
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
    for (const int wave : {8, 9, 17, 33, 1, 40}) {
        CAPTURE(wave);
        CHECK(same_bits(sequence_logits(*recorded, tokens, wave), want));
    }
}

}  // namespace
}  // namespace paceline
