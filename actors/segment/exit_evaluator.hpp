// ExitEvaluator: evaluates the hidden states at an exit: which tokens may follow. Used by
// EarlyVerify.
//
//     loop   plan()            which rows of a part it evaluates, and the text before each
//     job    evaluate()           head and candidates, with the request's own parameters and noise
//     loop   candidates_of(), early() what follows from it, if the tree still holds the rows
//
// sends (FOLD):          root - a - b          the batch's rows, and after each the best tokens
//                          |    |   +- x y     that are not there yet
//                          |    +- x y
//                          +- x y
// early (AdaDecode):     root - a - b - x      after the newest row, if the head is sure of x
// ahead (appendix E):    root - x - y          after a verdict, from heads that look further
//
// Its candidates are compared with the committed text, and an exit that costs more than it gains is
// not evaluated (account/exit_worth.hpp): the loop calls wanted() before each batch.
//
// Owns memory for adapted hidden states. Threads: one job at a time; the loop and the job touch
// different members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/account/exit_worth.hpp"
#include "actors/decoding/exit_record.hpp"
#include "actors/decoding/head_candidates.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/segment/exit_options.hpp"
#include "actors/segment/watermark_watch.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

struct ExitRow {
    std::size_t row = 0;  // of evaluate()'s hidden states: at first BatchRow::tensor_row
    NodeId node;
    Position position = 0;
    std::vector<TokenId> path = {};    // below the root, down to this row's own token
    int wanted = 0;                    // candidates
    bool newest = false;               // nothing is proposed after it yet
    std::vector<Candidate> best = {};  // the job's answer
};

/// What an exit evaluates of one request's rows in a run.
struct ExitPart {
    std::shared_ptr<RequestState> state = nullptr;
    std::span<const TokenId> committed = {};  // the text up to and including the root
    std::vector<ExitRow> rows = {};
    std::optional<WatermarkWatch::Part> watermark =
        std::nullopt;  // where the job learns what is decided
};

/// What the heads of the last layer evaluate after a verdict.
struct AheadPart {
    std::shared_ptr<RequestState> state = nullptr;
    std::span<const TokenId> committed = {};          // with what the verdict committed
    ConstHiddenRows hidden = {};                      // of WalkResult::last_row; borrowed
    std::vector<std::vector<Candidate>> levels = {};  // the job's answer
};

class ExitEvaluator {
public:
    /// `options` are valid, and the backend has their heads.
    ExitEvaluator(Backend& backend, ExitOptions options);

    [[nodiscard]] const ExitOptions& options() const { return options_; }

    /// The rows of a verify part to be evaluated: all of them if candidates are sent, else the
    /// newest; may be none.
    [[nodiscard]] ExitPart plan(const std::shared_ptr<RequestState>& state,
                                std::span<const msg::BatchRow> rows) const;
    /// Drops rows whose next token has been committed meanwhile; called first by evaluate().
    static void drop_decided(ExitPart& part);
    /// `rows` are those of the hidden states, and go through the adapter if the exit has one;
    /// otherwise they do not matter.
    void evaluate(std::span<ExitPart> parts, ConstHiddenRows hidden, std::span<const Row> rows);
    void evaluate(std::span<AheadPart> parts);

    [[nodiscard]] bool has_adapter() const { return options_.head == HeadId::Adapter; }

    /// Whether it is to evaluate the batch that comes now.
    [[nodiscard]] bool wanted() const { return worth_.pays(); }
    void take(const msg::Price& price) { worth_.take(price); }
    void forget_price() { worth_.forget_price(); }
    [[nodiscard]] double extra_us() const { return worth_.extra_us(); }
    /// Keeps the candidates until the committed text shows which were right.
    void remember(const ExitPart& part);
    void remember(const AheadPart& part);
    /// The request's text has grown.
    void learn(const RequestState& state);
    /// ExitWorth::spent() for the parts remembered since, which share the time.
    void spent(double micros, bool delayed);

    /// The proposal for draft and correct; nothing if all rows are stale. The caller fills in
    /// Route::epoch, here and below.
    [[nodiscard]] std::optional<msg::Proposal> candidates_of(const ExitPart& part) const;
    /// The token to start at the first layer at once; nothing if its probability is below the gate.
    [[nodiscard]] std::optional<msg::Proposal> early(const ExitPart& part) const;
    [[nodiscard]] std::optional<msg::Proposal> ahead(const AheadPart& part) const;

private:
    /// A node of the tree of heads that look ahead.
    struct AheadToken {
        std::int16_t parent = msg::kBelowRoot;  // its place in the list
        Candidate candidate = {};
    };

    [[nodiscard]] std::vector<AheadToken> tokens_of(const AheadPart& part) const;
    [[nodiscard]] static std::vector<AheadToken> product_of(const AheadPart& part);
    [[nodiscard]] std::vector<AheadToken> fixed_tree_of(const AheadPart& part) const;
    [[nodiscard]] bool starts_early(const ExitPart& part, const ExitRow& row) const;
    [[nodiscard]] std::vector<Candidate> news(const TokenTree& tree, const ExitRow& row) const;

    Backend& backend_;
    ExitOptions options_;
    std::vector<int> ahead_counts_ = {};  // tokens of each head that looks ahead
    HeadCandidates candidates_;
    RowMemory adapted_;  // [rows, dim]: what the adapter made of the hidden states
    ExitWorth worth_;    // this one and the next two are the loop's
    ExitRecord book_;
    std::size_t rows_caused_ = 0;       // that others are to run for what was remembered,
    std::size_t parts_remembered_ = 0;  // of so many parts
};

}  // namespace paceline
