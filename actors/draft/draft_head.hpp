// DraftHead: the head of a draft's model: candidates after rows of a pass.
//
// Where the device draws tokens, candidates are drawn there, with the layers in one wait if each
// row is asked about once. Else the logits come to the host, where candidates are the most probable
// tokens, or siblings are drawn. The draft's vocabulary may be smaller than the target's or padded:
// tokens that the target does not have are never proposed.
// Borrows the backend. One thread at a time: the job of a pass.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "actors/decoding/drawn_siblings.hpp"
#include "ipc/base/ids.hpp"
#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

struct DraftHeadOptions {
    HeadId head = HeadId::Final;
    int vocab_size = 0;        // the target's; ids from here on are never proposed
    int shared_tokens = 0;     // ids below this are in both vocabularies; 0: all of them
    Chance* chance = nullptr;  // of draws, for tests; nullptr: the counter-based generator
};

/// A row of a pass whose next tokens are wanted, and what they are after the pass.
struct PassHead {
    const SamplingParams* sampling = nullptr;  // of its text
    std::size_t row = 0;                       // in the pass
    Position position = 0;
    TokenId token = 0;
    int count = 1;
    int draw_top = 0;                // of its text; 0 for a node whose children were drawn before
    std::vector<TokenId> seen = {};  // what the penalties may look at
    std::vector<Candidate> candidates = {};
    DrawnSiblingsPtr drawn = nullptr;
};

class DraftHead {
public:
    /// The backend has the head.
    DraftHead(Backend& backend, const DraftHeadOptions& options);

    [[nodiscard]] HeadId id() const { return options_.head; }
    /// Whether the device can draw all candidates where it computes the `rows` of the pass.
    [[nodiscard]] bool draws_with_layers(std::span<const PassHead> heads, std::size_t rows) const;
    /// Layers and candidates. Precondition: draws_with_layers().
    RunOutcome run_and_draw(std::span<const Row> rows,
                            std::span<PassHead> heads,
                            const CancelToken* cancel);
    /// The candidates of all heads. `hidden`: of the pass's rows, after the layers.
    void give_candidates(const RowMemory& hidden, std::span<PassHead> heads);

private:
    [[nodiscard]] bool device_draws(std::span<const PassHead> heads) const;
    bool draw_candidates(std::span<PassHead> heads, ConstHiddenRows hidden);
    void give(const RowMemory& hidden, std::span<PassHead> heads);
    void take_drawn(PassHead& head, std::vector<Candidate> drawn) const;
    [[nodiscard]] std::vector<Candidate> candidates_of(const PassHead& head,
                                                       std::span<float> logits);
    [[nodiscard]] std::span<float> target_logits(std::span<float> logits);
    void draw_siblings_of(PassHead& head, std::span<float> logits);

    static constexpr std::size_t kHeadsAtOnce = 8;  // bounds the logits that are held

    Backend& backend_;
    DraftHeadOptions options_;
    RowMemory hidden_;                     // [heads at once, dim]
    std::vector<float> logits_;            // [heads at once, the model's vocabulary]
    std::size_t vocab_both_ = 0;           // ids below it may be proposed
    std::span<const TokenId> short_list_;  // of the head, if the target has all of it; or empty
    std::vector<float> target_row_;        // [the target's vocabulary] if logits are fewer
    SamplerScratch scratch_;
};

}  // namespace paceline
