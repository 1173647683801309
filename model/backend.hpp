// Backend: one segment of a target on one device, and the model primitive on it.
//
//     run_layers(rows, hidden)   each row's sub-layers [first, last), hidden states in and out
//     head(hidden, id)           logits of hidden states
//     run_adapter(rows, hidden)  an exit's adapter over the hidden states, if there is one
//     gather(rows, to)           copies single hidden states between memories
//     copy(from, to)             copies a block of them
//     device_sampler()           draws tokens on the device (device_sampler.hpp), if it can
//
// Hidden states, keys and values are passed as references (placed_span.hpp) to memory of the host,
// of the backend's device, or of another device that it can reach. A backend without a device
// aborts on a device reference (PACE_CHECK). A call returns after its results are written, on a
// device too (it waits for its stream), so another process may be notified at once. Inputs must not
// overlap with outputs, except for an argument that is both.
//
// Row-invariant: the bits of a row's result depend on the row, the weights and the build, not on
// the other rows, their number or the number of threads.
//
// Owns the weights and the KV cache of its segment. One call at a time; any thread may cancel a
// call, which then ends between two sub-layers. Implementations: cpu/ (kernels/cpu), cuda/
// (kernels/cuda); the tests have one in plain loops (tests/reference).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/ahead_heads.hpp"
#include "model/config.hpp"
#include "model/kv_layout.hpp"
#include "model/placed_span.hpp"
#include "model/rows.hpp"

namespace paceline {

enum class RunOutcome : std::uint8_t { Done, Cancelled };

/// Set by another thread, or by another process through a word in shared memory, to stop a job
/// before its next sub-layer. The contents of the rows' KV slots are then undefined.
class CancelToken {
public:
    /// Which rows of the call are stale by now; called between layers, by one thread.
    class RowWatch {
    public:
        RowWatch() = default;
        RowWatch(const RowWatch&) = delete;
        RowWatch& operator=(const RowWatch&) = delete;
        virtual ~RowWatch() = default;
        /// Cheap: reads shared memory. A stale row stays stale.
        [[nodiscard]] virtual bool stale(std::size_t row) const = 0;
    };
    /// A backend may skip the remaining sub-layers of stale rows: their hidden states and KV slots
    /// are then undefined. nullptr: no row gets stale. Must outlive the token's use.
    void watch_rows(const RowWatch* rows) { rows_ = rows; }
    [[nodiscard]] const RowWatch* rows() const { return rows_; }

    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    void reset() { cancelled_.store(false, std::memory_order_relaxed); }
    /// The token also counts as set once `word` has the upper half of `mark` and a greater lower
    /// half: another process has cancelled the work. nullptr: there is no such word. The word must
    /// outlive the token's use.
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
    std::atomic<bool> cancelled_{false};  // relaxed: a late stop costs a little time only
    const std::atomic<std::uint64_t>* word_ = nullptr;
    std::uint64_t mark_ = 0;
    const RowWatch* rows_ = nullptr;
};

/// Final: norm and head of the target (also as logit lens after any layer). Others: the heads
/// that a backend was given (HeadSpec), from 1 on. Adapter: its out_norm and short list, applied to
/// the output of run_adapter().
enum class HeadId : std::uint8_t { Final = 0, Adapter = 255 };

/// A head beside the final one: logits = E (T norm(h)), where E is the target's own head, cut to
/// the listed tokens. (AdaDecode, section 3: E* T^(i).)
struct HeadSpec {
    std::vector<float> transform = {};    // T, [dim, dim] row-major; empty: the identity
    std::vector<TokenId> tokens = {};     // the short list, ascending; empty: the whole vocabulary
    bool norm_first = true;               // false: logits = E (norm(T h))
    HeadBlock block = HeadBlock::Linear;  // Residual: with a transform, norm first
};

/// Memory of the device that a backend computes on, except for the last.
struct MemoryUse {
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
    std::uint64_t pinned_bytes = 0;  // of the host, for copies to and from a GPU
};

class DeviceSampler;
class FeatureSlots;

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
    /// Preconditions, checked: sub-layers inside this segment, slots inside kv_slots(), visible
    /// keys as in rows.hpp.
    virtual RunOutcome run_layers(std::span<const Row> rows,
                                  HiddenRows hidden,
                                  const CancelToken* cancel) = 0;

