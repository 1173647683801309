// A backend on several devices has the bits of one: states, logits, keys and values, draws. On
// emulated devices, whose memories are told apart, and whose streams run as far ahead of each other
// as their waits let them.
#include <fmt/core.h>
#include <optional>
#include <string>
#include <vector>

#include "model/weights/synthetic/synthetic_model.hpp"
#include "tests/unit/backend/kv_suite.hpp"
#include "tests/unit/backend/place_suite.hpp"
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/backend/specs.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/group/group_fixture.hpp"
#include "tests/unit/cuda/stop_watches.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

TEST_CASE("two, three, four and eight devices have the bits of one, with every type of weights") {
    const EightDevices devices;
    const ModelFile file = small_model();
    for (const Dtype dtype : {Dtype::BF16, Dtype::F32, Dtype::Int8, Dtype::Q4}) {
        for (const KvType kv : {KvType::BF16, KvType::F32}) {
            if (kv == KvType::F32 && dtype != Dtype::F32) continue;  // the plain attention
            const CudaOptions options{.dtype = dtype, .kv = kv, .kv_slots = 64, .random = 1};
            const Answers want = answers_of(*make_cuda(file, options));
            for (const int count : {2, 3, 4, 8}) {
                CAPTURE(name(dtype));
                CAPTURE(count);
                check_same(answers_of(*make_cuda(file, on_devices(options, count))), want);
            }
        }
    }
}

TEST_CASE("blocks of a file are shared by their rows: mixes of types have the bits of one device") {
    const EightDevices devices;
    for (const char* type : {"q4_k_m", "q5_1", "q3_k", "mxfp4"}) {
        CAPTURE(type);
        const Result<ModelFile> file = random_model(
            "group.toml",
            fmt::format("layers = 2\ndim = 256\nheads = 16\nkv_heads = 8\nhead_dim = 16\n"
                        "ffn_dim = 256\nvocab_size = 128\ntied_embeddings = true\ntype = \"{}\"\n",
                        type));
        REQUIRE_MESSAGE(file.ok(), (file.ok() ? std::string{} : file.error().what));
        const CudaOptions options{.kv_slots = 64, .random = 1};
        const Answers want = answers_of(*make_cuda(file.value(), options));
        for (const int count : {2, 3})
            check_same(answers_of(*make_cuda(file.value(), on_devices(options, count))), want);
    }
    // Files: biases, norms of q and k, q, k and v of several types.
    for (const char* fixture :
         {"qwen2-f16", "qwen3-bf16", "llama-q4_k_m", "llama-small-blocks", "llama-q4_0"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        REQUIRE(file.config().kv_heads >= 2);
        const Answers want = answers_of(*make_cuda(file, {.kv_slots = 64}));
        for (int count = 2; count <= file.config().kv_heads; ++count) {
            CAPTURE(count);
            check_same(answers_of(*make_cuda(file, on_devices({.kv_slots = 64}, count))), want);
        }
    }
}

void check_whichever_runs_ahead(const CudaOptions& options) {
    const ModelFile file = small_model();
    const Answers want = answers_of(*make_cuda(file, options));
    for (const bool graphs : {false, true}) {
        for (const int ahead : {-1, 0, 1, 2}) {
            CAPTURE(graphs);
            CAPTURE(ahead);
            CudaOptions group = on_devices(options, 3);
            group.graphs = graphs;
            const auto backend = make_cuda(file, group);
            const LazyStreams lazy;
            cuda::emulated::set_ahead(ahead);
            check_same(answers_of(*backend), want);
            cuda::emulated::set_ahead(-1);
        }
    }
}

TEST_CASE("no device reads what another has not written yet, whichever runs ahead") {
    const EightDevices devices;
    check_whichever_runs_ahead({.kv_slots = 64, .random = 1});
}

TEST_CASE("devices that do not reach each other have the bits of one, whichever runs ahead") {
    const EightDevices devices{false};
    check_whichever_runs_ahead({.kv_slots = 64, .random = 1});
    const ModelFile file = small_model();
    const CudaOptions options{.dtype = Dtype::F32, .kv = KvType::F32, .kv_slots = 64, .random = 1};
    const Answers want = answers_of(*make_cuda(file, options));
    for (const int count : {2, 8})
        check_same(answers_of(*make_cuda(file, on_devices(options, count))), want);
}

TEST_CASE("heads' transforms and lists, an adapter and skipped sub-layers are shared too") {
    const EightDevices devices;
    const ModelFile file = small_model();
    std::mt19937 rng{392};
    HeadSpec head;
    const auto dim = static_cast<std::size_t>(file.config().dim);
    head.transform = normal_numbers(rng, dim * dim, 0.0f, 0.1f);
    for (TokenId token = 1; token < file.config().vocab_size; token += 3)
        head.tokens.push_back(token);
    HeadSpec whole = head;
    whole.tokens.clear();
    whole.norm_first = false;
    HeadSpec residual = head;
    residual.tokens.clear();
    residual.block = HeadBlock::Residual;
    CudaOptions options{
        .last_layer = 2, .kv_slots = 64, .heads = {head, whole, residual}, .random = 1};
    options.final_head = true;
    options.adapter = random_adapter(rng, file.config());
    options.skipped.skip(1);
    SublayerMask mask;
    mask.skip(1);
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kTextRows);
    const std::vector<KvSlot> slots = home_slots(kTextRows);
    const auto numbers_of = [&](CudaBackend& backend) {
        std::vector<Row> rows = text_rows(backend, tokens, slots);
        for (Row& row : rows) {
            row.last = 4;
            row.mask = &mask;
        }
        std::vector<float> all = states_of(backend, rows);
        const std::vector<float> states = all;
        std::vector<float> of_adapter(states.size());
        REQUIRE(backend.run_adapter(rows, states, of_adapter, nullptr) == RunOutcome::Done);
        append(all, of_adapter);
        for (const HeadId id : {HeadId::Final, HeadId{1}, HeadId{2}, HeadId{3}, HeadId::Adapter})
            append(all, logits_of(backend, id, id == HeadId::Adapter ? of_adapter : states));
        return all;
    };
    const std::vector<float> want = numbers_of(*make_cuda(file, options));
    for (const bool peers : {true, false}) {
        cuda::emulated::set_devices(kDevices);  // none is let into another's memory any more
        cuda::emulated::set_peers_possible(peers);
        for (const int count : {2, 3, 8}) {
            CAPTURE(count);
            CHECK(same_bits(numbers_of(*make_cuda(file, on_devices(options, count))), want));
        }
    }
}

