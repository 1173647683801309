// Hidden states, keys and values that lie on the device: what crosses between it and the host is
// counted by the emulated device, and memory that its own runtime did not allocate is as good as
// its own.
#include <memory>
#include <optional>
#include <vector>

#include "model/kernels/cuda/sampling/sample.hpp"
#include "tests/emulated/cuda/emulated_memory.hpp"
#include "tests/emulated/cuda/order.hpp"
#include "tests/unit/backend/place_suite.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

/// What has crossed since it was made.
class Crossed {
public:
    [[nodiscard]] std::uint64_t to_host() const {
        return cuda::emulated::traffic().bytes_to_host - before_.bytes_to_host;
    }
    [[nodiscard]] std::uint64_t to_device() const {
        return cuda::emulated::traffic().bytes_to_device - before_.bytes_to_device;
    }

private:
    cuda::emulated::Traffic before_ = cuda::emulated::traffic();
};

/// Memory that another process has exported, as its driver maps it.
struct Foreign {
    explicit Foreign(std::size_t bytes) : memory(bytes) {
        EmulatedMemory::add(memory.data(), memory.size());
    }
    ~Foreign() { EmulatedMemory::remove(memory.data()); }
    Foreign(const Foreign&) = delete;
    Foreign& operator=(const Foreign&) = delete;
    [[nodiscard]] HiddenRows rows() {
        return {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float),
                MemoryPlace::Device};
    }
    [[nodiscard]] KvBytes kv() { return {memory.data(), memory.size(), MemoryPlace::Device}; }
    std::vector<std::byte> memory;
};

constexpr std::size_t kRows = 19;

/// Two segments of a model, and a text that goes through both.
struct Chain {
    explicit Chain(const ModelFile& file)
        : row_bytes{static_cast<std::size_t>(file.config().dim) * sizeof(float)},
          first{make_cuda(file, {.last_layer = 1})},
          second{make_cuda(file, {.first_layer = 1})} {
        std::mt19937 rng{111};
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kRows);
        begin = text_rows(*first, tokens, slots);
        end = text_rows(*second, tokens, slots);
        want = states_of(*first, begin);
        REQUIRE(second->run_layers(end, want, nullptr) == RunOutcome::Done);
    }
    std::size_t row_bytes;
    std::unique_ptr<CudaBackend> first;
    std::unique_ptr<CudaBackend> second;
    std::vector<KvSlot> slots = home_slots(kRows);
    std::vector<Row> begin;
    std::vector<Row> end;
    std::vector<float> want;  // after both
};

TEST_CASE(
    "a run between device references moves no hidden state over the host, with the same bits") {
    const ModelFile file = open_fixture("llama-q4_1");
    Chain chain{file};
    const Placed rows{*chain.first, kRows};
    const Placed gathered{*chain.second, kRows};
    const Crossed crossed;
    REQUIRE(chain.first->run_layers(chain.begin, rows.memory.rows, nullptr) == RunOutcome::Done);
    Placed::gather_all(*chain.second, rows.memory.rows, gathered.memory.rows);
    REQUIRE(chain.second->run_layers(chain.end, gathered.memory.rows, nullptr) == RunOutcome::Done);
    CHECK(crossed.to_host() == 0);
    CHECK(crossed.to_device() >
          0);  // the tables of the batches: what rows see, and of which tokens
    // With references to the host the states cross twice in the second segment.
    const std::uint64_t tables = crossed.to_device();
    std::vector<float> host(chain.want.size());
    const Crossed by_host;
    REQUIRE(chain.first->run_layers(chain.begin, host, nullptr) == RunOutcome::Done);
    REQUIRE(chain.second->run_layers(chain.end, host, nullptr) == RunOutcome::Done);
    CHECK(by_host.to_host() == 2 * kRows * chain.row_bytes);
    CHECK(by_host.to_device() == tables + kRows * chain.row_bytes);
    CHECK(same_bits(host, chain.want));
    CHECK(same_bits(gathered.on_host(*chain.second), chain.want));
}

