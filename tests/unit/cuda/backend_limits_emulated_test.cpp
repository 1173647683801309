// What the CUDA backend takes of a device and of the host, to the byte, and how it behaves when
// memory or a kernel fails: counts and faults of the emulated device.
#include <cstdio>
#include <limits>

#include "model/cuda/cuda_unsupported.hpp"
#include "tests/unit/backend/spoilt_file.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test
using cuda::contains;

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

TEST_CASE("without cuBLAS exact = off is refused, and says what is missing") {
    const ModelFile file = open_fixture("llama-q4_1");
    cuda::emulated::set_blas_problem("libcublas.so.13 is not there");
    const Error error = refused(file, {.exact = false});
    cuda::emulated::set_blas_problem("");
    CHECK(error.code == Errc::Unsupported);
    CHECK(contains(error.what, "cuBLAS is needed for exact = off: libcublas.so.13 is not there"));
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

TEST_CASE("a file that is refused while it is loaded leaves no device memory allocated") {
    const SpoiltFile copy{"llama-f32"};
    Result<ModelFile> file = ModelFile::open(copy.path());
    REQUIRE(file.ok());
    (void)copy.spoil_a_vector(file.value());
    const std::uint64_t before = cuda::emulated::memory_used();
    CHECK(refused(file.value(), {}).code == Errc::BadFile);
    CHECK(cuda::emulated::memory_used() == before);
}

TEST_CASE("a batch like one before launches as many kernels, recorded or not") {
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

}  // namespace
}  // namespace paceline
