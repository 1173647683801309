// Backend: one segment of a target on one device, and the model primitive on it.
//
//     run_layers(rows, hidden)   layers of [first, last) of each row, hidden states in and out
//     head(hidden, id)           logits of hidden states
//     draw(hidden, jobs)         the tokens that the target says, where the device can draw them
//     run_and_draw(rows, ...)    both in one go: of the rows nothing but tokens leaves the device
//     run_adapter(rows, hidden)  what an exit's adapter makes of them, if there is one
//     gather(rows, to)           hidden states copied from where they lie to where they are needed
//
// Hidden states, keys and values are named by references (placed_span.hpp): memory of the host, or
// of the device that the backend computes on, or of another that this one reaches. A backend
// without a device refuses references to one (PACE_CHECK). When a call returns, what it wrote is
// there, on a device too: its stream was waited for. So another process may be told of it at once.
// What a call reads must not overlap with what it writes, unless it is the same argument.
//
// Row-invariant: the bits of a row's result depend on the row, the weights and the build alone,
// not on the other rows, their number or the number of threads.
//
// Owns weights and KV of its segment. One call at a time; a call may be cancelled from any
// thread between two sub-layers. Implementations: cpu/ (kernels/cpu), cuda/
// (kernels/cuda), reference/ (plain loops).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/check.hpp"
#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/kv_layout.hpp"
#include "model/placed_span.hpp"
#include "model/rows.hpp"
#include "model/sampling/candidates.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

enum class RunOutcome : std::uint8_t { Done, Cancelled };

/// Raised by another thread (or by a shared cache line another process writes) to stop a job at
/// the next sub-layer border. The rows' KV slots then hold nothing that anyone may read.
class CancelToken {
public:
    /// Which rows of the call have become useless meanwhile; asked at layer borders by one thread.
    class RowWatch {
    public:
        RowWatch() = default;
        RowWatch(const RowWatch&) = delete;
        RowWatch& operator=(const RowWatch&) = delete;
        virtual ~RowWatch() = default;
        /// Cheap: a look at shared memory. A row that is stale once stays stale.
        [[nodiscard]] virtual bool stale(std::size_t row) const = 0;
    };
    /// A backend may skip what is left of stale rows: their hidden states and KV slots then hold
    /// nothing that anyone may read. nullptr: all rows matter. Must outlive the token's use.
    void watch_rows(const RowWatch* rows) { rows_ = rows; }
    [[nodiscard]] const RowWatch* rows() const { return rows_; }

    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    void reset() { cancelled_.store(false, std::memory_order_relaxed); }
    /// Also counts as raised once `word` has the upper half of `mark` and a greater lower half:
    /// another process says that the work is cancelled. nullptr: none does. The word
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
    const RowWatch* rows_ = nullptr;
};

/// Final: norm and head of the target (also as logit lens after any layer). Others: the heads
/// that a backend was given (HeadSpec), from 1 on. Adapter: what its out_norm and short list say
/// of what run_adapter() gave.
enum class HeadId : std::uint8_t { Final = 0, Adapter = 255 };

/// A head beside the final one: logits = E (T norm(h)), where E is the target's own head, cut to
/// the listed tokens. (AdaDecode, section 3: E* T^(i).)
struct HeadSpec {
    std::vector<float> transform = {};  // T, [dim, dim] row-major; empty: the identity
    std::vector<TokenId> tokens = {};   // the short list, ascending; empty: the whole vocabulary
    bool norm_first = true;             // false: logits = E (norm(T h))
};

/// What to draw after a hidden state: for the sequence position `position`.
struct DrawJob {
    const SamplingParams* params = nullptr;
    Position position = 0;
    int count = 1;  // candidates, at most
};

/// What run_and_draw() and run_and_draw_candidates() do after the layers.
struct BehindRows {
    std::span<const DrawJob> jobs = {};  // one for each row; params == nullptr: nothing is drawn
    bool hidden = false;                 // the hidden states are wanted too
};

/// Of the device that a backend computes on, but for the last.
struct MemoryUse {
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
    std::uint64_t pinned_bytes = 0;  // of the host, for what goes to a GPU and back
};