TEST_CASE("rows that begin, end and skip where they like, and keep their states, have equal bits") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 64, .random = 1};
    const auto dim = static_cast<std::size_t>(file.config().dim);
    std::mt19937 rng{393};
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kTextRows);
    const std::vector<KvSlot> slots = home_slots(kTextRows);
    const std::vector<float> given = random_hidden(rng, kTextRows, file.config().dim);
    SublayerMask mask;
    mask.skip(2);
    SublayerMask others;  // after which some rows keep nothing
    for (const int sublayer : {0, 1, 3, 4}) others.skip(sublayer);
    const auto numbers_of = [&](CudaBackend& backend, bool keeps, bool on_device) {
        std::vector<Row> rows = text_rows(backend, tokens, slots);
        std::vector<std::vector<float>> stacks(rows.size());
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (r % 3 == 1) rows[r].first = 2;
            if (r % 4 == 3) rows[r].last = 4;
            if (r % 5 == 0) rows[r].mask = &mask;
            const int kept = rows[r].last - rows[r].first;
            stacks[r].assign(static_cast<std::size_t>(kept) * dim, 0.0f);
            if (keeps) rows[r].stack = stacks[r].data();
            if (rows[r].mask == nullptr && r % 2 == 0) rows[r].stack_mask = &others;
        }
        std::vector<float> all = given;
        if (on_device) {
            const Placed placed{backend, given};
            REQUIRE(backend.run_layers(rows, placed.memory.rows, nullptr) == RunOutcome::Done);
            all = placed.on_host(backend);
        } else {
            REQUIRE(backend.run_layers(rows, all, nullptr) == RunOutcome::Done);
        }
        for (const std::vector<float>& stack : stacks) append(all, stack);
        return all;
    };
    for (const bool keeps : {false, true}) {
        const std::vector<float> want = numbers_of(*make_cuda(file, options), keeps, false);
        for (const bool peers : {true, false}) {
            cuda::emulated::set_devices(kDevices);  // none is let into another's memory any more
            cuda::emulated::set_peers_possible(peers);
            for (const int count : {2, 8}) {
                CAPTURE(count);
                CAPTURE(keeps);
                CAPTURE(peers);
                const auto backend = make_cuda(file, on_devices(options, count));
                CHECK(same_bits(numbers_of(*backend, keeps, false), want));
                CHECK(same_bits(numbers_of(*backend, keeps, true), want));
            }
        }
    }
}

