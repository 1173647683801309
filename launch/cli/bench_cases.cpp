#include "launch/cli/bench_cases.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <numeric>

namespace paceline {

namespace {

constexpr int kChunkRows = 512;
// A batch of one row lasts some milliseconds: too short to be timed alone beside timer ticks.
constexpr int kBatchesPerSample = 8;

std::uint64_t nanoseconds_since(std::chrono::steady_clock::time_point begin) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now() - begin)
                                          .count());
}

}  // namespace

std::string name(const BenchCase& bench) {
    const char* prefix = "pp";
    switch (bench.kind) {
        case BenchKind::Prompt:
            prefix = "pp";
            break;
        case BenchKind::Generate:
            prefix = "tg";
            break;
        case BenchKind::Batch:
            prefix = "b";
            break;
        case BenchKind::Gemm:
            prefix = "gemm";
            break;
    }
    std::string text = prefix + std::to_string(bench.count);
    if (bench.depth > 0) text += fmt::format(" @ d{}", bench.depth);
    return text;
}

BenchRunner::BenchRunner(Backend& backend)
    : backend_{&backend},
      cpu_{dynamic_cast<CpuBackend*>(&backend)},
      slots_(static_cast<std::size_t>(backend.kv_slots())) {
    std::iota(slots_.begin(), slots_.end(), 0);
}

void BenchRunner::feed(Position begin, int count) {
    const int dim = backend_->config().dim;
    for (int done = 0; done < count; done += kChunkRows) {
        const int chunk = std::min(kChunkRows, count - done);
        rows_.clear();
        for (int i = 0; i < chunk; ++i) {
            const Position position = begin + done + i;
            // Any tokens will do, as long as they are spread over the embedding table.
            const auto token =
                static_cast<TokenId>((static_cast<std::uint64_t>(position) * 7919 + 31) %
                                     static_cast<std::uint64_t>(backend_->config().vocab_size));
            rows_.push_back({.token = token,
                             .position = position,
                             .slot = position,
                             .prefix_slots = slots_.data(),
                             .prefix_count = position + 1,
                             .first = 0,
                             .last = backend_->config().sublayers()});
        }
        hidden_.resize(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(dim));
        backend_->run_layers(rows_, hidden_, nullptr);
    }
}

void BenchRunner::fill_context(int depth) {
    if (filled_ < depth) feed(filled_, depth - filled_);
    // What a case writes after its context is overwritten by the next: only `depth` stays.
    filled_ = depth;
}

std::uint64_t BenchRunner::time_once(const BenchCase& bench) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    const auto vocab = static_cast<std::size_t>(backend_->config().vocab_size);
    const auto head_of_last = [&](int rows) {
        const std::size_t begin = hidden_.size() - static_cast<std::size_t>(rows) * dim;
        logits_.resize(static_cast<std::size_t>(rows) * vocab);
        backend_->head(HeadId::Final, std::span{hidden_}.subspan(begin), rows, logits_);
    };
    const auto begin = std::chrono::steady_clock::now();
    switch (bench.kind) {
        case BenchKind::Prompt:
            feed(bench.depth, bench.count);
            head_of_last(1);
            break;
        case BenchKind::Generate:
            for (int i = 0; i < bench.count; ++i) {
                feed(bench.depth + i, 1);
                head_of_last(1);
            }
            break;
        case BenchKind::Batch:
            for (int i = 0; i < kBatchesPerSample; ++i) {
                feed(bench.depth, bench.count);
                head_of_last(bench.count);
            }
            return nanoseconds_since(begin) / kBatchesPerSample;
        case BenchKind::Gemm: {
            PACE_CHECK(cpu_ != nullptr, "matrix products alone are timed on a CPU");
            double seconds = 0.0;
            for (int i = 0; i < kBatchesPerSample; ++i)
                seconds += cpu_->gemm_only_seconds(bench.count);
            return static_cast<std::uint64_t>(seconds / kBatchesPerSample * 1e9);
        }
    }
    return nanoseconds_since(begin);
}

std::vector<std::uint64_t> BenchRunner::run(const BenchCase& bench, int repetitions) {
    fill_context(bench.depth);
    (void)time_once(bench);
    std::vector<std::uint64_t> samples;
    for (int i = 0; i < repetitions; ++i) samples.push_back(time_once(bench));
    return samples;
}

}  // namespace paceline
