// Keys and values taken out of a device and put into another one, or into a CPU's cache.
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kText = 70;
constexpr int kCopied = 45;  // ends inside a page

std::vector<float> run(Backend& backend,
                       std::span<const TokenId> tokens,
                       std::span<const KvSlot> slots,
                       int begin) {
    std::vector<Row> rows;
    for (Position p = begin; p < static_cast<Position>(tokens.size()); ++p)
        rows.push_back(sequence_row(backend, tokens[static_cast<std::size_t>(p)], p, slots));
    std::vector<float> hidden(rows.size() * static_cast<std::size_t>(backend.config().dim));
    REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    return hidden;
}

void copy(const Backend& from,
          std::span<const KvSlot> read,
          Backend& to,
          std::span<const KvSlot> written) {
    REQUIRE(from.kv_bytes() == to.kv_bytes());
    std::vector<std::byte> bytes(from.kv_bytes());
    std::vector<std::byte> back(bytes.size());
    for (std::size_t p = 0; p < kCopied; ++p) {
        from.read_kv(read[p], bytes);
        to.write_kv(written[p], bytes);
        to.read_kv(written[p], back);
        CHECK(back == bytes);
    }
}

/// The greatest difference, as a part of the greatest number.
double difference(std::span<const float> a, std::span<const float> b) {
    REQUIRE(a.size() == b.size());
    double most = 0.0;
    double apart = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(a[i])));
        apart = std::max(apart, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    return apart / most;
}

TEST_CASE("a text continued on another device from copied slots keeps its bits") {
    std::mt19937 rng{91};
    for (const char* fixture : {"llama-q4_1", "qwen3-bf16"}) {
        const ModelFile file = open_fixture(fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kText);
        for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(static_cast<int>(kv));
            const auto first = make_cuda(file, {.kv = kv});
            const auto second = make_cuda(file, {.kv = kv});
            CHECK(first->kv_bytes() == static_cast<std::size_t>(file.config().layers) *
                                           kv_bytes_per_slot(file.config(), kv));
            const std::vector<KvSlot> from = home_slots(kText);
            const std::vector<KvSlot> to = scattered_slots(kText, second->kv_slots());
            const std::vector<float> want = run(*first, tokens, from, 0);
            copy(*first, from, *second, to);
            const std::vector<float> got = run(*second, tokens, to, kCopied);
            const auto dim = static_cast<std::size_t>(file.config().dim);
            CHECK(same_bits(got, std::span(want).subspan(kCopied * dim)));
        }
    }
}

TEST_CASE("slots travel between a CPU and a device that store them as one type") {
    std::mt19937 rng{92};
    for (const char* fixture : {"llama-f32", "qwen2-f16"}) {
        const ModelFile file = open_fixture(fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, kText);
        const std::vector<KvSlot> from = home_slots(kText);
        for (const KvType kv : {KvType::F32, KvType::F16, KvType::BF16}) {
            CAPTURE(fixture);
            CAPTURE(static_cast<int>(kv));
            const auto cpu = make_backend(file, {.kv = kv});
            const auto gpu = make_cuda(file, {.kv = kv});
            const std::vector<float> of_cpu = run(*cpu, tokens, from, 0);
            const std::vector<float> of_gpu = run(*gpu, tokens, from, 0);
            const auto cpu_went_on = make_backend(file, {.kv = kv});
            const auto gpu_went_on = make_cuda(file, {.kv = kv});
            const std::vector<KvSlot> to = scattered_slots(kText, gpu_went_on->kv_slots());
            const std::vector<KvSlot> to_cpu = scattered_slots(kText, cpu_went_on->kv_slots());
            copy(*cpu, from, *gpu_went_on, to);
            copy(*gpu, from, *cpu_went_on, to_cpu);
            // Not the bits: each rounds in ways of its own. Another order of a key's numbers, or
            // keys for values, would be off by as much as the numbers are large.
            const double usual = difference(of_cpu, of_gpu);
            const double most = 2.0 * usual + 1e-4;
            CHECK(most < 0.1);
            const auto rest = [&](const std::vector<float>& all) {
                return std::span(all).subspan(kCopied * dim);
            };
            CHECK(difference(run(*gpu_went_on, tokens, to, kCopied), rest(of_gpu)) < most);
            CHECK(difference(run(*cpu_went_on, tokens, to_cpu, kCopied), rest(of_cpu)) < most);
        }
    }
}

}  // namespace
}  // namespace paceline