void check_slots_travel() {
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 128, .random = 1};
    const auto one = make_cuda(file, options);
    const auto group = make_cuda(file, on_devices(options, 3));
    std::mt19937 rng{394};
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kText);
    const std::vector<KvSlot> slots = home_slots(kText);
    const std::vector<float> want = states_of(*one, text_rows(*one, tokens, slots));
    copy_slots(*one, slots, *group, slots);
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto rest = std::span(want).subspan(kCopied * dim);
    CHECK(same_bits(states_of(*group, text_rows(*group, tokens, slots, kCopied)), rest));
    const auto back = make_cuda(file, on_devices(options, 8));
    cuda::DeviceMemory memory;
    cuda::set_device(0);
    REQUIRE(cuda::DeviceMemory::allocate(group->kv_bytes(), memory));
    const KvBytes bytes{memory.data(), memory.bytes(), MemoryPlace::Device};
    for (const KvSlot slot : slots) {
        group->read_kv(slot, bytes);
        back->write_kv(slot, bytes);
    }
    CHECK(kv_of(*back, slots) == kv_of(*one, slots));
}

TEST_CASE("slots travel between one device and several, over the host and over a device") {
    for (const bool peers : {true, false}) {
        CAPTURE(peers);
        const EightDevices devices{peers};
        check_slots_travel();
    }
}

TEST_CASE("a batch that is cancelled at any of its polls leaves a group that works") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 64, .random = 1};
    const Answers want = answers_of(*make_cuda(file, options));
    const auto backend = make_cuda(file, on_devices(options, 3));
    const LazyStreams lazy;
    int cancelled = 0;
    for (const int polls : {2, 9, 25, 60}) {
        CancelToken token;
        const CancelsAtPoll watch{token, polls};
        token.watch_rows(&watch);
        Text text{*backend, 8};
        if (text.run(*backend, &token) == RunOutcome::Cancelled) ++cancelled;
        check_same(answers_of(*backend), want);
    }
    CHECK(cancelled > 0);
}

TEST_CASE("a kernel that fails on any device throws, and a group made after it has the same bits") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 64, .random = 1};
    const Answers want = answers_of(*make_cuda(file, options));
    for (const int later : {0, 1, 2, 7}) {
        const auto backend = make_cuda(file, on_devices(options, 3));
        const LazyStreams lazy;
        Text text{*backend, 8};
        class Fails final : public CancelToken::RowWatch {
        public:
            explicit Fails(int after) : left_{after} {}
            [[nodiscard]] bool stale(std::size_t row) const override {
                if (row == 0 && left_-- == 0) cuda::emulated::fail_next_launch();
                return false;
            }

        private:
            mutable int left_;
        };
        CancelToken token;
        const Fails watch{later};
        token.watch_rows(&watch);
        CHECK_FALSE(cuda::error_of([&] { (void)text.run(*backend, &token); }).empty());
    }
    check_same(answers_of(*make_cuda(file, on_devices(options, 3))), want);
}