/// Breaks off where the row runs a sub-layer that its backend was not given (CpuOptions::skipped).
void check_skipped(const Row& row, const SublayerMask& skipped);

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
                                  HiddenRows hidden,
                                  const CancelToken* cancel) = 0;

    /// Copies rows, in this order, to the rows of `to`; sources may lie in different memories.
    /// Preconditions: a row of config().dim in `to` for each; no source overlaps with `to`.
    virtual void gather(std::span<const RowSource> rows, HiddenRows to);
    /// Memory for `rows` hidden states where this backend computes, so that calls that are given it
    /// copy nothing between host and device. Not to be used after the backend is gone. Throws
    /// std::bad_alloc, or what a device throws.
    [[nodiscard]] virtual RowMemory make_rows(std::size_t rows);

    /// Where make_rows() gives memory: where this backend computes.
    [[nodiscard]] virtual MemoryPlace memory_place() const { return MemoryPlace::Host; }
    /// `rows` rows of `memory`, which is made if it has fewer.
    [[nodiscard]] HiddenRows rows_of(RowMemory& memory, std::size_t rows);
    /// The rows one after the other: where they lie, if they lie so, or gathered in `room`.
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
    /// head() for a head with a short list, without the places of all other tokens: `logits` is
    /// [rows, short_list(id).size()].
    virtual void head_listed(HeadId id, ConstHiddenRows hidden, int rows, std::span<float> logits);

    /// Whether draw() and draw_candidates() can draw with such parameters.
    [[nodiscard]] virtual bool draws(const SamplingParams& /*params*/) const { return false; }
    /// The most candidates that draw_candidates() gives of a row; 0: it gives none.
    [[nodiscard]] virtual int candidates_max() const { return 0; }
    /// sample() of the final head's logits, bit for bit, drawn where they lie: of a row on a
    /// device only the token crosses. `hidden` is [jobs, dim]; nothing where no token can be drawn.
    /// Precondition: has_head(Final), draws() all of the parameters.
    virtual void draw(ConstHiddenRows hidden,
                      std::span<const DrawJob> jobs,
                      std::span<std::optional<TokenId>> tokens);
    /// candidates() of a head's logits, or listed_candidates() where it has a short list: the same
    /// tokens and the same bits of their log_prob.
    /// Precondition: has_head(id), draws() all of the parameters, counts up to candidates_max().
    virtual void draw_candidates(HeadId id,
                                 ConstHiddenRows hidden,
                                 std::span<const DrawJob> jobs,
                                 std::span<std::vector<Candidate>> best);

    /// Whether the two calls below draw where the rows are, so that a token after every row costs
    /// less than asking again. Elsewhere they do what run_layers() and draw() do, one after the
    /// other, and an unneeded head is better not asked for.
    [[nodiscard]] virtual bool draws_behind_rows() const { return false; }
    /// run_layers(), then draw() after every row with a job, in one go; bit for bit what the two
    /// calls give. tokens[r] is that of row r, and stays as it is where nothing is drawn.
    /// `hidden` is in for rows that start past sub-layer 0 and out if after.hidden; else it is left
    /// holding nothing that anyone may read, and may be empty if all rows start at 0.
    /// Cancelled: as run_layers(). Preconditions: those of run_layers() and draw().
    virtual RunOutcome run_and_draw(std::span<const Row> rows,
                                    HiddenRows hidden,
                                    const BehindRows& behind,
                                    std::span<std::optional<TokenId>> tokens,
                                    const CancelToken* cancel);
    /// The same with draw_candidates().
    virtual RunOutcome run_and_draw_candidates(HeadId id,
                                               std::span<const Row> rows,
                                               HiddenRows hidden,
                                               const BehindRows& behind,
                                               std::span<std::vector<Candidate>> best,
                                               const CancelToken* cancel);

    /// Whether there is an adapter (adapter_spec.hpp) after the segment's last layer.
    [[nodiscard]] bool has_adapter() const { return has_head(HeadId::Adapter); }
    /// The adapter's x of each row, given its hidden state after the last layer; both [rows, dim],
    /// in the order in which rows see each other. Its keys and values are kept under the rows' own
    /// slots: whoever runs every row that passes has them for every text. A key that was never
    /// put there, or that another text left, spoils the candidate and nothing else. Row::first and
    /// last do not matter. Preconditions: has_adapter(), slots and visible keys as in rows.hpp.
    virtual RunOutcome run_adapter(std::span<const Row> rows,
                                   ConstHiddenRows hidden,
                                   HiddenRows out,
                                   const CancelToken* cancel);

    /// Bytes of one slot's keys and values over all layers of the segment; 0 if they cannot be
    /// taken out and put back.
    [[nodiscard]] virtual std::size_t kv_bytes() const { return 0; }
    /// Copies a slot's keys and values out, or in; `bytes` has kv_bytes(). Only between backends
    /// of equal layers, shape and KV type. For slots that no call is using.
    virtual void read_kv(KvSlot slot, KvBytes bytes) const;
    virtual void write_kv(KvSlot slot, ConstKvBytes bytes);

    [[nodiscard]] virtual MemoryUse memory_use() const = 0;
    /// What must be equal for two backends to give equal bits: build, weights, dtypes, ISA.
    [[nodiscard]] virtual std::string equality_class() const = 0;

private:
    /// Rows that something is drawn after, with their hidden states one after the other.
    struct Drawn {
        std::vector<std::size_t> rows = {};
        std::vector<DrawJob> jobs = {};
        RowMemory hidden = {};
    };
    RunOutcome run_and_gather(std::span<const Row> rows,
                              HiddenRows hidden,
                              const BehindRows& behind,
                              const CancelToken* cancel,
                              std::size_t places,
                              Drawn& drawn);
};

}  // namespace paceline
