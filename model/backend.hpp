// Backend: one segment of a target on one device, and the model primitive on it.
//
//     run_layers(rows, hidden)   layers of [first, last) of each row, hidden states in and out
//     head(hidden, id)           logits of hidden states
//
// Row-invariant: the bits of a row's result depend on the row, the weights and the build alone,
// not on the other rows, their number or the number of threads.
//
// Owns weights and KV of its segment. One call at a time; a call may be cancelled from any
// thread between two sub-layers. Implementations: cpu/ (kernels/cpu), reference/ (plain loops).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/rows.hpp"

namespace paceline {

enum class KvType : std::uint8_t { F32, F16, BF16 };

enum class RunOutcome : std::uint8_t { Done, Cancelled };

/// Raised by another thread (or by a shared cache line another process writes) to stop a job at
/// the next sub-layer border. The rows' KV slots then hold nothing that anyone may read.
class CancelToken {
public:
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    void reset() { cancelled_.store(false, std::memory_order_relaxed); }
    /// Also counts as raised once `word` has the upper half of `mark` and a greater lower half:
    /// somebody outside this process says that the work is void. nullptr: nobody does. The word
    /// must outlive the token's use.
    void watch(const std::atomic<std::uint64_t>* word, std::uint64_t mark) {
        word_ = word;
        mark_ = mark;
    }
    [[nodiscard]] bool cancelled() const {
        if (cancelled_.load(std::memory_order_relaxed)) return true;
        if (word_ == nullptr) return false;
        const std::uint64_t word = word_->load(std::memory_order_relaxed);
        return word > mark_ && (word >> 32U) == (mark_ >> 32U);
    }

private:
    std::atomic<bool> cancelled_{false};  // relaxed: a late stop is only a little wasted work
    const std::atomic<std::uint64_t>* word_ = nullptr;
    std::uint64_t mark_ = 0;
};

enum class HeadId : std::uint8_t { Final = 0 };

struct MemoryUse {
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
};

class Backend {
public:
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    virtual ~Backend() = default;

    [[nodiscard]] virtual const ModelConfig& config() const = 0;
    [[nodiscard]] virtual int first_layer() const = 0;  // the segment holds layers [first, last)
    [[nodiscard]] virtual int last_layer() const = 0;
    [[nodiscard]] virtual std::int32_t kv_slots() const = 0;  // slots 0 .. kv_slots()-1 exist

    /// Runs every row's sub-layers. `hidden` is [rows, dim] float32: in for rows that start
    /// past sub-layer 0 (rows that start at 0 are embedded here), out for all.
    /// Preconditions: sub-layers inside this segment, slots inside kv_slots(), visible keys as
    /// in rows.hpp; breaking one aborts.
    virtual RunOutcome run_layers(std::span<const Row> rows,
                                  std::span<float> hidden,
                                  const CancelToken* cancel) = 0;

    /// Logits of `rows` hidden states: final norm, then the head. `hidden` is [rows, dim],
    /// `logits` is [rows, vocab_size].
    virtual void head(HeadId id,
                      std::span<const float> hidden,
                      int rows,
                      std::span<float> logits) = 0;

    [[nodiscard]] virtual MemoryUse memory_use() const = 0;
    /// What must be equal for two backends to give equal bits: build, weights, dtypes, ISA.
    [[nodiscard]] virtual std::string equality_class() const = 0;
};

}  // namespace paceline
