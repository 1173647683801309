// What `paceline bench` measures, one case at a time.
//
//     pp512        512 tokens of a prompt, logits of the last     rate: tokens/s
//     tg128        128 tokens, one after the other                rate: tokens/s
//     b8           a batch of 8 rows with logits for every row     rate: rows/s
//     gemm8        the matrix products of such a batch alone       rate: rows/s
//     pp512 @ d2048   the same after 2048 tokens of context
//
// A batch is timed as the mean of several in a row, each writing the same KV slots.
// Owns buffers; borrows the backend. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/cpu/cpu_backend.hpp"

namespace paceline {

enum class BenchKind : std::uint8_t { Prompt, Generate, Batch, Gemm };

struct BenchCase {
    BenchKind kind = BenchKind::Prompt;
    int count = 0;  // tokens of Prompt and Generate, rows of Batch and Gemm
    int depth = 0;  // tokens in the context before

    [[nodiscard]] int positions() const { return depth + count; }  // KV slots it needs
};

/// "pp512", "b8 @ d2048"
[[nodiscard]] std::string name(const BenchCase& bench);

class BenchRunner {
public:
    explicit BenchRunner(Backend& backend);

    /// Nanoseconds of `repetitions` runs of `bench`, after one that is not counted. For Batch and
    /// Gemm: of one batch. Preconditions: the backend has bench.positions() slots; for Gemm it is a
    /// CPU's.
    std::vector<std::uint64_t> run(const BenchCase& bench, int repetitions);

private:
    void fill_context(int depth);
    void feed(Position begin, int count);  // rows at begin .. begin + count - 1, in chunks
    std::uint64_t time_once(const BenchCase& bench);

    Backend* backend_;
    CpuBackend* cpu_;  // the same; nullptr: it is on another device
    int filled_ = 0;   // positions whose keys are in the cache
    std::vector<KvSlot> slots_;
    std::vector<Row> rows_;
    std::vector<float> hidden_;
    std::vector<float> logits_;
};

}  // namespace paceline