TEST_CASE(
    "a device that is lost in the middle of a batch, or before it, is noticed by whoever waits") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 64, .random = 1};
    class Loses final : public CancelToken::RowWatch {
    public:
        Loses(int device, int after) : device_{device}, left_{after} {}
        [[nodiscard]] bool stale(std::size_t row) const override {
            if (row == 0 && left_-- == 0) cuda::emulated::set_lost(device_);
            return false;
        }

    private:
        int device_;
        mutable int left_;
    };
    for (const int device : {0, 1, 2}) {
        CAPTURE(device);
        for (const int later : {0, 1, 7}) {
            const auto backend = make_cuda(file, on_devices(options, 3));
            const LazyStreams lazy;
            Text text{*backend, 8};
            CancelToken token;
            const Loses watch{device, later};
            token.watch_rows(&watch);
            CHECK_FALSE(cuda::error_of([&] { (void)text.run(*backend, &token); }).empty());
            cuda::emulated::set_lost(-1);
        }
        // Nothing is polled: a call without a token waits once.
        const auto backend = make_cuda(file, on_devices(options, 3));
        Text text{*backend, 8};
        cuda::emulated::set_lost(device);
        CHECK_FALSE(cuda::error_of([&] { (void)text.run(*backend, nullptr); }).empty());
        cuda::emulated::set_lost(-1);
    }
}

TEST_CASE("each device holds its part: what all take together is what cuda_memory() says") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const CudaOptions options{.kv_slots = 64, .random = 1};
    const MemoryUse whole = cuda_memory(file, options);
    const MemoryUse use = cuda_memory(file, on_devices(options, 4));
    CHECK(use.kv_bytes == whole.kv_bytes);
    CHECK(use.weight_bytes >= whole.weight_bytes);
    CHECK(use.weight_bytes < 2 * whole.weight_bytes);  // norms are on all
    const std::uint64_t before = cuda::emulated::memory_used();
    const auto backend = make_cuda(file, on_devices(options, 4));
    CHECK(cuda::emulated::memory_used() - before ==
          use.weight_bytes + use.kv_bytes + use.workspace_bytes);
    CHECK(backend->memory_use().weight_bytes == use.weight_bytes);
    for (int device = 0; device < 4; ++device) CHECK(cuda::emulated::memory_used(device) > 0);
    cuda::emulated::set_peers_possible(false);
    const std::uint64_t pinned_before = cuda::emulated::pinned_used();
    const auto apart = make_cuda(file, on_devices(options, 4));
    CHECK(cuda::emulated::pinned_used() - pinned_before == apart->memory_use().pinned_bytes);
    CHECK(apart->memory_use().pinned_bytes > backend->memory_use().pinned_bytes);
    CHECK(backend->equality_class() == make_cuda(file, options)->equality_class());
}

TEST_CASE("devices that cannot share a stage are refused, and the text says why") {
    const EightDevices devices;
    const ModelFile file = small_model();
    const auto says = [&](const CudaOptions& options, const char* part) {
        const Error error = refused(file, options);
        CHECK_MESSAGE(cuda::contains(error.what, part), error.what);
        return error.code;
    };
    CHECK(says({.others = {1, 0}}, "device cuda:0,cuda:1,cuda:0: cuda:0 twice") ==
          Errc::BadArgument);
    CHECK(says({.others = {1}, .exact = false}, "exact = off") == Errc::BadArgument);
    CHECK(says({.others = {1, 8}, .random = 1}, "cuda:8 is none of the 8") == Errc::System);
    const ModelFile two_heads = open_fixture("llama-f32");
    const Error many = refused(two_heads, {.others = {1, 2}});
    CHECK(many.code == Errc::Unsupported);
    CHECK_MESSAGE(cuda::contains(many.what, "3 GPUs, but the model has 2 KV heads"), many.what);
    // The second device has too little.
    const std::uint64_t before = cuda::emulated::memory_used();
    cuda::set_device(1);
    cuda::DeviceMemory taken;
    REQUIRE(cuda::DeviceMemory::allocate(1U << 20U, taken));
    cuda::emulated::set_memory_limit(1U << 20U);
    const Error full = refused(file, {.device = 1, .others = {0}, .random = 1});
    cuda::emulated::set_memory_limit(cuda::emulated::kMemoryDefault);
    CHECK(full.code == Errc::OutOfMemory);
    CHECK_MESSAGE(cuda::contains(full.what, "cuda:1 (emulated device) has 0.00 GiB free"),
                  full.what);
    CHECK(cuda::emulated::memory_used() == before + (1U << 20U));
}

}  // namespace
}  // namespace paceline