    /// Copies rows, in this order, to the rows of `to`; sources may lie in different memories. A
    /// gap leaves its row of `to` as it is.
    /// Preconditions: a row of config().dim in `to` for each; no source overlaps with `to`.
    virtual void gather(std::span<const RowSource> rows, HiddenRows to);
    /// Copies a block of rows. Preconditions: both have the same size, and do not overlap.
    virtual void copy(ConstHiddenRows from, HiddenRows to);
    /// Memory for `rows` hidden states where this backend computes, so that calls with it copy
    /// nothing between host and device. The backend must outlive it. Throws std::bad_alloc, or the
    /// device's exceptions.
    [[nodiscard]] virtual RowMemory make_rows(std::size_t rows);

    /// Where this backend computes, and make_rows() allocates.
    [[nodiscard]] virtual MemoryPlace memory_place() const { return MemoryPlace::Host; }
    /// `rows` rows of `memory`, which is allocated anew if it has fewer.
    [[nodiscard]] HiddenRows rows_of(RowMemory& memory, std::size_t rows);
    /// The rows as one contiguous block: in place if they are contiguous, else gathered in `room`.
    /// Precondition: none is a gap.
    [[nodiscard]] ConstHiddenRows in_order(std::span<const RowSource> rows, RowMemory& room);

    /// Logits of `rows` hidden states: final norm, then the head. `hidden` is [rows, dim],
    /// `logits` is [rows, vocab_size]; tokens that are not in the head's short list get -inf.
    /// Precondition: has_head(id).
    virtual void head(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits) = 0;

    [[nodiscard]] virtual bool has_head(HeadId id) const {
        return id == HeadId::Final && last_layer() == config().layers;
    }
    /// The tokens that a head knows, ascending; empty: the whole vocabulary.
    [[nodiscard]] virtual std::span<const TokenId> short_list(HeadId /*id*/) const { return {}; }
    /// head() for a head with a short list, for its tokens only: `logits` is
    /// [rows, short_list(id).size()].
    virtual void head_listed(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits);

    /// Draws tokens where this backend computes; nullptr: it cannot, and gives logits only.
    [[nodiscard]] virtual DeviceSampler* device_sampler() { return nullptr; }

    /// What rows read beside their tokens (feature_slots.hpp); nullptr: nothing.
    [[nodiscard]] virtual FeatureSlots* feature_slots() { return nullptr; }

    /// Whether there is an exit's adapter (adapter_spec.hpp): after the segment's last layer, or
    /// inside the segment where a target drafts for itself.
    [[nodiscard]] bool has_adapter() const { return has_head(HeadId::Adapter); }
    /// The adapter's x of each row from its hidden state at the exit; both [rows, dim], a
    /// row after the rows that it sees. The adapter's keys and values are stored under the rows'
    /// own slots, so they are complete if every row of the segment is run here. A missing key, or
    /// one of another text, makes the candidate worse and has no other effect. Row::first and last
    /// are ignored. Preconditions: has_adapter(), slots and visible keys as in rows.hpp.
    virtual RunOutcome run_adapter(std::span<const Row> rows,
                                   ConstHiddenRows hidden,
                                   HiddenRows out,
                                   const CancelToken* cancel);

    /// Bytes of one slot's keys and values over all layers of the segment; 0 if read_kv() and
    /// write_kv() are not supported.
    [[nodiscard]] virtual std::size_t kv_bytes() const { return 0; }
    /// Copies a slot's keys and values out, or in; `bytes` has kv_bytes(). Only between backends
    /// with the same layers, shape and KV type, and for slots that no running call uses.
    virtual void read_kv(KvSlot slot, KvBytes bytes) const;
    virtual void write_kv(KvSlot slot, ConstKvBytes bytes);

    [[nodiscard]] virtual MemoryUse memory_use() const = 0;
    /// Two backends with the same class give the same bits: build, weights, dtypes, ISA.
    [[nodiscard]] virtual std::string equality_class() const = 0;
};

/// Aborts where a row breaks the preconditions of run_layers(), or runs a sub-layer that was not
/// loaded (CpuOptions::skipped).
void check_row(const Backend& backend, const Row& row, const SublayerMask& skipped);
/// The part of it about the row's slot and visible keys.
void check_keys(const Backend& backend, const Row& row);
/// Errors: BadArgument if layers [first, last) are not a part of the model.
[[nodiscard]] Status check_layers(const ModelConfig& config, int first, int last);

}  // namespace paceline