TEST_CASE("of a verified run on the device only tokens and candidates reach the host") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {});
    std::mt19937 rng{112};
    const Placed rows{*backend, random_hidden(rng, 5, file.config().dim)};
    SamplingParams params;
    params.temperature = 0.7F;
    std::vector<DrawJob> jobs;
    for (Position p = 0; p < 5; ++p) jobs.push_back({&params, p, 3});
    std::vector<std::optional<TokenId>> drawn(5);
    std::vector<std::vector<Candidate>> best(5);
    RowMemory room;
    const RowSource some[] = {{rows.memory.rows, 4}, {rows.memory.rows, 0}};
    const Crossed crossed;
    backend->draw(rows.memory.rows, jobs, drawn);
    backend->draw_candidates(HeadId::Final, rows.memory.rows, jobs, best);
    (void)backend->in_order(some, room);
    CHECK(crossed.to_host() == 5 * sizeof(std::int32_t) + 5 * sizeof(cuda::CandidateList));
    const std::vector<float> host = rows.on_host(*backend);
    std::vector<std::optional<TokenId>> want(5);
    backend->draw(host, jobs, want);
    CHECK(drawn == want);
    std::vector<std::vector<Candidate>> want_best(5);
    backend->draw_candidates(HeadId::Final, host, jobs, want_best);
    for (std::size_t i = 0; i < 5; ++i) {
        REQUIRE(best[i].size() == 3);
        for (std::size_t c = 0; c < 3; ++c) {
            CHECK(best[i][c].token == want_best[i][c].token);
            CHECK(best[i][c].log_prob == want_best[i][c].log_prob);
        }
    }
}

TEST_CASE("layers, gathers and slots read and write memory that another process exported") {
    const ModelFile file = open_fixture("llama-q4_1");
    Chain chain{file};
    Foreign sent{kRows * chain.row_bytes};
    Foreign received{kRows * chain.row_bytes};
    const Crossed crossed;
    REQUIRE(chain.first->run_layers(chain.begin, sent.rows(), nullptr) == RunOutcome::Done);
    Placed::gather_all(*chain.second, sent.rows(), received.rows());  // foreign at both ends
    REQUIRE(chain.second->run_layers(chain.end, received.rows(), nullptr) == RunOutcome::Done);
    CHECK(crossed.to_host() == 0);
    const auto* states = reinterpret_cast<const float*>(received.memory.data());
    CHECK(same_bits(std::span{states, chain.want.size()}, chain.want));
    // What is not a device's is refused, though it is called so.
    std::vector<float> plain(chain.want.size());
    const HiddenRows liar{plain.data(), plain.size(), MemoryPlace::Device};
    CHECK(cuda::contains(
        cuda::error_of([&] { (void)chain.first->run_layers(chain.begin, liar, nullptr); }),
        "not within any device memory"));
}

TEST_CASE("a slot's keys and values travel over the device alone") {
    const ModelFile file = open_fixture("qwen3-bf16");
    const auto from = make_cuda(file, {});
    const auto to = make_cuda(file, {});
    std::mt19937 rng{113};
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 40);
    const std::vector<KvSlot> slots = home_slots(40);
    const std::vector<float> want = states_of(*from, text_rows(*from, tokens, slots));
    Foreign kv{from->kv_bytes()};
    const Crossed crossed;
    for (const KvSlot slot : slots) {
        from->read_kv(slot, kv.kv());
        to->write_kv(slot, kv.kv());
    }
    CHECK(crossed.to_host() == 0);
    CHECK(crossed.to_device() == 0);
    const auto last = static_cast<std::size_t>(file.config().dim);
    CHECK(kv_of(*to, slots) == kv_of(*from, slots));
    CHECK(same_bits(states_of(*to, text_rows(*to, tokens, slots, 39)), std::span(want).last(last)));
}

TEST_CASE("rows beyond what the workspace keeps are allocated, and a full device says so") {
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = make_cuda(file, {.rows_max = 4});
    const std::uint64_t before = cuda::emulated::memory_used();
    const RowMemory kept = backend->make_rows(12);
    CHECK(cuda::emulated::memory_used() == before);
    {
        const RowMemory more = backend->make_rows(2);
        CHECK(cuda::emulated::memory_used() > before);
        CHECK(more.rows.on_device());
    }
    CHECK(cuda::emulated::memory_used() == before);
    cuda::emulated::set_memory_limit(cuda::emulated::memory_used());
    CHECK(cuda::contains(cuda::error_of([&] { (void)backend->make_rows(2); }), "2 hidden states"));
    cuda::emulated::set_memory_limit(cuda::emulated::kMemoryDefault);
}

}  // namespace
}  // namespace paceline
